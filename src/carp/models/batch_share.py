"""Batches that several processes share: each computes some of the rows, and all learn as if one had computed them all.

Whatever is drawn at random for a batch is drawn for the whole of it in every process, from generators in the same
state; each process takes its rows. Means over a batch are taken over the whole of it. Where one process trains, all of
this is what torch does anyway.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor


class Others(Protocol):
    """The processes that train together."""

    rank: int
    size: int

    def total(self, numbers: Tensor) -> Tensor:
        """The sum over all processes."""

    def union(self, numbers: Tensor) -> Tensor:
        """The distinct numbers of all processes, in order."""

    def exchange(self, rows: Tensor, sent: Sequence[int], received: Sequence[int]) -> Tensor:
        """So many rows to each process, one process after another; what comes back is so many from each."""


@dataclass(frozen=True)
class BatchShare:
    """The rows of a batch that this process computes. A batch of fewer rows than processes is computed by all."""

    first: int
    last: int
    whole: int
    stands_for: float  # rows; all processes together stand for the whole batch

    @classmethod
    def of(cls, others: Others, rows: int) -> BatchShare:
        """
        >>> from types import SimpleNamespace
        >>> [BatchShare.of(SimpleNamespace(rank=rank, size=2), 5).rows for rank in (0, 1)]
        [slice(0, 3, None), slice(3, 5, None)]
        """
        if rows < others.size:
            return cls(0, rows, rows, rows / others.size)
        first, last = (-(-rows * rank // others.size) for rank in (others.rank, others.rank + 1))
        return cls(first, last, rows, float(last - first))

    @property
    def rows(self) -> slice:
        return slice(self.first, self.last)

    @property
    def weight(self) -> float:
        return self.stands_for / max(self.whole, 1)


class Sharing:
    """Who shares the present training, and which part of the present batch is ours."""

    others: Others | None = None
    share: BatchShare | None = None


_NOW = Sharing()


def sharing() -> Sharing:
    return _NOW


@contextlib.contextmanager
def shared_with(others: Others | None) -> Iterator[None]:
    """Train together with other processes, or alone."""
    _NOW.others = others
    try:
        yield
    finally:
        _NOW.others = _NOW.share = None


@contextlib.contextmanager
def own_rows(rows: int) -> Iterator[slice]:
    """The rows of something that is no batch which this process computes: all, where it trains alone."""
    before = _NOW.share
    _NOW.share = None if _NOW.others is None else BatchShare.of(_NOW.others, rows)
    try:
        yield slice(None) if _NOW.share is None else _NOW.share.rows
    finally:
        _NOW.share = before


def drawn_rows(like: Tensor, draw: Callable[[Tensor], Tensor]) -> Tensor:
    """Random numbers for the rows of a batch [B, ...], by a function that fills an empty tensor of that kind."""
    share = _NOW.share
    if share is None or len(like) != share.last - share.first:
        return draw(torch.empty_like(like))
    return draw(_laid_out_like(like, share.whole))[share.rows]


def _laid_out_like(like: Tensor, rows: int) -> Tensor:
    """Room for so many rows, laid out in memory as `like` is: random numbers are drawn in the order of the memory."""
    strides = like.stride()
    order = sorted(range(like.ndim), key=lambda axis: -strides[axis])
    sizes = [rows, *like.shape[1:]]
    back = [order.index(axis) for axis in range(like.ndim)]
    return like.new_empty([sizes[axis] for axis in order]).permute(back)


def drop_rows(values: Tensor, chance: float, training: bool) -> Tensor:
    """Dropout of the rows of a batch [B, ...]."""
    if _NOW.share is None or not training or not chance:
        return F.dropout(values, chance, training)
    return values * drawn_rows(values, lambda empty: F.dropout(empty.fill_(1.0), chance))


def distinct_words(words: Tensor) -> tuple[Tensor, Tensor]:
    """The distinct words of a whole batch, and the place of each of our words among them."""
    if _NOW.others is None or _NOW.share is None:
        distinct, slots = torch.unique(words, return_inverse=True)
        return distinct, slots
    distinct = _NOW.others.union(torch.unique(words))
    return distinct, torch.searchsorted(distinct, words.contiguous())


def largest_of_all(number: int) -> int:
    """The largest of a number over the parts of a batch."""
    if _NOW.others is None or _NOW.share is None:
        return number
    return int(_NOW.others.union(torch.tensor([number])).max())


def counted(*counts: int | Tensor) -> list[float]:
    """Counts over the whole batch."""
    mine = torch.tensor([float(count) for count in counts], dtype=torch.float64)
    if _NOW.others is not None and _NOW.share is not None:
        mine = _NOW.others.total(mine * _NOW.share.stands_for / max(_NOW.share.last - _NOW.share.first, 1))
    return [float(count) for count in mine]


def mean_of(total: Tensor, count: float) -> Tensor:
    """Our part of a mean over the whole batch: so that the mean of all parts, weighed by their rows, is that mean."""
    share = _NOW.share
    if share is None:
        return total / count
    own = share.stands_for / max(share.last - share.first, 1)  # below 1 where all compute the same rows
    return total * own / (share.weight * count)
