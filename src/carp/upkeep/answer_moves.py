"""How far the answers of a model moved when it was revised."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from carp.training.fitted_model import FittedModel
from carp.upkeep.revised_corpus import Places, RevisedCorpus

PAIRS = 2_000  # drawn of each kind; nobody has rated them


@dataclass(frozen=True)
class Moved:
    """How far the ratings of some pairs moved, in the range of the data."""

    pairs: int
    mean: float
    largest: float


@dataclass(frozen=True)
class AnswerMoves:
    """Pairs of whom or of what something changed, and all other pairs."""

    touched: Moved
    others: Moved


def answer_moves(before: FittedModel, after: FittedModel, revision: RevisedCorpus) -> AnswerMoves:
    """Compare the ratings of pairs that both models know, drawn by a fixed seed."""
    users, items = (np.flatnonzero(old >= 0) for old in (revision.old.users, revision.old.items))
    draw = np.random.default_rng(0)
    touched_users, touched_items = np.intersect1d(users, revision.users), np.intersect1d(items, revision.items)
    quiet_users, quiet_items = np.setdiff1d(users, touched_users), np.setdiff1d(items, touched_items)
    touched = [*_drawn(draw, touched_users, items, PAIRS // 2), *_drawn(draw, users, touched_items, PAIRS // 2)]
    others = _drawn(draw, quiet_users, quiet_items, PAIRS)
    return AnswerMoves(*(_moved(before, after, revision, np.array(pairs)) for pairs in (touched, others)))


def _drawn(draw: np.random.Generator, users: Places, items: Places, count: int) -> list[tuple[int, int]]:
    if not len(users) or not len(items):
        return []
    return list(zip(draw.choice(users, count).tolist(), draw.choice(items, count).tolist(), strict=True))


def _moved(before: FittedModel, after: FittedModel, revision: RevisedCorpus, pairs: NDArray[np.int64]) -> Moved:
    pairs = np.unique(pairs.reshape(-1, 2).astype(np.int64), axis=0)
    old = np.stack([revision.old.users[pairs[:, 0]], revision.old.items[pairs[:, 1]]], 1)
    known = after.corpus.record_of_pair.find(*pairs.T), before.corpus.record_of_pair.find(*old.T)
    unrated = (known[0] < 0) & (known[1] < 0)
    pairs, old = pairs[unrated], old[unrated]
    if not len(pairs):
        return Moved(0, 0.0, 0.0)
    step = (after.corpus.scale.high - after.corpus.scale.low) / (after.corpus.levels - 1)
    ways = step * np.abs(after.rate(*pairs.T.copy()) - before.rate(*old.T.copy()))
    return Moved(len(pairs), float(ways.mean()), float(ways.max()))
