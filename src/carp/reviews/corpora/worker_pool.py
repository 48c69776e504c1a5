"""Work in several processes, its results in the order of the tasks.

Tasks and results travel in files. In the pipes of the library they could be cut off in the middle by the death of a
worker, and the one who reads them would then wait forever.
"""

from __future__ import annotations

import os
import pickle
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, TypeVar

from carp.reviews.corpora.worker_processes import Workers, end_with_the_starter

Task = TypeVar("Task")
Result = TypeVar("Result")
MOST_WORKERS = 8  # more would wait for the one process that unpacks and packs, and each needs memory


class WorkerPool:
    """Some worker processes; with fewer than two of them everything is done in this process."""

    def __init__(self, size: int, folder: Path | None = None) -> None:
        self.size = min(size, MOST_WORKERS)
        self._folder = folder
        self._started: tuple[Workers, TemporaryDirectory[str]] | None = None

    def __enter__(self) -> WorkerPool:
        if self.size > 1:
            self._started = Workers(self.size, _begin), TemporaryDirectory(dir=self._folder)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._started is not None:
            workers, files = self._started
            workers.end(at_once=kind is not None)
            files.cleanup()

    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[Result]:
        """The results in the order of the tasks, of which only a few are taken ahead."""
        if self._started is None:
            return map(function, tasks)
        workers, files = self._started
        return self._map(function, tasks, workers, Path(files.name))

    def _map(
        self, function: Callable[[Task], Result], tasks: Iterable[Task], workers: Workers, folder: Path
    ) -> Iterator[Result]:
        def result() -> Result:
            place, future = waiting.popleft()
            workers.result(future)
            found: Result = _load(place)
            place.unlink()
            return found

        waiting: deque[tuple[Path, Future[None]]] = deque()
        for number, task in zip(count(), tasks, strict=False):
            place = folder / str(number)
            _dump(task, place)
            waiting.append((place, workers.submit(_perform, function, place)))
            while len(waiting) > 2 * self.size or (waiting and waiting[0][1].done()):
                yield result()
        while waiting:
            yield result()


def _begin() -> None:
    """What a worker does before its first task."""
    end_with_the_starter()
    os.setsid()  # what a terminal sends to the starter passes it by
    # Threads of the linear algebra library would only take memory.
    os.environ |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    if os.environ.get("CARP_DEBUG") != "1":  # errors travel as results; what a library prints is of no use
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)


def _perform(function: Callable[[Any], Any], place: Path) -> None:
    """Put the result of a task where the task lay."""
    _dump(function(_load(place)), place)


def _dump(value: Any, place: Path) -> None:
    with place.open("wb") as file:
        pickle.dump(value, file, pickle.HIGHEST_PROTOCOL)


def _load(place: Path) -> Any:
    with place.open("rb") as file:
        return pickle.load(file)
