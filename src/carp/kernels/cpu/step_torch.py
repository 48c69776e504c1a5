"""The rounds of one training step in torch, for where there is no C and for double precision."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from carp.kernels.cpu.ragged import Block
from carp.kernels.cpu.step_plan import StepPlan
from carp.kernels.cpu.threads import workers
from carp.kernels.cpu.viewpoints import (
    Gates,
    SideGradients,
    Store,
    Trace,
    Traces,
    backward_block,
    forward_block,
    read_features,
    spread,
)
from carp.kernels.cpu.word_convolution import Filters, RowOptimizer, word_gradients
from carp.models.carp import Viewpoints


@dataclass
class Piece:
    """A block of one side, its place among the gradients, and what it keeps from one round to the next."""

    side: int
    number: int
    block: Block
    trace: Trace


class TorchStep:
    """`forward`, `start_backward` and `finish_backward`, one after another."""

    def __init__(
        self, step: StepPlan, sides: Sequence[Viewpoints], stores: Sequence[Store], rows: RowOptimizer, scale: float
    ) -> None:
        self.step, self.sides, self.stores, self.rows = step, sides, stores, rows
        found = zip(sides, step.words.sides, strict=True)
        self.filters = [Filters(side.convolution, words, scale) for side, words in found]
        self.gates = [Gates(side) for side in sides]
        self.stretches = step.words.stretches()

    def forward(self) -> tuple[Tensor, Tensor]:
        """The viewpoints and the aspects of the batch's pairs."""
        self.embeddings = self._slices()
        m, k = self.gates[0].viewpoints, self.gates[0].size
        like, pairs = self.rows.table, len(self.step.batch)
        found = like.new_zeros(pairs, m, k), like.new_zeros(pairs, m, k)
        traces = [Traces(len(self.step.sides[side]), self.gates[side], self.stores[side], like) for side in (0, 1)]
        self.pieces = [
            Piece(side, number, tokens.blocks[number], traces[side].of(tokens.blocks[number]))
            for side, tokens in enumerate(self.step.sides)
            for number in (range(len(tokens.blocks)) if self.step.share is None else tokens.blocks.read())
        ]
        dropped = self.step.dropped

        def viewpoints(piece: Piece) -> None:
            block, side = piece.block, piece.side
            mask = None
            if dropped is not None:
                mask = dropped[side][block.first : block.last].T
            codes = self.step.words.sides[side].codes[block.first : block.last]
            read_features(codes, self.filters[side].table(), piece.trace, mask)
            found[side][torch.from_numpy(block.pairs)] = forward_block(self.gates[side], piece.trace)

        workers().run(viewpoints, self.pieces)
        return found

    def _slices(self) -> Tensor:
        table = self.rows.table
        distinct = self.step.words.distinct
        count, dimension = len(distinct), table.shape[1]
        embeddings = self.stores[0].take("embeddings", count * dimension, table).view(count, dimension)

        def slices(stretch: tuple[int, int]) -> None:
            first, last = stretch
            rows = torch.index_select(table, 0, distinct[first:last], out=embeddings[first:last])
            for side in self.filters:
                if side.words.first <= first < side.words.last:
                    side.slice(first, last, rows)

        workers().run(slices, self.stretches)
        return embeddings

    def start_backward(self, grads: tuple[Tensor, Tensor]) -> Callable[[], None]:
        """Begin to go backward through the documents; the returned function waits for the end."""
        self.d_features = [self._room(side, len(tokens)) for side, tokens in enumerate(self.step.sides)]
        self.found: list[list[SideGradients | None]] = [[None] * len(tokens.blocks) for tokens in self.step.sides]

        def backward(piece: Piece) -> None:
            rows = self.d_features[piece.side][piece.block.first : piece.block.last]
            grad = grads[piece.side][torch.from_numpy(piece.block.pairs)]
            self.found[piece.side][piece.number] = backward_block(self.gates[piece.side], piece.trace, grad, rows)

        return workers().start(backward, self.pieces)

    def _room(self, side: int, tokens: int) -> Tensor:
        n = self.gates[side].filters
        room = self.stores[side].take("d_features", (tokens + 1) * n, self.rows.table).view(tokens + 1, n)
        (room if self.step.share is not None else room[-1]).zero_()
        return room

    def finish_backward(self) -> list[dict[str, Tensor]]:
        """Update the words' rows; the gradients of each side's parameters by name, none where the side has no word."""
        parts: list[list[Tensor | None]] = [[] for _ in self.stretches]
        self.rows.begin()

        def words(number: int) -> None:
            first, last = self.stretches[number]
            values = self.embeddings[first:last]
            grad, parts[number] = word_gradients(self.filters, first, last, values, self.d_features)
            if self.rows.held is None:
                self.rows.update(self.step.words.distinct[first:last], values, grad)
            else:
                self.rows.held[first:last] = grad

        workers().run(words, range(len(self.stretches)))
        return [self._gradients(side, [part[side] for part in parts]) for side in (0, 1)]

    def _gradients(self, number: int, slices: Sequence[Tensor | None]) -> dict[str, Tensor]:
        blocks = [gradients for gradients in self.found[number] if gradients is not None]
        if not blocks:
            return {}
        gate = _sum([b.gate for b in blocks])  # [n + 1, M · n]
        return {
            **spread(self.sides[number], gate[:-1].T, gate[-1], _sum([b.project for b in blocks])),
            **self.filters[number].spread(_sum(slices), _sum([b.bias for b in blocks])),
        }


def _sum(parts: Sequence[Tensor | None]) -> Tensor:
    return torch.stack([part for part in parts if part is not None]).sum(0)
