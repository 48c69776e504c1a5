"""Many pairs with their documents as rectangles, every word knowing its sentence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from carp.models.batch import Batch, Pairs
from carp.models.blocks import blocks_of_like_length

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Keys = NDArray[np.int64]

PLACES = 1 << 20  # sentences a review can have before keys of two reviews would meet
BLOCK_WORDS = 30_000  # of one side, read at once: bounds memory whatever the documents' lengths
BLOCK_PAIRS = 256


@dataclass(frozen=True, eq=False)
class PaddedTexts:
    """One side's documents, padded: word 0, review and sentence -1."""

    words: NDArray[np.int32]  # [N, L]
    reviews: NDArray[np.int32]  # [N, L]
    sentences: Keys  # [N, L] record · PLACES + place of the sentence in it: the same in every model

    @property
    def there(self) -> Flags:
        return self.words > 0

    @property
    def widths(self) -> NDArray[np.int64]:
        """How far each document reaches, gaps inside it counted. [N]"""
        ends: NDArray[np.int64] = (self.there * np.arange(1, self.words.shape[1] + 1)).max(1, initial=0)
        return ends

    def rows(self, chosen: NDArray[np.int64]) -> PaddedTexts:
        """Some documents, no wider than they need to be."""
        width = max(1, int(self.widths[chosen].max(initial=0)))
        return PaddedTexts(self.words[chosen, :width], self.reviews[chosen, :width], self.sentences[chosen, :width])


@dataclass(frozen=True, eq=False)
class PairTexts:
    """Pairs and what was written that may speak for them."""

    pairs: Pairs
    user: PaddedTexts
    item: PaddedTexts

    def __len__(self) -> int:
        return len(self.pairs)

    @property
    def sides(self) -> tuple[PaddedTexts, PaddedTexts]:
        return self.user, self.item


def blocks(pairs: PairTexts) -> Iterator[NDArray[np.int64]]:
    """Pairs with documents of like length together, so that little is padded; few enough for memory."""
    widths = np.maximum(pairs.user.widths, pairs.item.widths)
    return blocks_of_like_length(widths, most_words=BLOCK_WORDS, most=BLOCK_PAIRS)


def batch_of(pairs: PairTexts, chosen: NDArray[np.int64], device: torch.device) -> Batch:
    user, item = pairs.user.rows(chosen), pairs.item.rows(chosen)
    columns = (pairs.pairs.users[chosen], pairs.pairs.items[chosen], user.words, user.reviews, item.words, item.reviews)
    users, items, user_words, user_reviews, item_words, item_reviews = (
        torch.from_numpy(np.ascontiguousarray(column)).to(device) for column in columns
    )
    return Batch(users, items, user_words, user_reviews, item_words, item_reviews)
