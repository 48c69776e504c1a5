"""What grows with the reviews: preparing up to ten million, and the life of a model after training.

    python benchmarks/scale.py prepare --sizes 10000 100000 1000000 3000000 10000000 --out results/scale.jsonl
    python benchmarks/scale.py upkeep --out results/scale.jsonl
    python benchmarks/scale.py ray --sizes 1000000 --out results/scale.jsonl
    python benchmarks/scale.py open --corpus CORPUS --copies 10 --out results/scale.jsonl
    python benchmarks/scale.py fit --sizes 10000 30000 100000 300000 --out results/scale.jsonl

`prepare` reads reviews that yelp_shaped.py makes up, and leaves out those that are not of 2016 or 2017. `upkeep` trains
on all reviews of Musical Instruments but 1,000, puts these in by `carp update`, five times into copies of the model of
which the median counts, and forgets the person who wrote most. Each command has one thread, and finds the bytecode that
Python keeps after the first start of an installation, wherever this benchmark runs.
`ray` compares preparing on a Ray cluster of this machine alone with the plain command. `open` trains the tuned biases
on a corpus, which keeps all its reviews and documents as every model does, and opens the saved model in a new process,
and with --copies one that is so many copies of the last, with people and things of their own. `fit` fits `meeting`, the
default model, to corpora of so many reviews.
Processor seconds are what counts on a machine that others use too.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import carp
import prepare
import yelp_shaped
from model_copies import write_copies

Line = dict[str, Any]
YELP16_17 = ["--since", "2016-01-01", "--until", "2017-12-31"]
NEW = 1_000  # reviews that come in
TIMES = 5  # of a command whose median counts
START = "from carp.cli import entry; ending = entry.begin_process(); import carp.recommender; ending.code = 0"


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


OPENING = """
import json, os, resource, sys, time
import carp, carp.recommender
def used():
    now = resource.getrusage(resource.RUSAGE_SELF)
    return now.ru_utime + now.ru_stime
def memory():  # without files that are mapped
    return int(open("/proc/self/status").read().split("RssAnon:")[1].split()[0]) * 1024
memories = {"start": memory()}
before, began = used(), time.perf_counter()
model = carp.load(sys.argv[1], device="cpu")
opened, clock = used() - before, time.perf_counter() - began
memories["open"] = memory()
person, thing = model.fitted_corpus.users[0], model.fitted_corpus.items[0]
before = used()
model.predict([(person, thing)])
model.recommend(person, n=10)
answered, memories["answer"] = used() - before, memory()
seconds = {"open": opened, "answer": answered, "open_by_the_clock": clock}
print(json.dumps({"reviews": len(model.fitted_corpus.user), "seconds": seconds, "memory": memories}))
"""


def opened(corpus: Path, within: Path | None, copies: int = 1) -> list[Line]:
    """Training and opening a model of a corpus: processor seconds, and the memory that is not a file's.

    With copies, a model that is so many copies of it is opened too.
    """
    with tempfile.TemporaryDirectory(dir=within) as name:
        model, larger = Path(name) / "model", Path(name) / "larger"
        train = [sys.executable, "-m", "carp", "train", str(corpus), "--out", str(model), "--model", "bias"]
        trained, trained_memory, _ = watched([*train, "--device", "cpu", "--quiet"])
        lines = [_opened(model)]
        training = {"part": "train", "reviews": lines[0]["reviews"], "train_seconds": round(trained, 1)}
        lines.append(training | {"train_memory": trained_memory})
        if copies > 1:
            write_copies(model, copies, larger)
            lines.append(_opened(larger) | {"copies": copies})
    return lines


def fitted(sizes: list[int], within: Path | None) -> list[Line]:
    """Fitting `meeting` to so many reviews: processor seconds, and the most memory that is not a file's."""
    lines = []
    for size in sizes:
        with tempfile.TemporaryDirectory(dir=within) as name:
            folder = Path(name)
            yelp_shaped.write_reviews(folder / "reviews.json", size)
            here = [sys.executable, "-m", "carp"]
            used([*here, "prepare", str(folder / "reviews.json"), "--out", str(folder / "corpus"), *YELP16_17])
            train = [*here, "train", str(folder / "corpus"), "--out", str(folder / "model"), "--model", "meeting"]
            took, memory, _ = watched([*train, "--device", "cpu", "--quiet"])
            reviews = len(carp.Corpus.load(folder / "corpus").rating)
            size_of = sum(file.stat().st_size for file in (folder / "model").iterdir())
        line = {"part": "fit", "model": "meeting", "reviews": reviews, "processor_seconds": round(took, 1)}
        lines.append(line | {"memory": memory, "model_bytes": size_of})
        prepare.say(json.dumps(lines[-1]))
    return lines


def _opened(model: Path) -> Line:
    size = sum(file.stat().st_size for file in model.iterdir())
    line = {"part": "open", "model_bytes": size}
    line |= json.loads(watched([sys.executable, "-c", OPENING, str(model)])[2])
    prepare.say(json.dumps(line))
    return line


