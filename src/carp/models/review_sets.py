"""Documents as sets of reviews, for models that read reviews one by one."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from carp.models.batch_share import largest_of_all

REVIEWS_ALONE = {"max_words": 1_000_000}  # text settings: how many reviews, and how long, bound a document already


def as_reviews(words: Tensor, reviews: Tensor, most: int, longest: int) -> Tensor:
    """Documents [B, L] as sets of reviews [B, R, W], the first of both kept; R is no larger than any needs.

    >>> as_reviews(torch.tensor([[5, 6, 7, 8]]), torch.tensor([[3, 3, 3, 9]]), 30, 2).tolist()
    [[[5, 6], [8, 0]]]
    """
    number, place, kept = places_in_reviews(words, reviews, most, longest)
    rows = torch.arange(len(words), device=words.device).unsqueeze(1)
    count = largest_of_all(max(1, int((number * kept).amax()) + 1))
    target = (rows * count + number) * longest + place
    sets = words.new_zeros(len(words) * count * longest)
    return sets.index_copy(0, target[kept], words[kept]).view(len(words), count, longest)


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
