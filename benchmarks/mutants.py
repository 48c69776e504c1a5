"""Breaks a promise on purpose and sees whether a test fails: statements of the code are left out, one at a time.

    python benchmarks/mutants.py --rooms storage checkpoints

A mutant that no test notices has survived. It is either a promise without a test, or a statement that does not matter.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

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
        + [f"{STORED}/{name}.py" for name in ("signatures", "written_files")],
        [
            f"{FAULTS}/test_{name}.py"
            for name in ("left_open", "storage", "durability", "signatures", "hostile_folders")
        ],
    ),
    "results": Room(
        ["src/carp/bench/durable_lines.py"], [f"{FAULTS}/test_{n}.py" for n in ("durability", "bench_kills")]
    ),
    "checkpoints": Room(["src/carp/training/checkpoint.py"], TRAINING),
    "training": Room(["src/carp/training/loop.py", "src/carp/training/divergence.py"], [*TRAINING, "tests/training"]),
    "bundles": Room(
        ["src/carp/persist/bundle_checks.py", f"{COLUMNS}/column_checks.py", f"{COLUMNS}/corpus_checks.py"],
        [f"{FAULTS}/test_hostile_folders.py", f"{FAULTS}/test_bundles.py", "tests/reviews/test_corpus.py"],
    ),
    "compiled": Room([f"{KERNELS}/c_build.py", f"{KERNELS}/compiler.py"], ["tests/kernels/test_compiled_cache.py"]),
    "readers": Room(
        [f"{READ}/{name}.py" for name in ("unpacking", "line_reading", "ledger", "json_lines")],
        [f"{FAULTS}/test_bad_reviews.py", "tests/reviews/test_formats.py"],
    ),
}
SECONDS = 600  # that the tests of one mutant may take; a mutant that never ends is noticed too


@dataclass(frozen=True)
class Mutant:
    file: str
    line: int
    last: int
    what: str
    instead: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.what}"

    def apply(self, tree: Path) -> None:
        path = tree / self.file
        lines = path.read_text("utf-8").splitlines(keepends=True)
        indent = lines[self.line - 1][: len(lines[self.line - 1]) - len(lines[self.line - 1].lstrip())]
        lines[self.line - 1 : self.last] = [f"{indent}{self.instead}\n"]
        path.write_text("".join(lines), "utf-8")


def mutants_of(file: str) -> Iterator[Mutant]:
    """One for each statement that can be left out: calls, checks that raise, and clean-ups."""
    source = (ROOT / file).read_text("utf-8")
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.FunctionDef):
            continue
        for statement in ast.walk(node):
            if _can_go(statement):
                yield _without(file, source, statement)


def _can_go(statement: ast.AST) -> TypeGuard[ast.stmt]:
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Call)
    return isinstance(statement, ast.If) and any(isinstance(part, ast.Raise) for part in statement.body)


def _without(file: str, source: str, statement: ast.stmt) -> Mutant:
    words = (ast.get_source_segment(source, statement) or "").split("\n")[0]
    assert statement.end_lineno is not None
    return Mutant(file, statement.lineno, statement.end_lineno, words, "pass")


def survives(mutant: Mutant | None, tests: list[str]) -> bool:
    """Whether all tests pass with a statement left out, or without a mutant, with all of them."""
    with tempfile.TemporaryDirectory() as place:
        tree = Path(place)
        for name in ("src", "tests", "benchmarks"):
            shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", tree)
        if mutant is not None:
            mutant.apply(tree)
        there = [test for test in tests if (tree / test).exists()]
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *there]
        more = {"CARP_KILLS": "4", "CARP_BUNDLES": "4", "CARP_EXAMPLES": "20", "OMP_NUM_THREADS": "1"}
        paths = [str(tree / "src"), str(tree / "benchmarks"), *_packages_elsewhere()]
        environment = {**os.environ, **more, "PYTHONPATH": os.pathsep.join(paths)}
        try:
            done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, check=False, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0


def _packages_elsewhere() -> list[str]:
    """Where packages were put that are not installed; never the code that is to be broken."""
    return [
        path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and ROOT not in Path(path).parents
    ]


def chosen(rooms: list[str], share: float = 1.0, seed: int = 0) -> list[tuple[Mutant, list[str]]]:
    """The mutants of some rooms, or a share of them by chance, each with the tests that should notice it."""
    every = [(m, ROOMS[room].noticed_by) for room in rooms for file in ROOMS[room].broken for m in mutants_of(file)]
    return every if share == 1 else random.Random(seed).sample(every, max(1, round(share * len(every))))


def run(rooms: list[str], share: float = 1.0, seed: int = 0) -> dict[str, Any]:
    """Try the mutants of some rooms, or a share of them by chance; which survived."""
    some, survived = chosen(rooms, share, seed), []
    for room in rooms:
        if not survives(None, ROOMS[room].noticed_by):
            raise SystemExit(f"the tests of {room} fail with the code as it is, and so notice nothing")
    for number, (mutant, tests) in enumerate(some):
        if survives(mutant, tests):
            survived.append(str(mutant))
            print(f"{number + 1} of {len(some)} survived: {mutant}", file=sys.stderr, flush=True)
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
