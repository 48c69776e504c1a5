"""Rank correlation, and how sure one can be of it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from carp.explain.pair_texts import Floats


def rank_correlation(ours: Floats, theirs: Floats) -> float | None:
    """Spearman's; None where one side does not vary.

    >>> rank_correlation(np.array([1.0, 2.0, 3.0, 9.0]), np.array([0.1, 0.3, 0.2, 0.4]))
    0.8
    """
    value = float(_correlations(_ranks(ours[None]), _ranks(theirs[None]))[0]) if len(ours) > 1 else np.nan
    return round(value, 12) if np.isfinite(value) else None


def resampled_correlations(columns: Floats, target: Floats, *, draws: int = 1000, seed: int = 0) -> NDArray[np.float64]:
    """Spearman's of each column [c, n] with the target, over pairs drawn anew; all share the draws. [c, draws]"""
    rng = np.random.default_rng(seed)
    found = np.empty((len(columns), draws))
    step = max(1, 2_000_000 // max(len(target), 1))  # bounds the memory of a block of draws
    for start in range(0, draws, step):
        chosen = rng.integers(len(target), size=(min(step, draws - start), len(target)))
        ranked = _ranks(target[chosen])
        for place, column in enumerate(columns):
            found[place, start : start + len(chosen)] = _correlations(_ranks(column[chosen]), ranked)
    return found


def _ranks(values: Floats) -> Floats:
    from scipy.stats import rankdata

    return np.asarray(rankdata(values, axis=-1), dtype=np.float64)


def _correlations(ours: Floats, theirs: Floats) -> Floats:
    ours, theirs = (ranks - ranks.mean(-1, keepdims=True) for ranks in (ours, theirs))
    spread = np.sqrt(np.square(ours).sum(-1) * np.square(theirs).sum(-1))
    return np.where(spread > 0, (ours * theirs).sum(-1) / np.where(spread > 0, spread, 1.0), np.nan)
