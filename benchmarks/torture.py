"""Everything that may go wrong, at full numbers, in one command.

    make torture                          all parts
    make torture PARTS="hostile kills"    some
    make torture SEED=7                   with other chances; the seed that is printed replays a failure

Each part adds one line to results/torture.jsonl: what was tried, how often, what was found, and its own command.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import failing_operations
import hostile_bundles
import mixed_loads
import mutants
import sanitized_kernels

ROOT = Path(__file__).resolve().parents[1]
Report = dict[str, Any]


def hostile(seed: int) -> Report:
    """10,000 models edited with intent, their sums right: none ends by a signal or a raw exception."""
    found = hostile_bundles.run(range(seed, seed + 10_000))
    return {"tried": found["bundles"], "counts": found["counts"], "faults": found["faults"]}


def mixed(seed: int) -> Report:
    """100,000 loads while two models are saved in turn: none has one's facts and the other's weights."""
    return mixed_loads.run(100_000)


def operations(seed: int) -> Report:
    """Every operation of each job fails in turn, in each way."""
    both = itertools.product(failing_operations.JOBS, failing_operations.ERRORS)
    reports = [failing_operations.run(job, error) for job, error in both]
    wrong = [f"{report['job']}, {report['error']}, {fault}" for report in reports for fault in report["wrong"]]
    return {"tried": sum(report["operations"] for report in reports), "jobs": reports, "faults": wrong}


def broken(seed: int) -> Report:
    """Statements of storage, checkpoints, training and readers left out, one at a time: a test notices each."""
    found = mutants.run([*mutants.ROOMS])
    return {"tried": found["mutants"], "faults": found["survived"]}


def sanitized(seed: int) -> Report:
    """The C under the address and undefined-behaviour sanitizers, with shapes and columns drawn by chance."""
    return sanitized_kernels.run(2_000, seed)


def by_tests(file: str, **numbers: str) -> Callable[[int], Report]:
    """A part that is a test with larger numbers."""

    def part(seed: int) -> Report:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *file.split()]
        environment = {**os.environ, **numbers}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        said = done.stdout.strip().splitlines()
        return {"tried": numbers, "said": said[-1:], "faults": said[-40:] if done.returncode else []}

    return part


PARTS: dict[str, Callable[[int], Report]] = {
    "damaged": by_tests("tests/faults/test_bundles.py", CARP_DAMAGED_BUNDLES="20000"),
    "hostile": hostile,
    "mixed": mixed,
    "records": by_tests("tests/faults/test_bad_reviews.py", CARP_RECORDS="100000", CARP_EXAMPLES="2000"),
    "kills": by_tests("tests/faults/test_checkpoints.py tests/faults/test_bench_kills.py", CARP_KILLS="200"),
    "operations": operations,
    "sanitized": sanitized,
    "broken": broken,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=[*PARTS], default=[*PARTS])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "torture.jsonl")
    given = parser.parse_args()
    wrong = 0
    for name in given.parts:
        began = time.monotonic()
        report = PARTS[name](given.seed)
        line = {"part": name, "seed": given.seed, "seconds": round(time.monotonic() - began), **report}
        line |= {"command": f"make torture PARTS={name} SEED={given.seed}", "machine": platform.platform()}
        with given.out.open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(f"{name}: {len(report['faults'])} faults, {line['seconds']} s", flush=True)
        wrong += len(report["faults"])
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
