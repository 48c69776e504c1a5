"""Sums of rows that belong together, in an order that does not change: the same bits each time, on a GPU too.

On a CPU rows are added one after the other. A GPU that adds in any order gives other bits each time, so there the rows
are sorted by owner once, and each owner's are summed in pieces of a fixed size, then the pieces, until one is left.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

PIECE = 64  # rows that one thread adds up


@dataclass(frozen=True)
class Segments:
    owner: Tensor  # [n] from 0
    owners: int
    order: Tensor | None = None  # rows sorted by owner, if they are not already
    levels: tuple[Tensor, ...] = ()  # how many rows, pieces, pieces of pieces are summed at once

    @staticmethod
    def of(owner: Tensor, owners: int) -> Segments:
        """Of rows with these owners."""
        if not owner.is_cuda:
            return Segments(owner, owners)
        sorted_already = bool((owner[1:] >= owner[:-1]).all())
        order = None if sorted_already else torch.argsort(owner, stable=True)
        lengths, levels = torch.bincount(owner, minlength=owners), []
        while int(lengths.max()) > PIECE if owners else False:
            pieces = (lengths + PIECE - 1) // PIECE
            level = torch.full((int(pieces.sum()),), PIECE, device=owner.device)
            full = pieces > 0
            level[pieces.cumsum(0)[full] - 1] = (lengths - (pieces - 1) * PIECE)[full]
            levels.append(level)
            lengths = pieces
        return Segments(owner, owners, order, (*levels, lengths))

    def sums(self, values: Tensor) -> Tensor:
        """The sum of each owner's values, [n] or [n, c] to [owners] or [owners, c]."""
        if not values.is_cuda:
            return values.new_zeros(self.owners, *values.shape[1:]).index_add_(0, self.owner, values)
        if not len(values):
            return values.new_zeros(self.owners, *values.shape[1:])
        values = values if self.order is None else values[self.order]
        for lengths in self.levels:
            values = torch.segment_reduce(values, "sum", lengths=lengths, axis=0, unsafe=True, initial=0)
        return values
