"""What grows with the reviews: preparing up to ten million, and the life of a model after training.

    python benchmarks/scale.py prepare --sizes 10000 100000 1000000 3000000 10000000 --out results/scale.jsonl
    python benchmarks/scale.py upkeep --out results/scale.jsonl
    python benchmarks/scale.py ray --sizes 1000000 --out results/scale.jsonl

`prepare` reads reviews that yelp_shaped.py makes up, and leaves out those that are not of 2016 or 2017. `upkeep` trains
on all reviews of Musical Instruments but 1,000, puts these in by `carp update`, and forgets the person who wrote most.
`ray` compares preparing on a Ray cluster of this machine alone with the plain command. Processor seconds are what
counts on a machine that others use too.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import prepare
import yelp_shaped

Line = dict[str, Any]
YELP16_17 = ["--since", "2016-01-01", "--until", "2017-12-31"]
NEW = 1_000  # reviews that come in


def prepared(sizes: list[int], cores: int, within: Path | None, kept: Path | None = None) -> list[Line]:
    """Preparing so many reviews each. The corpus of the last size stays at the place `kept`."""
    lines = []
    for size in sizes:
        with tempfile.TemporaryDirectory(dir=within) as folder:
            file = Path(folder) / "reviews.json"
            yelp_shaped.write_reviews(file, size)
            found = prepare.run("ours", file, size, Path(folder), cores, YELP16_17)
            if kept is not None and size == sizes[-1]:
                shutil.move(Path(folder) / "corpus-ours", kept)
        lines.append({"part": "prepare", **found})
        prepare.say(json.dumps(lines[-1]))
    return lines


def on_ray(sizes: list[int], cores: int, within: Path | None) -> list[Line]:
    """Processor seconds of preparing with the engine ray and without, and whether the corpora are the same."""
    lines = []
    for size in sizes:
        with tempfile.TemporaryDirectory(dir=within) as name:
            folder = Path(name)
            file = folder / "reviews.json"
            yelp_shaped.write_reviews(file, size)
            used_by, sums = {}, set()
            for engine in ("here", "ray"):
                out = folder / engine
                command = [sys.executable, "-m", "carp", "prepare", str(file), "--out", str(out), "--engine", engine]
                used_by[engine] = used_by_family([*command, *YELP16_17], cores)
                sums.add(json.loads((out / "corpus.json").read_text())["fingerprint"])
                shutil.rmtree(out)
        ratio = used_by["ray"] / used_by["here"]
        seconds_of = {engine: round(value, 2) for engine, value in used_by.items()}
        line = {"part": "ray", "reviews": size, "processor_seconds": seconds_of, "ratio": round(ratio, 3)}
        lines.append({**line, "same": len(sums) == 1})
        prepare.say(json.dumps(lines[-1]))
    return lines


def used_by_family(command: list[str], cores: int) -> float:
    """Processor seconds of a command and of all processes that it starts, waited for or not."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    os.sched_setaffinity(process.pid, sorted(os.sched_getaffinity(0))[:cores])
    seen: dict[int, float] = {}
    while process.poll() is None:
        for member in prepare.family(process.pid):
            with contextlib.suppress(OSError):
                fields = Path(f"/proc/{member}/stat").read_text().rpartition(")")[2].split()
                seen[member] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        time.sleep(0.2)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with exit code {process.returncode}")
    return sum(seen.values())


def upkeep() -> list[Line]:
    """Processor seconds of training, of an update and of forgetting, each as the command that a user types."""
    with tempfile.TemporaryDirectory() as name:
        folder, reviews = Path(name), prepare.real_reviews()
        random.Random(0).shuffle(reviews)
        for file, some in (("old.json", reviews[NEW:]), ("new.json", reviews[:NEW])):
            (folder / file).write_text("".join(json.dumps(one) + "\n" for one in some))
        corpus, model = folder / "corpus", folder / "model"
        seconds("prepare", folder / "old.json", "--out", corpus, "--min-reviews", "1")
        line = {"train": seconds("train", corpus, "--out", model, "--model", "carp", "--device", "cpu", "--quiet")}
        line["update"] = seconds("update", model, folder / "new.json", "--device", "cpu")
        person = Counter(str(one["reviewerID"]) for one in reviews).most_common(1)[0][0]
        line["forget"] = seconds("forget", model, "--user", person, "--device", "cpu")
        line["start"] = used([sys.executable, "-c", "import carp.recommender"])  # is in each of the others
    figures = {name: round(value, 2) for name, value in line.items()}
    return [{"part": "upkeep", "reviews": len(reviews), "new": NEW, "processor_seconds": figures}]


def seconds(*words: object) -> float:
    return used([sys.executable, "-m", "carp", *map(str, words)])


def used(command: list[str]) -> float:
    """Processor seconds of a command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["prepare", "upkeep", "ray"])
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000, 1_000_000, 3_000_000, 10_000_000])
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="where the temporary files lie")
    parser.add_argument("--last-corpus", type=Path, help="where the corpus of the last size is kept (prepare)")
    parser.add_argument("--out", type=Path, default=Path("results/scale.jsonl"))
    given = parser.parse_args()
    if given.part == "prepare":
        lines = prepared(given.sizes, given.cores, given.folder, given.last_corpus)
    else:
        lines = on_ray(given.sizes, given.cores, given.folder) if given.part == "ray" else upkeep()
    from carp.bench.cells import current_commit

    about: Line = {"command": f"python benchmarks/scale.py {given.part}", "commit": current_commit()}
    about |= {"cores": os.cpu_count()}
    about |= {"load_average": round(os.getloadavg()[0], 1), "date": time.strftime("%Y-%m-%d")}
    before = given.out.read_text().splitlines() if given.out.exists() else []
    kept = [line for line in before if json.loads(line)["part"] != given.part]
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text("\n".join([*kept, *(json.dumps({**line, **about}) for line in lines)]) + "\n")


if __name__ == "__main__":
    main()
