"""Logic units, viewpoints and aspects as an explanation shows them: with the sentences people wrote."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from carp.explain.capsule_judgement import ITEM, USER, Array, Judgement, ShownSide, UnitReason
from carp.explain.explanation import LogicUnit, Sentiment, Side
from carp.explain.influence import SentenceInfluence
from carp.explain.phrases import PhraseBook
from carp.explain.question import Detail
from carp.explain.reading_guide import ReadingGuide
from carp.models.carp import NEGATIVE, POSITIVE

SENTIMENTS: tuple[Sentiment, Sentiment] = ("positive", "negative")


@dataclass(frozen=True)
class SideNames:
    """What the viewpoints and the aspects of one explanation are called."""

    viewpoints: list[str]
    aspects: list[str]


def names_in(chosen: Sequence[UnitReason], sides: tuple[ShownSide, ShownSide], guide: ReadingGuide) -> SideNames:
    """By what the sentences of the chosen units, and the words that each side listens to, are mostly about."""
    return SideNames(
        names_of("viewpoint", sides[USER], [(one.viewpoint, one.reason.user) for one in chosen], guide),
        names_of("aspect", sides[ITEM], [(one.aspect, one.reason.item) for one in chosen], guide),
    )


def names_of(
    kind: str, side: ShownSide, shown: Sequence[tuple[int, tuple[int, ...]]], guide: ReadingGuide
) -> list[str]:
    """What the viewpoints (aspects) of one document are called, where these sentences are shown for some of them."""
    topics = side.topics(guide.aspects)
    counts = np.zeros((len(topics.heard), len(topics.said)))
    for place, (index, sentences) in enumerate(shown, start=1):  # what comes first is what a reader holds the name to
        for sentence in sentences:
            counts[index, sentence] = max(counts[index, sentence], 1 / place)
    return topics.names(counts, kind)


def logic_units(
    chosen: Sequence[UnitReason], judged: Judgement, sides: tuple[ShownSide, ShownSide], names: SideNames
) -> tuple[LogicUnit, ...]:
    """The chosen units with their sentences as they were written."""
    user, item = sides[USER].book, sides[ITEM].book
    heard = _shares(judged.coupling[judged.prevailing])
    units = []
    for one in chosen:
        x, y, sentiment = one.viewpoint, one.aspect, SENTIMENTS[one.sentiment]
        written = [user.document.sentences[j] for j in one.reason.user]
        about = [item.document.sentences[j] for j in one.reason.item]
        units.append(
            LogicUnit(
                user.side(x, written, weight=heard[USER][x], name=names.viewpoints[x]),
                item.side(y, about, weight=heard[ITEM][y], name=names.aspects[y], sentiment=sentiment),
                float(judged.coupling[POSITIVE, x, y]),
                float(judged.coupling[NEGATIVE, x, y]),
                sentiment,
            )
        )
    return tuple(units)


def all_sides(
    sides: tuple[ShownSide, ShownSide],
    influence: SentenceInfluence,
    coupling: Array,
    names: SideNames,
    detail: Detail,
) -> tuple[tuple[Side, ...], tuple[Side, ...]]:
    """Every viewpoint and every aspect, by the sentences that move the rating most through it, up or down."""
    moved = np.abs(influence.user.sum(2)), np.abs(influence.item.sum(1))  # [S, M]
    called = names.viewpoints, names.aspects
    viewpoints, aspects = (
        _weighed_sides(side.book, move.T.tolist(), name, heard, detail.sentences)
        for name, side, move, heard in zip(called, sides, moved, _shares(coupling), strict=True)
    )
    return viewpoints, aspects


def _weighed_sides(
    book: PhraseBook, moved: Sequence[Sequence[float]], names: Sequence[str], weights: Sequence[float], sentences: int
) -> tuple[Side, ...]:
    return tuple(
        [
            book.side(x, book.weightiest(x, move, sentences), weight=weight, name=name)
            for x, (move, name, weight) in enumerate(zip(moved, names, weights, strict=True))
        ]
    )


def named_sides(names: Sequence[str], sides: Sequence[Side], weights: Array) -> tuple[Side, ...]:
    return tuple(
        replace(side, name=name, weight=float(weight)) for name, side, weight in zip(names, sides, weights, strict=True)
    )


def _shares(coupling: Array) -> tuple[list[float], list[float]]:
    """The share of a capsule's coupling [M, M] that falls on each viewpoint, and on each aspect."""
    total = max(float(coupling.sum()), 1e-30)
    return (coupling.sum(1) / total).tolist(), (coupling.sum(0) / total).tolist()


def matrix(values: Array) -> tuple[tuple[float, ...], ...]:
    return tuple(map(tuple, values.tolist()))
