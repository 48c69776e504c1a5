"""What is asked of recommendations: how many, in which order, and from which things."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from carp.errors import UsageError, nearest
from carp.ranking.best_first import check_number
from carp.ranking.taste import USUAL_DIVERSITY
from carp.reviews.split_parts import TRAIN
from carp.training.fitted_corpus import FittedCorpus

Order = Literal["taste", "rating"]
MOST_NAMED = 30  # categories, to somebody who asked for one that is not there


@dataclass(frozen=True, eq=False)
class Wish:
    """How many things, ordered by what, out of which of them."""

    n: int
    by: Order = "taste"
    diversity: float | None = None
    allowed: NDArray[np.bool_] | None = None  # [items]; None: all things

    def __post_init__(self) -> None:
        check_number(self.n)
        if self.by not in ("taste", "rating"):
            raise UsageError(f"things cannot be ordered by {self.by!r}", fix="order them by taste or by rating")
        if self.diversity is None:
            return
        if self.by == "rating":
            raise UsageError("an order by rating has no diversity", fix="leave out diversity, or order by taste")
        if not 0 <= self.diversity <= 1:
            raise UsageError(f"diversity cannot be {self.diversity}", fix="give a number from 0 to 1")

    @property
    def wanted_diversity(self) -> float:
        return USUAL_DIVERSITY if self.diversity is None else self.diversity


def allowed_things(
    corpus: FittedCorpus, among: NDArray[np.int64] | None, min_reviews: int, category: str | None = None
) -> NDArray[np.bool_] | None:
    """The things to choose from: named, of a category, with at least so many training reviews; None for all."""
    if min_reviews < 0:
        raise UsageError(f"no thing has {min_reviews} reviews", where="min_reviews", fix="give 0 or more")
    if among is None and category is None and not min_reviews:
        return None
    count = np.bincount(corpus.item[corpus.part == TRAIN], minlength=len(corpus.items))
    allowed = count >= min_reviews
    if among is not None:
        named = np.zeros(len(allowed), bool)
        named[among] = True
        allowed &= named
    return allowed if category is None else allowed & _of_category(corpus, category)


def _of_category(corpus: FittedCorpus, category: str) -> NDArray[np.bool_]:
    """Things that have this among their categories, whatever the case of its letters."""
    texts = corpus.item_texts
    each = [[] if texts is None else texts.categories_of(item) for item in range(len(corpus.items))]
    known = {name.casefold(): name for names in each for name in names}
    if not known:
        fix = "give a file with categories to carp prepare --items, and train again"
        raise UsageError("the model knows no categories of things", where="category", fix=fix)
    if category.casefold() not in known:
        fix = nearest(category, known.values()) if len(known) <= MOST_NAMED else f"choose one of {len(known):,}"
        raise UsageError(f"no thing is of the category {category!r}", where="category", fix=fix)
    return np.array([category.casefold() in (name.casefold() for name in names) for names in each])
