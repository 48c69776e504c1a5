"""What a model is fed: pairs of a user and an item with their documents, the target review left out in training."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from carp.reviews.documents import Documents, padded

TargetReviews = Literal["leave out", "keep"]


@dataclass(frozen=True)
class Sizes:
    """How many there are of everything a model makes tables for."""

    users: int
    items: int
    words: int  # without the padding, which is word 0
    levels: int = 5  # C: ratings lie in [1, C]
    max_words: int = 300  # longest document


@dataclass(frozen=True)
class Pairs:
    """Rated pairs; `records` is each pair's place in the corpus, -1 where it has none."""

    users: NDArray[np.int64]
    items: NDArray[np.int64]
    ratings: NDArray[np.float32]
    records: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.users)

    def apart_from(self, others: Pairs) -> Pairs:
        """The pairs whose records are not among those of the others; all of them where that would leave none."""
        apart = ~np.isin(self.records, others.records) | (self.records < 0)
        if apart.all() or not apart.any():
            return self
        return self.some(apart)

    def joined_with(self, others: Pairs) -> Pairs:
        """These and the others, each once."""
        new = others.some(~np.isin(others.records, self.records))
        return Pairs(*(np.concatenate([getattr(self, f.name), getattr(new, f.name)]) for f in fields(self)))

    def some(self, chosen: slice | NDArray[np.bool_]) -> Pairs:
        return Pairs(self.users[chosen], self.items[chosen], self.ratings[chosen], self.records[chosen])


@dataclass(frozen=True)
class Batch:
    """Some pairs as tensors. Word 0 and review -1 are padding; user or item number -1 is one nobody has seen."""

    users: Tensor  # [B]
    items: Tensor  # [B]
    user_words: Tensor  # [B, Lu]
    user_reviews: Tensor  # [B, Lu] the record each word comes from
    item_words: Tensor  # [B, Li]
    item_reviews: Tensor  # [B, Li]
    ratings: Tensor | None = None  # [B], in training only
    target_words: Tensor | None = None  # [B, Lt] the pair's own review, in training and where a model needs it
    training: bool = False  # the pairs' own ratings are part of what was fitted before: leave them out

    stands_for: float | None = None  # rows of a batch that several processes share; None: its own

    def __len__(self) -> int:
        return len(self.users)

    @property
    def weight(self) -> float:
        """For how many rows it counts."""
        return len(self) if self.stands_for is None else self.stands_for

    def part(self, rows: slice, stands_for: float) -> Batch:
        """Some of the rows, as wide as the whole."""
        cut: dict[str, Any] = {
            f.name: value[rows] for f in fields(self) if isinstance(value := getattr(self, f.name), Tensor)
        }
        return replace(self, **cut, stands_for=stands_for)

    @property
    def own_ratings(self) -> Tensor | None:
        """What leave-one-out biases have to take out again: in training the pairs' ratings, else nothing."""
        return self.ratings if self.training else None

    def to(self, device: torch.device) -> Batch:
        moved: dict[str, Any] = {
            f.name: value.to(device, non_blocking=True)
            for f in fields(self)
            if isinstance(value := getattr(self, f.name), Tensor)
        }
        return replace(self, **moved)


@dataclass(frozen=True)
class NameWords:
    """What items are called: the words of item i are `words[offsets[i]:offsets[i + 1]]`, numbered from 0."""

    words: NDArray[np.int64]
    offsets: NDArray[np.int64]  # [items + 1]
    known_words: int


@dataclass(frozen=True)
class TrainingData:
    """All that fitting may look at: training and validation pairs, and documents of training reviews."""

    train: Pairs
    valid: Pairs
    user_documents: Documents
    item_documents: Documents
    sizes: Sizes
    target_reviews: TargetReviews = "leave out"
    reviews: Documents | None = None  # each training pair's own review, in the order of `train`
    item_names: NameWords | None = None

    def batch(
        self, pairs: Pairs, chosen: NDArray[np.int64], *, training: bool = False, needs: frozenset[str] = frozenset()
    ) -> Batch:
        """Pairs of the given places, each without its own review where they are trained on.

        With `needs` named, documents that are not among them are empty: to lay them out takes longer than a step.
        """
        users, items = pairs.users[chosen], pairs.items[chosen]
        leave_out = pairs.records[chosen] if training and self.target_reviews == "leave out" else None
        unread = bool(needs) and "documents" not in needs
        user_words, user_reviews = _unread(len(chosen)) if unread else padded(self.user_documents, users, leave_out)
        item_words, item_reviews = _unread(len(chosen)) if unread else padded(self.item_documents, items, leave_out)
        return Batch(
            users=torch.from_numpy(users),
            items=torch.from_numpy(items),
            user_words=torch.from_numpy(user_words),
            user_reviews=torch.from_numpy(user_reviews),
            item_words=torch.from_numpy(item_words),
            item_reviews=torch.from_numpy(item_reviews),
            ratings=torch.from_numpy(pairs.ratings[chosen]),
            target_words=self._target_words(chosen) if training and "target_review" in needs else None,
            training=training,
        )

    def _target_words(self, chosen: NDArray[np.int64]) -> Tensor:
        assert self.reviews is not None, "a model that needs target reviews is trained on data that has them"
        return torch.from_numpy(padded(self.reviews, chosen)[0])

    def training_batches(
        self, size: int, seed: int, epoch: int, needs: frozenset[str] = frozenset()
    ) -> Iterator[Batch]:
        """One epoch in an order that is a function of seed and epoch alone, so that resuming repeats it."""
        order = np.random.default_rng([seed, epoch]).permutation(len(self.train))
        for start in range(0, len(order), size):
            yield self.batch(self.train, order[start : start + size], training=True, needs=needs)

    def batches(self, pairs: Pairs, size: int = 500, needs: frozenset[str] = frozenset()) -> Iterator[Batch]:
        """Pairs in their own order, with whole documents."""
        for start in range(0, len(pairs), size):
            yield self.batch(pairs, np.arange(start, min(start + size, len(pairs))), needs=needs)


def _unread(rows: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Documents of no words, as `padded` lays them out."""
    return np.zeros((rows, 1), np.int32), np.full((rows, 1), -1, np.int32)
