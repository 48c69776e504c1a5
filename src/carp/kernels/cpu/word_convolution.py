"""The convolution over the distinct words of a batch, forward and backward, and the optimiser's step on their rows.

The distinct words are in three groups: first those of users' documents alone, then those of both sides, then those of
items' documents alone. So each side's words are one stretch of rows, and every row is read and written once a step,
however many documents have the word.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from carp.kernels.cpu.ragged import RaggedWords
from carp.models.layers import WordConvolution

AHEAD = 6  # the same number as in words.c
ROWS = 512  # words worked on at once: their embeddings and gradients fill a core's cache


@dataclass(frozen=True)
class SideWords:
    """Which words one side's tokens are, and which tokens its words have."""

    first: int  # the stretch of distinct words this side has
    last: int
    places: NDArray[np.int32]  # [T, window] the words around each token, counted from `first`; one beyond is no word
    order: NDArray[np.int32]  # [T + AHEAD] tokens, word by word; the last AHEAD are never used
    offsets: NDArray[np.int64]  # [words + 1] where each word's tokens begin

    @cached_property
    def codes(self) -> Tensor:
        """[T, window] rows of the slices: each word has `window` of them."""
        window = self.places.shape[1]
        return torch.from_numpy(self.places * window + np.arange(window, dtype=np.int32))

    @cached_property
    def users(self) -> list[Tensor]:
        """For each step of the window, the tokens that see a word at that step, word by word; T where none does."""
        count, window = self.places.shape
        order, found = self.order[:count], []
        for step in range(window):
            # The token at `place` is the step-th neighbour of the token `place - shift`, where both are of one review.
            shift = step - window // 2
            looks = self.places[order, window - 1 - step] < self.last - self.first
            found.append(torch.from_numpy(np.where(looks, order - shift, count).astype(np.int32)))
        return found


@dataclass(frozen=True)
class BatchWords:
    distinct: Tensor  # [V'] word numbers
    sides: tuple[SideWords, SideWords]

    def stretches(self) -> list[tuple[int, int]]:
        """Rows in pieces of at most ROWS that lie wholly inside or outside each side's stretch."""
        user, item = self.sides
        edges = sorted({0, item.first, user.last, len(self.distinct)})
        return [
            (start, min(start + ROWS, last))
            for first, last in itertools.pairwise(edges)
            for start in range(first, last, ROWS)
        ]


