"""What a sentence says, for or against: learned from the ratings of the reviews that sentences stand in.

A review tells its own rating far better than two documents tell a pair's: half of how ratings differ from person to
person can be read off the review. So a ridge regression of ratings on words and pairs of neighbouring words gives every
word its weight, and the words of a sentence together say whether it praises or complains, in stars.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from carp.reviews.text.tokens import tokenise

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

Floats = NDArray[np.float64]

PRAISE_PLACES = 1 << 18  # words and pairs of words share so many places
PENALTY = 2.0
MOST_REVIEWS = 30_000  # learned from; with more, every second or third one is as good
PSEUDO_REVIEWS = 3.0  # by which a person's mean is drawn to that of all


@dataclass(frozen=True, eq=False)
class Praise:
    """Weights of words and pairs of words, in stars; all zero where ratings do not differ."""

    weight: NDArray[np.float32]  # [PRAISE_PLACES]

    def of_texts(self, texts: Sequence[str]) -> Floats:
        """How far above (below) the usual rating each text speaks."""
        from sklearn.utils import murmurhash3_32

        return np.array([self._of_terms(map(murmurhash3_32, _terms(text))) for text in texts], np.float64)

    def _of_terms(self, hashes: Iterable[int]) -> float:
        """What a row of `_rows` comes to with the weights, to the same bits. A few sentences are asked about at a time,
        and a sparse matrix for them would take longer than all else."""
        counts = Counter([abs(one) % PRAISE_PLACES for one in hashes])
        places = sorted(counts)
        length = math.sqrt(len(places))
        weights = self.weight[places].tolist()
        said = 0.0
        for place, weight in zip(places, weights, strict=True):
            said += (1 + math.log(counts[place])) / length * weight
        return said

    def of_words(self, words: Sequence[str]) -> Floats:
        """What each word says by itself."""
        return self.of_texts(words)


def learn_praise(texts: Iterable[str], ratings: NDArray[np.float32], writers: NDArray[np.int32]) -> Praise:
    """From reviews with their ratings in stars; a rating is seen beside what its writer usually gives."""
    from sklearn.linear_model import Ridge  # a saved model is opened without it

    rest = ratings - usual_ratings(ratings, writers)
    if not len(rest) or float(np.ptp(rest)) == 0:
        return Praise(np.zeros(PRAISE_PLACES, np.float32))
    rows = _rows(list(texts))
    found = Ridge(alpha=PENALTY, fit_intercept=False, solver="sparse_cg", tol=1e-3, max_iter=200)
    return Praise(found.fit(rows, rest - rest.mean()).coef_.astype(np.float32))


def usual_ratings(ratings: NDArray[np.float32], writers: NDArray[np.int32]) -> Floats:
    """The mean rating of each review's writer, drawn to the mean of all where there are few.

    >>> usual_ratings(np.array([1, 5, 5], np.float32), np.array([0, 1, 1], np.int32)).round(2).tolist()
    [3.0, 4.2, 4.2]
    """
    mean = float(ratings.mean())
    count = np.bincount(writers)
    total = np.bincount(writers, ratings)
    means: Floats = (total + PSEUDO_REVIEWS * mean) / (count + PSEUDO_REVIEWS)
    return means[writers]


def _terms(text: str) -> list[str]:
    words = tokenise(text)[0]
    return words + [f"{first} {second}" for first, second in itertools.pairwise(words)]


def _rows(texts: Sequence[str]) -> csr_matrix:
    """A row a text: 1 + ln of how often a term occurs, over the root of how many terms there are."""
    from sklearn.feature_extraction.text import HashingVectorizer

    counts = HashingVectorizer(analyzer=_terms, n_features=PRAISE_PLACES, norm=None, alternate_sign=False).transform(
        texts
    )
    counts.data = 1 + np.log(counts.data)
    terms = np.diff(counts.indptr)
    counts.data /= np.repeat(np.sqrt(terms), terms)
    return counts
