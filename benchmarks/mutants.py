"""Breaks a promise on purpose and sees whether a test fails: statements of the code are left out, one at a time.

    python benchmarks/mutants.py --rooms storage checkpoints

A mutant that no test notices has survived. It is either a promise without a test, or a statement that does not matter.
"""

from __future__ import annotations

import argparse
import ast
import json
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

import mutant_verdicts

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
        + [f"{STORED}/{name}.py" for name in ("signatures", "written_files", "block_sums")],
        [
            f"{FAULTS}/test_{name}.py"
            for name in (
                "left_open",
                "storage",
                "durability",
                "signatures",
                "hostile_folders",
                "checked_on_use",
                "block_sums",
            )
        ],
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
        [f"{READ}/{name}.py" for name in ("unpacking", "line_reading", "ledger", "json_lines")],
        [
            f"{FAULTS}/test_bad_reviews.py",
            *(f"tests/reviews/test_{n}.py" for n in ("formats", "line_reading", "ledger")),
        ],
    ),
}
# Statements that change nothing that could be noticed, by file and first line, with the reason.
PAGES = "gives pages of a mapped file back to the system, which can be read again"
EQUIVALENT: dict[tuple[str, str], str] = {
    ("src/carp/persist/bundle_checks.py", "let_go(own[name], first, last)"): PAGES,
    (f"{COLUMNS}/column_checks.py", "let_go(column.data)"): PAGES,
}


@dataclass(frozen=True)
class Mutant:
    file: str
    line: int
    last: int
    what: str
    instead: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.what}"

    def applied_to(self, source: str) -> str:
        lines = source.splitlines(keepends=True)
        indent = lines[self.line - 1][: len(lines[self.line - 1]) - len(lines[self.line - 1].lstrip())]
        lines[self.line - 1 : self.last] = [f"{indent}{self.instead}\n"]
        return "".join(lines)


def mutants_of(file: str) -> Iterator[Mutant]:
    """One for each statement that can be left out: calls, checks that raise, and clean-ups."""
    source = (ROOT / file).read_text("utf-8")
    functions = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef))
    statements = (one for function in functions for one in ast.walk(function) if _can_go(one))
    for statement in dict.fromkeys(statements):  # one of a function inside a function is found twice
        yield _without(file, source, statement)


def _can_go(statement: ast.AST) -> TypeGuard[ast.stmt]:
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Call)
    return isinstance(statement, ast.If) and any(isinstance(part, ast.Raise) for part in statement.body)


def _without(file: str, source: str, statement: ast.stmt) -> Mutant:
    words = (ast.get_source_segment(source, statement) or "").split("\n")[0]
    assert statement.end_lineno is not None
    return Mutant(file, statement.lineno, statement.end_lineno, words, "pass")


def chosen(rooms: list[str], share: float = 1.0, seed: int = 0) -> list[tuple[Mutant, str]]:
    """The mutants of some rooms, or a share of them by chance, each with its room."""
    every = [(m, room) for room in rooms for file in ROOMS[room].broken for m in mutants_of(file)]
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


def run(rooms: list[str], share: float = 1.0, seed: int = 0) -> dict[str, Any]:
    """Try the mutants of some rooms, or a share of them by chance; which survived."""
    some, survived = chosen(rooms, share, seed), []
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
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    report = run(given.rooms, given.share, given.seed)
    print(json.dumps(report, indent=1))
    return 1 if report["survived"] else 0


if __name__ == "__main__":
    sys.exit(main())
