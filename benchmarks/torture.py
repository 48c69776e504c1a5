"""Everything that may go wrong, at full numbers, in one command.

    make torture                          all parts
    make torture PARTS="hostile kills"    some
    make torture SEED=7                   with other chances; the seed that is printed replays a failure

Parts are cut into pieces that share nothing, and as many run at a time as there are cores, or `--jobs`. Each part has
one line in results/torture.jsonl: what was tried, how often, what was found, and its own command. `--share 0.01` takes
a hundredth of the numbers, `--within 500` stops after so many seconds with what was done until then, and
`--device cuda` kills trainings on the GPU.
"""

from __future__ import annotations

import argparse
import itertools
import math
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import damaged_bundles
import damaged_records
import failing_operations
import fuzz_targets
import fuzzing
import hostile_bundles
import killed_training
import mixed_loads
import mutants
import sanitized_kernels
from result_lines import put_line, where_and_when

ROOT = Path(__file__).resolve().parents[1]
FUZZED = 2_000  # inputs of each target
PHASES = 4  # into which the operations of a job are cut
Report = dict[str, Any]  # tried, counts, faults
Piece = tuple[Any, ...]  # a function that makes a report, and what it is called with


@dataclass(frozen=True)
class Options:
    seed: int = 0
    share: float = 1.0
    device: str = "cpu"


Cut = Callable[[Options], list[Piece]]  # a part, cut into pieces


# ---- the parts


def damaged(first: int, count: int, model: str) -> Report:
    return damaged_bundles.run(range(first, first + count), model)


def hostile(first: int, count: int, model: str) -> Report:
    return hostile_bundles.run(range(first, first + count), model)


def mixed(first: int, count: int) -> Report:
    return mixed_loads.run(count)


def killed(first: int, count: int, device: str) -> Report:
    return killed_training.run(count, first, device)


def sanitized(first: int, count: int) -> Report:
    return sanitized_kernels.run(count, first)


def fuzzed(target: str, runs: int, seed: int) -> Report:
    return fuzzing.run(target, runs, seed)


def operations(job: str, error: str, first: int, step: int) -> Report:
    found = failing_operations.run(job, error, first=first, step=step)
    wrong = [f"--job {job} --error {error}, operation {fault}" for fault in found["wrong"]]
    ended = {f"{job}: {how}": count for how, count in found["counts"].items()}
    return {"tried": math.ceil((found["operations"] - first + 1) / step), "counts": ended, "faults": wrong}


def left_out(mutant: mutants.Mutant, room: str) -> Report:
    survived = mutants.verdict(mutant, room).noticed_by is None
    counts = {"survived" if survived else "noticed": 1}
    return {"tried": 1, "counts": counts, "faults": [str(mutant)] if survived else []}


def unbroken(room: str) -> Report:
    """Tests that fail anyway notice nothing."""
    failed = mutants.learned(room).failed
    return {"tried": 0, "counts": {}, "faults": [f"unbroken code fails in {failed}"] if failed else []}


