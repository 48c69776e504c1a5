"""What the logic units of CARP say, in words for people: who meets whom, and where a sentence says the opposite.

The terminal, the page and the explorer all take their words from here, so that they say the same.
"""

from __future__ import annotations

from dataclasses import dataclass

from carp.explain.explanation import Explanation, LogicUnit, Sentiment, Side, Tone

COUNTS = {"positive": "for it", "negative": "against it"}
SAYS: dict[Tone, tuple[str, str]] = {"praise": ("praises", "praise"), "complaint": ("complains", "complain")}
OPPOSITE: dict[Sentiment, Tone] = {"positive": "complaint", "negative": "praise"}


@dataclass(frozen=True)
class UnitTold:
    """One reason in words."""

    title: str
    doubt: str  # where its sentences say the opposite of what the model makes of them; empty otherwise


def units_told(explanation: Explanation) -> tuple[UnitTold, ...]:
    """In the order of Explanation.units."""
    return tuple(UnitTold(unit_title(unit), doubt_words(unit.aspect)) for unit in explanation.units)


def unit_title(unit: LogicUnit) -> str:
    return f"{quoted_side(unit.viewpoint, 'viewpoint')} meets {quoted_side(unit.aspect, 'aspect')}"


def quoted_side(side: Side, kind: str) -> str:
    """The name of a side in quotation marks; its number as it is.

    >>> quoted_side(Side(2, (), (), name="strings, set"), "aspect"), quoted_side(Side(2, (), ()), "aspect")
    ('“strings, set”', 'aspect 2')
    """
    return f"“{side.name}”" if is_named(side, kind) else f"{kind} {side.index}"


def is_named(side: Side, kind: str) -> bool:
    """Whether its name is its own, the same for everybody, and not just a number."""
    return bool(side.name) and side.name != f"{kind} {side.index}"


def doubt_words(side: Side) -> str:
    """One sentence where sentences about the thing say the opposite of what they are shown as.

    >>> doubt_words(Side(1, (), (), sentiment="negative", opposed=1))
    'The model counts this against it, though the sentence praises.'
    """
    if side.sentiment is None or not side.opposed:
        return ""
    one, many = SAYS[OPPOSITE[side.sentiment]]
    if len(side.sentences) <= 1:
        who = f"the sentence {one}"
    elif side.opposed < len(side.sentences):
        who = f"one of the sentences {one}" if side.opposed == 1 else f"{side.opposed} of the sentences {many}"
    else:
        who = f"the sentences {many}"
    return f"The model counts this {COUNTS[side.sentiment]}, though {who}."
