"""Batches made ready for a training step on the CPU: numbers only, no parameter has been looked at."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from carp.kernels.ragged import Tokens, Windows, lay_down
from carp.kernels.words_cpu import BatchWords, find_words
from carp.models.batch import Batch, TrainingData
from carp.models.carp import Carp

Drawn = NDArray[np.uint16]


@dataclass(frozen=True)
class Step:
    batch: Batch
    sides: tuple[Tokens, Tokens]
    words: BatchWords
    drawn: tuple[Drawn, Drawn] | None  # [n · T] of each side: a feature is dropped whose number is below `chance`
    chance: int

    @property
    def dropped(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]] | None:
        return None if self.drawn is None else (self.drawn[0] < self.chance, self.drawn[1] < self.chance)


class StepMaker:
    """All of an epoch's random choices, a function of the seed and the epoch's number."""

    def __init__(self, model: Carp, data: TrainingData, size: int) -> None:
        self.config, self.data, self.size = model.config, data, size
        self.dtype = model.embedding.weight.dtype
        self.windows = [Windows.of(d, self.config.window) for d in (data.user_documents, data.item_documents)]

    def steps(self, seed: int, epoch: int) -> Iterator[Step]:
        order = np.random.default_rng([seed, epoch]).permutation(len(self.data.train))
        chance = np.random.SFC64([seed, epoch, 1])
        for start in range(0, len(order), self.size):
            yield self.step(order[start : start + self.size], chance)

    def step(self, chosen: NDArray[np.int64], chance: np.random.SFC64) -> Step:
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
        words = find_words(user, item, self.data.sizes.words)
        dropout = self.config.dropout
        drawn = (self._drawn(len(user), chance), self._drawn(len(item), chance)) if dropout else None
        return Step(batch, (user, item), words, drawn, round(dropout * (1 << 16)))

    def _drawn(self, tokens: int, chance: np.random.SFC64) -> Drawn:
        count = tokens * self.config.filters
        return chance.random_raw(-(-count // 4)).view(np.uint16)[:count]  # four of each word of 64 bits