def watched(command: list[str]) -> tuple[float, int, str]:
    """Processor seconds of a command, the most memory of its own that it had at once, and what it said."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    most = 0
    while process.poll() is None:
        with contextlib.suppress(OSError, IndexError):  # it may end meanwhile
            facts = Path(f"/proc/{process.pid}/status").read_text()
            most = max(most, int(facts.split("RssAnon:")[1].split()[0]) * 1024)
        time.sleep(0.1)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if process.returncode or process.stdout is None:
        raise SystemExit(f"{' '.join(command[:4])} ended with exit code {process.returncode}")
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return used, most, process.stdout.read()


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
        os.environ["PYTHONPYCACHEPREFIX"] = str(folder / "bytecode")
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        _start(
            "import carp.cli.train_command, carp.models.carp, carp.models.meeting, carp.training.loop, carp.recommender"
        )
        random.Random(0).shuffle(reviews)
        for file, some in (("old.json", reviews[NEW:]), ("new.json", reviews[:NEW])):
            (folder / file).write_text("".join(json.dumps(one) + "\n" for one in some))
        seconds("prepare", folder / "old.json", "--out", folder / "corpus", "--min-reviews", "1")
        person = Counter(str(one["reviewerID"]) for one in reviews).most_common(1)[0][0]
        found = {model: _life(folder, model, person) for model in ("carp", "meeting")}
    about = {"part": "upkeep", "reviews": len(reviews), "new": NEW}
    return [{**about, "model": model, **figures} for model, figures in found.items()]


def _life(folder: Path, name: str, person: str) -> Line:
    """Processor seconds of each step, and the shares of an update in the training, whole and without the start."""
    model, copy, here = folder / name, folder / "copy", ("--device", "cpu")
    line = {"train": seconds("train", folder / "corpus", "--out", model, "--model", name, "--quiet", *here)}
    updates = []
    for _ in range(1 + TIMES):  # the first one leaves its bytecode to the others
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(model, copy)
        updates.append(seconds("update", copy, folder / "new.json", *here))
    line["update"] = statistics.median(updates[1:])
    line["forget"] = seconds("forget", copy, "--user", person, *here)
    line["start"] = _start(START)  # is in each of the others
    line["start_of_torch"] = _start("import torch")  # is in the start
    figures = {step: round(value, 2) for step, value in line.items()}
    shares = {"whole": line["update"] / line["train"]}
    shares["without_start"] = (line["update"] - line["start"]) / (line["train"] - line["start"])
    found: Line = {"processor_seconds": figures, "share": {way: round(value, 3) for way, value in shares.items()}}
    prepare.say(json.dumps({"model": name, **found}))
    return found


def _start(code: str) -> float:
    return statistics.median(used([sys.executable, "-c", code]) for _ in range(TIMES))


def seconds(*words: object) -> float:
    """Processor seconds of the command `carp` as it is typed.

    By `python -m carp` Python 3.11 was seen to ask the system for 16 kB and give them back 18,000 times while torch is
    imported, which took 0.08 s: its stack grows in pieces, and a loop happened to lie at the end of one.
    """
    return used([str(Path(sys.executable).with_name("carp")), *map(str, words)])


def used(command: list[str]) -> float:
    """Processor seconds of a command with one thread."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["prepare", "upkeep", "ray", "open", "fit"])
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000, 1_000_000, 3_000_000, 10_000_000])
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="where the temporary files lie")
    parser.add_argument("--last-corpus", type=Path, help="where the corpus of the last size is kept (prepare)")
    parser.add_argument("--corpus", type=Path, nargs="+", default=[], help="what carp prepare made (open)")
    parser.add_argument(
        "--copies", type=int, default=1, help="open so many copies of the last corpus' model too (open)"
    )
    parser.add_argument("--out", type=Path, default=Path("results/scale.jsonl"))
    given = parser.parse_args()
    if given.part == "open":
        copies = [1] * (len(given.corpus) - 1) + [given.copies]
        pairs = zip(given.corpus, copies, strict=True)
        lines = [line for corpus, count in pairs for line in opened(corpus, given.folder, count)]
    elif given.part == "prepare":
        lines = prepared(given.sizes, given.cores, given.folder, given.last_corpus)
    elif given.part == "fit":
        lines = fitted(given.sizes, given.folder)
    else:
        lines = on_ray(given.sizes, given.cores, given.folder) if given.part == "ray" else upkeep()
    from carp.bench.cells import current_commit

    about: Line = {"command": f"python benchmarks/scale.py {given.part}", "commit": current_commit()}
    about |= {"cores": os.cpu_count()}
    about |= {"load_average": round(os.getloadavg()[0], 1), "date": time.strftime("%Y-%m-%d")}
    before = given.out.read_text().splitlines() if given.out.exists() else []
    anew = {line["part"] for line in lines}
    kept = [line for line in before if json.loads(line)["part"] not in anew]
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text("\n".join([*kept, *(json.dumps({**line, **about}) for line in lines)]) + "\n")


if __name__ == "__main__":
    main()
