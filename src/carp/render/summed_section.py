"""What a page shows of a model that is a sum: what speaks for and against, the sum, earlier cases, who met whom."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from carp.explain.explanation import Explanation, Meetings, Sentiment
from carp.render.amounts_shown import SumRow, signed
from carp.render.capsule_section import HEAT_LEVELS
from carp.render.html_templates import SignedBar, signed_bar
from carp.render.summed_telling import (
    CASES_TITLE,
    COUNTED_MARKS,
    FOUND_TITLE,
    MEETINGS_MEANING,
    MEETINGS_TITLE,
    SUM_TITLE,
    short_names,
    told,
    worth_telling,
)
from carp.render.wording import MARK_TITLE, number


@dataclass(frozen=True)
class DrawnRow:
    """A line of the sum: its amount as people read it, and its bar; the mean has none."""

    name: str
    amount: str
    sentiment: Sentiment | None
    bar: SignedBar | None


@dataclass(frozen=True)
class AmountCell:
    """What a viewpoint and an aspect do together."""

    amount: str
    sentiment: Sentiment | None
    shade: int  # from 0, the faintest


@dataclass(frozen=True)
class AmountGrid:
    """Viewpoints by aspects, both with names."""

    columns: list[tuple[str, str]]  # short and whole
    rows: list[tuple[str, str, list[AmountCell]]]


def summed_values(explanation: Explanation) -> dict[str, Any]:
    """For the template summed_reasons.html."""
    words = told(explanation)
    return {
        "reasons": "summed_reasons.html",
        "titles": {"found": FOUND_TITLE, "sum": SUM_TITLE, "cases": CASES_TITLE, "meetings": MEETINGS_TITLE},
        "phrase_kinds": COUNTED_MARKS,
        "match_kinds": {"matched": MARK_TITLE["matched"]},
        "findings": [
            (finding, said, signed(said.amount, words.digits), sentiment_of(said.amount))
            for finding, said in zip(worth_telling(explanation).findings, words.findings, strict=True)
        ],
        "sum": _drawn(words.sum, words.digits),
        "total": number(explanation.rating, words.digits),
        "cases": words.cases,
        "grid": None if words.meetings is None else _grid(words.meetings, words.digits + 1),
        "meetings_meaning": MEETINGS_MEANING,
    }


def sentiment_of(amount: float) -> Sentiment | None:
    return "positive" if amount > 0 else "negative" if amount < 0 else None


def _drawn(rows: tuple[SumRow, ...], digits: int) -> list[DrawnRow]:
    largest = max((abs(row.amount) for row in rows if row.kind != "mean"), default=0.0)
    return [
        DrawnRow(row.name, number(row.amount, digits), None, None)
        if row.kind == "mean"
        else DrawnRow(
            row.name,
            signed(row.amount, digits),
            sentiment_of(row.amount),
            signed_bar(row.amount / largest if largest else 0.0),
        )
        for row in rows
    ]


def _grid(met: Meetings, digits: int) -> AmountGrid:
    largest = max(abs(one) for row in met.amounts for one in row)
    rows = zip(short_names(met.viewpoints), met.viewpoints, met.amounts, strict=True)
    return AmountGrid(
        list(zip(short_names(met.aspects), met.aspects, strict=True)),
        [(short, whole, [_cell(one, largest, digits) for one in amounts]) for short, whole, amounts in rows],
    )


def _cell(amount: float, largest: float, digits: int) -> AmountCell:
    shown = signed(amount, digits)
    if shown[0] not in "+−":
        return AmountCell("·", None, 0)
    shade = min(int(abs(amount) / largest * HEAT_LEVELS), HEAT_LEVELS - 1)
    return AmountCell(shown, sentiment_of(amount), shade)
