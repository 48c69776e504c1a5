"""Whether the tests of a room notice that its code was broken, found with as few of them as possible.

Once for each room all tests run on unbroken code, and coverage notes which of them reach which line. A mutant is then
tried with the tests that reach it, the quickest first, and with all the others only if none of these fails. So
"survived" means that every test of the room passed, and "noticed" that one failed which passes by itself on unbroken
code.

Verdicts are kept in build/mutants, each with a sum over all sources and tests: a run that was cut goes on where it was.
After a change of sources or tests nothing is taken over, but the test that noticed a mutant last time is tried first.
"""

from __future__ import annotations

import atexit
import fcntl
import functools
import hashlib
import json
import os
import shutil
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from coverage import CoverageData

from ordered_tests import NUMBER, PLAN, Plan, Report
from warm_tests import ENDLESS, Run, WarmTests

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "build" / "mutants"
COPIED = ("src", "tests", "benchmarks", "pyproject.toml")
FEWER = {"CARP_KILLS": "4", "CARP_BUNDLES": "4", "CARP_EXAMPLES": "20", "OMP_NUM_THREADS": "1"}
PLUGINS = ("_hypothesis_pytestplugin", "ordered_tests")
SECONDS = 600  # that unbroken code may take for all tests of a room
PATIENCE = 5  # times as long as unbroken code took a mutant may take: one that never ends is noticed too
SHORTEST_PATIENCE = 120.0  # seconds
NO_TESTS = 5  # exit code of pytest
AFTER = 40  # lines behind a statement: a test that reaches few of them was refused at it
FIXTURE = 1.0  # seconds of setup above which it counts for all tests of the file, not for the first alone


@dataclass(frozen=True)
class Verdict:
    tree: str  # a sum over what it was found with
    mutant: str  # file, line and words
    statement: str  # file and words
    noticed_by: str | None  # a test; None: the mutant survived
    seconds: float


@dataclass(frozen=True)
class Learned:
    """What the tests of a room did with unbroken code."""

    failed: str | None
    seconds: dict[str, dict[str, float]]  # test → setup, call, teardown → seconds
    reached: dict[str, dict[str, list[str]]]  # file → line → tests

    @property
    def patience(self) -> float:
        """Seconds after which a mutant is taken for one that never ends."""
        took = sum(second for stages in self.seconds.values() for second in stages.values())
        return max(SHORTEST_PATIENCE, PATIENCE * took)

    def reaching(self, file: str, first: int, last: int) -> list[str]:
        """Tests that reach a statement, those most likely to notice it first, and the quickest of these.

        Most likely are tests that get deepest into it, as into a check that refuses, and of these the ones that go
        least far beyond it, as where something was refused.
        """
        inside, after = (self._lines(file, one) for one in (range(first, last + 1), range(last + 1, last + 1 + AFTER)))

        def order(test: str) -> tuple[int, int, float, str, float]:
            of = _file_of(test)
            return -inside[test], after[test], self._fixtures[of], of, self.seconds[test].get("call", 0.0)

        return sorted(inside, key=order)

    def _lines(self, file: str, lines: range) -> Counter[str]:
        """How many of the lines each test reaches."""
        reached = self.reached.get(file, {})
        return Counter(test for line in lines for test in reached.get(str(line), []))

    @cached_property
    def _fixtures(self) -> dict[str, float]:
        """Seconds of setup for all tests of a file."""
        found = {_file_of(test): 0.0 for test in self.seconds}
        for test, took in self.seconds.items():
            setup = took.get("setup", 0.0)
            found[_file_of(test)] += setup if setup > FIXTURE else 0.0
        return found


def _file_of(test: str) -> str:
    return test.partition("::")[0]


