"""Prepares batches for training steps on the CPU; no parameter is needed for that."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from carp.kernels.cpu.ragged import RaggedWords, Windows, lay_down
from carp.kernels.cpu.word_convolution import BatchWords, find_words
from carp.models.batch import Batch, TrainingData
from carp.models.batch_share import BatchShare
from carp.models.carp import Carp

Keys = tuple[int, int]


@dataclass(frozen=True)
class StepPlan:
    batch: Batch
    sides: tuple[RaggedWords, RaggedWords]
    words: BatchWords
    keys: tuple[Keys, Keys]  # each side's, for `drawn`: features whose number is below `chance` are dropped
    chance: int
    filters: int
    share: BatchShare | None = None  # of several processes

    @property
    def dropped(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]] | None:
        """Which features [T, n] of each side dropout leaves out; None without dropout."""
        if not self.chance:
            return None
        user, item = (drawn(len(side), self.filters, keys) for side, keys in zip(self.sides, self.keys, strict=True))
        return user < self.chance, item < self.chance

    def of_share(self, share: BatchShare) -> StepPlan:
        """The same step as far as the rows of a share go: the same words and the same dropout, and fewer documents."""
        user, item = (RaggedWords(side.neighbours, side.blocks.of_rows(share.rows)) for side in self.sides)
        return replace(self, sides=(user, item), share=share)


def drawn(tokens: int, filters: int, keys: Keys) -> NDArray[np.uint32]:
    """A random number for each feature [T, n], mixed from its place and the keys as in `drop` of encode.c."""
    place = np.arange(tokens * filters, dtype=np.uint32)
    x = (place * np.uint32(0x9E3779B1)) ^ np.uint32(keys[0])
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x85EBCA6B) + np.uint32(keys[1])
    x = (x ^ (x >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return (x ^ (x >> np.uint32(16))).reshape(tokens, filters)


class StepMaker:
    """Makes the steps of an epoch; all random choices follow from the seed and the epoch's number."""

    def __init__(self, model: Carp, data: TrainingData, size: int) -> None:
        self.config, self.data, self.size = model.config, data, size
        self.dtype = model.embedding.weight.dtype
        self.windows = [Windows.of(d, self.config.window) for d in (data.user_documents, data.item_documents)]

    def steps(self, seed: int, epoch: int) -> Iterator[StepPlan]:
        order = np.random.default_rng([seed, epoch]).permutation(len(self.data.train))
        chance = np.random.SFC64([seed, epoch, 1])
        for start in range(0, len(order), self.size):
            yield self.step(order[start : start + self.size], chance)

    def step(self, chosen: NDArray[np.int64], chance: np.random.SFC64) -> StepPlan:
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
        keys = [(int(number) & 0xFFFFFFFF, int(number) >> 32) for number in chance.random_raw(2)]
        least = round(self.config.dropout * (1 << 32))
        return StepPlan(batch, (user, item), words, (keys[0], keys[1]), least, self.config.filters)