def find_words(user: RaggedWords, item: RaggedWords, words: int) -> BatchWords:
    """The distinct words of a batch; `words` is the number of the highest one."""
    middles = [side.neighbours[:, side.neighbours.shape[1] // 2] for side in (user, item)]
    seen = np.zeros(words + 1, dtype=np.int8)
    seen[middles[1]] = 2
    in_items = seen[middles[0]] >= 2
    seen[middles[0][in_items]] = 3
    seen[middles[0][~in_items]] = 1
    parts = [np.flatnonzero(seen == kind) for kind in (1, 3, 2)]
    distinct = np.concatenate(parts)
    only, both = len(parts[0]), len(parts[1])
    slot = np.zeros(words + 1, dtype=np.int32)
    slot[distinct] = np.arange(len(distinct), dtype=np.int32)
    sides = (
        _side_words(user, slot, 0, only + both),
        _side_words(item, slot, only, len(distinct)),
    )
    return BatchWords(torch.from_numpy(distinct), sides)


def _side_words(tokens: RaggedWords, slot: NDArray[np.int32], first: int, last: int) -> SideWords:
    window, no_word = tokens.neighbours.shape[1], last - first
    own = slot - np.int32(first)
    own[0] = no_word
    places = own.take(tokens.neighbours)
    middle = places[:, window // 2].copy()
    narrow = middle.astype(np.uint16) if no_word <= np.iinfo(np.uint16).max else middle  # sixteen bits sort by radix
    order = np.zeros(len(middle) + AHEAD, np.int32)
    order[: len(middle)] = np.argsort(narrow, kind="stable")
    offsets = np.concatenate([[0], np.cumsum(np.bincount(middle, minlength=no_word))])
    return SideWords(first, last, places, order, offsets)


class Filters:
    """One side's filters laid out for a step: [d, window · n], and the slices of its words."""

    def __init__(self, convolution: WordConvolution, words: SideWords, scale: float) -> None:
        weight = convolution.weight.detach()
        self.window, dimension, self.filters = weight.shape
        self.scale = scale  # of the features that dropout keeps: ReLU lets a positive factor pass
        self.weight = weight.permute(1, 0, 2).reshape(dimension, -1) * scale
        self.bias = convolution.bias.detach() * scale
        self.words = words
        self.slices = weight.new_empty(words.last - words.first + 1, self.window * self.filters)
        self.slices[-1].zero_()

    def slice(self, first: int, last: int, embeddings: Tensor) -> None:
        """The slices of some of the batch's words."""
        rows = self.slices[first - self.words.first : last - self.words.first]
        torch.mm(embeddings, self.weight, out=rows)
        middle = self.window // 2 * self.filters
        rows[:, middle : middle + self.filters] += self.bias

    def table(self) -> Tensor:
        return self.slices.view(-1, self.filters)  # a word's slices one after another

    def gather(self, first: int, last: int, d_features: Tensor) -> Tensor:
        """Gradients of the slices of some of the batch's words from those of the tokens [T + 1, n]; row T is zero."""
        offsets = self.words.offsets[first - self.words.first : last - self.words.first + 1]
        bags = torch.from_numpy(offsets[:-1] - offsets[0]).int()
        stretch = slice(int(offsets[0]), int(offsets[-1]))
        sums = [F.embedding_bag(users[stretch], d_features, bags, mode="sum") for users in self.words.users]
        return torch.cat(sums, 1)  # [rows, window · n]

    def spread(self, weight: Tensor, bias: Tensor) -> dict[str, Tensor]:
        """Gradients of the convolution's parameters from those of the laid-out ones."""
        shaped = weight.view(self.window, self.filters, -1).transpose(1, 2)
        return {"convolution.weight": shaped * self.scale, "convolution.bias": bias * self.scale}


class RowOptimizer:
    """RMSprop on the rows of the embedding that have a gradient; the others' running squares decay when next needed.

    A row without a gradient does not move, and its running square shrinks by the decay every step: after s such
    steps it is decay^s of what it was. `settle` brings all rows up to date, so that the optimizer's state is what
    the plain one's would be.
    """

    def __init__(
        self, table: Tensor, square: Tensor, step: Tensor, *, rate: float, decay: float, epsilon: float
    ) -> None:
        self.table, self.square, self.step = table, square, step
        self.rate, self.decay, self.epsilon = rate, decay, epsilon
        self.now = 0
        self.settled = np.zeros(len(table), dtype=np.int64)  # the step up to which each row's square is decayed
        self.held: Tensor | None = None  # gradients of a batch's words that wait for those of other processes

    def begin(self) -> None:
        self.now += 1
        self.step += 1

    def update(self, rows: Tensor, values: Tensor, grad: Tensor) -> None:
        """Update rows, each given once, that now hold `values`; `grad` is overwritten."""
        numbers = rows.numpy()
        shrink = torch.from_numpy(self.decay ** (self.now - self.settled[numbers])).to(grad.dtype)
        self.settled[numbers] = self.now
        square = self.square.index_select(0, rows).mul_(shrink.unsqueeze(1))
        square.addcmul_(grad, grad, value=1 - self.decay)
        self.square.index_copy_(0, rows, square)
        values = torch.addcdiv(values, grad, square.sqrt_().add_(self.epsilon), value=-self.rate)
        self.table.index_copy_(0, rows, values)

    def hold(self, words: int) -> None:
        """Let the next step write down the gradients of its words instead of updating them."""
        self.held = self.table.new_zeros(words, self.table.shape[1])

    def release(self, rows: Tensor, grad: Tensor) -> None:
        """Update the words of a step that was held by the gradients of all processes."""
        self.held = None
        self.update(rows, self.table.index_select(0, rows), grad)

    def settle(self) -> None:
        shrink = torch.from_numpy(self.decay ** (self.now - self.settled)).to(self.square.dtype)
        self.square.mul_(shrink.unsqueeze(1))
        self.settled[:] = self.now


def word_gradients(
    filters: Sequence[Filters], first: int, last: int, embeddings: Tensor, d_features: Sequence[Tensor]
) -> tuple[Tensor, list[Tensor | None]]:
    """Gradients of some words' embeddings, and their part of each side's filters' [window · n, d]."""
    grad: Tensor | None = None
    parts: list[Tensor | None] = []
    for side, tokens in zip(filters, d_features, strict=True):
        if not side.words.first <= first < side.words.last:
            parts.append(None)
            continue
        slices = side.gather(first, last, tokens)
        parts.append(torch.mm(slices.T, embeddings))
        grad = slices @ side.weight.T if grad is None else grad.addmm_(slices, side.weight.T)
    assert grad is not None, "every distinct word is of one side at least"
    return grad, parts
