"""Errors of predictions, and how sure one can be of a difference."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

EXACT_RANKS = 50  # differences up to which Wilcoxon's distribution is counted out, where none are tied


def errors(predicted: ArrayLike, true: ArrayLike) -> dict[str, float]:
    """Mean squared, root mean squared and mean absolute error, in float64.

    >>> errors([4.0, 2.0], [5.0, 2.0])
    {'mse': 0.5, 'rmse': 0.7071067811865476, 'mae': 0.5}
    """
    difference = np.asarray(predicted, dtype=np.float64) - np.asarray(true, dtype=np.float64)
    mse = float(np.square(difference).mean())
    return {"mse": mse, "rmse": mse**0.5, "mae": float(np.abs(difference).mean())}


def paired_interval(
    ours: ArrayLike, theirs: ArrayLike, *, draws: int = 2000, seed: int = 0, level: float = 0.95
) -> tuple[float, float]:
    """Bootstrap interval of mean(ours − theirs) over the same pairs; below zero means ours is smaller."""
    difference = np.asarray(ours, dtype=np.float64) - np.asarray(theirs, dtype=np.float64)
    rng = np.random.default_rng(seed)
    means = np.array([difference[rng.integers(len(difference), size=len(difference))].mean() for _ in range(draws)])
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


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


# ---- differences between two systems on the same pairs; every function works along the last axis


def paired_t(ours: ArrayLike, theirs: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Student's paired t-test, two-sided: the statistic and p. Nothing differs, or one pair alone: p is 1.

    >>> statistic, p = paired_t([0.5, 0.7, 0.9, 1.0], [0.6, 0.9, 1.0, 1.3])
    >>> round(float(statistic), 4), round(float(p), 4)
    (-3.6556, 0.0354)
    """
    from scipy.special import stdtr

    difference = np.asarray(ours, dtype=np.float64) - np.asarray(theirs, dtype=np.float64)
    count = difference.shape[-1]
    mean = difference.mean(-1)
    error = difference.std(-1, ddof=1) / math.sqrt(count) if count > 1 else np.zeros_like(mean)
    untold = error <= 1e-14 * np.abs(difference).max(-1, initial=0)  # equal differences: rounding is all that varies
    statistic = np.where(untold, 0.0, mean / np.where(untold, 1.0, error))
    p = 2 * np.asarray(stdtr(max(count - 1, 1), -np.abs(statistic)))
    constant = untold & (mean != 0) & (count > 1)
    return np.where(constant, np.copysign(np.inf, mean), statistic), np.where(constant, 0.0, np.where(untold, 1.0, p))


def wilcoxon(ours: ArrayLike, theirs: ArrayLike) -> NDArray[np.float64]:
    """Wilcoxon's signed-rank test, two-sided p: equal pairs are left out and tied ranks shared.

    Counted out exactly for at most 50 differences without ties; the normal approximation elsewhere.

    >>> round(float(wilcoxon([0.5, 0.7, 0.9, 1.0, 1.1], [0.6, 0.9, 1.25, 1.4, 1.6])), 4)
    0.0625
    """
    difference = np.asarray(ours, dtype=np.float64) - np.asarray(theirs, dtype=np.float64)
    rows = [_signed_ranks(row) for row in difference.reshape(-1, difference.shape[-1])]
    return np.array(rows).reshape(difference.shape[:-1])


def _signed_ranks(difference: NDArray[np.float64]) -> float:
    from scipy.special import ndtr
    from scipy.stats import rankdata

    left = difference[difference != 0]
    n = len(left)
    if n == 0:
        return 1.0
    ranks = np.asarray(rankdata(np.abs(left)))
    positive = float(ranks[left > 0].sum())
    ties = np.unique(ranks, return_counts=True)[1].astype(np.float64)
    if n <= EXACT_RANKS and n == len(difference) and len(ties) == n:
        return _exact_signed_ranks(round(min(positive, n * (n + 1) / 2 - positive)), n)
    mean = n * (n + 1) / 4
    variance = n * (n + 1) * (2 * n + 1) / 24 - float((ties**3 - ties).sum()) / 48
    return min(1.0, 2 * float(ndtr(-abs(positive - mean) / math.sqrt(variance))))


def _exact_signed_ranks(smaller: int, n: int) -> float:
    """Twice the share of the 2ⁿ signs whose positive ranks add up to at most this."""
    ways = np.zeros(n * (n + 1) // 2 + 1)
    ways[0] = 1
    for rank in range(1, n + 1):
        ways[rank:] += ways[:-rank].copy()
    return min(1.0, 2 * float(ways[: smaller + 1].sum()) / 2.0**n)


def bootstrap_intervals(
    differences: ArrayLike, *, draws: int = 2000, seed: int = 0, level: float = 0.95
) -> NDArray[np.float64]:
    """Percentile intervals of the means of differences [..., n]: [..., 2]. All rows share the same draws of pairs."""
    values = np.asarray(differences, dtype=np.float64)
    flat = values.reshape(-1, values.shape[-1])
    n = flat.shape[1]
    rng = np.random.default_rng(seed)
    step = max(1, min(draws, 4_000_000 // n))  # bounds the memory of a block of draws
    means = np.empty((draws, len(flat)))
    for start in range(0, draws, step):
        taken = rng.integers(n, size=(min(step, draws - start), n)) + n * np.arange(min(step, draws - start))[:, None]
        counts = np.bincount(taken.ravel(), minlength=len(taken) * n).reshape(len(taken), n)
        means[start : start + len(taken)] = counts.astype(np.float64) @ flat.T / n
    edges = np.quantile(means, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return np.asarray(edges.T.reshape(*values.shape[:-1], 2))


def holm(p: ArrayLike) -> NDArray[np.float64]:
    """Holm's correction of several tests' p: below 0.05 in any of them is a false alarm in at most 5 % of cases.

    >>> holm([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
    """
    values = np.asarray(p, dtype=np.float64)
    order = np.argsort(values, axis=-1, kind="stable")
    factors = np.arange(values.shape[-1], 0, -1)
    raised = np.maximum.accumulate(np.take_along_axis(values, order, -1) * factors, axis=-1).clip(max=1)
    corrected: NDArray[Any] = np.empty_like(values)
    np.put_along_axis(corrected, order, raised, -1)
    return corrected
