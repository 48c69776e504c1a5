"""One epoch of CARP on the CPU: the same steps as the plain loop, in pieces that stay in a core's cache.

A step is five rounds of pieces: the words' slices, the documents' viewpoints, the pairs' ratings with their way back
(plain autograd through `Carp.score` and `Carp.loss`), the documents' way back, the words' way back with the optimiser.
Sums over pieces are taken in the order of the pieces, so the bits do not depend on which thread did what.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from carp.kernels.encode_cpu import (
    Gates,
    Gradients,
    Store,
    Trace,
    Traces,
    backward_block,
    forward_block,
    read_features,
    spread,
)
from carp.kernels.ragged import Block, Tokens, Windows, lay_down
from carp.kernels.words_cpu import BatchWords, Filters, RowOptimizer, find_words, word_gradients
from carp.kernels.workers import workers
from carp.models.batch import Batch, TrainingData
from carp.models.carp import Carp

PAIRS = 50  # rated at once


@dataclass(frozen=True)
class Step:
    """A batch made ready: numbers only, no parameter has been looked at."""

    batch: Batch
    sides: tuple[Tokens, Tokens]
    words: BatchWords
    dropped: tuple[NDArray[np.bool_] | None, NDArray[np.bool_] | None]  # [n · T] of each side


class StepMaker:
    """All of an epoch's random choices, a function of the seed and the epoch's number."""

    def __init__(self, model: Carp, data: TrainingData, size: int) -> None:
        self.config, self.data, self.size = model.config, data, size
        self.dtype = model.embedding.weight.dtype
        self.windows = [Windows.of(d, self.config.window) for d in (data.user_documents, data.item_documents)]

    def steps(self, seed: int, epoch: int) -> Iterator[Step]:
        order = np.random.default_rng([seed, epoch]).permutation(len(self.data.train))
        chance = np.random.Generator(np.random.SFC64([seed, epoch, 1]))
        for start in range(0, len(order), self.size):
            yield self.step(order[start : start + self.size], chance)

    def step(self, chosen: NDArray[np.int64], chance: np.random.Generator) -> Step:
        pairs = self.data.train
        users, items = pairs.users[chosen], pairs.items[chosen]
        leave_out = pairs.records[chosen] if self.data.target_reviews == "leave out" else None
        user = lay_down(self.windows[0], users, leave_out)
        item = lay_down(self.windows[1], items, leave_out)
        nothing = torch.empty(0, dtype=torch.int32)
        batch = Batch(
            users=torch.from_numpy(users),
            items=torch.from_numpy(items),
            user_words=nothing,
            user_reviews=nothing,
            item_words=nothing,
            item_reviews=nothing,
            ratings=torch.from_numpy(pairs.ratings[chosen]).to(self.dtype),
            training=True,
        )
        dropped = self._dropped(len(user), chance), self._dropped(len(item), chance)
        return Step(batch, (user, item), find_words(user, item, self.data.sizes.words), dropped)

    def _dropped(self, tokens: int, chance: np.random.Generator) -> NDArray[np.bool_] | None:
        if not self.config.dropout:
            return None
        drawn = chance.integers(0, 1 << 16, tokens * self.config.filters, dtype=np.uint16)
        return drawn < round(self.config.dropout * (1 << 16))


@dataclass
class Piece:
    """A block of one side with its place among the gradients and what it keeps between the rounds."""

    side: int
    number: int
    block: Block
    trace: Trace


class CpuTrainer:
    """`epoch` is what a plain epoch is; the optimizer's state is the plain one's whenever an epoch is over."""

    def __init__(self, model: Carp, data: TrainingData, batch_size: int, optimizer: torch.optim.Optimizer) -> None:
        self.model, self.optimizer = model, optimizer
        self.maker = StepMaker(model, data, batch_size)
        self.sides = (model.user_side, model.item_side)
        own = "embedding.", "user_side.", "item_side."
        self.rest = [parameter for name, parameter in model.named_parameters() if not name.startswith(own)]
        self.stores = (Store(), Store())
        self.rows = _row_optimizer(model, optimizer)

    def epoch(self, seed: int, epoch: int, watcher: Any) -> float:
        """One pass over the training pairs; the mean loss."""
        total, pairs = 0.0, 0
        self.rows.rate = self.optimizer.param_groups[0]["lr"]  # an epoch may have its own
        steps = self.maker.steps(seed, epoch)
        step = next(steps, None)
        while step is not None:
            loss, step_after = self.learn(step, steps)
            total += loss * len(step.batch)
            pairs += len(step.batch)
            watcher.batch_done()
            step = step_after
        self.rows.settle()
        return total / max(pairs, 1)

    def learn(self, step: Step, following: Iterator[Step]) -> tuple[float, Step | None]:
        """Learn from one step; the next is made ready while the workers are on the way back."""
        share = 1 / (1 - self.model.config.dropout) if self.model.config.dropout else 1.0
        filters = [Filters(s.convolution, w, share) for s, w in zip(self.sides, step.words.sides, strict=True)]
        gates = [Gates(side) for side in self.sides]
        stretches = step.words.stretches()
        embeddings = self._slices(step, filters, stretches)
        pieces, sides = self._viewpoints(step, filters, gates)
        loss, grads = self._ratings(step.batch, sides)
        d_features = [self._room(side, len(tokens)) for side, tokens in enumerate(step.sides)]
        found: list[list[Gradients | None]] = [[None] * len(tokens.blocks) for tokens in step.sides]

        def way_back(piece: Piece) -> None:
            rows = d_features[piece.side][piece.block.first : piece.block.last]
            grad = grads[piece.side][torch.from_numpy(piece.block.pairs)]
            found[piece.side][piece.number] = backward_block(gates[piece.side], piece.trace, grad, rows)

        wait = workers().start(way_back, pieces)
        after = next(following, None)
        wait()
        self._apply_sides(filters, found, self._words(step, filters, stretches, embeddings, d_features))
        return loss, after

    def _slices(self, step: Step, filters: Sequence[Filters], stretches: list[tuple[int, int]]) -> Tensor:
        table = self.model.embedding.weight.detach()
        count, dimension = len(step.words.distinct), table.shape[1]
        embeddings = self.stores[0].take("embeddings", count * dimension, table).view(count, dimension)

        def slices(stretch: tuple[int, int]) -> None:
            first, last = stretch
            rows = torch.index_select(table, 0, step.words.distinct[first:last], out=embeddings[first:last])
            for side in filters:
                if side.words.first <= first < side.words.last:
                    side.slice(first, last, rows)

        workers().run(slices, stretches)
        return embeddings

    def _viewpoints(
        self, step: Step, filters: Sequence[Filters], gates: Sequence[Gates]
    ) -> tuple[list[Piece], tuple[Tensor, Tensor]]:
        m, k = self.model.config.viewpoints, self.model.config.latent_size
        like = filters[0].weight
        found = like.new_zeros(len(step.batch), m, k), like.new_zeros(len(step.batch), m, k)
        traces = [Traces(len(step.sides[side]), gates[side], self.stores[side], like) for side in (0, 1)]
        pieces = [
            Piece(side, number, block, traces[side].of(block))
            for side, tokens in enumerate(step.sides)
            for number, block in enumerate(tokens.blocks)
        ]

        def viewpoints(piece: Piece) -> None:
            block, side = piece.block, piece.side
            dropped = step.dropped[side]
            n = gates[side].filters
            if dropped is not None:
                dropped = dropped[n * block.first : n * block.last].reshape(n, -1)
            codes = step.words.sides[side].codes[block.first : block.last]
            read_features(codes, filters[side].table(), piece.trace, dropped)
            found[side][torch.from_numpy(block.pairs)] = forward_block(gates[side], piece.trace)

        workers().run(viewpoints, pieces)
        return pieces, found

    def _ratings(self, batch: Batch, sides: tuple[Tensor, Tensor]) -> tuple[float, tuple[Tensor, Tensor]]:
        """The loss, the gradients of both sides, and those of the parameters after them into `.grad`."""
        model, count = self.model, len(batch)
        starts = range(0, count, PAIRS)
        losses = [0.0] * len(starts)
        into_rest: list[list[Tensor | None]] = [[] for _ in starts]
        ratings = batch.ratings
        assert ratings is not None
        grads = torch.empty_like(sides[0]), torch.empty_like(sides[1])

        def rate(number: int) -> None:
            some = slice(starts[number], min(starts[number] + PAIRS, count))
            part = replace(batch, users=batch.users[some], items=batch.items[some], ratings=ratings[some])
            viewpoints, aspects = (side[some].requires_grad_() for side in sides)
            with torch.enable_grad():
                found = model.score(part.users, part.items, viewpoints, aspects, part.ratings)
                loss = model.loss(part, found) * (len(part) / count)
                wanted = [viewpoints, aspects, *self.rest]
                grads[0][some], grads[1][some], *parts = torch.autograd.grad(loss, wanted, allow_unused=True)
            losses[number] = float(loss.detach())
            into_rest[number] = [*parts]

        workers().run(rate, range(len(starts)))
        for parameter, parts in zip(self.rest, zip(*into_rest, strict=True), strict=True):
            there = [part for part in parts if part is not None]
            parameter.grad = torch.stack(there).sum(0) if there else None
        return sum(losses), grads

    def _room(self, side: int, tokens: int) -> Tensor:
        n = self.model.config.filters
        room = self.stores[side].take("d_features", (tokens + 1) * n, self.model.embedding.weight).view(tokens + 1, n)
        room[-1].zero_()
        return room

    def _words(
        self,
        step: Step,
        filters: Sequence[Filters],
        stretches: list[tuple[int, int]],
        embeddings: Tensor,
        d_features: Sequence[Tensor],
    ) -> list[list[Tensor | None]]:
        """The words' rows learn; each stretch's part of the filters' gradients is returned."""
        parts: list[list[Tensor | None]] = [[] for _ in stretches]
        self.rows.begin()

        def words(number: int) -> None:
            first, last = stretches[number]
            values = embeddings[first:last]
            grad, parts[number] = word_gradients(filters, first, last, values, d_features)
            self.rows.update(step.words.distinct[first:last], values, grad)

        workers().run(words, range(len(stretches)))
        return parts

    def _apply_sides(
        self,
        filters: Sequence[Filters],
        found: list[list[Gradients | None]],
        parts: list[list[Tensor | None]],
    ) -> None:
        for number, (side, laid_out) in enumerate(zip(self.sides, filters, strict=True)):
            blocks = [gradients for gradients in found[number] if gradients is not None]
            slices = [part[number] for part in parts if part[number] is not None]
            named = dict(side.named_parameters())
            grads = {} if not blocks else {
                **spread(side, _sum([b.gate for b in blocks]), _sum([b.project for b in blocks])),
                **laid_out.spread(_sum(slices), _sum([b.bias for b in blocks])),
            }  # fmt: skip
            for name, parameter in named.items():
                parameter.grad = grads.get(name, torch.zeros_like(parameter))
        self.model.embedding.weight.grad = None
        self.optimizer.step()


def _sum(parts: Sequence[Tensor | None]) -> Tensor:
    return torch.stack([part for part in parts if part is not None]).sum(0)


def _row_optimizer(model: Carp, optimizer: torch.optim.Optimizer) -> RowOptimizer:
    """Over the plain optimizer's own state, so that checkpoints are the plain ones."""
    table = model.embedding.weight
    settings = optimizer.param_groups[0]
    state = optimizer.state[table]
    if not state:
        state["step"] = torch.zeros(())
        state["square_avg"] = torch.zeros_like(table)
    return RowOptimizer(
        table.detach(),
        state["square_avg"],
        state["step"],
        rate=settings["lr"],
        decay=settings["alpha"],
        epsilon=settings["eps"],
    )
