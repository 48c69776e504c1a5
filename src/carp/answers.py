"""What a recommender answers: ratings and recommendations as plain values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carp.explain.explanation import Explanation


@dataclass(frozen=True, eq=False)
class Predictions(Sequence[float]):
    """Ratings in the order of the pairs; `notes` says where a pair was answered without its user or item.

    Nine ratings of ten lie between `low` and `high`, which are not numbers where that is unknown.
    """

    ratings: NDArray[np.float64]
    notes: tuple[str | None, ...]
    explanations: tuple[Explanation, ...] = ()  # where they were asked for
    low: NDArray[np.float64] | None = None
    high: NDArray[np.float64] | None = None

    def intervals(self) -> tuple[list[float | None], list[float | None]]:
        """Where nine ratings of ten lie: the lower ends, and the upper ones; None where that is unknown."""
        if self.low is None or self.high is None:
            return [None] * len(self), [None] * len(self)
        low, high = ([None if np.isnan(end) else float(end) for end in ends] for ends in (self.low, self.high))
        return low, high

    def __len__(self) -> int:
        return len(self.ratings)

    def __getitem__(self, place: Any) -> Any:
        return self.ratings[place].tolist()

    def __iter__(self) -> Iterator[float]:
        return iter(self.ratings.tolist())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.ratings, dtype=dtype)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Predictions):
            return NotImplemented
        columns = ((self.ratings, other.ratings), (self.low, other.low), (self.high, other.high))
        same = all(_same(mine, theirs) for mine, theirs in columns)
        return same and (self.notes, self.explanations) == (other.notes, other.explanations)

    __hash__ = None  # type: ignore[assignment]  # as for every list of numbers

    def __repr__(self) -> str:
        return f"Predictions({[round(rating, 3) for rating in self]})"


def _same(mine: NDArray[np.float64] | None, theirs: NDArray[np.float64] | None) -> bool:
    if mine is None or theirs is None:
        return mine is theirs
    return bool(np.array_equal(mine, theirs, equal_nan=True))


@dataclass(frozen=True)
class Recommendation:
    item: str
    rating: float
    item_mean: float | None
    title: str | None = None  # of the item, if it is known


class Recommendations(list[Recommendation]):
    """A list, best first; `note` says where a person got what is popular because nobody knows them."""

    def __init__(self, found: Iterable[Recommendation] = (), note: str | None = None) -> None:
        super().__init__(found)
        self.note = note
