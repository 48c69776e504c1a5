"""Who waits for an engine: a line with an end, in which the quick go a little ahead and who leaves is forgotten.

Where the line is full, the client with most requests in it makes room for a client that has fewer.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from carp.serve.engine_messages import Loaded

# Seconds after which a request of a kind is due. The earliest due goes first, so that nobody waits for ever.
DUE = {"predict": 0.05, "explain": 0.1}
DUE_LATER = 0.15
TOGETHER = {"predict": 64, "explain": 8}  # several of these cost the model little more than one


class Waiting:
    """One request in the line."""

    __slots__ = ("answer", "answered_by", "asked", "began", "client", "deaths", "due", "kind")

    def __init__(
        self, kind: str, asked: list[Any], now: float, answer: asyncio.Future[bytes], client: str = ""
    ) -> None:
        self.kind = kind
        self.asked = asked
        self.began = now
        self.due = now + DUE.get(kind, DUE_LATER)
        self.answer = answer
        self.client = client  # what counts as one client
        self.deaths = 0  # engines that died while they were at it
        self.answered_by: Loaded | None = None  # the model that answered

    @property
    def goes_alone(self) -> bool:
        """Whether an engine died at it: then it may be the one to blame, and takes nobody along."""
        return self.deaths > 0

    def refuse(self, problem: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(problem)


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
        self._of_client: Counter[str] = Counter()
        self._number = 0

    def __len__(self) -> int:
        return self._number

    def __iter__(self) -> Iterator[Waiting]:
        for lane in self._lanes.values():
            yield from lane

    @property
    def full(self) -> bool:
        return self._number >= self.most

    def add(self, one: Waiting, in_place_of: Waiting | None = None) -> bool:
        """Whether there was room for it; there is where another one goes for it."""
        if in_place_of is not None:
            self.leave(in_place_of)
        elif self.full:
            return False
        self._lanes.setdefault(one.kind, deque()).append(one)
        self._count_in(one)
        return True

    def put_back(self, taken: Sequence[Waiting]) -> None:
        """Who was taken by an engine that died goes first again, whether there is room or not."""
        for one in reversed(taken):
            self._lanes.setdefault(one.kind, deque()).appendleft(one)
            self._count_in(one)

    def leave(self, one: Waiting) -> bool:
        """Forget a request that nobody waits for any more; False where it was taken already."""
        try:
            self._lanes[one.kind].remove(one)
        except (KeyError, ValueError):
            return False
        self._count_out(one)
        return True

    def take(self) -> list[Waiting]:
        """Those to be answered together next."""
        waiting = [lane for lane in self._lanes.values() if lane]
        if not waiting:
            return []
        lane = min(waiting, key=lambda lane: lane[0].due)
        most = TOGETHER.get(lane[0].kind, 1)
        taken = [lane.popleft()]
        while lane and len(taken) < most and not (taken[0].goes_alone or lane[0].goes_alone):
            taken.append(lane.popleft())
        for one in taken:
            self._count_out(one)
        return taken

    def older_than(self, began: float) -> list[Waiting]:
        return [one for one in self if one.began < began]

    # ---- clients

    def has_more_than(self, client: str) -> bool:
        """Whether some client has so many requests here that it would still not have fewer if one went for this one's.

        >>> line = WaitingLine(3)
        >>> asked = [line.add(Waiting("explain", [], 0.0, None, client)) for client in ("a", "a", "b")]
        >>> [line.has_more_than(client) for client in "abc"]
        [False, False, True]
        """
        return max(self._of_client.values(), default=0) > self._of_client[client] + 1

    def first_to_go(self) -> Waiting:
        """The newest request of the client that has most."""
        client = max(self._of_client, key=self._of_client.__getitem__)
        return max((one for one in self if one.client == client), key=lambda one: one.began)

    def _count_in(self, one: Waiting) -> None:
        self._number += 1
        self._of_client[one.client] += 1

    def _count_out(self, one: Waiting) -> None:
        self._number -= 1
        self._of_client[one.client] -= 1
        if not self._of_client[one.client]:
            del self._of_client[one.client]
