"""Errors of predictions, and how well scores tell two kinds of cases apart."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def errors(predicted: ArrayLike, true: ArrayLike) -> dict[str, float]:
    """Mean squared, root mean squared and mean absolute error, in float64.

    >>> errors([4.0, 2.0], [5.0, 2.0])
    {'mse': 0.5, 'rmse': 0.7071067811865476, 'mae': 0.5}
    """
    difference = np.asarray(predicted, dtype=np.float64) - np.asarray(true, dtype=np.float64)
    mse = float(np.square(difference).mean())
    return {"mse": mse, "rmse": mse**0.5, "mae": float(np.abs(difference).mean())}


def area_under_curve(scores: ArrayLike, positive: NDArray[np.bool_]) -> float | None:
    """How often a positive case has the higher score than a negative one; None where one kind is missing.

    >>> area_under_curve([0.9, 0.4, 0.6, 0.1], np.array([True, True, False, False]))
    0.75
    """
    values = np.asarray(scores, dtype=np.float64)
    wins, losses = int(positive.sum()), int((~positive).sum())
    if not wins or not losses:
        return None
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(count) - (count - 1) / 2)[place]  # ties share their mean rank
    return float((ranks[positive].sum() - wins * (wins + 1) / 2) / (wins * losses))
