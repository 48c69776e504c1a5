"""Documents without padding: the words of some documents end to end, cut into blocks of whole documents.

A window of the convolution stays inside its review, so that leaving a review out changes no other word's context. A
document that several pairs of a batch share is therefore laid down once, and each pair has its own weights over the
words: zero where its review is left out. A document of a single pair is laid down without that pair's review.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carp.reviews.corpora.growing_columns import UnnamedColumn
from carp.reviews.corpora.string_column import stretches_of
from carp.reviews.documents import Documents

Ints = NDArray[np.int64]
WORDS_AT_ONCE = 1 << 22  # of documents on the disk whose windows are made between two pieces
BLOCK_TOKENS = 576  # words whose gates and gradients fill a core's cache


@dataclass(frozen=True)
class Windows:
    """All documents of one side with the words around each word; beyond the review's ends stands word 0."""

    neighbours: NDArray[np.int32]  # [T, window], the word itself in the middle
    review: NDArray[np.int32]  # [T]
    offsets: Ints  # [D + 1]

    @classmethod
    def of(cls, documents: Documents, window: int) -> Windows:
        """In memory, or where the documents lie on the disk, in a file without a name beside them."""
        assert window % 2 == 1, "a window has a middle"
        if not isinstance(documents.words, np.memmap):
            return cls(_neighbours(documents, window), documents.review, documents.offsets)
        grown = UnnamedColumn(np.int32, window)
        for first, last in stretches_of(documents.offsets, WORDS_AT_ONCE):
            grown.append(_neighbours(documents.part(first, last), window))
        return cls(grown.finish(), documents.review, documents.offsets)


def _neighbours(documents: Documents, window: int) -> NDArray[np.int32]:
    half, count = window // 2, len(documents.words)
    owner = np.repeat(np.arange(len(documents)), documents.lengths())
    neighbours = np.zeros((count, window), dtype=np.int32)
    for step in range(window):
        shift = step - half
        here = slice(max(0, -shift), count - max(0, shift))
        there = slice(max(0, shift), count - max(0, -shift))
        same = (documents.review[here] == documents.review[there]) & (owner[here] == owner[there])
        neighbours[here, step] = np.where(same, documents.words[there], 0)
    return neighbours


@dataclass(frozen=True)
class Block:
    """Whole documents, about `BLOCK_TOKENS` words together, and the pairs that read them."""

    first: int  # of the batch's tokens
    last: int
    pairs: Ints  # [P] places in the batch
    spans: Ints  # [P, 2] each pair's document, counted from `first`
    holes: list[Ints]  # what each pair leaves out, counted from `first`


