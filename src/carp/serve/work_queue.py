"""Slow work in turn: one piece at a time, with quick requests let through in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
LET_THROUGH = 4  # rounds of the event loop: enough for a waiting quick request to be read and answered


class WorkQueue:
    """Who came first is served first, and between two slow pieces of work whatever is quick goes ahead.

    Threads would not do: the interpreter runs one at a time, and a quick request would wait for its share of it.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def take(self, work: Callable[[], T]) -> T:
        async with self._lock:
            for _ in range(LET_THROUGH):
                await asyncio.sleep(0)
            return work()
