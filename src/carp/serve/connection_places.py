"""Who has a place at the door, and who gives up theirs when all are taken.

No client is counted while places are free. When all are taken, a client that has more than its share makes room: for
others, and for itself. Of its connections those go first whose answers are not taken, then those that ask nothing.
Who has just come is let speak first: what they ask is on its way, and many come in the same moment.
Beside the places a few are kept for probes, so that health is answered whoever has the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from carp.serve.http_connection import HttpConnection

KEPT_FOR_PROBES = 64
QUIET = frozenset({"idle", "head", "body", "leaving", "lingering"})  # stages in which the service owes nothing
NOT_TAKING = "writing"  # the stage of those whose answer is there and not taken


class Places:
    """Connections by what they are at and by their client.

    >>> places = Places(4)
    >>> places.share, Places(4, 3).share
    (2, 3)
    """

    def __init__(self, most: int, share: int | None = None) -> None:
        self.most = most
        self.share = share or max(1, most // 2)  # of one client, where all are taken
        self.taken: dict[HttpConnection, None] = {}  # in the order in which they came
        self.guests: dict[HttpConnection, None] = {}  # who has no place, and may ask what probes ask
        self._quiet: dict[HttpConnection, None] = {}  # the longest first
        self._not_taking: dict[HttpConnection, None] = {}  # the longest first
        self._of_client: Counter[str] = Counter()

    def __iter__(self) -> Iterator[HttpConnection]:
        yield from self.taken
        yield from self.guests

    def __len__(self) -> int:
        return len(self.taken) + len(self.guests)

    def seat(self, one: HttpConnection) -> HttpConnection | None:
        """Give a place, and say who has to leave for that."""
        self.guests.pop(one, None)
        leaves = self._who_leaves(one) if len(self.taken) >= self.most else None
        if leaves is not None:
            self.leave(leaves)
        self.taken[one] = None
        self._of_client[one.client_key] += 1
        return leaves

    def has_room(self, one: HttpConnection) -> bool:
        """Whether there is a place, or somebody would have to leave theirs."""
        return len(self.taken) < self.most or self._who_leaves(one) is not None

    def take_in(self, one: HttpConnection) -> HttpConnection | None:
        """Let somebody in without a place, and say which guest has to leave for that."""
        leaves = self._guest_who_leaves() if len(self.guests) >= KEPT_FOR_PROBES else None
        if leaves is not None:
            self.leave(leaves)
        self.guests[one] = None
        return leaves

    def leave(self, one: HttpConnection) -> None:
        self.guests.pop(one, None)
        self._quiet.pop(one, None)
        self._not_taking.pop(one, None)
        if one in self.taken:
            del self.taken[one]
            self._of_client[one.client_key] -= 1
            if not self._of_client[one.client_key]:
                del self._of_client[one.client_key]

    def note_stage(self, one: HttpConnection) -> None:
        self._quiet.pop(one, None)
        self._not_taking.pop(one, None)
        if one not in self.taken:
            return
        if one.stage in QUIET and one.heard:
            self._quiet[one] = None
        elif one.stage == NOT_TAKING:
            self._not_taking[one] = None

    def longest_quiet(self) -> HttpConnection | None:
        """Who can go where the system has no room for another connection."""
        return next(iter((*self._not_taking, *self._quiet)), None)

    def _guest_who_leaves(self) -> HttpConnection:
        """Who has been answered or has had their time, then who has said nothing yet, then who has come first."""
        silent = [one for one in self.guests if one.stage in QUIET]
        return next((one for one in silent if one.heard), silent[0] if silent else next(iter(self.guests)))

    def _who_leaves(self, newcomer: HttpConnection) -> HttpConnection | None:
        if self._of_client[newcomer.client_key] >= self.share:
            return self._first_of({newcomer.client_key})
        greedy = {client for client, number in self._of_client.items() if number > self.share}
        if not greedy:
            return self._first_of(None)
        newest = (one for one in reversed(self.taken) if one.client_key in greedy)
        return self._first_of(greedy) or next(newest)

    def _first_of(self, clients: set[str] | None) -> HttpConnection | None:
        """The first of these clients' connections, or of all, that gives up its place without losing an answer."""
        for group in (self._not_taking, self._quiet):
            for one in group:
                if clients is None or one.client_key in clients:
                    return one
        return None
