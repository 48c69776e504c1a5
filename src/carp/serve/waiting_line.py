"""Who waits for an engine: a line with an end, in which the quick go a little ahead and who leaves is forgotten."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from carp.serve.engine_messages import Loaded

# Seconds after which a request of a kind is due. The earliest due goes first, so that nobody waits for ever.
DUE = {"predict": 0.05, "explain": 0.1}
DUE_LATER = 0.15
TOGETHER = {"predict": 64, "explain": 8}  # several of these cost the model little more than one


class Waiting:
    """One request in the line."""

    __slots__ = ("answer", "answered_by", "asked", "began", "due", "kind")

    def __init__(self, kind: str, asked: list[Any], now: float, answer: asyncio.Future[bytes]) -> None:
        self.kind = kind
        self.asked = asked
        self.began = now
        self.due = now + DUE.get(kind, DUE_LATER)
        self.answer = answer
        self.answered_by: Loaded | None = None  # the model that answered


class WaitingLine:
    """Requests that no engine has taken yet, at most so many.

    >>> line = WaitingLine(2)
    >>> for kind in ("explain", "predict", "predict"):
    ...     line.add(Waiting(kind, [], 0.0, None))
    True
    True
    False
    >>> [one.kind for one in line.take()], [one.kind for one in line.take()], line.take()
    (['predict'], ['explain'], [])
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._lanes: dict[str, deque[Waiting]] = {}
        self._number = 0

    def __len__(self) -> int:
        return self._number

    @property
    def full(self) -> bool:
        return self._number >= self.most

    def add(self, one: Waiting) -> bool:
        """Whether there was room for it."""
        if self.full:
            return False
        self._lanes.setdefault(one.kind, deque()).append(one)
        self._number += 1
        return True

    def put_back(self, taken: Sequence[Waiting]) -> None:
        """Who was taken by an engine that died goes first again, whether there is room or not."""
        for one in reversed(taken):
            self._lanes.setdefault(one.kind, deque()).appendleft(one)
            self._number += 1

    def leave(self, one: Waiting) -> bool:
        """Forget a request that nobody waits for any more; False where it was taken already."""
        try:
            self._lanes[one.kind].remove(one)
        except (KeyError, ValueError):
            return False
        self._number -= 1
        return True

    def take(self) -> list[Waiting]:
        """Those to be answered together next."""
        waiting = [lane for lane in self._lanes.values() if lane]
        if not waiting:
            return []
        lane = min(waiting, key=lambda lane: lane[0].due)
        number = min(len(lane), TOGETHER.get(lane[0].kind, 1))
        self._number -= number
        return [lane.popleft() for _ in range(number)]

    def older_than(self, began: float) -> list[Waiting]:
        return [one for lane in self._lanes.values() for one in lane if one.began < began]
