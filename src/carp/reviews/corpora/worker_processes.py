"""Worker processes of `concurrent.futures`, with a few promises more.

Ctrl-C reaches only the process that started the workers. They end when that process is gone. If a worker dies, the
error says how. And a death is always noticed: calls and results are passed in files, because the library waits forever
for the rest of a message if its sender dies halfway through.
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
    except AttributeError:  # not every system says which cores this process may use
        return os.cpu_count() or 1


class WorkerDied(CarpError):
    """A worker process ended before its work was done."""

    def __init__(self, how: str) -> None:
        self.how = how
        super().__init__(f"a worker process ended {how}", fix="close other programs and run the same command again")


class WorkerProcesses:
    """Some fresh interpreters, each of which calls `begin` before anything else.

    If one of them dies, all of them end. Work that must survive the death of other work needs an object of its own.
    """

    def __init__(self, size: int, begin: Callable[..., None], *arguments: Any, folder: Path | None = None) -> None:
        self._context = _RememberingContext()
        self._executor = ProcessPoolExecutor(size, self._context, initializer=begin, initargs=arguments)
        self._files = TemporaryDirectory(dir=folder)
        self._numbers = count()

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Path]:
        """Let the next free worker call a function."""
        place = Path(self._files.name) / str(next(self._numbers))
        _dump((function, arguments), place)
        with self._deaths_explained(), _interrupts_blocked():
            return self._executor.submit(_perform, place)

    def result(self, future: Future[Path]) -> Any:
        """What the function returned. Its exceptions are raised here, and WorkerDied if its process died."""
        with self._deaths_explained():
            place = future.result()
        found = _load(place)
        place.unlink()
        return found

    def end(self, *, at_once: bool) -> None:
        """End the workers: at once, or after the work they have begun."""
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
            self.end(at_once=False)  # the library has ended the others
            raise WorkerDied(_how_it_ended(process.exitcode for process in self._context.processes)) from None


class _RememberingContext(SpawnContext):
    """Keeps the processes it starts, since the library does not say how one of them ended."""

    def __init__(self) -> None:
        super().__init__()
        self.processes: list[SpawnProcess] = []

    def Process(self, *arguments: Any, **settings: Any) -> SpawnProcess:  # type: ignore[override]
        process = SpawnProcess(*arguments, **settings)
        self.processes.append(process)
        return process


def _perform(place: Path) -> Path:
    """Read a call from a file, and replace it by the result."""
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
    """Processes started in this block never see Ctrl-C. In this process it is handled when the block ends."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _how_it_ended(codes: Iterable[int | None]) -> str:
    """How the worker ended that died. After that the library ends the others with SIGTERM."""
    ended = [code for code in codes if code]
    code = next((code for code in ended if code != -signal.SIGTERM), -signal.SIGTERM)
    if code > 0:
        return f"with exit code {code}"
    hint = "; was there enough memory?" if code == -signal.SIGKILL else ""
    return f"by signal {signal.Signals(-code).name}{hint}"


def end_with_the_starter() -> None:
    """Call this in a worker: it will end as soon as the process that started it is gone."""

    def wait_and_end() -> None:
        starter = multiprocessing.parent_process()
        if starter is not None:
            starter.join()
        os._exit(1)

    threading.Thread(target=wait_and_end, daemon=True).start()
