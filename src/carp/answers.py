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
    """Ratings in the order of the pairs; `notes` says where a pair was answered without its user or item."""

    ratings: NDArray[np.float64]
    notes: tuple[str | None, ...]
    explanations: tuple[Explanation, ...] = ()  # where they were asked for

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
        same = bool(np.array_equal(self.ratings, other.ratings, equal_nan=True))
        return same and (self.notes, self.explanations) == (other.notes, other.explanations)

    __hash__ = None  # type: ignore[assignment]  # as for every list of numbers

    def __repr__(self) -> str:
        return f"Predictions({[round(rating, 3) for rating in self]})"


@dataclass(frozen=True)
class Recommendation:
    item: str
    rating: float
    item_mean: float | None


class Recommendations(list[Recommendation]):
    """A list, best first; `note` says where a person got what is popular because nobody knows them."""

    def __init__(self, found: Iterable[Recommendation] = (), note: str | None = None) -> None:
        super().__init__(found)
        self.note = note
