"""Do the two capsules agree with what the person then said? And more than the biases do?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from carp.evaluate.metrics import area_under_curve
from carp.evaluate.significance import percentile_interval, resampled
from carp.explain.pair_texts import Flags, Floats
from carp.models.carp import NEGATIVE, POSITIVE


@dataclass(frozen=True)
class Agreement:
    """How often a liked pair has the higher score than a disliked one; 0.5 is chance."""

    pairs: int
    liked: int  # pairs rated above the middle
    auc: float  # of the positive capsule's length minus the negative one's
    interval: tuple[float, float]
    rating_auc: float  # of the predicted rating
    bias_auc: float  # of the biases alone, which have read no word
    over_biases: tuple[float, float]  # interval of the capsules' area minus the biases'
    prevailing: float  # share of pairs in which the longer capsule is that of the rating's sign
    always: float  # the same for always answering with the more common sign


def agreement(
    lengths: Floats, liked: Flags, rating: Floats, biases: Floats, *, draws: int = 1000, seed: int = 0
) -> Agreement | None:
    """None where all pairs were liked, or none."""
    balance = lengths[:, POSITIVE] - lengths[:, NEGATIVE]
    auc, rating_auc, bias_auc = (area_under_curve(score, liked) for score in (balance, rating, biases))
    if auc is None or rating_auc is None or bias_auc is None:
        return None
    drawn = _resampled_areas([balance, biases], liked, draws, seed)
    return Agreement(
        pairs=len(liked),
        liked=int(liked.sum()),
        auc=auc,
        interval=_interval(drawn[0]),
        rating_auc=rating_auc,
        bias_auc=bias_auc,
        over_biases=_interval(drawn[0] - drawn[1]),
        prevailing=float(((balance >= 0) == liked).mean()),
        always=float(max(liked.mean(), 1 - liked.mean())),
    )


def _resampled_areas(scores: list[Floats], liked: Flags, draws: int, seed: int) -> Floats:
    """Areas of resampled pairs [scores, draws]; nan where all of a draw's pairs were liked, or none."""

    def of_drawn(places: NDArray[np.int64]) -> Floats:
        areas = [[area_under_curve(score[chosen], liked[chosen]) for chosen in places] for score in scores]
        return np.array(areas, dtype=np.float64)  # None becomes nan

    return resampled(of_drawn, len(liked), draws=draws, seed=seed)


def _interval(drawn: Floats) -> tuple[float, float]:
    low, high = percentile_interval(drawn[np.isfinite(drawn)])
    return float(low), float(high)