def tested(files: str, tried: int, numbers: dict[str, str]) -> Report:
    """Tests with larger numbers than in an ordinary run."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files.split()]
    environment = {**os.environ, **numbers, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    said = done.stdout.strip().splitlines()
    return {"tried": tried, "counts": {}, "faults": said[-40:] if done.returncode else []}


def numbered(work: Callable[..., Report], wanted: int, size: int, *more: Any) -> Cut:
    """So many trials, of which each follows from its number, in pieces of a size."""

    def pieces(options: Options) -> list[Piece]:
        many = max(1, round(wanted * options.share))
        starts = range(0, many, size)
        return [(work, options.seed + start, min(size, many - start), *more) for start in starts]

    return pieces


def kills(options: Options) -> list[Piece]:
    most = 200 if options.device == "cpu" else 10
    return numbered(killed, most, 10, options.device)(options)


def every_format(options: Options) -> list[Piece]:
    each = max(1, math.ceil(100_000 * options.share / len(damaged_records.FORMATS)))
    files = "tests/faults/test_bad_reviews.py tests/faults/test_fuzzed_files.py tests/faults/test_bad_items.py"
    examples = {"CARP_EXAMPLES": str(max(10, round(2_000 * options.share)))}
    pieces: list[Piece] = [(damaged_records.run, name, each, options.seed) for name in damaged_records.FORMATS]
    return [*pieces, (tested, files, 0, examples)]


def every_target(options: Options) -> list[Piece]:
    runs = max(1, round(FUZZED * options.share))
    return [(fuzzed, target, runs, options.seed) for target in fuzz_targets.TARGETS]


def every_operation(options: Options) -> list[Piece]:
    step = PHASES if options.share == 1 else max(PHASES, round(1 / options.share))
    pairs = itertools.product(failing_operations.JOBS, failing_operations.ERRORS)
    return [(operations, *pair, 1 + phase, step) for pair in pairs for phase in range(PHASES)]


def breaking(*rooms: str, kinds: tuple[str, ...] = ("statements",)) -> Cut:
    """Every statement of some rooms left out, or what else of them can be broken, one at a time."""

    def pieces(options: Options) -> list[Piece]:
        some = mutants.chosen([*rooms], options.share, options.seed, kinds)
        return [*((unbroken, room) for room in rooms), *((left_out, *one) for one in some)]

    return pieces


def by_tests(files: str, wanted: int, **numbers: str) -> Cut:
    """A part that is tests with larger numbers, each of them a share of the full ones."""

    def pieces(options: Options) -> list[Piece]:
        some = {name: str(max(1, round(int(number) * options.share))) for name, number in numbers.items()}
        return [(tested, files, max(1, round(wanted * options.share)), some)]

    return pieces


@dataclass(frozen=True)
class Part:
    """What is tried, and how often at the full numbers; 0 where only the code knows."""

    about: str
    wanted: int
    cut: Cut


PARTS = {
    "damaged": Part("damaged bundles, none loaded with other content", 20_000, numbered(damaged, 20_000, 500, "carp")),
    "hostile": Part(
        "bundles edited with intent, their sums right: no signal, no raw exception",
        10_000,
        numbered(hostile, 10_000, 250, "carp"),
    ),
    "hostile-meeting": Part(
        "the same for `meeting`, which has one more file",
        2_000,
        numbered(hostile, 2_000, 250, "meeting"),
    ),
    "kills": Part("kills of training, half of them inside a save, resumed to the same bits", 200, kills),
    "operations": Part("operations of each job fail in turn, in each of five ways", 0, every_operation),
    "sanitized": Part("rounds of the C under both sanitizers", 2_000, numbered(sanitized, 2_000, 250)),
    "records": Part(
        "malformed records of fifteen formats, each accepted or rejected with its line",
        100_000,
        every_format,
    ),
    "fuzz": Part(
        "inputs made by a fuzzer that coverage guides: folders of carp and every reader",
        FUZZED * len(fuzz_targets.TARGETS),
        every_target,
    ),
    "markup": Part(
        "markup payloads through every renderer and a real browser, none of which runs",
        100,
        by_tests("tests/render tests/browser/test_explorer_payloads.py", 100, CARP_PAYLOADS="200"),
    ),
    "grid-kills": Part(
        "kills of a benchmark grid and of preparing, no cell lost or counted twice",
        200,
        by_tests("tests/faults/test_bench_kills.py tests/faults/test_prepare_kills.py", 200, CARP_KILLS="200"),
    ),
    "mixed": Part("loads while two models are saved in turn, none a mixture", 100_000, numbered(mixed, 100_000, 2_500)),
    "mutants": Part("statements of storage and checkpoints left out", 0, breaking("storage", "checkpoints")),
    "mutants-conditions": Part(
        "conditions of storage and checkpoints turned, flags and parts dropped",
        0,
        breaking("storage", "checkpoints", kinds=("conditions",)),
    ),
    "mutants-beyond": Part(
        "statements of training, readers, columns, results and compiled code left out",
        0,
        breaking("results", "training", "bundles", "compiled", "readers"),
    ),
}


# ---- running them


@dataclass
class Tally:
    """What the pieces of a part found so far."""

    left: int
    tried: int = 0
    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def add(self, report: Report, seconds: float) -> None:
        self.left -= 1
        self.tried += report["tried"]
        self.seconds += seconds
        self.counts.update(report["counts"])
        self.faults += report["faults"]


def done(piece: Piece) -> tuple[Report, float]:
    """A piece's report and the seconds it took; what it raises is a fault, with the call that raised it."""
    began = time.monotonic()
    work, *given = piece
    try:
        report = work(*given)
    except Exception as error:
        report = {"tried": 0, "counts": {}, "faults": [f"{work.__name__}{tuple(given)}: {error!r}"[:3000]]}
    return report, time.monotonic() - began


