"""Runs pytest again and again without importing the same libraries each time.

A process imports what tests need and carp does not change: torch, sklearn, pytest. For each run it forks, and the child
alone imports carp, from the tree it is told. Started as a program, it is that process: a line of JSON in, a line out.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

# Those that take long to import. With one thread each: a process of several cannot be forked.
LIBRARIES = ["torch", "torch._dynamo", "torch.optim", "sklearn.linear_model", "pandas", "scipy.sparse.linalg"]
LIBRARIES += ["safetensors.torch", "hypothesis.extra.numpy", "_hypothesis_pytestplugin", "pytest", "coverage"]
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
ONE_THREAD["JE_ARROW_MALLOC_CONF"] = "background_thread:false"
ENDLESS = -1  # instead of an exit code


@dataclass(frozen=True)
class Run:
    tree: str  # where pytest runs
    arguments: list[str]
    environment: dict[str, str]  # all of it
    log: str  # what pytest says
    seconds: float  # after which it is ended


class WarmTests:
    """The process, seen from the one that wants tests to run."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**environment, **ONE_THREAD},
        )

    def code(self, run: Run) -> int:
        """The exit code of pytest, or ENDLESS."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(asdict(run)) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def close(self) -> None:
        self.process.communicate()


def forked(run: Run) -> int:
    child = os.fork()
    if child == 0:
        try:
            _run_tests(run)
        finally:  # whatever happens, a child never goes on as its parent
            os._exit(3)
    try:
        return _code_of(child, run.seconds)
    finally:
        with contextlib.suppress(ProcessLookupError):  # what the tests left running
            os.killpg(child, signal.SIGKILL)


def _run_tests(run: Run) -> None:
    os.setsid()
    with Path(run.log).open("wb") as log, Path(os.devnull).open("rb") as nothing:
        for file, number in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(file.fileno(), number)
    os.environ.clear()
    os.environ.update(run.environment)
    os.chdir(run.tree)
    sys.path[:0] = run.environment["PYTHONPATH"].split(os.pathsep)
    sys.argv = ["pytest", *run.arguments]
    import pytest

    code = pytest.main(run.arguments)
    sys.stdout.flush()
    os._exit(code)


def _code_of(child: int, seconds: float) -> int:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return abs(os.waitstatus_to_exitcode(status))
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return ENDLESS


def main() -> None:
    sys.path.pop(0)  # the folder of this file: the tree has its own
    for name in LIBRARIES:
        importlib.import_module(name)
    tasks = Path("/proc/self/task")
    if tasks.exists() and len(list(tasks.iterdir())) > 1:
        raise SystemExit("a library has started a thread, and a process with threads cannot be forked safely")
    for line in sys.stdin:
        print(forked(Run(**json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