@dataclass(frozen=True)
class Blocks:
    """Where documents lie that are end to end, which pairs read them, and where they are cut into blocks."""

    edges: Ints  # [B + 1] tokens of each block
    pair_edges: Ints  # [B + 1]
    pairs: Ints  # [P] places in the batch, in the order of their documents; pairs without a word are left out
    spans: Ints  # [P, 2] tokens of each pair's document
    hole_edges: Ints  # [P + 1]
    holes: Ints  # tokens that each pair leaves out

    def __len__(self) -> int:
        return len(self.edges) - 1

    def of_rows(self, rows: slice) -> Blocks:
        """The same tokens with the pairs of some rows of the batch alone, and every document in a block of its own.

        So the blocks without a pair are documents that these rows do not read.
        """
        mine = (self.pairs >= rows.start) & (self.pairs < rows.stop)
        lengths = np.diff(self.hole_edges)
        edges = np.unique(np.concatenate([self.edges, self.spans.ravel()]))
        spans = self.spans[mine]
        return Blocks(
            edges=edges,
            pair_edges=np.searchsorted(spans[:, 0], edges),
            pairs=self.pairs[mine],
            spans=spans,
            hole_edges=_from_zero(lengths[mine]),
            holes=self.holes[np.repeat(mine, lengths)],
        )

    def read(self) -> list[int]:
        """The numbers of the blocks that a pair reads."""
        return np.flatnonzero(np.diff(self.pair_edges)).tolist()

    def tiles(self, size: int) -> Ints:
        """[B + 1] the tile each block begins at, when all are filled up to whole tiles of so many words."""
        return _from_zero(-(-np.diff(self.edges) // size))

    def __getitem__(self, number: int) -> Block:
        first, last = int(self.edges[number]), int(self.edges[number + 1])
        some = slice(self.pair_edges[number], self.pair_edges[number + 1])
        starts = self.hole_edges[some.start : some.stop + 1]
        holes = [self.holes[a:b] - first for a, b in itertools.pairwise(starts)]
        return Block(first, last, self.pairs[some], self.spans[some] - first, holes)


@dataclass(frozen=True)
class RaggedWords:
    """One side of a batch: distinct documents end to end."""

    neighbours: NDArray[np.int32]  # [T, window] words
    blocks: Blocks

    def __len__(self) -> int:
        return len(self.neighbours)


def lay_down(windows: Windows, owners: Ints, leave_out: Ints | None = None) -> RaggedWords:
    """The documents of some pairs' owners, each once; `leave_out` is the record a pair does not read, -1 for none."""
    distinct, document, counts = np.unique(owners, return_inverse=True, return_counts=True)
    starts = windows.offsets[distinct]
    lengths = windows.offsets[distinct + 1] - starts
    source = _ranges(starts, lengths)
    nothing = np.zeros(0, np.int64)
    if leave_out is None:
        blocks = cut(_from_zero(lengths), document, np.zeros(len(owners), np.int64), nothing)
        return RaggedWords(windows.neighbours.take(source, 0), blocks)
    left = np.full(len(distinct), -1)
    left[document] = leave_out
    left[counts > 1] = -1
    review = windows.review.take(source)
    kept = np.flatnonzero(review != np.repeat(left.astype(review.dtype), lengths))
    source, review = source.take(kept), review.take(kept)
    offsets = np.searchsorted(kept, _from_zero(lengths))  # where each document begins, now that some words are gone
    wanted = np.where((counts[document] > 1) & (leave_out >= 0), np.diff(offsets)[document], 0)
    places = _ranges(offsets[document], wanted)
    gone = np.flatnonzero(review.take(places) == np.repeat(leave_out, wanted))
    hole_lengths = np.diff(np.searchsorted(gone, _from_zero(wanted)))
    return RaggedWords(windows.neighbours.take(source, 0), cut(offsets, document, hole_lengths, places.take(gone)))


def cut(offsets: Ints, document: Ints, hole_lengths: Ints, holes: Ints) -> Blocks:
    """Documents cut into blocks; a pair whose document is empty, or left out as a whole, is in no block.

    Document d is `offsets[d]:offsets[d + 1]`; `document` has the number of each pair's; `holes` are the words left
    out, pair by pair.
    """
    begins, ends = offsets[:-1], offsets[1:]
    filled = np.flatnonzero(ends > begins)
    run = begins[filled] // BLOCK_TOKENS
    starts = filled[np.flatnonzero(np.diff(run, prepend=-1))]  # each run's first document
    order = np.argsort(document, kind="stable")
    order = order[(ends - begins)[document[order]] > hole_lengths[order]]
    holes = holes[_ranges(_from_zero(hole_lengths)[order], hole_lengths[order])]
    of = document[order]
    return Blocks(
        edges=np.append(begins[starts], offsets[-1]),
        pair_edges=np.append(np.searchsorted(of, starts), len(of)),
        pairs=order,
        spans=np.stack([begins[of], ends[of]], 1),
        hole_edges=_from_zero(hole_lengths[order]),
        holes=holes,
    )


def _from_zero(lengths: NDArray[Any]) -> Ints:
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def _ranges(starts: Ints, lengths: Ints) -> Ints:
    """
    >>> _ranges(np.array([5, 0, 9]), np.array([2, 0, 3])).tolist()
    [5, 6, 9, 10, 11]
    """
    ends = np.cumsum(lengths)
    found: Ints = np.repeat(starts - (ends - lengths), lengths)
    return found + np.arange(len(found))


def pair_weights(block: Block, dtype: type[np.floating[Any]]) -> NDArray[np.floating[Any]]:
    """[P, T] one over the number of words a pair reads, at those words; zero elsewhere."""
    weights = np.zeros((len(block.pairs), block.last - block.first), dtype)
    for row, (first, last), hole in zip(weights, block.spans, block.holes, strict=True):
        row[first:last] = 1 / (last - first - len(hole))
        row[hole] = 0
    return weights
