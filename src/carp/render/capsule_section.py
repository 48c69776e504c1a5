"""What a page shows of a model with capsules alone: the two sentiments, the reasons, and who met whom."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from carp.explain.explanation import Explanation, Sentiment, Side
from carp.render.capsule_telling import is_named, units_told
from carp.render.summed_telling import short_name
from carp.render.wording import MARK_TITLE, listed_cells, weighed

PHRASE_KINDS = {
    "own": "a phrase of this viewpoint or aspect alone",
    "shared": "a phrase of several viewpoints or aspects",
}
CAPTIONS: dict[Sentiment, str] = {
    "positive": "Heard as speaking for it",
    "negative": "Heard as speaking against it",
}
HEAT_LEVELS = 10
PHRASES_ABOUT = 4
COLUMNS_BESIDE = 6  # wider heat maps stand one below the other


@dataclass(frozen=True)
class HeatCell:
    """How much a sentiment listens to one viewpoint with one aspect."""

    value: float
    shade: int  # from 0, the faintest
    reason: int | None  # the number of the reason that the pair is listed as


@dataclass(frozen=True)
class AxisName:
    """What stands beside a row or over a column: short, and whole for those who ask."""

    short: str
    whole: str


@dataclass(frozen=True)
class HeatMap:
    """All viewpoints with all aspects, a row a viewpoint."""

    sentiment: Sentiment
    caption: str
    columns: list[AxisName]
    rows: list[tuple[AxisName, list[HeatCell]]]


def capsule_values(explanation: Explanation) -> dict[str, Any]:
    """For the template capsule_reasons.html."""
    maps = _heat_maps(explanation)
    called = list(zip(explanation.units, units_told(explanation), strict=True))
    return {
        "reasons": "capsule_reasons.html",
        "weighed": weighed(explanation),
        "phrase_kinds": PHRASE_KINDS,
        "match_kinds": {sentiment: MARK_TITLE[sentiment] for sentiment in CAPTIONS},
        "heat_maps": maps,
        "units": called,
        "wide": max(len(one.columns) for one in maps) > COLUMNS_BESIDE or _named_axes(explanation),
        "best_phrases": _best_phrases,
    }


def _heat_maps(explanation: Explanation) -> list[HeatMap]:
    """Both on one scale of shades."""
    couplings: dict[Sentiment, Sequence[Sequence[float]]] = {
        "positive": explanation.coupling_positive,
        "negative": explanation.coupling_negative,
    }
    values = [value for rows in couplings.values() for row in rows for value in row if math.isfinite(value)]
    span = (min(values), max(values)) if values else (0.0, 0.0)
    return [_heat_map(explanation, sentiment, rows, span) for sentiment, rows in couplings.items()]


def _heat_map(
    explanation: Explanation, sentiment: Sentiment, rows: Sequence[Sequence[float]], span: tuple[float, float]
) -> HeatMap:
    listed = listed_cells(explanation, sentiment)
    cells = [
        [HeatCell(value, _shade(value, span), listed.get((viewpoint, aspect))) for aspect, value in enumerate(row, 1)]
        for viewpoint, row in enumerate(rows, 1)
    ]
    over = _axis("aspect", explanation.aspects, max(map(len, rows), default=0))
    beside = _axis("viewpoint", explanation.viewpoints, len(rows))
    return HeatMap(sentiment, CAPTIONS[sentiment], over, list(zip(beside, cells, strict=True)))


def _axis(kind: str, sides: Sequence[Side], number: int) -> list[AxisName]:
    """The names of all sides of a kind; a letter and a number for one that has none."""
    named = {side.index: side.name for side in sides if is_named(side, kind)}
    return [
        AxisName(short_name(named[place]), named[place])
        if place in named
        else AxisName(f"{kind[0]}{place}", f"{kind} {place}")
        for place in range(1, number + 1)
    ]


def _named_axes(explanation: Explanation) -> bool:
    return any(is_named(side, "aspect") for side in explanation.aspects)


def _shade(value: float, span: tuple[float, float]) -> int:
    low, high = span
    share = (value - low) / (high - low) if high > low and math.isfinite(value) else 0.0
    return min(int(share * HEAT_LEVELS), HEAT_LEVELS - 1)


def _best_phrases(side: Side) -> list[str]:
    return [phrase for phrase in side.phrases[:PHRASES_ABOUT] if phrase.strip()]
