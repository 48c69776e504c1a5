"""What is asked for at the same time is answered together: several pairs cost the model little more than one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from carp.serve.work_queue import WorkQueue

Pair = tuple[str, str]
T = TypeVar("T")
Answer = Callable[[Sequence[Pair]], Sequence[T | Exception]]  # an exception is the answer to one pair alone


class RequestBatcher(Generic[T]):
    """Gathers the pairs that arrive in one round of the event loop, or while others are answered.

    With `queue`, at most `most` of them are answered in each turn; without, all are as soon as possible.
    """

    def __init__(self, answer: Answer[T], *, queue: WorkQueue | None = None, most: int = 64) -> None:
        self._answer = answer
        self._turns = queue
        self._most = most
        self._waiting: list[tuple[Pair, asyncio.Future[T]]] = []
        self._work: asyncio.Task[None] | None = None

    async def ask(self, pair: Pair) -> T:
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append((pair, future))
        if self._work is None or self._work.done():
            self._work = asyncio.create_task(self._answer_all())
        return await future

    async def _answer_all(self) -> None:
        while self._waiting:
            if self._turns is None:
                self._answer_some()
                await asyncio.sleep(0)
            else:
                await self._turns.take(self._answer_some)

    def _answer_some(self) -> None:
        asked, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
        asked = [(pair, future) for pair, future in asked if not future.done()]  # who has gone waits for nothing
        found: Sequence[T | Exception]
        try:
            found = self._answer([pair for pair, _ in asked]) if asked else []
        except Exception as error:
            found = [error] * len(asked)
        for (_, future), one in zip(asked, found, strict=True):
            if isinstance(one, Exception):
                future.set_exception(one)
            else:
                future.set_result(one)
