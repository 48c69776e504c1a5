"""`carp prepare` on a Yelp-sized input: reviews a second end to end, and memory of all its processes together.

    python benchmarks/prepare.py --out results/prepare.jsonl
    python benchmarks/prepare.py --growth --out results/prepare-growth.jsonl

The input repeats the reviews of Musical Instruments (../shared/data, or $CARP_DATA; the made-up shop where there is
none) with users and items of their own in each copy: 1.2 million reviews by 167,000 users of 105,000 items, which is
the shape of Yelp. Beside it stands the straightforward form: one process that holds all reviews in memory and cuts
text after text with a regular expression. Both make the same corpus, which is checked on the smaller input.

Memory is sampled from /proc: PSS counts a page that several processes share once, RSS counts it in each of them.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from source_tree import ROOT, SOURCE

SIZE = 1_200_000
SLICE = 100_000
GROWTH = (10_000, 30_000, 100_000, 300_000, SIZE)
SAMPLE_SECONDS = 0.05
Line = dict[str, Any]


def say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


# ---- the input


def real_reviews() -> list[Line]:
    folder = Path(os.environ.get("CARP_DATA") or ROOT.parent / "shared" / "data")
    file = folder / "reviews_Musical_Instruments_5.json.gz"
    if file.is_file():
        with gzip.open(file) as lines:
            return [json.loads(line) for line in lines]
    import carp

    say(f"there is no {file}: the made-up shop is repeated instead")
    return carp.make_shop().records()


def repeated(reviews: Sequence[Line], size: int) -> Iterator[Line]:
    user, item = ("reviewerID", "asin") if "asin" in reviews[0] else ("user", "item")
    for number in range(size):
        copy, place = divmod(number, len(reviews))
        review = reviews[place]
        yield {**review, user: f"{review[user]}-{copy}", item: f"{review[item]}-{copy}"}


def write_input(path: Path, size: int) -> None:
    import msgspec

    reviews, encode = real_reviews(), msgspec.json.Encoder().encode
    with gzip.open(path, "wb", 6) if path.suffix == ".gz" else path.open("wb") as file:
        for review in repeated(reviews, size):
            file.write(encode(review) + b"\n")


# ---- the straightforward form


def straightforward(file: Path, out: Path) -> None:
    """Read everything, cut one text after the other, then save."""
    import numpy as np

    from carp.reviews.corpora import word_columns
    from carp.reviews.corpora.corpus import build_corpus
    from carp.reviews.corpora.dataset_statistics import dataset_statistics
    from carp.reviews.sources.formats import read_reviews
    from carp.reviews.text.tokens import Tokens, tokenise

    def one_by_one(texts: Sequence[bytes]) -> Tokens:
        places: dict[str, int] = {}
        tokens: list[int] = []
        begins: list[int] = []
        ends: list[int] = []
        offsets = [0]
        for text in texts:
            words, starts, stops = tokenise(text.decode())
            tokens += [places.setdefault(word, len(places)) for word in words]
            begins += starts
            ends += stops
            offsets.append(len(tokens))
        lengths = (np.array(ends, np.int64) - np.array(begins, np.int64)).astype(np.uint8)
        return Tokens(list(places), np.array(offsets), np.array(tokens, np.int32), np.array(begins, np.int32), lengths)

    vars(word_columns)["tokenise_bytes"] = one_by_one
    reviews = read_reviews(file)
    made = build_corpus(reviews)
    dataset_statistics(made)
    made.save(out, ledger=reviews.ledger)


# ---- measuring


def family(process: int) -> list[int]:
    found = [process]
    try:
        for thread in Path(f"/proc/{process}/task").iterdir():
            children = (thread / "children").read_text().split()
            found += [member for child in children for member in family(int(child))]
    except OSError:  # it ended meanwhile
        pass
    return found


def memory(process: int) -> tuple[int, int]:
    """PSS and RSS of one process in bytes."""
    try:
        facts = Path(f"/proc/{process}/smaps_rollup").read_text()
    except OSError:
        return 0, 0
    pss, rss = (re.search(rf"^{name}:\s+(\d+) kB", facts, re.MULTILINE) for name in ("Pss", "Rss"))
    return (int(pss[1]) * 1024, int(rss[1]) * 1024) if pss and rss else (0, 0)


def measured(command: Sequence[str], cores: int) -> Line:
    """Seconds, processor seconds and peak memory of a command and all processes it starts."""
    chosen = sorted(os.sched_getaffinity(0))[:cores]
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    environment = os.environ | {"PYTHONPATH": str(SOURCE)}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, cwd=ROOT)
    os.sched_setaffinity(process.pid, chosen)
    peak_pss = peak_rss = processes = 0
    while process.poll() is None:
        sizes = [memory(member) for member in family(process.pid)]
        processes = max(processes, len(sizes))
        peak_pss = max(peak_pss, sum(pss for pss, _ in sizes))
        peak_rss = max(peak_rss, sum(rss for _, rss in sizes))
        time.sleep(SAMPLE_SECONDS)
    seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with exit code {process.returncode}")
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    memories = {"peak_pss": peak_pss, "peak_rss": peak_rss}
    return {"seconds": seconds, "processor_seconds": used, **memories, "processes": processes, "cores": len(chosen)}


def run(form: str, file: Path, size: int, folder: Path, cores: int, options: Sequence[str] = ()) -> Line:
    out = folder / f"corpus-{form}"
    shutil.rmtree(out, ignore_errors=True)
    if form == "ours":
        command = [sys.executable, "-m", "carp", "prepare", str(file), "--out", str(out), *options]
    else:
        command = [sys.executable, str(Path(__file__).resolve()), "--straightforward", str(file), str(out)]
    line: Line = {"form": form, "packing": "gzip" if file.suffix == ".gz" else "plain", "reviews": size}
    line |= measured(command, cores)
    line |= {
        "reviews_per_second": size / line["seconds"],
        "processor_microseconds_per_review": 1e6 * line["processor_seconds"] / size,
        "bytes_read": file.stat().st_size,
        "bytes_written": sum(item.stat().st_size for item in out.iterdir()),
        "fingerprint": json.loads((out / "corpus.json").read_text())["fingerprint"],
    }
    say(f"{form}, {size:,} reviews, {line['packing']}: {line['reviews_per_second']:,.0f} reviews/s")
    return line


# ---- what the machine can do


def per_second(work: Callable[[], object], size: int) -> float:
    began = time.perf_counter()
    work()
    return size / (time.perf_counter() - began)


def ceilings(folder: Path, packed: Path) -> dict[str, float]:
    """Bytes a second: writing to the disk, sha256 sums, and unpacking, each on its own."""
    block = os.urandom(1 << 20)
    place = folder / "ceiling"

    def write() -> None:
        with place.open("wb") as file:
            for _ in range(256):
                file.write(block)
            file.flush()
            os.fsync(file.fileno())

    data = block * 64
    found = {"disk": per_second(write, 256 << 20), "sha256": per_second(lambda: hashlib.sha256(data), len(data))}
    place.unlink()
    content = packed.read_bytes()[: 16 << 20]
    unpacker = zlib.decompressobj(wbits=31)
    began = time.perf_counter()
    found["gunzip"] = len(unpacker.decompress(content)) / (time.perf_counter() - began)
    return found


def floor_seconds(line: Line, content: int, speeds: dict[str, float]) -> float:
    """The least time for the bytes alone: unpack, write once, and sum twice (the corpus, and each of its files)."""
    unpacking = content / speeds["gunzip"] if line["packing"] == "gzip" else 0.0
    sums = 2 * line["bytes_written"] / speeds["sha256"]
    return max(float(line["bytes_written"]) / speeds["disk"], float(unpacking + sums) / int(line["cores"]))


# ---- the whole


def compare(folder: Path, given: argparse.Namespace) -> tuple[list[Line], list[str]]:
    small, plain, packed = folder / "slice.json", folder / "reviews.json", folder / "reviews.json.gz"
    say("writing the input")
    write_input(small, min(SLICE, given.reviews))
    write_input(plain, given.reviews)
    with plain.open("rb") as source, gzip.open(packed, "wb", 6) as sink:
        shutil.copyfileobj(source, sink, 1 << 20)
    slow = run("straightforward", small, min(SLICE, given.reviews), folder, given.cores)
    same = run("ours", small, min(SLICE, given.reviews), folder, given.cores)
    if slow["fingerprint"] != same["fingerprint"]:
        raise SystemExit("the two forms do not make the same corpus")
    ours = [run("ours", file, given.reviews, folder, given.cores) for file in (plain, packed)]
    speeds, content = ceilings(folder, packed), plain.stat().st_size
    for line in ours:
        line["floor_seconds"] = floor_seconds(line, content, speeds)
        line["ceilings"] = speeds
    rows = [
        row(f"prepare, {line['packing']}, reviews/s", slow["reviews_per_second"], line["reviews_per_second"])
        for line in ours
    ]
    megabytes = [line["peak_pss"] / 1e6 for line in (slow, same)]
    name = f"prepare, plain, MB of memory for {slow['reviews']:,} reviews"
    rows.append(row(name, megabytes[0], megabytes[1], megabytes[0] / megabytes[1]))
    return [slow, same, *ours], rows


def row(name: str, slow: float, fast: float, ratio: float | None = None) -> str:
    return f"{name}\t{slow:.0f}\t{fast:.0f}\t{fast / slow if ratio is None else ratio:.2f}"


def grow(folder: Path, given: argparse.Namespace) -> tuple[list[Line], list[str]]:
    lines = []
    for size in [size for size in GROWTH if size <= given.reviews]:
        file = folder / "reviews.json"
        write_input(file, size)
        lines.append(run("ours", file, size, folder, given.cores))
        if size <= SLICE:
            lines.append(run("straightforward", file, size, folder, given.cores))
    return lines, []


def table(lines: Sequence[Line]) -> str:
    from carp.render.console_tables import table as aligned

    heads = ["form", "input", "reviews", "seconds", "floor", "reviews/s", "CPU µs/review", "PSS MB", "RSS MB"]
    rows = [
        [
            line["form"],
            line["packing"],
            f"{line['reviews']:,}",
            f"{line['seconds']:.1f}",
            f"{line['floor_seconds']:.1f}" if "floor_seconds" in line else "",
            f"{line['reviews_per_second']:,.0f}",
            f"{line['processor_microseconds_per_review']:.1f}",
            f"{line['peak_pss'] / 1e6:,.0f}",
            f"{line['peak_rss'] / 1e6:,.0f}",
        ]
        for line in lines
    ]
    return aligned(heads, rows, left=2)


def record(lines: Sequence[Line], out: Path) -> None:
    from carp.bench.cells import current_commit, machine

    about = {"command": " ".join(["python", *sys.argv]), "commit": current_commit(), "machine": machine("cpu")}
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("a") as file:
        file.writelines(json.dumps({**line, **about}, allow_nan=False) + "\n" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reviews", type=int, default=SIZE)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--growth", action="store_true", help="sizes from 10,000 reviews on instead")
    parser.add_argument("--folder", type=Path, help="where the temporary files lie")
    parser.add_argument("--out", type=Path, help="add the measurements to this file of JSON lines")
    parser.add_argument("--straightforward", nargs=2, type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.straightforward:
        straightforward(*given.straightforward)
        return
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        lines, rows = (grow if given.growth else compare)(Path(folder), given)
    if given.out:
        record(lines, given.out)
    print("\n".join([table(lines), *rows]))


if __name__ == "__main__":
    main()
