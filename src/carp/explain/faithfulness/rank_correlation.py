"""Rank correlation, and how sure one can be of it."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray

from carp.evaluate.significance import resampled
from carp.explain.pair_texts import Floats


def rank_correlation(ours: Floats, theirs: Floats) -> float | None:
    """Spearman's; None where one side does not vary.

    >>> rank_correlation(np.array([1.0, 2.0, 3.0, 9.0]), np.array([0.1, 0.3, 0.2, 0.4]))
    0.8
    """
    from scipy.stats import spearmanr

    if not len(ours) or not np.ptp(ours) or not np.ptp(theirs):
        return None
    value = float(spearmanr(ours, theirs).statistic)
    return round(value, 12) if np.isfinite(value) else None


def resampled_correlations(columns: Floats, target: Floats, *, draws: int = 1000, seed: int = 0) -> Floats:
    """Spearman's of each column [c, n] with the target, over resampled pairs; all share the draws. [c, draws]"""

    def of_drawn(places: NDArray[np.int64]) -> Floats:
        ranked = _ranks(target[places])
        return np.stack([_correlations(_ranks(column[places]), ranked) for column in columns])

    return resampled(of_drawn, len(target), draws=draws, seed=seed)


def _ranks(values: Floats) -> Floats:
    from scipy.stats import rankdata

    return np.asarray(rankdata(values, axis=-1), dtype=np.float64)


def _correlations(ours: Floats, theirs: Floats) -> Floats:
    """Pearson's of each row with the row beside it; nan where one of them does not vary."""
    from scipy.stats import ConstantInputWarning, pearsonr

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConstantInputWarning)
        return np.asarray(pearsonr(ours, theirs, axis=-1).statistic)
