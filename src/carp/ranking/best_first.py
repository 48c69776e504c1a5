"""The best things of one person, or of everybody, among all they have not rated.

One way for both, so that they always agree: people are ranked in blocks, and of each block only the best things are
kept. Where a model's two sides do not separate, people are rated one by one.
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
KEPT_AT_ONCE = 1 << 22  # ratings or recommendations of a block of people, however many each of them has

Sides = tuple[Tensor, Tensor]  # of all users and of all items
Numbers = NDArray[np.int64]
Floats = NDArray[np.float64]
Rate = Callable[[Numbers, Numbers], Floats]  # stars of numbered pairs
RateAll = Callable[[Sequence[int]], Floats]  # stars of some users for all items [users, items]
Allowed = NDArray[np.bool_] | None  # [items]; None: all


def blocks_of_people(users: Sequence[int], each: int) -> Iterator[Sequence[int]]:
    """Some users at a time, so many that what is kept of each of them fits."""
    at_once = max(1, min(PEOPLE_AT_ONCE, KEPT_AT_ONCE // each))
    for first in range(0, len(users), at_once):
        yield users[first : first + at_once]


def rank_by_sides(
    model: RatingModel, fitted: FittedCorpus, sides: Sides, users: Sequence[int], n: int, allowed: Allowed = None
) -> Iterator[tuple[int, list[Recommendation]]]:
    """The n best things of each of these users that they have not rated, best first."""
    n = min(n, len(fitted.items))
    refused = np.zeros(0, np.int64) if allowed is None else np.flatnonzero(~allowed)
    for some in blocks_of_people(users, n):
        exclude = torch.from_numpy(_left_out(fitted, some, refused)).to(sides[1].device)
        best, ratings = top_items(model, *sides, n, users=some, exclude=exclude)
        rows = zip(some, best.cpu().numpy(), ratings.double().cpu().numpy(), strict=True)
        for user, items, stars in rows:
            left = stars > -np.inf  # there may be fewer than n
            yield user, best_things(fitted, items[left], stars[left], n)


def rank_one_by_one(
    fitted: FittedCorpus, rate: Rate, users: Sequence[int], n: int, allowed: Allowed = None
) -> Iterator[tuple[int, list[Recommendation]]]:
    """The same for a model that must be asked for every pair."""
    for user in users:
        items = things_left(fitted, user, allowed)
        yield user, best_things(fitted, items, rate(np.full(len(items), user), items), n)


def rank_by_scores(
    fitted: FittedCorpus,
    rate_all: RateAll,
    scores: Callable[[Sequence[int], Floats], Floats],
    users: Sequence[int],
    n: int,
    allowed: Allowed = None,
) -> Iterator[tuple[int, list[Recommendation]]]:
    """The n things with the highest scores, which are made of the stars of all things."""
    for some in blocks_of_people(users, len(fitted.items)):
        stars = rate_all(some)
        rows = zip(some, stars, scores(some, stars), strict=True)
        for user, rated, scored in rows:
            items = things_left(fitted, user, allowed)
            yield user, best_things(fitted, items, rated[items], n, scored[items])


def stars_by_sides(model: RatingModel, sides: Sides, users: Sequence[int]) -> Floats:
    """The ratings of some users for all items, as ranking by sides has them."""
    items = len(sides[1])
    best, ratings = (found.cpu().numpy() for found in top_items(model, *sides, items, users=users))
    stars = np.empty((len(users), items))
    np.put_along_axis(stars, best, ratings.astype(np.float64), axis=1)
    return stars


def things_left(fitted: FittedCorpus, user: int, allowed: Allowed) -> Numbers:
    """The things that may be recommended to a user: allowed ones that they have not rated."""
    things = np.arange(len(fitted.items)) if allowed is None else np.flatnonzero(allowed)
    return things if user < 0 else np.setdiff1d(things, fitted.rated_by(user))


def best_things(
    fitted: FittedCorpus, items: Numbers, stars: Floats, n: int, scores: Floats | None = None
) -> list[Recommendation]:
    """The n with the highest scores, or else most stars; of equals the one that comes first in the corpus."""
    check_number(n)
    order = np.lexsort((items, -(stars if scores is None else scores)))[:n]
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


def _left_out(fitted: FittedCorpus, users: Sequence[int], refused: Numbers) -> Numbers:
    """Places among the users and items they rated or that are refused to all, [pairs, 2]."""
    left_out = [np.union1d(fitted.rated_by(user), refused) for user in users]
    places = np.repeat(np.arange(len(left_out)), [len(items) for items in left_out])
    return np.stack([places, np.concatenate(left_out)], 1)
