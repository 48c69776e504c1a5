"""Many strings in one column, and reading parts of columns that may be larger than memory."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from mmap import ALLOCATIONGRANULARITY, MADV_DONTNEED, PAGESIZE, mmap
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Scalar = TypeVar("Scalar", bound=np.generic)
ENTRIES_AT_ONCE = 1 << 18
STRINGS_AT_ONCE = 1 << 12
MAPPED_AROUND = 1 << 16  # bytes: around what is read, the system maps what it has at hand


def stretch(column: NDArray[Scalar], first: int, last: int) -> NDArray[Scalar]:
    """`column[first:last]`. If the column is a memory-mapped file, only this part is read, and its pages are let go."""
    if _map_of(column) is None:
        return column[first:last]
    values = np.array(column[first:last], subok=False)
    let_go(column, first, last)
    return values


def let_go(column: NDArray[Any], first: int = 0, last: int | None = None) -> None:
    """Let go of the pages of a memory-mapped column, all or those of a part, which other threads do not read."""
    file = _map_of(column)
    if file is None or not isinstance(column, np.memmap):
        return
    start, step, end = column.offset % ALLOCATIONGRANULARITY, column.strides[0], len(file)
    begin = max(0, start + first * step - MAPPED_AROUND) // PAGESIZE * PAGESIZE
    if last is not None:
        end = min(end, start + last * step + MAPPED_AROUND)
    if begin < end:
        file.madvise(MADV_DONTNEED, begin, end - begin)


def _map_of(column: NDArray[Any]) -> mmap | None:
    """The mapping of a whole memory-mapped column; none for arrays and slices."""
    base: object = column.base
    if not isinstance(column, np.memmap) or not isinstance(base, mmap):
        return None
    return base


def pieces(column: NDArray[Scalar]) -> Iterator[NDArray[Scalar]]:
    """The whole column in order. A memory-mapped column comes in pieces that fit into memory."""
    if _map_of(column) is None:
        yield column
        return
    for first, last in stretches(len(column)):
        yield stretch(column, first, last)


def stretches(length: int) -> Iterator[tuple[int, int]]:
    """Where to cut a column so that each piece fits into memory."""
    for first in range(0, length, ENTRIES_AT_ONCE):
        yield first, min(first + ENTRIES_AT_ONCE, length)


def stretches_of(offsets: NDArray[np.int64], most: int) -> Iterator[tuple[int, int]]:
    """Entries first to last that have at most so much between their offsets, or are one entry.

    >>> list(stretches_of(np.array([0, 2, 4, 9, 10]), most=4))
    [(0, 2), (2, 3), (3, 4)]
    """
    first, entries = 0, len(offsets) - 1
    while first < entries:
        reach = int(np.searchsorted(offsets, offsets[first] + most, side="right")) - 1
        last = min(entries, max(first + 1, reach))
        yield first, last
        first = last


@dataclass(frozen=True, eq=False)
class StringColumn:
    """Many strings in one array of bytes, which may be a memory-mapped file.

    >>> column = StringColumn.from_strings(["drum", "Röhre"])
    >>> len(column), column[1], column.index()
    (2, 'Röhre', {'drum': 0, 'Röhre': 1})
    """

    data: NDArray[np.uint8]  # UTF-8, end to end
    offsets: NDArray[np.int64]  # [N + 1]

    @classmethod
    def from_strings(cls, strings: Iterable[str]) -> StringColumn:
        # Half a surrogate pair has no UTF-8. It becomes one other character, so that offsets stay right.
        encoded = [string.encode("utf-8", "replace") for string in strings]
        sizes = np.fromiter(map(len, encoded), np.int64, len(encoded))
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
        return cls(np.frombuffer(b"".join(encoded), np.uint8), offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, place: int) -> str:
        if not 0 <= place < len(self):
            raise IndexError(f"{place} is not among {len(self)} strings")
        return self.between(int(self.offsets[place]), int(self.offsets[place + 1])).decode("utf-8")

    def between(self, begin: int, end: int) -> bytes:
        """Some of the bytes of all strings."""
        return self.data[begin:end].tobytes()

    def __iter__(self) -> Iterator[str]:
        for first in range(0, len(self), STRINGS_AT_ONCE):  # one by one, they would be cut out of the column slowly
            edges = np.asarray(self.offsets[first : first + STRINGS_AT_ONCE + 1])
            content = self.between(int(edges[0]), int(edges[-1]))
            for begin, end in itertools.pairwise((edges - edges[0]).tolist()):
                yield content[begin:end].decode("utf-8")

    @cached_property
    def _places(self) -> dict[str, int]:
        return {string: place for place, string in enumerate(self)}

    def index(self) -> dict[str, int]:
        """The position of each string. Made on first use."""
        return self._places