class Workshop:
    """A copy of the tree in which statements are left out and put back, and a process that runs its tests."""

    def __init__(self, place: Path) -> None:
        self.place, self.tree = place, place / "tree"
        for name in COPIED:
            _copy(ROOT / name, self.tree / name)
        self.sum = _sum_of(self.tree)
        KEPT.mkdir(parents=True, exist_ok=True)
        paths = [str(self.tree / "src"), str(self.tree / "benchmarks"), *_packages_elsewhere()]
        more = {"PYTHONPYCACHEPREFIX": str(place / "bytecode"), "TMPDIR": str(place / "temporary"), **FEWER}
        inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        self.environment = inherited | more | {"PYTHONPATH": os.pathsep.join(paths)}
        self.warm = WarmTests(self.environment | {"PYTHONPATH": os.pathsep.join(_packages_elsewhere())})
        self.passes_alone: set[str] = set()

    # ---- unbroken code

    def learned(self, room: str, tests: Iterable[str], files: list[str]) -> Learned:
        """What the tests of a room reach; the first who asks finds it out, for all processes of this run."""
        kept = KEPT / f"{room}-{self.sum}.json"
        with (KEPT / f"{room}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not kept.exists():
                kept.write_text(json.dumps(asdict(self._learn(tests, files))), "utf-8")
        return Learned(**json.loads(kept.read_text("utf-8")))

    def _learn(self, tests: Iterable[str], files: list[str]) -> Learned:
        lines = self.place / "lines"
        shutil.rmtree(lines, ignore_errors=True)
        lines.mkdir()
        settings = self.place / "coverage.ini"
        include = "\n  ".join(str(self.tree / file) for file in files)
        settings.write_text(
            f"[run]\nparallel = true\nsigterm = true\npatch = _exit\ncontext = ${{{NUMBER}-}}\n"
            f"data_file = {lines / 'lines'}\ninclude =\n  {include}\n"
        )
        more = {"COVERAGE_PROCESS_START": str(settings)}  # read by processes that the tests start
        code, report = self._run(tests, Plan("", coverage=str(settings)), SECONDS, more)
        failed = report.failed if report.failed or code == 0 else f"exit code {code}"
        found = CoverageData(str(self.place / "all-lines"))
        found.erase()
        for part in lines.iterdir():
            one = CoverageData(str(part))
            one.read()
            found.update(one)
        by_line = {file: found.contexts_by_lineno(str(self.tree / file)) for file in files}
        named = {
            file: {
                str(line): [report.numbers[n] for n in numbers if n in report.numbers] for line, numbers in of.items()
            }
            for file, of in by_line.items()
        }
        return Learned(failed, report.seconds, named)

    # ---- broken code

    def verdict(self, mutant: Any, learned: Learned, tests: list[str]) -> Verdict:
        """Whether a mutant is noticed: as it was found before with the same sources and tests, or found now."""
        statement = f"{mutant.file}: {mutant.what}"
        hints = []
        for one in _kept_verdicts():
            if (one.tree, one.mutant) == (self.sum, str(mutant)):
                return one
            if one.statement == statement and one.noticed_by in learned.seconds:
                hints.append(one.noticed_by)
        began = time.monotonic()
        noticed_by = self._noticed_by(mutant, learned, tests, hints)
        found = Verdict(self.sum, str(mutant), statement, noticed_by, round(time.monotonic() - began, 1))
        with (KEPT / "verdicts.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(found)) + "\n")
        return found

    def _noticed_by(self, mutant: Any, learned: Learned, tests: list[str], hints: list[str]) -> str | None:
        path = self.tree / mutant.file
        whole = path.read_text("utf-8")
        reaching = [*dict.fromkeys([*reversed(hints), *learned.reaching(mutant.file, mutant.line, mutant.last)])]
        in_vain: list[str] = []  # tests that fail by themselves tell nothing
        while True:
            _write_source(path, mutant.applied_to(whole))
            try:
                failed = self._first_failure(reaching, tests, in_vain, learned.patience)
            finally:
                _write_source(path, whole)
            if failed is None or failed not in learned.seconds or self._passes_alone(failed, learned.patience):
                return failed
            in_vain.append(failed)

    def _first_failure(self, reaching: list[str], tests: list[str], in_vain: list[str], patience: float) -> str | None:
        if reaching:
            files = [*dict.fromkeys(map(_file_of, reaching))]
            failed = self._failure(files, Plan("", reaching, only=True, without=in_vain), patience)
            if failed is not None:
                return failed
        return self._failure(tests, Plan("", without=[*reaching, *in_vain]), patience)

    def _failure(self, tests: Iterable[str], plan: Plan, patience: float) -> str | None:
        code, report = self._run(tests, plan, patience)
        if code == ENDLESS:
            return f"no end within {patience:.0f} s"
        if code not in (0, NO_TESTS):
            return report.failed or f"exit code {code}"
        return None

    def _passes_alone(self, test: str, patience: float) -> bool:
        if test in self.passes_alone:
            return True
        if self._failure([_file_of(test)], Plan("", [test], only=True), patience) is not None:
            return False
        self.passes_alone.add(test)
        return True

    # ---- running tests

    def _run(
        self, tests: Iterable[str], plan: Plan, patience: float, more: dict[str, str] | None = None
    ) -> tuple[int, Report]:
        temporary, planned, reported = (self.place / name for name in ("temporary", "plan.json", "report.json"))
        for folder in (temporary, self.place / "tests"):
            shutil.rmtree(folder, ignore_errors=True)
        temporary.mkdir()
        reported.unlink(missing_ok=True)
        planned.write_text(json.dumps({**asdict(plan), "report": str(reported)}), "utf-8")
        arguments = [
            "-x",
            "-q",
            "-p",
            "no:cacheprovider",
            "--disable-plugin-autoload",
            f"--basetemp={self.place / 'tests'}",
        ]
        arguments += [word for name in PLUGINS for word in ("-p", name)]
        there = [test for test in tests if (self.tree / test).exists()]
        environment = {**self.environment, PLAN: str(planned), **(more or {})}
        run = Run(str(self.tree), [*arguments, *there], environment, str(self.place / "log"), patience)
        code = self.warm.code(run)
        report = Report(**json.loads(reported.read_text("utf-8"))) if reported.exists() else Report()
        return code, report

    def close(self) -> None:
        self.warm.close()
        shutil.rmtree(self.place, ignore_errors=True)


@functools.cache
def workshop() -> Workshop:
    """That of this process."""
    made = Workshop(Path(tempfile.mkdtemp(prefix="mutants-")))
    atexit.register(made.close)
    return made


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        for path in source.iterdir():
            if path.name != "__pycache__":
                _copy(path, target / path.name)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.suffix == ".py":
        _write_source(target, source.read_text("utf-8"))
    else:
        shutil.copy(source, target)


def _write_source(path: Path, source: str) -> None:
    """Python takes bytecode for current if the source's second and size are as before, so it follows from them."""
    path.write_text(source, "utf-8")
    second = zlib.crc32(source.encode()) >> 1
    os.utime(path, (second, second))


def _sum_of(tree: Path) -> str:
    total = hashlib.sha256()
    for path in sorted(path for path in tree.rglob("*") if path.is_file()):
        total.update(f"{path.relative_to(tree)} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return total.hexdigest()[:16]


def _kept_verdicts() -> list[Verdict]:
    kept = KEPT / "verdicts.jsonl"
    lines = kept.read_text("utf-8").splitlines() if kept.exists() else []
    return [Verdict(**json.loads(line)) for line in lines]


def _packages_elsewhere() -> list[str]:
    """Where packages were put that are not installed; never the code that is to be broken."""
    return [
        path
        for path in os.environ.get("PYTHONPATH", "").split(os.pathsep)
        if path and not Path(path).resolve().is_relative_to(ROOT)
    ]
