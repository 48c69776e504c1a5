"""Recommendations of a fitted model: the order that was wished for, and what is popular for people nobody knows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np

from carp.answers import Recommendation
from carp.explain.similar_things import TextLikeness
from carp.ranking.best_first import (
    Floats,
    best_things,
    rank_by_scores,
    rank_by_sides,
    rank_one_by_one,
    stars_by_sides,
    things_left,
)
from carp.ranking.newcomer_taste import NewcomerTaste
from carp.ranking.taste import Taste
from carp.ranking.wishes import Wish
from carp.reviews.readable import ReadableDocument
from carp.training.fitted_model import FittedModel

STRANGER = -1  # the number of somebody the model has never seen


class Advisor:
    """Recommends things to people, whom it knows by their numbers."""

    def __init__(self, fitted: FittedModel, texts: TextLikeness) -> None:
        self.fitted = fitted
        self.texts = texts

    @cached_property
    def taste(self) -> Taste:
        return Taste(self.fitted.corpus, self.texts)

    @cached_property
    def newcomer_taste(self) -> NewcomerTaste:
        return NewcomerTaste(self.taste)

    def ranked(self, users: Sequence[int], wish: Wish) -> Iterator[tuple[int, list[Recommendation]]]:
        """The best things of each of these users that they have not rated, best first."""
        fitted, corpus = self.fitted, self.fitted.corpus
        if wish.by == "taste":

            def scores(some: Sequence[int], stars: Floats) -> Floats:
                return self._scores(some, stars, wish)

            return rank_by_scores(corpus, self._rate_all, scores, users, wish.n, wish.allowed)
        if fitted.model.separates:
            return rank_by_sides(fitted.model, corpus, fitted.sides, users, wish.n, wish.allowed)
        return rank_one_by_one(corpus, fitted.rate, users, wish.n, wish.allowed)

    def with_known(self, user: int, wish: Wish) -> list[Recommendation]:
        """The best things of a user, those included that the user rated."""
        items = np.arange(len(self.fitted.corpus.items))
        stars = self.fitted.rate(np.full(len(items), user), items)
        scores = self._scores([user], stars[np.newaxis], wish)[0] if wish.by == "taste" else stars
        left = items if wish.allowed is None else np.flatnonzero(wish.allowed)
        return best_things(self.fitted.corpus, left, stars[left], wish.n, scores[left])

    def popular(self, wish: Wish) -> list[Recommendation]:
        """What most people reviewed, for somebody nobody knows."""
        items = np.arange(len(self.fitted.corpus.items))
        stars = self.fitted.rate(np.full(len(items), STRANGER), items)
        left = things_left(self.fitted.corpus, STRANGER, wish.allowed)
        return best_things(self.fitted.corpus, left, stars[left], wish.n, self.taste.popular_first(stars)[left])

    def for_newcomer(self, document: ReadableDocument, wish: Wish) -> list[Recommendation]:
        """The best things of somebody known by a document alone, of all there are."""
        stars = self.fitted.rate_newcomer(document, np.arange(len(self.fitted.corpus.items)))
        scores = stars
        if wish.by == "taste":
            scores = self.newcomer_taste.scores(document.words, stars, wish.wanted_diversity)
        left = things_left(self.fitted.corpus, STRANGER, wish.allowed)
        return best_things(self.fitted.corpus, left, stars[left], wish.n, scores[left])

    def _scores(self, users: Sequence[int], stars: Floats, wish: Wish) -> Floats:
        scores = self.taste.scores(users, stars, wish.wanted_diversity)
        for place, user in enumerate(users):
            if not self.taste.knows(user):
                scores[place] = self.taste.popular_first(stars[place])
        return scores

    def _rate_all(self, users: Sequence[int]) -> Floats:
        if self.fitted.model.separates:
            return stars_by_sides(self.fitted.model, self.fitted.sides, users)
        items = np.arange(len(self.fitted.corpus.items))
        return np.stack([self.fitted.rate(np.full(len(items), user), items) for user in users])
