"""How far the answers of a model moved when it was revised.

Some pairs are rated by both models. They are drawn from a crowd of few people and things, so that few documents are
read for this, however many the model has.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from carp.training.fitted_model import FittedModel
from carp.upkeep.revised_corpus import Places, RevisedCorpus
from carp.upkeep.revised_sides import Few, carried_sides, has_sides, sides_of_few

PAIRS = 2_000  # drawn of each kind; nobody has rated them
CROWD = 100  # people, or things, that something changed about, and as many others
Pairs = NDArray[np.int64]  # [n, 2] a person's number and a thing's


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


def answer_moves(before: FittedModel, after: FittedModel, revision: RevisedCorpus, *, carries: bool) -> AnswerMoves:
    """Compare the ratings of pairs that both models know, drawn by a fixed seed.

    Args:
        before: The model as it was.
        after: The model as it is.
        revision: What changed of the corpus.
        carries: Whether sides of documents that stayed are those of before.
    """
    draw = np.random.default_rng(0)
    users = _Crowd.drawn(draw, revision.old.users, revision.users)
    items = _Crowd.drawn(draw, revision.old.items, revision.items)
    kinds = (
        np.concatenate(
            [
                _pairs(users.some_touched(draw, PAIRS // 2), items.anybody(draw, PAIRS // 2)),
                _pairs(users.anybody(draw, PAIRS // 2), items.some_touched(draw, PAIRS // 2)),
            ]
        ),
        _pairs(users.some_quiet(draw, PAIRS), items.some_quiet(draw, PAIRS)),
    )
    touched, others = (_unrated(before, after, revision, pairs) for pairs in kinds)
    models = _with_few_sides(before, after, revision, np.concatenate([touched, others]), carries)
    return AnswerMoves(*(_moved(*models, revision, pairs) for pairs in (touched, others)))


class _Crowd(NamedTuple):
    """Some people, or some things, that both models know."""

    touched: Places
    quiet: Places
    share: float  # of the touched among all of whom these are some

    @classmethod
    def drawn(cls, draw: np.random.Generator, old: Places, touched: Places) -> _Crowd:
        known = np.flatnonzero(old >= 0)
        changed, quiet = np.intersect1d(known, touched), np.setdiff1d(known, touched)
        share = len(changed) / max(len(known), 1)
        return cls(draw.permutation(changed)[:CROWD], draw.permutation(quiet)[:CROWD], share)

    def some_touched(self, draw: np.random.Generator, count: int) -> Places:
        return draw.choice(self.touched, count) if len(self.touched) else self.touched

    def some_quiet(self, draw: np.random.Generator, count: int) -> Places:
        return draw.choice(self.quiet, count) if len(self.quiet) else self.quiet

    def anybody(self, draw: np.random.Generator, count: int) -> Places:
        """Of both kinds, as many as there are of each among all."""
        touched = int(draw.binomial(count, self.share))
        both = self.some_touched(draw, touched), self.some_quiet(draw, count - touched)
        return draw.permutation(np.concatenate(both))


def _pairs(users: Places, items: Places) -> Pairs:
    """One with one; none where there is nobody, or nothing."""
    count = min(len(users), len(items))
    return np.unique(np.stack([users[:count], items[:count]], 1).astype(np.int64), axis=0)


def _unrated(before: FittedModel, after: FittedModel, revision: RevisedCorpus, pairs: Pairs) -> Pairs:
    pairs = np.unique(pairs, axis=0)
    records = after.corpus.record_of_pair, before.corpus.record_of_pair
    rated = [of.find(*which.T) >= 0 for of, which in zip(records, (pairs, _before(revision, pairs)), strict=True)]
    return pairs[~(rated[0] | rated[1])]


def _before(revision: RevisedCorpus, pairs: Pairs) -> Pairs:
    """The same pairs by the numbers that they had before."""
    return np.stack([revision.old.users[pairs[:, 0]], revision.old.items[pairs[:, 1]]], 1)


def _with_few_sides(
    before: FittedModel, after: FittedModel, revision: RevisedCorpus, pairs: Pairs, carries: bool
) -> tuple[FittedModel, FittedModel]:
    """Both models for these pairs alone, where not all documents have been read already."""
    if not before.model.separates or not len(pairs):
        return before, after
    if not has_sides(before):
        before = _reading(before, _both_sides(_before(revision, pairs)))
    few = _both_sides(pairs)
    if has_sides(after):
        return before, after
    if not carries:
        return before, _reading(after, few)
    after = replace(after)
    after.sides = carried_sides(before.sides, after, revision, few)
    return before, after


def _reading(fitted: FittedModel, few: Few) -> FittedModel:
    """A model that has read the documents of a few people and things, and can rate no others."""
    reading = replace(fitted)
    reading.sides = sides_of_few(fitted, few)
    return reading


def _both_sides(pairs: Pairs) -> Few:
    return np.unique(pairs[:, 0]), np.unique(pairs[:, 1])


def _moved(before: FittedModel, after: FittedModel, revision: RevisedCorpus, pairs: Pairs) -> Moved:
    if not len(pairs):
        return Moved(0, 0.0, 0.0)
    old = _before(revision, pairs)
    step = (after.corpus.scale.high - after.corpus.scale.low) / (after.corpus.levels - 1)
    ways = step * np.abs(after.rate(*pairs.T.copy()) - before.rate(*old.T.copy()))
    return Moved(len(pairs), float(ways.mean()), float(ways.max()))
