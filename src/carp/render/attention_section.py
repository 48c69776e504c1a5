"""The part of a page for models without capsules: what they listened to on both sides."""

from __future__ import annotations

from collections.abc import Sequence

from carp.explain.explanation import Explanation, Side
from carp.render.html_parts import gauge, heading, mark, safe, side_block
from carp.render.wording import (
    HEARD_TITLE,
    PHRASE_MEANING,
    SIDES_SHOWN,
    by_weight,
    less_heard,
    number,
    side_name,
)


def listening(explanation: Explanation, level: int) -> str:
    """The sides of the person beside those of the thing, those that were listened to most first."""
    several = max(len(explanation.viewpoints), len(explanation.aspects)) > 1
    kinds = ("own", "shared") if several else ("own",)
    words = PHRASE_MEANING[several]
    legend = "".join(f"<li>{mark('phrase', [kind])} {words[kind]}</li>" for kind in kinds)
    cards = _card("viewpoint", explanation.viewpoints, level + 1) + _card("aspect", explanation.aspects, level + 1)
    return (
        f"<section>{heading(level, 'What the model listened to')}\n"
        f'<p class="soft">{safe(explanation.meaning)}</p>\n<ul class="legend">{legend}</ul>\n'
        f'<div class="pair">{cards}</div></section>'
    )


def _card(kind: str, sides: Sequence[Side], level: int) -> str:
    parts = [heading(level, HEARD_TITLE[kind], "subheading")]
    for side in by_weight(sides)[:SIDES_SHOWN]:
        if len(sides) > 1:
            weight = side.weight if side.weight is not None else 0.0
            parts.append(gauge(safe(side_name(side)), "(weight)", weight, number(side.weight, 2)))
        parts.append(side_block("", side, level + 1, silent="No word stands out.", others="Other phrases"))
    rest = less_heard(sides)
    if rest:
        parts.append(f'<p class="soft">{safe(rest)}</p>')
    return f'<div class="card heard">{"".join(parts)}</div>'
