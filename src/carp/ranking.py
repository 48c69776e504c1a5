"""The things people would rate highest among all they have not rated: of one person, or of everybody.

One way for both, so that they always agree: people are ranked in blocks, and of each block only the best things are
kept. Where a model's two sides do not separate, people are ranked one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from carp.answers import Recommendation
from carp.errors import UsageError
from carp.kernels.best_items import top_items
from carp.models.base import RatingModel
from carp.training.fitted_corpus import FittedCorpus

PEOPLE_AT_ONCE = 1_024
KEPT_AT_ONCE = 1 << 22  # recommendations of a block of people, however many each of them gets

Sides = tuple[Tensor, Tensor]  # of all users and of all items
Rate = Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.float64]]  # stars of numbered pairs


def rank_by_sides(
    model: RatingModel, fitted: FittedCorpus, sides: Sides, users: Sequence[int], n: int
) -> Iterator[tuple[int, list[Recommendation]]]:
    """The n best things of each of these users that they have not rated, best first."""
    n = min(n, len(fitted.items))
    at_once = max(1, min(PEOPLE_AT_ONCE, KEPT_AT_ONCE // n))
    for first in range(0, len(users), at_once):
        some = users[first : first + at_once]
        exclude = torch.from_numpy(_already_rated(fitted, some)).to(sides[1].device)
        best, ratings = top_items(model, *sides, n, users=some, exclude=exclude)
        rows = zip(some, best.cpu().numpy(), ratings.double().cpu().numpy(), strict=True)
        for user, items, stars in rows:
            left = stars > -np.inf  # there may be fewer than n
            yield user, best_things(fitted, items[left], stars[left], n)


def rank_one_by_one(
    fitted: FittedCorpus, rate: Rate, users: Sequence[int], n: int
) -> Iterator[tuple[int, list[Recommendation]]]:
    """The same for a model that must be asked for every pair."""
    for user in users:
        items = np.setdiff1d(np.arange(len(fitted.items)), fitted.rated_by(user))
        yield user, best_things(fitted, items, rate(np.full(len(items), user), items), n)


def best_things(
    fitted: FittedCorpus, items: NDArray[np.int64], stars: NDArray[np.float64], n: int
) -> list[Recommendation]:
    """The n with most stars, in the range of the data; of equals the one that comes first in the corpus."""
    check_number(n)
    order = np.lexsort((items, -stars))[:n]
    shown = np.clip(stars[order], 1, fitted.levels)
    found = []
    for item, rating in zip(items[order].tolist(), shown.tolist(), strict=True):
        mean = float(fitted.item_means[item])
        average = None if np.isnan(mean) else fitted.own_rating(mean)
        found.append(Recommendation(fitted.items[item], fitted.own_rating(rating), average, fitted.title(item)))
    return found


def check_number(n: int) -> None:
    if n < 1:
        raise UsageError(f"{n} recommendations cannot be given", fix="ask for 1 or more")


def _already_rated(fitted: FittedCorpus, users: Sequence[int]) -> NDArray[np.int64]:
    """Places among the users and items they rated, [pairs, 2]."""
    rated = [fitted.rated_by(user) for user in users]
    places = np.repeat(np.arange(len(rated)), [len(items) for items in rated])
    return np.stack([places, np.concatenate(rated)], 1)
