"""Do models that differ in their seed alone give the same reasons for the same pairs?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from carp.evaluate.significance import bootstrap_intervals
from carp.explain.faithfulness.against_chance import ChanceComparison, compared
from carp.explain.faithfulness.rank_correlation import rank_correlation
from carp.explain.named_words import NamedReasons
from carp.explain.pair_texts import Floats, Keys, PairTexts

DRAWS = 200
FEWEST = 3  # sentences that can be ranked


@dataclass(frozen=True)
class Stability:
    """Means over every two of the models."""

    models: int
    overlap: ChanceComparison | None  # Jaccard of the named sentences, beside as many named at random
    reasons: float | None  # rank correlation, inside a pair, of what its sentences do to the rating; 0 is chance
    reasons_interval: tuple[float, float] | None
    texts: float | None  # rank correlation, over pairs, of what the texts add to the rating


@dataclass(frozen=True, eq=False)
class _Said:
    """One document's sentences: their keys, what their words do in all, and which are named."""

    keys: Keys
    pull: Floats
    named: NDArray[np.bool_]


def stability(
    held: Sequence[PairTexts], reasons: Sequence[NamedReasons], biases: Floats, *, seed: int = 0
) -> Stability:
    """Of two or more models' reasons for the same pairs; they need not see the same words."""
    said = [_documents(*both) for both in zip(held, reasons, strict=True)]
    twos = [(one, other) for one in range(len(said)) for other in range(one)]
    rng = np.random.default_rng(seed)
    rows = range(len(biases))
    found = np.array([[_together(said[one][row], said[other][row], rng) for row in rows] for one, other in twos])
    overlap, chance, ranks = (_mean_of_known(found[:, :, place]) for place in range(3))
    known = ranks[np.isfinite(ranks)]
    interval = bootstrap_intervals(known) if len(known) else None
    added = [r.rating - biases if r.capsules is None else r.capsules.balance for r in reasons]
    moves = [rank_correlation(added[one], added[other]) for one, other in twos]
    told = [move for move in moves if move is not None]
    return Stability(
        models=len(said),
        overlap=compared(overlap, chance),
        reasons=float(known.mean()) if len(known) else None,
        reasons_interval=None if interval is None else (float(interval[0]), float(interval[1])),
        texts=float(np.mean(told)) if told else None,
    )


def _documents(held: PairTexts, reasons: NamedReasons) -> list[list[_Said]]:
    """For each pair its two documents."""
    found: list[list[_Said]] = []
    for row in range(len(held)):
        found.append([])
        for texts, words in zip(held.sides, reasons.sides, strict=True):
            length = int(texts.there[row].sum())
            keys, number = np.unique(texts.sentences[row, :length], return_inverse=True)
            pull = np.bincount(number, words.pull[row, :length], len(keys)).astype(np.float64)
            named = np.bincount(number, words.shown[row, :length], len(keys)) > 0
            found[-1].append(_Said(keys, pull, named))
    return found


def _together(ours: list[_Said], theirs: list[_Said], rng: np.random.Generator) -> tuple[float, float, float]:
    """Overlap of the named sentences, that of random ones, and the rank correlation of all; NaN where unknown."""
    shared, named = 0, 0
    by_chance = np.zeros(DRAWS)
    ranks = []
    for one, other in zip(ours, theirs, strict=True):
        a, b = one.keys[one.named], other.keys[other.named]
        shared, named = shared + len(np.intersect1d(a, b)), named + len(a) + len(b)
        in_all = len(np.union1d(one.keys, other.keys))
        by_chance += rng.hypergeometric(len(a), in_all - len(a), len(b), size=DRAWS) if len(b) else 0
        _, mine, yours = np.intersect1d(one.keys, other.keys, return_indices=True)
        if len(mine) >= FEWEST:
            ranks.append(rank_correlation(one.pull[mine], other.pull[yours]))
    told = [rank for rank in ranks if rank is not None]
    overlap = (
        (shared / (named - shared), float((by_chance / (named - by_chance)).mean())) if named else (np.nan, np.nan)
    )
    return *overlap, float(np.mean(told)) if told else np.nan


def _mean_of_known(values: NDArray[np.float64]) -> Floats:
    """Over the first axis, without what is not a number; NaN where nothing is known."""
    known = np.isfinite(values)
    total = np.where(known, values, 0.0).sum(0)
    count = known.sum(0)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
