"""Threads for work that is cut into cache-sized pieces, each piece computed by one thread alone.

torch's own threads wait for each other at the end of every operation. Here they wait once, after many operations, and
what a piece works on stays in its core's cache. Results are kept by piece, so that it does not matter which thread
takes which.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import Any, TypeVar

import torch

T = TypeVar("T")


class Workers:
    def __init__(self, count: int) -> None:
        self.count = count
        self._pool: ThreadPoolExecutor | None = None

    def start(self, function: Callable[[T], None], pieces: Iterable[T]) -> Callable[[], None]:
        """Begin to work on the pieces; the returned function waits for the end and raises what went wrong."""
        queue = iter(list(pieces))

        def work() -> None:
            with torch.no_grad():
                for piece in queue:  # a list's iterator hands each piece to one thread only
                    function(piece)

        if self.count == 1:
            work()
            return lambda: None
        running = [self._started().submit(work) for _ in range(self.count)]
        return lambda: _finish(running)

    def run(self, function: Callable[[T], None], pieces: Iterable[T]) -> None:
        self.start(function, pieces)()

    def _started(self) -> ThreadPoolExecutor:
        if self._pool is None:
            before = torch.get_num_threads()
            self._pool = ThreadPoolExecutor(self.count, "carp", initializer=torch.set_num_threads, initargs=(1,))
            meeting = threading.Barrier(self.count)
            _finish([self._pool.submit(meeting.wait) for _ in range(self.count)])
            torch.set_num_threads(before)  # threads that start later take this number, not ours
        return self._pool


def _finish(running: Sequence[Future[Any]]) -> None:
    for future in running:
        future.result()


@cache
def _workers(count: int) -> Workers:
    return Workers(count)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_workers.cache_clear)  # a child has none of its parent's threads


def workers() -> Workers:
    """As many threads as torch may use; the same number gives the same threads."""
    return _workers(torch.get_num_threads())
