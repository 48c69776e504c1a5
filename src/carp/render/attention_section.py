"""What a page shows of a model without capsules: what it listened to on both sides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from carp.explain.explanation import Explanation, Side
from carp.render.wording import HEARD_TITLE, MARK_TITLE, PHRASE_MEANING, SIDES_SHOWN, by_weight, less_heard


@dataclass(frozen=True)
class HeardCard:
    """The sides of the person or those of the thing."""

    title: str
    sides: list[Side]  # those shown by their sentences, those listened to most first
    several: bool  # a side that stands alone is neither named nor weighed
    less_heard: str


def attention_values(explanation: Explanation) -> dict[str, Any]:
    """For the template attention_reasons.html."""
    several = max(len(explanation.viewpoints), len(explanation.aspects)) > 1
    return {
        "reasons": "attention_reasons.html",
        "phrase_kinds": PHRASE_MEANING[several],
        "match_kinds": {"matched": MARK_TITLE["matched"]},
        "cards": [_card("viewpoint", explanation.viewpoints), _card("aspect", explanation.aspects)],
    }


def _card(kind: str, sides: Sequence[Side]) -> HeardCard:
    return HeardCard(HEARD_TITLE[kind], by_weight(sides)[:SIDES_SHOWN], len(sides) > 1, less_heard(sides))
