"""Logic units, viewpoints and aspects as an explanation shows them: with the sentences people wrote."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from carp.explain.capsule_judgement import ITEM, USER, Array, Judgement, ShownSide, UnitReason
from carp.explain.explanation import LogicUnit, Sentiment, Side
from carp.explain.guided_reasons import side_names
from carp.explain.influence import SentenceInfluence
from carp.explain.phrases import weightiest_sides
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
    attention = side.reading.attention[0, : len(side.words)].double().cpu().numpy()
    counts = np.zeros((attention.shape[1], len(side.book.document.sentences)))  # by sentence
    for place, (index, sentences) in enumerate(shown, start=1):  # what comes first is what a reader holds the name to
        counts[index, list(sentences)] = np.maximum(counts[index, list(sentences)], 1 / place)
    told = counts[:, side.sentence]
    return side_names(guide, side.words, attention, told, kind)


def logic_units(
    chosen: Sequence[UnitReason], judged: Judgement, sides: tuple[ShownSide, ShownSide], names: SideNames
) -> tuple[LogicUnit, ...]:
    """The chosen units with their sentences as they were written."""
    user, item = sides[USER].book, sides[ITEM].book
    heard = _shares(judged.coupling[judged.prevailing])
    units = []
    for one in chosen:
        x, y = one.viewpoint, one.aspect
        viewpoint = user.side(x, [user.document.sentences[j] for j in one.reason.user])
        aspect = item.side(y, [item.document.sentences[j] for j in one.reason.item])
        sentiment = SENTIMENTS[one.sentiment]
        units.append(
            LogicUnit(
                replace(viewpoint, name=names.viewpoints[x], weight=float(heard[USER][x])),
                replace(aspect, name=names.aspects[y], weight=float(heard[ITEM][y]), sentiment=sentiment),
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
        named_sides(name, weightiest_sides(side.book, shown_sentences=detail.sentences, moved=move), heard)
        for name, side, move, heard in zip(called, sides, moved, _shares(coupling), strict=True)
    )
    return viewpoints, aspects


def named_sides(names: Sequence[str], sides: Sequence[Side], weights: Array) -> tuple[Side, ...]:
    return tuple(
        replace(side, name=name, weight=float(weight)) for name, side, weight in zip(names, sides, weights, strict=True)
    )


def _shares(coupling: Array) -> tuple[Array, Array]:
    """The share of a capsule's coupling [M, M] that falls on each viewpoint, and on each aspect."""
    total = max(float(coupling.sum()), 1e-30)
    return coupling.sum(1) / total, coupling.sum(0) / total


def matrix(values: Array) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(float(v) for v in row) for row in values)
