"""An explanation as one self-contained page, or as the fragment a notebook shows.

Nothing is fetched and nothing runs: widths are SVG attributes and shades are classes, so that the page's policy
allows its one style sheet, by its hash, and nothing else.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from carp.explain.explanation import Explanation
from carp.render.attention_section import attention_values
from carp.render.capsule_section import capsule_values
from carp.render.html_templates import filled
from carp.render.summed_section import summed_values
from carp.render.summed_telling import first_words, worth_telling
from carp.render.wording import facts, number, person, scale_words, thing_name

MOST_STEPS = 10  # of a rating scale that are drawn, so that their numbers stay apart on a phone
STEP_WIDTHS = (1, 2, 5, 10, 20, 50, 100)


@dataclass(frozen=True)
class ScaleSign:
    """Something at a place on the rating scale: the words under a tick, or the kind of a rating."""

    place: str  # from the left, in per cent of the width
    name: str


def explanation_page(explanation: Explanation, *, title: str | None = None) -> str:
    """One complete HTML file that opens anywhere, with no network and no script."""
    if title is None:
        thing = thing_name(explanation.item, explanation.title)
        title = f"Why {person(explanation)} would rate {thing} {number(explanation.rating, 2)}"
    return filled("page.html", title=title, level=1, **_values(explanation))


def explanation_fragment(explanation: Explanation) -> str:
    """The same for a notebook, one level of headings lower."""
    return filled("fragment.html", level=2, **_values(explanation))


def _values(explanation: Explanation) -> dict[str, Any]:
    explanation = worth_telling(explanation)
    return {
        "content": "explanation.html",
        "explanation": explanation,
        "person": person(explanation),
        "scale_words": scale_words(explanation.rating_range),
        "facts": facts(explanation),
        "ticks": _ticks(explanation),
        "signs": _signs(explanation),
        "balance": first_words(explanation),
        **_reasons(explanation),
    }


def _reasons(explanation: Explanation) -> dict[str, Any]:
    if explanation.parts:
        return summed_values(explanation)
    return attention_values(explanation) if explanation.prevailing is None else capsule_values(explanation)


def _ticks(explanation: Explanation) -> list[ScaleSign]:
    return [ScaleSign(_place(step, explanation), f"{step:g}") for step in scale_steps(*explanation.rating_range)]


def scale_steps(low: float, high: float) -> list[float]:
    """The ends of a rating scale, and steps of a round width between them.

    >>> scale_steps(1, 5), scale_steps(4, 20), scale_steps(0.5, 5)
    ([1, 2, 3, 4, 5], [4, 6, 8, 10, 12, 14, 16, 18, 20], [0.5, 2, 3, 4, 5])
    """
    width = next((one for one in STEP_WIDTHS if high - low <= MOST_STEPS * one), None)
    if width is None or not high > low:
        return sorted({low, high})
    first = low if (high - low) % width == 0 else math.ceil(low / width) * width
    between = (first + width * number for number in range(MOST_STEPS + 1))
    return sorted({low, high, *(step for step in between if min(step - low, high - step) > width / 2)})


def _signs(explanation: Explanation) -> list[ScaleSign]:
    """The prediction comes last, so that what it is compared with never hides it."""
    return [
        ScaleSign(_place(fact.value, explanation), fact.kind)
        for fact in reversed(facts(explanation))
        if fact.value is not None and math.isfinite(fact.value)
    ]


def _place(value: float, explanation: Explanation) -> str:
    low, high = explanation.rating_range
    share = (value - low) / (high - low) if high > low else 0.5
    return f"{100 * max(0.0, min(share, 1.0)):.2f}%"
