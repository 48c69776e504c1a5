"""Lists of recommendations judged: do they hold what people liked, how much of the catalogue, how alike are they.

A list is a row of item numbers, best first; -1 fills the places of a list that is shorter. A thing is relevant to a
person if it is among that person's relevant pairs, whatever those are: for instance the test pairs rated 4 or more.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Lists = NDArray[np.int64]  # [people, n]


def hits(lists: Lists, users: NDArray[np.int64], items: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which places of the lists hold a relevant thing [people, n], from the relevant pairs; row u is user u's list.

    >>> hits(np.array([[3, 1], [2, -1]]), np.array([0, 1]), np.array([1, 2])).tolist()
    [[False, True], [True, False]]
    """
    most = 1 + max(lists.max(initial=0), items.max(initial=0))
    listed = np.where(lists >= 0, np.arange(len(lists))[:, np.newaxis] * most + lists, -1)
    return np.isin(listed, users * most + items)


def ndcg(found: NDArray[np.bool_], relevant: NDArray[np.int64]) -> float:
    """Normalised discounted cumulative gain, a mean over the people who have something relevant (`relevant` of it).

    A relevant thing at place k, from 1, gains 1 / log₂(k + 1); the best possible list has 1 in all.

    >>> round(ndcg(np.array([[False, True], [True, False]]), np.array([1, 1])), 4)
    0.8155
    """
    gains = 1 / np.log2(np.arange(found.shape[1]) + 2)
    best = np.concatenate([[0.0], np.cumsum(gains)])[np.minimum(relevant, found.shape[1])]
    asked = relevant > 0
    return float(((found @ gains)[asked] / best[asked]).mean()) if asked.any() else float("nan")


def recall(found: NDArray[np.bool_], relevant: NDArray[np.int64]) -> float:
    """The share of a person's relevant things that are in the list, a mean over the people who have any.

    >>> recall(np.array([[True, True], [False, True], [False, False]]), np.array([4, 1, 0]))
    0.75
    """
    asked = relevant > 0
    return float((found.sum(1)[asked] / relevant[asked]).mean()) if asked.any() else float("nan")


def coverage(lists: Lists, items: int) -> float:
    """The share of the catalogue that is in at least one list.

    >>> coverage(np.array([[0, 1], [1, -1]]), 8)
    0.25
    """
    return len(np.unique(lists[lists >= 0])) / items


def likeness(lists: Lists) -> float:
    """How alike the lists of two people are: the share of places whose thing is in the other's list too.

    It is the mean over all pairs of people, counted thing by thing: c people who get a thing are c(c - 1) / 2 pairs.

    >>> likeness(np.array([[0, 1], [1, 2], [1, 0]]))
    0.6666666666666666
    """
    people, places = lists.shape
    count = np.unique(lists[lists >= 0], return_counts=True)[1].astype(np.float64)
    return float((count * (count - 1)).sum() / (people * (people - 1) * places)) if people > 1 else float("nan")
