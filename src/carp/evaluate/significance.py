"""How sure one can be of a difference between two systems on the same pairs.

The tests are scipy's, and so is the bootstrap of all that is not a mean. What is ours are means over shared draws, and
the answers where scipy has none: systems that never differ, one pair alone, a difference that is always the same. Every
function works along the last axis.

scipy is imported when a test is asked for: training and grids run on machines that have only torch, numpy and
safetensors.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Places = NDArray[np.int64]

EXACT_RANKS = 50  # differences up to which Wilcoxon's distribution is counted out, where none are tied
ROUNDING = 1e-13  # differences that vary less than this, relative to the largest, vary by rounding alone
BLOCK_NUMBERS = 4_000_000  # drawn at once by the bootstrap, to bound its memory


def paired_t(ours: ArrayLike, theirs: ArrayLike) -> tuple[Floats, Floats]:
    """Student's paired t-test, two-sided: the statistic and p.

    p is 1 where nothing differs or there is one pair alone, and 0 where every pair differs by the same.

    >>> statistic, p = paired_t([0.5, 0.7, 0.9, 1.0], [0.6, 0.9, 1.0, 1.3])
    >>> round(float(statistic), 4), round(float(p), 4)
    (-3.6556, 0.0354)
    """
    from scipy.stats import ttest_rel

    ours, theirs = np.broadcast_arrays(np.asarray(ours, dtype=np.float64), np.asarray(theirs, dtype=np.float64))
    difference = ours - theirs
    varies = np.ptp(difference, -1) > ROUNDING * np.abs(difference).max(-1)
    mean = difference.mean(-1)
    same = ~varies & (mean != 0) & (difference.shape[-1] > 1)
    statistic, p = np.where(same, np.copysign(np.inf, mean), 0.0), np.where(same, 0.0, 1.0)
    if varies.any():
        statistic[varies], p[varies] = ttest_rel(ours[varies], theirs[varies], axis=-1)
    return statistic, p


def wilcoxon(ours: ArrayLike, theirs: ArrayLike) -> Floats:
    """Wilcoxon's signed-rank test, two-sided p: equal pairs are left out and tied ranks shared.

    Counted out exactly for at most 50 differences without ties; the normal approximation elsewhere. p is 1 where
    nothing differs.

    >>> round(float(wilcoxon([0.5, 0.7, 0.9, 1.0, 1.1], [0.6, 0.9, 1.25, 1.4, 1.6])), 4)
    0.0625
    """
    from scipy import stats

    difference = np.asarray(ours, dtype=np.float64) - np.asarray(theirs, dtype=np.float64)
    exact = _can_be_counted_out(difference)
    p = np.ones(difference.shape[:-1])
    for rows, method in ((exact, "exact"), (~exact & difference.any(-1), "asymptotic")):
        if rows.any():
            p[rows] = stats.wilcoxon(difference[rows], axis=-1, method=method, correction=False).pvalue
    return p


def _can_be_counted_out(difference: Floats) -> NDArray[np.bool_]:
    """Few differences, none of them zero and no two of the same size."""
    sizes = np.sort(np.abs(difference), -1)
    few = difference.shape[-1] <= EXACT_RANKS
    return np.asarray(few & difference.all(-1) & (np.diff(sizes, axis=-1) > 0).all(-1))


def bootstrap_intervals(differences: ArrayLike, *, draws: int = 2000, seed: int = 0, level: float = 0.95) -> Floats:
    """Percentile intervals of the means of differences [..., n]: [..., 2]. All rows share the same draws of pairs."""
    values = np.asarray(differences, dtype=np.float64)
    rows = values.reshape(-1, values.shape[-1])
    times = _times_drawn(rows.shape[1], draws, seed)
    block = max(1, BLOCK_NUMBERS // rows.shape[1])
    sums = [rows @ times[start : start + block].T.astype(np.float64) for start in range(0, draws, block)]
    means = np.concatenate(sums, axis=1) / rows.shape[1]
    return percentile_interval(means, level).reshape(*values.shape[:-1], 2)


@lru_cache(maxsize=1)  # a report compares many systems over the same pairs, one table after the other
def _times_drawn(count: int, draws: int, seed: int) -> NDArray[np.uint8]:
    """How often each of so many places is drawn, in each draw: [draws, count].

    A mean of what was drawn is these numbers times the values, which is far faster than picking the values. A byte is
    enough: that a place is drawn 256 times in one draw will not happen.
    """
    random = np.random.default_rng(seed)
    times = np.empty((draws, count), dtype=np.uint8)
    for row in times:
        row[:] = np.bincount(random.integers(0, count, count), minlength=count)
    return times


def resampled(statistic: Callable[[Places], Floats], count: int, *, draws: int, seed: int = 0) -> Floats:
    """A statistic of `count` pairs over as many pairs drawn with replacement: [..., draws].

    `statistic` takes the places of the drawn pairs, [block, count], and gives [..., block]. It may give nan for a draw
    that says nothing.
    """
    from scipy.stats import DegenerateDataWarning, bootstrap

    if count == 1:  # every draw is that one pair, which scipy refuses
        return statistic(np.zeros((draws, 1), dtype=np.int64))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DegenerateDataWarning)  # of scipy's own interval, where a draw is nan
        found = bootstrap(
            (np.arange(count),),
            lambda places, axis: statistic(places),
            n_resamples=draws,
            batch=max(1, BLOCK_NUMBERS // count),
            method="percentile",
            vectorized=True,
            rng=np.random.default_rng(seed),
        )
    return np.asarray(found.bootstrap_distribution)


def percentile_interval(drawn: Floats, level: float = 0.95) -> Floats:
    """The interval [..., 2] that holds this share of the draws [..., n], with as many below it as above."""
    return np.moveaxis(np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2], axis=-1), 0, -1)


def holm(p: ArrayLike) -> Floats:
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
