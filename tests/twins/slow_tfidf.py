"""TF-IDF rows counted word by word, and their directions: slow, and easy to check by eye."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carp.reviews.documents import Documents

Floats = NDArray[np.float64]


def rows_of(
    documents: Documents,
    owners: Sequence[int],
    leave_out: Iterable[int | None],
    bigrams: list[int],
    terms: int,
    rarity: float,
    directions: Any = None,
    centre: Any = 0.0,
    *,
    known_words: int,
) -> tuple[Floats, Floats]:
    """TF-IDF rows x and directions z of documents without one review each, counted word by word."""
    everyone = [_counts(documents, d, None, bigrams, known_words) for d in range(len(documents))]
    idf = np.array([1 + math.log((1 + len(documents)) / (1 + sum(t in one for one in everyone))) for t in range(terms)])
    x = np.zeros((len(owners), terms))
    for row, (owner, left_out) in enumerate(zip(owners, leave_out, strict=True)):
        for term, count in _counts(documents, owner, left_out, bigrams, known_words).items():
            x[row, term] = (1 + math.log(count)) * idf[term] ** rarity
    x = _unit(x)
    if directions is None:
        return x, x
    return x, _unit(x @ directions.double().numpy() - np.asarray(centre) * x.any(1, keepdims=True))


def _counts(
    documents: Documents, owner: int, leave_out: int | None, bigrams: list[int], known_words: int
) -> Counter[int]:
    stretch = range(documents.offsets[owner], documents.offsets[owner + 1])
    kept = [(int(documents.words[n]), int(documents.review[n])) for n in stretch if documents.review[n] != leave_out]
    counts = Counter(word for word, _ in kept)
    for (first, one), (second, other) in pairwise(kept):
        code = first * (known_words + 1) + second
        if one == other and code in bigrams:
            counts[known_words + 1 + bigrams.index(code)] += 1
    return counts


def _unit(rows: Floats) -> Floats:
    length = np.sqrt((rows**2).sum(1, keepdims=True))
    scaled: Floats = np.divide(rows, length, out=np.zeros_like(rows), where=length > 1e-9)
    return scaled
