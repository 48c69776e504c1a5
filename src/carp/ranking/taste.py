"""What suits a person, in three parts: the things that go with theirs, the predicted rating, and what is written.

    score_uj = C_uj + R_uj + ½ T_uj                  each part divided by its spread over the catalogue, for each person

    C_uj   company: Σ_{i of u} Σ_{v ≠ u, rated i and j} n_i^-½ n_v^-½ · n_j^-δ/2
    R_uj   the predicted rating
    T_uj   x_j · (x̄_u - x̄), x_j the TF-IDF of what is written of j, x̄_u its mean over the person's things, x̄ over people

n_i, n_v are numbers of training reviews of a thing and by a person, δ is the diversity: at 0 things that many people
have come up often, at 1 a thing is as near as its share of common readers says. A predicted rating answers whether a
person would like a thing that is in their hands already. Which things those are, C and T say better.

Weights and δ were chosen on split seeds 100 to 102 of two corpora; docs/explanation/recommendations.md shows how it
does on others. Only training reviews are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carp.explain.similar_things import TextLikeness
from carp.reviews.split_parts import TRAIN
from carp.training.fitted_corpus import FittedCorpus

RATING_WEIGHT = 1.0
TEXT_WEIGHT = 0.5
USUAL_DIVERSITY = 0.3
READ_AT_ONCE = 64  # people, each with a number for every word
Floats = NDArray[np.float64]


class Taste:
    """How well each thing suits each person of a fitted corpus."""

    def __init__(self, corpus: FittedCorpus, texts: TextLikeness) -> None:
        from scipy.sparse import csr_array

        self.corpus = corpus
        train = corpus.part == TRAIN
        users, items, shape = corpus.user[train], corpus.item[train], (len(corpus.users), len(corpus.items))
        self.rated = csr_array((np.ones(len(users)), (users, items)), shape=shape)
        self.of_user = np.maximum(np.bincount(users, minlength=shape[0]), 1)
        self.of_item = np.bincount(items, minlength=shape[1])
        self.texts = csr_array((texts.weight, (texts.owner, texts.word)), shape=(shape[1], texts.size))

    def scores(self, users: Sequence[int], stars: Floats, diversity: float) -> Floats:
        """How well each thing suits each of some users [users, items], from what they would rate them."""
        chosen = np.asarray(users, np.int64)
        return combined(self._company(chosen, diversity), stars, self._written(chosen))

    def knows(self, user: int) -> bool:
        """Whether a person has reviews to go by."""
        return bool(self.rated.indptr[user + 1] > self.rated.indptr[user])

    def popular_first(self, stars: Floats) -> Floats:
        """A score of each thing for somebody nobody knows: the number of reviews, of equals the higher rating."""
        popular: Floats = self.of_item + 1e-3 * _spread_to_one(stars[np.newaxis])[0]
        return popular

    def _company(self, users: NDArray[np.int64], diversity: float) -> Floats:
        often = np.maximum(self.of_item, 1.0)
        near = _scaled((_scaled(self.rated[users], often**-0.5) @ self.rated.T).tocsr(), self.of_user**-0.5)
        near.data[near.indices == np.repeat(users, np.diff(near.indptr))] = 0  # nobody keeps themselves company
        reached: Floats = (near @ self.rated).toarray()
        return reached / often ** (diversity / 2)

    def _written(self, users: NDArray[np.int64]) -> Floats:
        own = np.empty((len(users), len(self.of_item)))
        for first in range(0, len(users), READ_AT_ONCE):
            some = slice(first, first + READ_AT_ONCE)
            own[some] = (self.texts @ self._means(users[some]).toarray().T).T  # much faster than sparse by sparse
        return own - self._of_everybody

    def _means(self, users: NDArray[np.int64]) -> Any:
        """What is written of each user's things, as one sparse row."""
        rows = self.rated[users]
        rows.data = rows.data / np.repeat(self.of_user[users], np.diff(rows.indptr))
        return rows @ self.texts

    @cached_property
    def _of_everybody(self) -> Floats:
        weight = (1 / self.of_user) @ self.rated / len(self.of_user)
        found: Floats = self.texts @ (weight @ self.texts)
        return found


def combined(company: Floats, stars: Floats, written: Floats) -> Floats:
    """The three parts of the score [people, items], each by its spread over the catalogue."""
    rated: Floats = RATING_WEIGHT * _spread_to_one(stars)
    return _spread_to_one(company) + rated + TEXT_WEIGHT * _spread_to_one(written)


def _scaled(rows: Any, columns: Floats) -> Any:
    """Sparse rows with each column multiplied by its number."""
    return type(rows)((rows.data * columns[rows.indices], rows.indices, rows.indptr), shape=rows.shape)


def _spread_to_one(scores: Floats) -> Floats:
    """Rows divided by their standard deviations; rows of equal numbers say nothing and become zero."""
    spread = scores.std(1, keepdims=True)
    found: Floats = np.divide(scores, spread, out=np.zeros_like(scores), where=spread > 1e-12)
    return found
