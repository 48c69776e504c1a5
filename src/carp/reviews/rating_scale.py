"""The rating scale of a source, and how its ratings are mapped to stars."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from carp.errors import UsageError


@dataclass(frozen=True)
class RatingScale:
    """The range of the ratings of a source, and the linear map to stars and back.

    >>> beer = RatingScale(4, 20, clip=True, origin="RateBeer's overall score")
    >>> beer.to_stars([2, 4, 12, 20]).tolist()
    [1.0, 1.0, 3.0, 5.0]
    >>> beer.from_stars([1, 3, 5]).tolist()
    [4.0, 12.0, 20.0]
    >>> beer.describe([2, 4, 12, 20])
    'ratings from 4 to 20 become 1 to 5 by 1 + 4·(r − 4)/16; 1 below 4 counted as 4'
    """

    low: float
    high: float
    clip: bool
    origin: str

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise UsageError(
                f"{self.low:g} to {self.high:g} is not a range of ratings",
                fix="give the lowest and then the highest rating, as in --rating-range 1 5",
            )

    def contains(self, rating: float) -> bool:
        return self.low <= rating <= self.high

    def to_stars(self, values: ArrayLike, levels: int = 5) -> NDArray[np.float64]:
        ratings = np.asarray(values, dtype=np.float64)
        if self.clip:
            ratings = np.clip(ratings, self.low, self.high)
        return 1 + (levels - 1) * (ratings - self.low) / (self.high - self.low)

    def from_stars(self, stars: ArrayLike, levels: int = 5) -> NDArray[np.float64]:
        stars = np.asarray(stars, dtype=np.float64)
        return self.low + (self.high - self.low) * (stars - 1) / (levels - 1)

    def describe(self, values: ArrayLike | None = None, levels: int = 5) -> str:
        """The map in words, and how many of the values were moved to an end of the range."""
        low, high = f"{self.low:g}", f"{self.high:g}"
        if (self.low, self.high) == (1, levels):
            words = f"ratings from {low} to {high} stay as they are"
        else:
            step = f"{levels - 1}·(r − {low})/{self.high - self.low:g}".replace("− -", "+ ")
            words = f"ratings from {low} to {high} become 1 to {levels} by 1 + {step}"
        if values is None or not self.clip:
            return words
        ratings = np.asarray(values, dtype=np.float64)
        below, above = int((ratings < self.low).sum()), int((ratings > self.high).sum())
        words += f"; {below:,} below {low} counted as {low}" if below else ""
        return words + (f"; {above:,} above {high} counted as {high}" if above else "")
