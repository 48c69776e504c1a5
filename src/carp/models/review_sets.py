"""Documents as sets of reviews, for models that read reviews one by one."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from carp.models.batch import Pairs, Sizes
from carp.models.batch_share import largest_of_all
from carp.models.layers import SizedByData

REVIEWS_ALONE = {"max_words": 1_000_000}  # text settings: how many reviews, and how long, bound a document already


class ReviewSets(NamedTuple):
    """Documents as sets of reviews."""

    words: Tensor  # [B, R, W], 0 where there is none
    records: Tensor  # [B, R], -1 where there is no review

    @property
    def there(self) -> Tensor:
        return self.records >= 0


def review_sets(words: Tensor, reviews: Tensor, most: int, longest: int) -> ReviewSets:
    """Documents [B, L] as sets of reviews, the first of both kept; R and W are no larger than a batch needs."""
    number, place, kept = places_in_reviews(words, reviews, most, longest)
    rows = torch.arange(len(words), device=words.device).unsqueeze(1)
    count, longest = (largest_of_all(max(1, int((of * kept).amax()) + 1)) for of in (number, place))
    target = rows * count + number
    sets = words.new_zeros(len(words) * count * longest)
    sets = sets.index_copy(0, (target * longest + place)[kept], words[kept])
    first = kept & (place == 0)
    records = reviews.new_full((len(words) * count,), -1).index_copy(0, target[first], reviews[first])
    return ReviewSets(sets.view(len(words), count, longest), records.view(len(words), count))


def in_documents(values: Tensor, words: Tensor, reviews: Tensor, most: int) -> Tensor:
    """What belongs to the words of sets of reviews [B, R, W], at their places in the documents. [B, L]"""
    number, place, kept = places_in_reviews(words, reviews, most, values.shape[2])
    places = torch.where(kept, number * values.shape[2] + place, 0)
    return values.flatten(1).gather(1, places) * kept


class ReviewPartners(SizedByData):
    """Who wrote each training review, and of what."""

    sized_by_data = ("user", "item")  # by the records
    user: Tensor
    item: Tensor

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.sizes = sizes
        self.register_buffer("user", torch.zeros(0, dtype=torch.int64))
        self.register_buffer("item", torch.zeros(0, dtype=torch.int64))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        super()._load_from_state_dict(state_dict, prefix, *rest)
        for name, known in (("user", self.sizes.users), ("item", self.sizes.items)):
            numbers = state_dict.get(f"{prefix}{name}", self.user[:0])
            if bool(((numbers < -1) | (numbers >= known)).any()):
                raise ValueError(f"{prefix}{name} names somebody who is not there")

    def fit(self, train: Pairs) -> None:
        records = torch.from_numpy(train.records)
        for name, numbers in (("user", train.users), ("item", train.items)):
            known = torch.full((int(train.records.max(initial=-1)) + 1,), -1)
            known[records] = torch.from_numpy(numbers)
            setattr(self, name, known.to(self.user.device))

    def writers(self, records: Tensor) -> Tensor:
        """Who wrote these reviews; -1 of a review that was not trained on."""
        return self._looked_up(self.user, records)

    def things(self, records: Tensor) -> Tensor:
        """What these reviews are about; -1 of a review that was not trained on."""
        return self._looked_up(self.item, records)

    @staticmethod
    def _looked_up(numbers: Tensor, records: Tensor) -> Tensor:
        known = (records >= 0) & (records < len(numbers))
        return torch.where(known, F.pad(numbers, (0, 1), value=-1)[torch.where(known, records.long(), 0)], -1)


def as_reviews(words: Tensor, reviews: Tensor, most: int, longest: int) -> Tensor:
    """The words of `review_sets` alone. [B, R, W]

    >>> as_reviews(torch.tensor([[5, 6, 7, 8]]), torch.tensor([[3, 3, 3, 9]]), 30, 2).tolist()
    [[[5, 6], [8, 0]]]
    """
    return review_sets(words, reviews, most, longest).words


def places_in_reviews(words: Tensor, reviews: Tensor, most: int, longest: int) -> tuple[Tensor, Tensor, Tensor]:
    """For each word of documents its review's number, its place in that review, and whether it is kept. [B, L] each

    The words of a review stand together in its document.
    """
    there = words > 0
    rows = torch.arange(len(words), device=words.device).unsqueeze(1)
    columns = torch.arange(words.shape[1], device=words.device)
    first = there & (reviews != F.pad(reviews, (1, 0), value=-1)[:, :-1])
    started = first.float() @ (columns.unsqueeze(1) <= columns).float()  # a running count, the same bits on a GPU
    number = started.round().long() - 1  # of the word's review in its document
    starts = torch.zeros_like(reviews, dtype=torch.long).flatten()
    starts = starts.index_copy(0, (rows * words.shape[1] + number)[first], columns.expand_as(words)[first])
    place = columns - starts.view_as(words).gather(1, number.clamp_min(0))  # of the word in its review
    return number, place, there & (place < longest) & (number < most)
