"""Processes of `concurrent.futures` that end when they should, and say how they ended when they should not.

What is ours: Ctrl-C is answered by the starter alone, workers end when the starter is gone, and a worker that dies
is an error that says how. Calls and results travel in files: in the pipes of the library the death of a worker could
cut them off in the middle, and the other end would then wait forever.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import count
from multiprocessing.context import SpawnContext, SpawnProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from carp.errors import CarpError


def usable_cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not every system can tell which cores this process may use
        return os.cpu_count() or 1


class WorkerDied(CarpError):
    """A worker process ended in the middle of its work."""

    def __init__(self, how: str) -> None:
        self.how = how
        super().__init__(f"a worker process ended {how}", fix="close other programs and run the same command again")


class WorkerProcesses:
    """An executor of the library, whose processes are fresh interpreters that call `begin` before anything else.

    When one of them dies, all end: what must survive a death needs `WorkerProcesses` of its own.
    """

    def __init__(self, size: int, begin: Callable[..., None], *arguments: Any, folder: Path | None = None) -> None:
        self._context = _RememberingContext()
        self._executor = ProcessPoolExecutor(size, self._context, initializer=begin, initargs=arguments)
        self._files = TemporaryDirectory(dir=folder)
        self._numbers = count()

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Path]:
        """Have a function called by the next worker that is free."""
        place = Path(self._files.name) / str(next(self._numbers))
        _dump((function, arguments), place)
        with self._deaths_explained(), _interrupts_blocked():
            return self._executor.submit(_perform, place)

    def result(self, future: Future[Path]) -> Any:
        """What the function returned; an error it met is raised here, and so is its death."""
        with self._deaths_explained():
            place = future.result()
        found = _load(place)
        place.unlink()
        return found

    def end(self, *, at_once: bool) -> None:
        """Let the workers finish what they are at, or end them where they are."""
        if at_once:
            for process in self._context.processes:
                if process.pid is not None:  # it was started
                    process.kill()
        self._executor.shutdown(cancel_futures=True)
        self._files.cleanup()

    @contextlib.contextmanager
    def _deaths_explained(self) -> Iterator[None]:
        try:
            yield
        except BrokenProcessPool:
            self.end(at_once=False)  # the executor ends the others itself
            raise WorkerDied(_how_it_ended(process.exitcode for process in self._context.processes)) from None


class _RememberingContext(SpawnContext):
    """Remembers the processes it starts: the executor does not say how one of them ended."""

    def __init__(self) -> None:
        super().__init__()
        self.processes: list[SpawnProcess] = []

    def Process(self, *arguments: Any, **settings: Any) -> SpawnProcess:  # type: ignore[override]
        process = SpawnProcess(*arguments, **settings)
        self.processes.append(process)
        return process


def _perform(place: Path) -> Path:
    """Put the result of a call where the call lay."""
    function, arguments = _load(place)
    _dump(function(*arguments), place)
    return place


def _dump(value: Any, place: Path) -> None:
    with place.open("wb") as file:
        pickle.dump(value, file, pickle.HIGHEST_PROTOCOL)


def _load(place: Path) -> Any:
    with place.open("rb") as file:
        return pickle.load(file)


@contextlib.contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Processes that are started meanwhile never see Ctrl-C; here it is answered a moment later."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _how_it_ended(codes: Iterable[int | None]) -> str:
    """How the first worker ended that did not end well; the executor then ends the others by SIGTERM."""
    ended = [code for code in codes if code]
    code = next((code for code in ended if code != -signal.SIGTERM), -signal.SIGTERM)
    if code > 0:
        return f"with exit code {code}"
    hint = "; was there enough memory?" if code == -signal.SIGKILL else ""
    return f"by signal {signal.Signals(-code).name}{hint}"


def end_with_the_starter() -> None:
    """Called in a worker: end it as soon as the process that started it is gone."""

    def wait_and_end() -> None:
        starter = multiprocessing.parent_process()
        if starter is not None:
            starter.join()
        os._exit(1)

    threading.Thread(target=wait_and_end, daemon=True).start()
