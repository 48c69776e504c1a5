"""How much is there to explain, and does what is told add up? Read off the explanations themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from carp.explain.explanation import LITTLE, Explanation

OWN_ACCOUNT = "by the model's own account"
FROM_BIASES = "from what the biases alone predict"


@dataclass(frozen=True)
class TextsMove:
    """How far the texts move ratings, as shares of the range of ratings."""

    counted: str  # OWN_ACCOUNT, or FROM_BIASES where the model gives none
    pairs: int
    quartiles: tuple[float, float, float]
    largest: float
    little: float  # share of pairs whose texts move the rating by less than LITTLE of the range


@dataclass(frozen=True)
class Sums:
    """How far the parts that are shown are from summing to the rating that is shown."""

    pairs: int
    parts: float  # a pair
    largest_gap: float  # on the scale of the data
    largest_rest: float  # the largest part that is told as the end of the scale's: what the sum is bent by there


def texts_move(explanations: Sequence[Explanation]) -> TextsMove | None:
    """None where no explanation says by how much the texts move its rating, and no biases are known."""
    own = all(one.texts_move is not None for one in explanations)
    moves = [_move(one, own=own) for one in explanations]
    sizes = np.array([move for move in moves if move is not None])
    if not len(sizes):
        return None
    low, middle, high = np.quantile(sizes, [0.25, 0.5, 0.75]).tolist()
    return TextsMove(
        counted=OWN_ACCOUNT if own else FROM_BIASES,
        pairs=len(sizes),
        quartiles=(low, middle, high),
        largest=float(sizes.max()),
        little=float((sizes < LITTLE).mean()),
    )


def _move(explanation: Explanation, *, own: bool) -> float | None:
    """As a share of the range of ratings."""
    low, high = explanation.rating_range
    if own:
        return abs(explanation.texts_move or 0.0) / (high - low)
    return None if explanation.baseline is None else abs(explanation.rating - explanation.baseline) / (high - low)


def sums(explanations: Sequence[Explanation]) -> Sums | None:
    """None where the explanations are no sums."""
    summed = [one for one in explanations if one.parts]
    if not summed:
        return None
    gaps = [abs(sum(part.amount for part in one.parts) - one.rating) for one in summed]
    rests = [abs(part.amount) for one in summed for part in one.parts if part.kind == "scale"]
    return Sums(len(summed), float(np.mean([len(one.parts) for one in summed])), max(gaps), max(rests, default=0.0))
