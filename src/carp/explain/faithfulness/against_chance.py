"""One figure of the explanations beside the same figure of chance, pair by pair."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from carp.evaluate.significance import bootstrap_intervals, paired_t, wilcoxon

CLEAR = 0.01  # p below which a difference is called one


@dataclass(frozen=True)
class ChanceComparison:
    """Means over the same pairs, and how sure one can be that they differ."""

    named: float
    chance: float
    difference: float
    interval: tuple[float, float]  # 95 %, bootstrap over pairs
    t: float | None  # None where every pair differs by the same
    p_t: float
    p_wilcoxon: float
    pairs: int

    @property
    def above(self) -> bool:
        """Clearly more than chance by both tests."""
        return self.difference > 0 and max(self.p_t, self.p_wilcoxon) < CLEAR

    @property
    def below(self) -> bool:
        return self.difference < 0 and max(self.p_t, self.p_wilcoxon) < CLEAR


def compared(named: ArrayLike, chance: ArrayLike) -> ChanceComparison | None:
    """Pairs in which either is not a number are left out; None where none is left.

    >>> found = compared([0.5, 0.7, 0.9, np.nan], [0.4, 0.5, 0.6, 0.1])
    >>> found.pairs, round(found.difference, 3), found.above
    (3, 0.2, False)
    """
    ours, theirs = np.asarray(named, dtype=np.float64), np.asarray(chance, dtype=np.float64)
    there = np.isfinite(ours) & np.isfinite(theirs)
    ours, theirs = ours[there], theirs[there]
    if not len(ours):
        return None
    t, p = paired_t(ours, theirs)
    low, high = bootstrap_intervals(ours - theirs)
    return ChanceComparison(
        named=float(ours.mean()),
        chance=float(theirs.mean()),
        difference=float((ours - theirs).mean()),
        interval=(float(low), float(high)),
        t=float(t) if np.isfinite(t) else None,
        p_t=float(p),
        p_wilcoxon=float(wilcoxon(ours, theirs)),
        pairs=len(ours),
    )
