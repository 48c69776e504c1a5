"""Breaks a promise on purpose and sees whether a test fails: one statement is left out, or one condition turned.

    python benchmarks/mutants.py --rooms storage checkpoints --kinds statements conditions

A mutant that no test notices has survived. It is either a promise without a test, or what was broken does not matter.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mutant_verdicts
from mutations import Mutant, left_out, turned

ROOT = Path(__file__).resolve().parents[1]
STORED, READ, COLUMNS = "src/carp/storage", "src/carp/reviews/sources", "src/carp/reviews/corpora"
FAULTS, KERNELS = "tests/faults", "src/carp/kernels/cpu"
TRAINING = ["tests/training/test_stopping.py", f"{FAULTS}/test_checkpoints.py"]


@dataclass(frozen=True)
class Room:
    broken: list[str]  # files
    noticed_by: list[str]  # tests


ROOMS = {
    "storage": Room(
        [f"{STORED}/{name}.py" for name in ("folder_locks", "leftovers", "new_folders", "sealed_folders")]
        + [f"{STORED}/{name}.py" for name in ("signatures", "written_files", "block_sums", "checked_folders")]
        + [f"{STORED}/{name}.py" for name in ("array_files", "own_cache", "secret_files")],
        [
            f"{FAULTS}/test_{name}.py"
            for name in (
                "left_open",
                "storage",
                "durability",
                "linked_folders",
                "mounted_folders",
                "signatures",
                "secret_files",
                "hostile_folders",
                "checked_on_use",
                "block_sums",
                "manifests",
                "bundles",
            )
        ]
        + ["tests/kernels/test_compiled_cache.py"],
    ),
    "results": Room(
        ["src/carp/bench/durable_lines.py"], [f"{FAULTS}/test_{n}.py" for n in ("durability", "bench_kills")]
    ),
    "checkpoints": Room(["src/carp/training/checkpoint.py"], TRAINING),
    "training": Room(["src/carp/training/loop.py", "src/carp/training/divergence.py"], [*TRAINING, "tests/training"]),
    "bundles": Room(
        ["src/carp/persist/bundle_checks.py", f"{COLUMNS}/column_checks.py", f"{COLUMNS}/corpus_checks.py"],
        [f"{FAULTS}/test_{name}.py" for name in ("hostile_folders", "hostile_columns", "checked_on_use", "bundles")]
        + ["tests/reviews/test_corpus.py"],
    ),
    "compiled": Room([f"{KERNELS}/c_build.py", f"{KERNELS}/compiler.py"], ["tests/kernels/test_compiled_cache.py"]),
    "readers": Room(
        [f"{READ}/{name}.py" for name in ("unpacking", "line_reading", "ledger", "json_lines")]
        + [f"{READ}/{name}.py" for name in ("json_values", "sheets", "frames", "source_files")]
        + [f"{READ}/{name}.py" for name in ("encodings", "beer_blocks", "recognition", "gathering", "markup")],
        [
            *(f"{FAULTS}/test_{name}.py" for name in ("bad_reviews", "hostile_reviews", "hostile_tables")),
            *(f"tests/reviews/test_{n}.py" for n in ("formats", "line_reading", "ledger", "source_files")),
            *(f"tests/reviews/test_{n}.py" for n in ("strange_names", "languages", "item_files")),
        ],
    ),
}
# What changes nothing that could be noticed, by file and words, with the reason.
PAGES = "gives pages of a mapped file back to the system, which can be read again"
NO_FOLDER = "a file in the place of a folder is not removed by what removes folders; its place is locked for nothing"
FOR_NOTHING = "blocks are summed and their sums thrown away"
ONE_THREAD = "a single block, or none, is summed by threads instead of without"
NO_ENTRIES = "numpy of today maps an array without entries too, and numpy 1.26 does not"
EQUIVALENT: dict[tuple[str, str], str] = {
    ("src/carp/persist/bundle_checks.py", "let_go(own[name], first, last)"): PAGES,
    (f"{COLUMNS}/column_checks.py", "let_go(column.data)"): PAGES,
    (f"{STORED}/leftovers.py", "leftover.is_dir() or leftover.is_symlink() → True (column 11)"): NO_FOLDER,
    (f"{STORED}/array_files.py", "place.begin == place.end → False (column 7)"): NO_ENTRIES,
    (f"{STORED}/block_sums.py", "large → True (column 15)"): FOR_NOTHING,
    (f"{STORED}/block_sums.py", "len(missing) > 1 → True (column 11)"): ONE_THREAD,
    (f"{STORED}/block_sums.py", "len(missing) > 1 → len(missing) >= 1 (column 11)"): ONE_THREAD,
}


KINDS = {"statements": left_out, "conditions": turned}


def mutants_of(file: str, kinds: Iterable[str] = ("statements",)) -> Iterator[Mutant]:
    source = (ROOT / file).read_text("utf-8")
    for kind in kinds:
        yield from KINDS[kind](file, source)


def chosen(
    rooms: list[str], share: float = 1.0, seed: int = 0, kinds: Iterable[str] = ("statements",)
) -> list[tuple[Mutant, str]]:
    """The mutants of some rooms, or a share of them by chance, each with its room."""
    every = [(m, room) for room in rooms for file in ROOMS[room].broken for m in mutants_of(file, kinds)]
    every = [(m, room) for m, room in every if (m.file, m.what) not in EQUIVALENT]
    return every if share == 1 else random.Random(seed).sample(every, max(1, round(share * len(every))))


def learned(room: str) -> mutant_verdicts.Learned:
    """Which tests of a room reach which lines of unbroken code, and whether all of them pass."""
    return mutant_verdicts.workshop().learned(room, ROOMS[room].noticed_by, ROOMS[room].broken)


def verdict(mutant: Mutant, room: str) -> mutant_verdicts.Verdict:
    known = learned(room)
    if known.failed is not None:
        raise RuntimeError(f"{known.failed} fails with the code as it is, so that the tests of {room} notice nothing")
    return mutant_verdicts.workshop().verdict(mutant, known, ROOMS[room].noticed_by)


def run(rooms: list[str], share: float = 1.0, seed: int = 0, kinds: Iterable[str] = ("statements",)) -> dict[str, Any]:
    """Try the mutants of some rooms, or a share of them by chance; which survived."""
    some, survived = chosen(rooms, share, seed, kinds), []
    for number, (mutant, room) in enumerate(some):
        found = verdict(mutant, room)
        said = f"noticed by {found.noticed_by}" if found.noticed_by else "SURVIVED"
        print(f"{number + 1} of {len(some)}: {mutant}: {said}, {found.seconds} s", file=sys.stderr, flush=True)
        if found.noticed_by is None:
            survived.append(str(mutant))
    return {"rooms": rooms, "mutants": len(some), "seed": seed, "survived": survived}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rooms", nargs="+", choices=[*ROOMS], default=[*ROOMS])
    parser.add_argument("--kinds", nargs="+", choices=[*KINDS], default=["statements"])
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    report = run(given.rooms, given.share, given.seed, given.kinds)
    print(json.dumps(report, indent=1))
    return 1 if report["survived"] else 0


if __name__ == "__main__":
    sys.exit(main())
