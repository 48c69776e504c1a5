"""Looking up words by their bytes, hundreds of thousands at a time.

A surface is a run of letters and digits as written in a text, with ASCII letters in lower case. Up to sixteen bytes
long, it is one or two numbers, and a whole array of them is looked up in a hash table at once. Python code handles each
distinct surface only once, when it is new.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carp.reviews.text.scripts import is_emoji, normal_form

LONGEST_WORD = 40  # characters; anything longer is a link or a typing error
LONGEST_SURFACE = 4 * LONGEST_WORD  # bytes
NO_WORD = -1
SLOT_BITS = 19
MOST_SURFACES = 1 << 18  # a lexicon that knows more is replaced by an empty one, so that it stays small
ROUNDS = 64  # after this many collisions, surfaces are looked up one by one: no text can make it endless

Keys = NDArray[np.uint64]
Places = NDArray[np.integer[Any]]
_SPREAD = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F))
_FIRST_BYTES = np.array([(1 << (8 * size)) - 1 for size in range(9)], dtype=np.uint64)


@lru_cache(maxsize=1 << 16)
def as_word(surface: str) -> str:
    """The word for a run of letters and digits as written, or an empty string if it is not a word."""
    if len(surface) > LONGEST_WORD:
        return ""
    if surface.isascii():
        return surface.lower() if any(map(str.isalpha, surface)) else ""
    return normal_form(surface) if any(map(str.isalpha, surface)) or is_emoji(surface) else ""


@lru_cache(maxsize=1 << 16)
def as_plain_word(surface: str) -> str:
    """The same without a care for other scripts than Latin: a letter is a letter as it is written."""
    if len(surface) > LONGEST_WORD or not any(map(str.isalpha, surface)):
        return ""
    return surface.lower().replace("’", "'")


class _Table:
    """A hash table from surfaces to words. A surface has at most eight bytes in each column."""

    def __init__(self, columns: int) -> None:
        self.keys = [np.zeros(1 << SLOT_BITS, np.uint64) for _ in range(columns)]  # 0 in the first column means empty
        self.word = np.full(1 << SLOT_BITS, NO_WORD, np.int32)
        self.known = 0

    def find(self, surfaces: Sequence[Keys], number: Callable[[bytes], int]) -> NDArray[np.int32]:
        mixed = surfaces[0] * _SPREAD[0]
        for part in surfaces[1:]:
            mixed = (mixed ^ part) * _SPREAD[1]
        slots = (mixed >> np.uint64(64 - SLOT_BITS)).astype(np.int64)
        words = self.word[slots]
        rest = np.flatnonzero(~self._holds(slots, surfaces))
        if len(rest):
            words[rest] = self._find_slowly([part[rest] for part in surfaces], slots[rest], number)
        return words

    def _holds(self, slots: Places, surfaces: Sequence[Keys]) -> NDArray[np.bool_]:
        same: NDArray[np.bool_] = self.keys[0][slots] == surfaces[0]
        for keys, part in zip(self.keys[1:], surfaces[1:], strict=True):
            same &= keys[slots] == part
        return same

    def _find_slowly(
        self, surfaces: Sequence[Keys], slots: Places, number: Callable[[bytes], int]
    ) -> NDArray[np.int32]:
        """Go from slot to slot, and put new surfaces into free slots."""
        words = np.full(len(slots), NO_WORD, np.int32)
        left = np.arange(len(slots))
        has_room = 2 * (self.known + len(slots)) <= len(self.word)
        for _ in range(ROUNDS if has_room else 0):
            self._take_free(surfaces, slots, number)
            found = self._holds(slots, surfaces)
            words[left[found]] = self.word[slots[found]]
            left, surfaces = left[~found], [part[~found] for part in surfaces]
            slots = (slots[~found] + 1) % len(self.word)
            if not len(left):
                return words
        words[left] = [number(surface) for surface in _bytes_of(surfaces)]
        return words

    def _take_free(self, surfaces: Sequence[Keys], slots: Places, number: Callable[[bytes], int]) -> None:
        free = self.keys[0][slots] == 0
        if not free.any():
            return
        for keys, part in zip(self.keys, surfaces, strict=True):
            keys[slots[free]] = part[free]  # if several want the same slot, the last one gets it, in every column
        taken = np.unique(slots[free])
        self.word[taken] = [number(surface) for surface in _bytes_of([keys[taken] for keys in self.keys])]
        self.known += len(taken)


def _bytes_of(surfaces: Sequence[Keys]) -> list[bytes]:
    packed = np.stack(surfaces, axis=1).astype("<u8").tobytes()
    width = 8 * len(surfaces)
    return [packed[start : start + width].rstrip(b"\0") for start in range(0, len(packed), width)]


class Lexicon:
    """Numbers words in order of first appearance. The same surface always gets the same number."""

    def __init__(self, word_of: Callable[[str], str] = as_word) -> None:
        self._word_of = word_of
        self.words: list[str] = []
        self._places: dict[str, int] = {}
        self._short, self._middle = _Table(1), _Table(2)
        self._long: dict[bytes, int] = {}

    @property
    def surfaces(self) -> int:
        return self._short.known + self._middle.known + len(self._long)

    def _number(self, surface: bytes) -> int:
        word = self._word_of(surface.decode())
        if not word:
            return NO_WORD
        place = self._places.setdefault(word, len(self.words))
        if place == len(self.words):
            self.words.append(word)
        return place

    def _number_of_long(self, surface: bytes) -> int:
        place = self._long.get(surface)
        if place is None:
            place = self._long[surface] = self._number(surface)
        return place

    def find(self, text: NDArray[np.uint8], starts: Places, sizes: Places) -> NDArray[np.int32]:
        """The word of each surface, or NO_WORD. At least sixteen bytes must follow the last surface."""
        words = np.full(len(starts), NO_WORD, np.int32)
        eight = np.ndarray((len(text) - 7,), "<u8", text.data, 0, (1,))  # the eight bytes at each place
        first = eight[starts] & _FIRST_BYTES[np.minimum(sizes, 8)]
        short = sizes <= 8
        words[short] = self._short.find([first[short]], self._number)
        middle = np.flatnonzero(~short & (sizes <= 16))
        if len(middle):
            second = eight[starts[middle] + 8] & _FIRST_BYTES[sizes[middle] - 8]
            words[middle] = self._middle.find([first[middle], second], self._number)
        for place in np.flatnonzero((sizes > 16) & (sizes <= LONGEST_SURFACE)).tolist():
            words[place] = self._number_of_long(text[starts[place] : starts[place] + sizes[place]].tobytes())
        return words