def finished(chosen: dict[str, list[Piece]], jobs: int, within: float | None) -> Iterator[tuple[str, Tally]]:
    """Each part as soon as its last piece is done; in the end those that were not."""
    tallies = {name: Tally(len(pieces)) for name, pieces in chosen.items()}
    pool = ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn"))
    running: dict[Future[tuple[Report, float]], str] = {}
    for name, pieces in chosen.items():
        running |= {pool.submit(done, piece): name for piece in pieces}
    try:
        for future in as_completed(running, within):
            name = running[future]
            tallies[name].add(*future.result())
            if tallies[name].left == 0:
                yield name, tallies.pop(name)
    except TimeoutError:
        pool.shutdown(wait=False, cancel_futures=True)
        yield from tallies.items()
        return
    pool.shutdown()


def line_of(name: str, tally: Tally, options: Options) -> dict[str, Any]:
    part = PARTS[name]
    wanted = part.wanted if options.device == "cpu" else 0
    command = f"make torture PARTS={name} SEED={options.seed}"
    if options.device != "cpu":
        command = f"python benchmarks/torture.py --parts {name} --device {options.device} --seed {options.seed}"
    command += "" if options.share == 1 else f" (a share of {options.share:g})"
    line: dict[str, Any] = {
        "part": name if options.device == "cpu" else f"{name}-{options.device}",
        "about": part.about,
    }
    line |= {"seed": options.seed, "tried": tally.tried, "wanted": wanted or tally.tried, "counts": dict(tally.counts)}
    whole = tally.left == 0 and tally.tried >= wanted and tally.tried > 0
    line |= {"faults": tally.faults, "unfinished_pieces": tally.left, "reached": whole and not tally.faults}
    return line | {"core_seconds": round(tally.seconds), "command": command, **where_and_when()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=[*PARTS], default=[*PARTS])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--share", type=float, default=1.0, help="of the full numbers")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="pieces at a time")
    parser.add_argument("--within", type=float, help="seconds after which no piece is waited for")
    parser.add_argument("--device", default="cpu", help="where trainings are killed")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "torture.jsonl")
    given = parser.parse_args()
    os.environ |= {"OMP_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"}
    options = Options(given.seed, given.share, given.device)
    chosen = {name: PARTS[name].cut(options) for name in given.parts}
    wrong, began = 0, time.monotonic()
    if given.within and os.getpgrp() != os.getpid():  # who begins a session leads a group already
        os.setpgrp()  # so that what still runs at the end can be ended with its children
    for name, tally in finished(chosen, given.jobs, given.within):
        line = line_of(name, tally, options)
        put_line(given.out, line)
        said = f"{name}: {tally.tried} tried, {len(tally.faults)} faults, {tally.left} pieces left"
        print(f"{said}, {time.monotonic() - began:.0f} s", flush=True)
        wrong += len(tally.faults) + tally.left
    if given.within:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.killpg(0, signal.SIGTERM)
        os._exit(1 if wrong else 0)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
