"""Whether columns that were read from files can be what they say they are.

Sums only show that a file is as it was written. What it means is checked here, before anything is looked up by it:
kinds of numbers, lengths, ranges, offsets that rise. Columns that lie in files are read in pieces.
"""

from __future__ import annotations

import codecs
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from carp.reviews.corpora.string_column import StringColumn, let_go, pieces, stretch, stretches, stretches_of

BYTES_AT_ONCE = 1 << 22  # of texts, or one text
NOT_ASCII = 0x80
MANY, LONGEST_NUMBERED = 10_000, 256  # strings and bytes of one, where numbers tell faster whether they differ
STEP = np.uint64(0x9E3779B97F4A7C15)  # odd, with bits all over


class ColumnFault(ValueError):
    """Why columns cannot be what they should be."""


def need(holds: bool | np.bool_, what: str) -> None:
    if not holds:
        raise ColumnFault(what)


def check_kind(name: str, column: NDArray[Any], kind: DTypeLike, length: int, *rest: int) -> None:
    """Refuse a column of other numbers or of another shape."""
    wanted = np.dtype(kind)
    need(column.dtype == wanted, f"{name} holds {column.dtype} and should hold {wanted}")
    if column.shape != (length, *rest):
        found, should = ("×".join(f"{size:,}" for size in shape) for shape in (column.shape, (length, *rest)))
        raise ColumnFault(f"{name} has {found} entries and should have {should}")


def check_range(name: str, column: NDArray[Any], low: float, high: float) -> None:
    """Refuse a column with an entry outside a range; what is no number is outside of every range."""
    for piece in pieces(column):
        holds = piece.size == 0 or (piece.min() >= low and piece.max() <= high)
        need(holds, f"an entry of {name} is not from {low:,} to {high:,}")


def check_offsets(name: str, offsets: NDArray[Any], entries: int, end: int, *, most: int | None = None) -> None:
    """Refuse offsets that do not rise from 0 to the end, or have more between two of them than is possible."""
    check_kind(name, offsets, np.int64, entries + 1)
    need(offsets[0] == 0 and offsets[-1] == end, f"{name} do not span the {end:,} entries")
    before = 0
    for piece in pieces(offsets):
        steps = np.diff(piece, prepend=before)
        need(bool((steps >= 0).all()), f"{name} fall")
        need(most is None or bool((steps <= most).all()), f"{name} are more than {most} apart")
        before = int(piece[-1]) if len(piece) else before


def check_strings(name: str, column: StringColumn, *, entries: int | None = None, distinct: bool = False) -> None:
    """Refuse strings that are not UTF-8, or are cut inside a character."""
    need(column.data.ndim == column.offsets.ndim == 1, f"{name} is not a plain column")
    check_kind(name, column.data, np.uint8, len(column.data))
    need(len(column.offsets) > 0, f"the offsets of {name} are missing")
    check_offsets(
        f"the offsets of {name}", column.offsets, len(column) if entries is None else entries, len(column.data)
    )
    _check_utf8(name, column.data)
    for first, last in stretches(len(column)):
        starts = stretch(column.offsets, first, last)
        heads = np.asarray(column.data)[starts[starts < len(column.data)]]
        need(not _continues(heads).any(), f"{name} are cut inside a character")
        let_go(column.data)
    need(not distinct or _distinct(column), f"one of {name} occurs twice")


def _distinct(column: StringColumn) -> bool:
    """Whether no string occurs twice. Where the numbers made of them differ, they do; else they are compared."""
    if len(column) >= MANY and int(np.diff(column.offsets).max()) <= LONGEST_NUMBERED:
        numbers = np.sort(_numbers(column))
        if bool((numbers[1:] != numbers[:-1]).all()):
            return True
    return len(column.index()) == len(column)


def _numbers(column: StringColumn) -> NDArray[np.uint64]:
    """A number for each string, the same for the same strings and hardly ever for others."""
    found = np.zeros(len(column), np.uint64)
    for first, last in stretches(len(column)):
        edges = stretch(column.offsets, first, last + 1)
        content, lengths = stretch(column.data, int(edges[0]), int(edges[-1])), np.diff(edges)
        number, begins = found[first:last], edges[:-1] - edges[0]
        for place in range(int(lengths.max(initial=0))):
            there = lengths > place
            some = slice(None) if there.all() else np.flatnonzero(there)
            number[some] = number[some] * STEP + content[begins[some] + place] + np.uint64(1)
    return found


def _check_utf8(name: str, content: NDArray[np.uint8]) -> None:
    decoder = codecs.getincrementaldecoder("utf-8")()
    whole = True  # no character has begun that the next piece should end
    try:
        for piece in pieces(content):
            if whole and piece.max(initial=0) < NOT_ASCII:  # most are
                continue
            decoder.decode(np.ascontiguousarray(piece).tobytes())
            whole = not decoder.getstate()[0]
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        raise ColumnFault(f"{name} are not UTF-8") from None


def _continues(content: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Which bytes of UTF-8 are not the first of their character."""
    found: NDArray[np.bool_] = (content & 0xC0) == 0x80
    return found


def characters_in(column: StringColumn) -> NDArray[np.int64]:
    """How many characters each string has.

    >>> characters_in(StringColumn.from_strings(["drum", "", "Röhre"])).tolist()
    [4, 0, 5]
    """
    found = np.zeros(len(column), np.int64)
    for first, last in stretches_of(column.offsets, BYTES_AT_ONCE):
        edges = stretch(column.offsets, first, last + 1)
        content = stretch(column.data, int(edges[0]), int(edges[-1]))
        found[first:last] = np.diff(edges)
        if content.max(initial=0) >= NOT_ASCII:
            inside = np.flatnonzero(_continues(content))
            found[first:last] -= np.diff(np.searchsorted(inside, edges - edges[0]))
    return found
