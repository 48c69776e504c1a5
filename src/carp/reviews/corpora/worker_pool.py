"""Work shared among several processes, with results in the order of the tasks."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Protocol, TypeVar

from carp.reviews.corpora.worker_processes import WorkerProcesses, end_with_the_starter

Task = TypeVar("Task")
Result = TypeVar("Result")
MOST_WORKERS = 8  # more would only wait for the one process that reads and writes, and each needs memory


class TaskPool(Protocol):
    """Whoever does tasks for somebody else: processes of this machine, or of others."""

    size: int

    def __enter__(self) -> TaskPool: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[Result]: ...


class WorkerPool:
    """Some worker processes. With fewer than two, everything is done in this process."""

    def __init__(self, size: int, folder: Path | None = None) -> None:
        """Tasks and results are passed in temporary files in `folder`."""
        self.size = min(size, MOST_WORKERS)
        self._folder = folder
        self._workers: WorkerProcesses | None = None

    def __enter__(self) -> WorkerPool:
        if self.size > 1:
            self._workers = WorkerProcesses(self.size, _begin, folder=self._folder)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._workers is not None:
            self._workers.end(at_once=kind is not None)

    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[Result]:
        """The results in the order of the tasks. Only a few tasks are taken ahead of the results."""
        if self._workers is None:
            yield from map(function, tasks)
            return
        waiting: deque[Future[Path]] = deque()
        for task in tasks:
            waiting.append(self._workers.submit(function, task))
            while len(waiting) > 2 * self.size or (waiting and waiting[0].done()):
                yield self._workers.result(waiting.popleft())
        while waiting:
            yield self._workers.result(waiting.popleft())


def _begin() -> None:
    """What a worker does before its first task."""
    end_with_the_starter()
    os.setsid()  # a session of its own: signals from the terminal do not reach it
    # Threads for linear algebra would only take memory.
    os.environ |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    if os.environ.get("CARP_DEBUG") != "1":  # errors are passed to the starter, and nothing else should be printed
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
