"""Logic units, viewpoints and aspects as an explanation shows them: with the sentences people wrote."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from carp.explain.capsule_judgement import ITEM, USER, Array, Judgement, ShownSide, UnitReason
from carp.explain.explanation import LogicUnit, Sentiment, Side
from carp.explain.influence import SentenceInfluence
from carp.explain.phrases import weightiest_sides
from carp.explain.question import Detail
from carp.models.carp import NEGATIVE, POSITIVE

SENTIMENTS: tuple[Sentiment, Sentiment] = ("positive", "negative")


def logic_units(
    chosen: Sequence[UnitReason], judged: Judgement, sides: tuple[ShownSide, ShownSide]
) -> tuple[LogicUnit, ...]:
    """The chosen units with their sentences as they were written."""
    user, item = sides[USER].book, sides[ITEM].book
    heard = _shares(judged.coupling[judged.prevailing])
    units = []
    for one in chosen:
        x, y = one.viewpoint, one.aspect
        viewpoint = user.side(x, [user.document.sentences[j] for j in one.reason.user])
        aspect = item.side(y, [item.document.sentences[j] for j in one.reason.item])
        units.append(
            LogicUnit(
                replace(viewpoint, name=f"viewpoint {x + 1}", weight=float(heard[USER][x])),
                replace(aspect, name=f"aspect {y + 1}", weight=float(heard[ITEM][y])),
                float(judged.coupling[POSITIVE, x, y]),
                float(judged.coupling[NEGATIVE, x, y]),
                SENTIMENTS[one.sentiment],
            )
        )
    return tuple(units)


def all_sides(
    sides: tuple[ShownSide, ShownSide], influence: SentenceInfluence, coupling: Array, detail: Detail
) -> tuple[tuple[Side, ...], tuple[Side, ...]]:
    """Every viewpoint and every aspect, by the sentences that move the rating most through it, up or down."""
    moved = np.abs(influence.user.sum(2)), np.abs(influence.item.sum(1))  # [S, M]
    viewpoints, aspects = (
        named_sides(kind, weightiest_sides(side.book, shown_sentences=detail.sentences, moved=move), heard)
        for kind, side, move, heard in zip(("viewpoint", "aspect"), sides, moved, _shares(coupling), strict=True)
    )
    return viewpoints, aspects


def named_sides(kind: str, sides: Sequence[Side], weights: Array) -> tuple[Side, ...]:
    return tuple(
        replace(side, name=f"{kind} {side.index}", weight=float(weight))
        for side, weight in zip(sides, weights, strict=True)
    )


def _shares(coupling: Array) -> tuple[Array, Array]:
    """The share of a capsule's coupling [M, M] that falls on each viewpoint, and on each aspect."""
    total = max(float(coupling.sum()), 1e-30)
    return coupling.sum(1) / total, coupling.sum(0) / total


def matrix(values: Array) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(float(v) for v in row) for row in values)
