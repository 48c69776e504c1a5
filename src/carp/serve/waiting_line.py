"""Who waits for an engine: a line with an end, in which the quick go a little ahead and who leaves is forgotten.

Where the line is full, the client with most requests in it makes room for a client that has fewer. Before it is, nobody
waits for all that another client asked at once: what is overdue counts as due when its client last had a turn.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from itertools import islice, takewhile
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
        self._lanes: dict[tuple[str, str], deque[Waiting]] = {}  # by kind and client; none is empty
        self._of_client: Counter[str] = Counter()
        self._last_turn: dict[str, float] = {}  # of each client that waits and has had one
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
        self._lane_of(one).append(one)
        self._count_in(one)
        return True

    def put_back(self, taken: Sequence[Waiting]) -> None:
        """Who was taken by an engine that died goes first again, whether there is room or not."""
        for one in reversed(taken):
            self._lane_of(one).appendleft(one)
            self._count_in(one)

    def leave(self, one: Waiting) -> bool:
        """Forget a request that nobody waits for any more; False where it was taken already."""
        try:
            self._lanes[one.kind, one.client].remove(one)
        except (KeyError, ValueError):
            return False
        self._count_out(one)
        return True

    def take(self, now: float = 0.0) -> list[Waiting]:
        """Those to be answered together next."""
        if not self._lanes:
            return []
        first = min(self._lanes.values(), key=self._turn)[0]
        taken = self._alike(first)
        for client in {one.client for one in taken}:
            self._last_turn[client] = now
        for one in taken:
            self._lanes[one.kind, one.client].popleft()
            self._count_out(one)
        return taken

    def _turn(self, lane: deque[Waiting]) -> tuple[float, float]:
        """When the first of a lane is to be answered: the lowest goes first."""
        due = lane[0].due
        return max(due, self._last_turn.get(lane[0].client, due)), due

    def _alike(self, first: Waiting) -> list[Waiting]:
        """The first of a lane with those that are answered together with it, in their order."""
        most = 1 if first.goes_alone else TOGETHER.get(first.kind, 1)
        if most == 1:
            return [first]
        lanes = sorted((lane for (kind, _), lane in self._lanes.items() if kind == first.kind), key=self._turn)
        follow = (one for lane in lanes for one in takewhile(lambda one: not one.goes_alone, lane))
        return list(islice(follow, most))

    def _lane_of(self, one: Waiting) -> deque[Waiting]:
        return self._lanes.setdefault((one.kind, one.client), deque())

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
        if not self._lanes[one.kind, one.client]:
            del self._lanes[one.kind, one.client]
        self._of_client[one.client] -= 1
        if not self._of_client[one.client]:
            del self._of_client[one.client]
            self._last_turn.pop(one.client, None)
