"""Do the two capsules agree with what the person then said? And more than the biases do?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from carp.evaluate.metrics import area_under_curve
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
    always: float  # the same for always answering with the commoner sign


def agreement(
    lengths: Floats, liked: Flags, rating: Floats, biases: Floats, *, draws: int = 1000, seed: int = 0
) -> Agreement | None:
    """None where all pairs were liked, or none."""
    balance = lengths[:, POSITIVE] - lengths[:, NEGATIVE]
    auc, rating_auc, bias_auc = (area_under_curve(score, liked) for score in (balance, rating, biases))
    if auc is None or rating_auc is None or bias_auc is None:
        return None
    drawn = _resampled([balance, biases], liked, draws, seed)
    return Agreement(
        pairs=len(liked),
        liked=int(liked.sum()),
        auc=auc,
        interval=_interval(drawn[:, 0]),
        rating_auc=rating_auc,
        bias_auc=bias_auc,
        over_biases=_interval(drawn[:, 0] - drawn[:, 1]),
        prevailing=float(((balance >= 0) == liked).mean()),
        always=float(max(liked.mean(), 1 - liked.mean())),
    )


def _resampled(scores: list[Floats], liked: Flags, draws: int, seed: int) -> NDArray[np.float64]:
    """Areas of resampled pairs [draws', scores]; draws in which one kind is missing say nothing."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(draws):
        chosen = rng.integers(len(liked), size=len(liked))
        areas = [area_under_curve(score[chosen], liked[chosen]) for score in scores]
        if areas[0] is not None:
            found.append(areas)
    return np.array(found, dtype=np.float64).reshape(-1, len(scores))


def _interval(drawn: NDArray[np.float64]) -> tuple[float, float]:
    low, high = np.quantile(drawn, [0.025, 0.975])
    return float(low), float(high)
