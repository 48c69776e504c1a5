"""What suits somebody who is known by their words alone: the same three parts as for people of the training data.

    score_j = C_j + R_j + ½ T_j                      each part divided by its spread over the catalogue

    C_j   company: Σ_{v rated j} (q · q_v)² n_v^-½ · n_j^-δ/2, q and q_v the TF-IDF of what each person wrote
    R_j   the predicted rating
    T_j   x_j · (q − q̄), x_j the TF-IDF of what is written of j, q̄ the mean over people

Nobody knows which things a newcomer has, so company is kept by those who write alike instead of those who have the same
things, and the newcomer's own words stand for what is written of their things. The square was chosen on split seeds 100
and 101 of two corpora, out of the powers 1 to 4.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carp.ranking.taste import Floats, Taste, combined

LIKENESS_POWER = 2


class NewcomerTaste:
    """How well each thing suits somebody, from their words."""

    def __init__(self, taste: Taste) -> None:
        self.taste = taste

    def scores(self, words: NDArray[np.int32], stars: Floats, diversity: float) -> Floats:
        """How well each thing suits somebody [items] who wrote these words, from what they would rate them."""
        own = self._weighed(np.zeros(len(words), np.int64), words, 1).toarray()[0]
        near = (self._written @ own) ** LIKENESS_POWER * self.taste.of_user**-0.5
        company = (near @ self.taste.rated) / np.maximum(self.taste.of_item, 1.0) ** (diversity / 2)
        text = self.taste.texts @ (own - self._mean)
        found: Floats = combined(*(part[np.newaxis] for part in (company, stars, text)))[0]
        return found

    @cached_property
    def _rarity(self) -> Floats:
        things, size = self.taste.texts.shape
        rarity: Floats = np.log((1 + things) / (1 + np.bincount(self.taste.texts.indices, minlength=size))) + 1
        return rarity

    @cached_property
    def _written(self) -> Any:
        """The TF-IDF of what each person wrote, of length 1 [users, words]."""
        documents = self.taste.corpus.user_documents
        owner = np.repeat(np.arange(len(documents)), documents.lengths())
        return self._weighed(owner, documents.words, len(documents))

    @cached_property
    def _mean(self) -> Floats:
        mean: Floats = np.asarray(self._written.sum(0)).ravel() / self._written.shape[0]
        return mean

    def _weighed(self, owner: NDArray[np.int64], words: NDArray[np.int32], owners: int) -> Any:
        from scipy.sparse import csr_array

        size = len(self._rarity)
        cells, counts = np.unique(owner * size + words, return_counts=True)
        row, word = np.divmod(cells, size)
        weight = (1 + np.log(counts)) * self._rarity[word]
        weight /= np.sqrt(np.bincount(row, np.square(weight), owners))[row]
        return csr_array((weight, (row, word)), shape=(owners, size))
