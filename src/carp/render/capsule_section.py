"""What a page shows of a model with capsules alone: the two sentiments, the reasons, and who met whom."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from carp.explain.explanation import Explanation, Sentiment, Side
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
class HeatMap:
    """All viewpoints with all aspects, a row a viewpoint."""

    sentiment: Sentiment
    caption: str
    columns: int
    rows: list[list[HeatCell]]


def capsule_values(explanation: Explanation) -> dict[str, Any]:
    """For the template capsule_reasons.html."""
    maps = _heat_maps(explanation)
    return {
        "reasons": "capsule_reasons.html",
        "weighed": weighed(explanation),
        "phrase_kinds": PHRASE_KINDS,
        "match_kinds": {sentiment: MARK_TITLE[sentiment] for sentiment in CAPTIONS},
        "heat_maps": maps,
        "wide": max(one.columns for one in maps) > COLUMNS_BESIDE,
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
    return HeatMap(sentiment, CAPTIONS[sentiment], max(map(len, rows), default=0), cells)


def _shade(value: float, span: tuple[float, float]) -> int:
    low, high = span
    share = (value - low) / (high - low) if high > low and math.isfinite(value) else 0.0
    return min(int(share * HEAT_LEVELS), HEAT_LEVELS - 1)


def _best_phrases(side: Side) -> list[str]:
    return [phrase for phrase in side.phrases[:PHRASES_ABOUT] if phrase.strip()]
