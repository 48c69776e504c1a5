"""Which record a pair of a user and an item has, for as many records as there may be: 16 bytes each."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]


class RecordOfPair:
    """The records of pairs. Of a pair that has several, the last.

    >>> records = RecordOfPair(np.array([0, 2, 1]), np.array([1, 0, 1]), items=2)
    >>> records.get((2, 0)), records.get((2, 1)), (1, 1) in records
    (1, -1, True)
    >>> records.find(np.array([1, -1]), np.array([1, 1])).tolist()
    [2, -1]
    """

    def __init__(self, user: NDArray[np.integer[Any]], item: NDArray[np.integer[Any]], items: int) -> None:
        keys = np.asarray(user, np.int64) * items + item
        self._records: Numbers = np.argsort(keys, kind="stable")
        self._keys: Numbers = keys[self._records]
        self._items = items

    def find(self, users: Numbers, items: Numbers) -> Numbers:
        """The record of each pair; -1 where there is none."""
        wanted = users * self._items + items
        place = np.searchsorted(self._keys, wanted, side="right") - 1
        known = (place >= 0) & (users >= 0) & (items >= 0) & (items < self._items)
        known &= self._keys[place] == wanted
        return np.where(known, self._records[place], -1)

    def get(self, pair: tuple[int, int], default: int = -1) -> int:
        """The record of a pair, or else the default."""
        user, item = pair
        record = int(self.find(np.array([user]), np.array([item]))[0])
        return default if record < 0 else record

    def __contains__(self, pair: tuple[int, int]) -> bool:
        return self.get(pair) >= 0
