"""Work in several processes, its results in the order of the tasks.

Each worker is a fresh interpreter that reads tasks from its standard input and writes results to its standard
output. It sits in a session of its own, so that Ctrl-C is the starter's to answer, and ends as soon as the starter
is gone, since then its input ends. A worker that dies is an error, never a silence.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import IO, Any, TypeVar

from carp.errors import CarpError

Task = TypeVar("Task")
Result = TypeVar("Result")
MOST_WORKERS = 8  # more would wait for the one process that unpacks and packs, and each needs memory
SERVE = "from carp.reviews.corpora.worker_pool import serve; serve()"


def usable_cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not every system can tell which cores this process may use
        return os.cpu_count() or 1


class WorkerPool:
    """Some worker processes; with fewer than two of them everything is done in this process."""

    def __init__(self, size: int) -> None:
        self.size = min(size, MOST_WORKERS)
        self._workers: list[subprocess.Popen[bytes]] = []
        self._idle: queue.SimpleQueue[subprocess.Popen[bytes]] = queue.SimpleQueue()
        self._askers: ThreadPoolExecutor | None = None

    def __enter__(self) -> WorkerPool:
        if self.size > 1:
            self._askers = ThreadPoolExecutor(self.size, "pool")
            for _ in range(self.size):
                worker = _start()
                self._workers.append(worker)
                self._idle.put(worker)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._workers:
            worker.kill()
        for worker in self._workers:
            worker.wait()
        if self._askers is not None:
            self._askers.shutdown(cancel_futures=True)
        for worker in self._workers:
            for pipe in (worker.stdin, worker.stdout):
                with contextlib.suppress(OSError):
                    _open(pipe).close()

    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[Result]:
        """The results in the order of the tasks, of which only a few are taken ahead."""
        if self._askers is None:
            yield from map(function, tasks)
            return
        waiting: deque[Future[Result]] = deque()
        for task in tasks:
            waiting.append(self._askers.submit(self._ask, function, task))
            while len(waiting) > 2 * self.size or (waiting and waiting[0].done()):
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    def _ask(self, function: Callable[[Task], Result], task: Task) -> Result:
        worker = self._idle.get()
        try:
            into = _open(worker.stdin)
            pickle.dump((function, task), into, pickle.HIGHEST_PROTOCOL)
            into.flush()
            failed, answer = pickle.load(_open(worker.stdout))
        except (OSError, EOFError, ValueError, pickle.UnpicklingError):  # its pipes are gone, or end in the middle
            raise _died(worker.wait()) from None
        finally:
            self._idle.put(worker)
        if failed:
            raise answer
        result: Result = answer
        return result


def _start() -> subprocess.Popen[bytes]:
    path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
    # Threads of the linear algebra library would only take memory.
    environment = os.environ | {"PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    quiet = None if os.environ.get("CARP_DEBUG") == "1" else subprocess.DEVNULL
    return subprocess.Popen(
        [sys.executable, "-P", "-c", SERVE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=quiet,
        env=environment,
        start_new_session=True,
        bufsize=1 << 20,
    )


def _open(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None, "workers are started with pipes"
    return pipe


def _died(code: int) -> CarpError:
    reason = f"by signal {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
    hint = "; was there enough memory?" if code == -signal.SIGKILL else ""
    return CarpError(
        f"a worker process ended {reason}{hint}", fix="close other programs and run the same command again"
    )


def serve() -> None:
    """The life of a worker: answer every task with its result or with the error it met."""
    tasks, results = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb", 1 << 20)
    os.dup2(2, 1)  # whatever a library prints must not get between the results
    with contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            function, task = pickle.load(tasks)
            results.write(_answer(function, task))
            results.flush()


def _answer(function: Callable[[Any], Any], task: Any) -> bytes:
    try:
        return pickle.dumps((False, function(task)), pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        return pickle.dumps((True, error), pickle.HIGHEST_PROTOCOL)
