"""Documents without padding: the words of some documents end to end, cut into blocks of whole documents.

Windows of the convolution stay inside a review, so leaving a review out changes no other word's context: a document
that several pairs of a batch share is laid down once, and each pair has its own weights over the words, zero where
its review is left out. A document of one pair only is laid down without that pair's review.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carp.reviews.documents import Documents

Ints = NDArray[np.int64]
BLOCK_TOKENS = 640  # the gates of as many words fill a core's cache


@dataclass(frozen=True)
class Windows:
    """All documents of one side with the words around each word; word 0 is nobody: beyond the review."""

    neighbours: NDArray[np.int32]  # [T, window], the word itself in the middle
    review: NDArray[np.int32]  # [T]
    offsets: Ints  # [D + 1]

    @classmethod
    def of(cls, documents: Documents, window: int) -> Windows:
        assert window % 2 == 1, "a window has a middle"
        half = window // 2
        owner = np.repeat(np.arange(len(documents)), documents.lengths())
        count = len(documents.words)
        neighbours = np.zeros((count, window), dtype=np.int32)
        for step in range(window):
            shift = step - half
            here = slice(max(0, -shift), count - max(0, shift))
            there = slice(max(0, shift), count - max(0, -shift))
            same = (documents.review[here] == documents.review[there]) & (owner[here] == owner[there])
            neighbours[here, step] = np.where(same, documents.words[there], 0)
        return cls(neighbours, documents.review, documents.offsets)


@dataclass(frozen=True)
class Block:
    """Whole documents, about `BLOCK_TOKENS` words, and the pairs that look at them."""

    first: int  # of the batch's tokens
    last: int
    pairs: Ints  # [P] places in the batch
    spans: list[tuple[int, int]]  # each pair's document, counted from `first`
    holes: list[Ints | None]  # what each pair leaves out, counted from its document's first word


@dataclass(frozen=True)
class Tokens:
    """One side of a batch: distinct documents end to end."""

    neighbours: NDArray[np.int32]  # [T, window] words
    blocks: list[Block]

    def __len__(self) -> int:
        return len(self.neighbours)


def lay_down(windows: Windows, owners: Ints, leave_out: Ints | None = None) -> Tokens:
    """The documents of some pairs' owners, each once; `leave_out` names a record for each pair, -1 for none."""
    distinct, document, counts = np.unique(owners, return_inverse=True, return_counts=True)
    starts = windows.offsets[distinct]
    lengths = windows.offsets[distinct + 1] - starts
    row = np.repeat(np.arange(len(distinct)), lengths)
    source = np.arange(len(row)) + np.repeat(starts - (np.cumsum(lengths) - lengths), lengths)
    review = windows.review[source]
    if leave_out is not None:
        left = np.full(len(distinct), -1)
        left[document] = leave_out
        left[counts > 1] = -1
        kept = review != left[row]
        source, review = source[kept], review[kept]
        lengths = np.bincount(row[kept], minlength=len(distinct))
    ends = np.cumsum(lengths)
    shared = counts > 1 if leave_out is not None else np.zeros(len(distinct), bool)
    holes = [
        np.flatnonzero(review[ends[d] - lengths[d] : ends[d]] == leave_out[pair])
        if leave_out is not None and shared[d] and leave_out[pair] >= 0
        else None
        for pair, d in enumerate(document)
    ]
    return Tokens(windows.neighbours[source], _blocks(document, lengths, ends, holes))


def _blocks(document: Ints, lengths: Ints, ends: Ints, holes: list[Ints | None]) -> list[Block]:
    """Runs of documents; a pair whose document is empty, or all left out, is in no block."""
    begins = ends - lengths
    pairs_of: list[list[int]] = [[] for _ in lengths]
    for pair, d in enumerate(document):
        hole = holes[pair]
        if lengths[d] > (0 if hole is None else len(hole)):
            pairs_of[d].append(pair)
    blocks: list[Block] = []
    start = 0
    while start < len(lengths):
        end = max(start + 1, int(np.searchsorted(ends, begins[start] + BLOCK_TOKENS, side="right")))
        first, last = int(begins[start]), int(ends[end - 1])
        pairs = [(pair, d) for d in range(start, end) for pair in pairs_of[d]]
        if last > first:
            spans = [(int(begins[d]) - first, int(ends[d]) - first) for _, d in pairs]
            numbers = np.array([p for p, _ in pairs], dtype=np.int64)
            blocks.append(Block(first, last, numbers, spans, [holes[p] for p, _ in pairs]))
        start = end
    return blocks


def pair_weights(block: Block, dtype: type[np.floating[Any]]) -> NDArray[np.floating[Any]]:
    """[P, T] one over the length of a pair's document at its words, zero elsewhere."""
    weights = np.zeros((len(block.pairs), block.last - block.first), dtype)
    for row, (first, last), hole in zip(weights, block.spans, block.holes, strict=True):
        if hole is None:
            row[first:last] = 1 / (last - first)
        else:
            row[first:last] = 1 / (last - first - len(hole))
            row[first + hole] = 0
    return weights
