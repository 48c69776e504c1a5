"""Words, numbers and phrases that the terminal and the page share, so that both say the same."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, pairwise
from typing import Literal

from carp.explain.explanation import Explanation, Mark, Sentence, Sentiment, Side

Kinds = frozenset[str]
Fragment = tuple[str, Kinds]  # a stretch of text and the kinds of the marks that cover it

NOTHING: Kinds = frozenset()
SIGN = {"positive": "+", "negative": "−"}
SIDE_TITLE = {"viewpoint": "What the person cares about", "aspect": "What people say of the thing"}
HEARD_TITLE = {"viewpoint": "In what the person wrote", "aspect": "In what people wrote about the thing"}
# By whether a model has several sides of one kind.
PHRASE_MEANING: dict[bool, dict[str, str]] = {
    False: {"own": "a phrase the model listened to"},
    True: {"own": "a phrase that this one alone listened to", "shared": "a phrase that several listened to"},
}
MARK_TITLE = {
    "own": "a phrase of this one alone",
    "shared": "a phrase of several",
    "positive": "matches a reason that speaks for it",
    "negative": "matches a reason that speaks against it",
    "matched": "words that the model listened to in other reviews",
}
SIDES_SHOWN = 3  # by their sentences, of the person and of the thing, without capsules; the others are only named
TURNED_ROUND = {
    "positive": "Its degree is below zero, so it takes away from the rating.",
    "negative": "Its degree is below zero, so it adds to the rating.",
}
SPEAKS = {"positive": "speaks for it", "negative": "speaks against it"}

# One character for one character, so that marks keep pointing at the right places. No escape sequence reaches a
# terminal, and no reordering control makes a text read differently from what it says.
_NEUTRAL = (
    {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\t\n\r"}
    | {0x0D: " ", 0x7F: "\u2421", 0x2028: " ", 0x2029: " "}
    | dict.fromkeys(range(0x80, 0xA0), "\ufffd")
    | dict.fromkeys((*range(0x202A, 0x202F), *range(0x2066, 0x2070)), "\ufffd")
    | dict.fromkeys((*range(0xD800, 0xE000), 0xFFFE, 0xFFFF), "\ufffd")
)


@dataclass(frozen=True)
class Fact:
    """A rating worth comparing the prediction with; its value is None where it is not known."""

    kind: Literal["predicted", "actual", "biases", "average"]
    label: str
    value: float | None
    remark: str


def split_by_marks(text: str, marks: Iterable[Mark]) -> list[Fragment]:
    """Cuts a text where the marks that cover it change; the fragments put together are the text again.

    >>> split_by_marks("solid metal", [Mark(0, 5, "own"), Mark(3, 99, "shared")]) == [
    ...     ("sol", {"own"}), ("id", {"own", "shared"}), (" metal", {"shared"})]
    True
    """
    changes: dict[int, list[tuple[str, int]]] = {0: [], len(text): []}
    for mark in marks:
        start, end = max(mark.start, 0), min(mark.end, len(text))
        if start < end:
            changes.setdefault(start, []).append((mark.kind, 1))
            changes.setdefault(end, []).append((mark.kind, -1))
    places = sorted(changes)
    open_marks: Counter[str] = Counter()
    cut: list[Fragment] = []
    for start, end in pairwise(places):
        for kind, step in changes[start]:
            open_marks[kind] += step
        cut.append((text[start:end], frozenset(+open_marks)))
    return _joined(cut)


def phrases_of(text: str, marks: Iterable[Mark]) -> list[Fragment]:
    """The same cut, made to read well: where phrases overlap the shared one wins, and none begins or ends in a space.

    >>> phrases_of("clamp without hitting", [Mark(0, 13, "own"), Mark(6, 21, "shared")]) == [
    ...     ("clamp", {"own"}), (" ", set()), ("without hitting", {"shared"})]
    True
    """
    cut = [
        (part, kinds - {"own"} if "shared" in kinds else kinds)
        for words, kinds in split_by_marks(text, marks)
        for part in re.findall(r"\s+|\S+", words)
    ]
    cut = list(_whole_gaps(cut))
    # A gap belongs to a phrase only where the words on both sides do.
    spoken: list[Kinds | None] = [None if part.isspace() else kinds for part, kinds in cut]
    before = list(accumulate(spoken, _latest, initial=NOTHING))[:-1]
    after = list(accumulate(reversed(spoken), _latest, initial=NOTHING))[-2::-1]
    return _joined(
        (part, kinds & one & other if part.isspace() else kinds)
        for (part, kinds), one, other in zip(cut, before, after, strict=True)
    )


def _whole_gaps(cut: Iterable[Fragment]) -> Iterator[Fragment]:
    """Spaces beside each other as one, marked with what marks all of them."""
    for space, group in groupby(cut, key=lambda part: part[0].isspace()):
        parts = list(group)
        if space:
            yield "".join(words for words, _ in parts), frozenset.intersection(*(kinds for _, kinds in parts))
        else:
            yield from parts


def _latest(known: Kinds, kinds: Kinds | None) -> Kinds:
    return known if kinds is None else kinds


def _joined(cut: Iterable[Fragment]) -> list[Fragment]:
    return [("".join(words for words, _ in group), kinds) for kinds, group in groupby(cut, key=lambda part: part[1])]


def neutral(text: str) -> str:
    r"""The text with control characters made visible and harmless, at the same length.

    >>> neutral("\x1b[31mred")
    '␛[31mred'
    """
    return text.translate(_NEUTRAL)


def number(value: float | None, digits: int = 3) -> str:
    """A number as people read it; what is missing or not finite is unknown.

    >>> number(-0.5, 2), number(float("nan"))
    ('−0.50', 'unknown')
    """
    if value is None or not math.isfinite(value):
        return "unknown"
    return f"{value:.{digits}f}".replace("-", "−")


def scale_words(rating_range: tuple[float, float]) -> str:
    """
    >>> scale_words((0.5, 5.0))
    'from 0.5 to 5'
    """
    low, high = rating_range
    return f"from {low:g} to {high:g}"


def person(explanation: Explanation) -> str:
    return "a newcomer" if explanation.user is None else explanation.user


def facts(explanation: Explanation) -> list[Fact]:
    """The predicted rating and the ratings to compare it with."""
    target, mean, rating = explanation.target, explanation.item_mean, explanation.rating
    return [
        Fact(
            "predicted",
            "predicted",
            rating,
            f"on a scale {scale_words(explanation.rating_range)}{interval(explanation)}",
        ),
        Fact(
            "actual", "actual", target.rating, _compared("the prediction is", rating - target.rating, "above", "below")
        )
        if target
        else Fact("actual", "actual", None, "no held-out review of this pair"),
        _without_texts(explanation),
        Fact(
            "average",
            "average",
            mean,
            "of all training ratings of the thing" if mean is not None else "no training rating of the thing",
        ),
    ]


def _without_texts(explanation: Explanation) -> Fact:
    """What is predicted without the texts: by the biases, or by a sum without what the texts add to it."""
    rating, baseline = explanation.rating, explanation.baseline
    if explanation.texts_move is not None:
        moved = _compared("the texts move it", explanation.texts_move, "up", "down")
        return Fact("biases", "without texts", rating - explanation.texts_move, moved)
    if baseline is None:
        return Fact("biases", "biases alone", None, "the model gave no prediction from biases alone")
    if explanation.prevailing is None:  # such a model may add to the biases what does not come from the texts
        return Fact(
            "biases", "biases alone", baseline, _compared("the prediction is", rating - baseline, "above", "below")
        )
    return Fact("biases", "biases alone", baseline, _compared("the texts move it", rating - baseline, "up", "down"))


def interval(explanation: Explanation) -> str:
    """Where nine ratings of ten lie, as the end of a sentence; nothing where that is unknown."""
    if explanation.low is None or explanation.high is None:
        return ""
    return f"; nine of ten lie between {number(explanation.low, 1)} and {number(explanation.high, 1)}"


def _compared(start: str, difference: float, up: str, down: str) -> str:
    if not math.isfinite(difference):
        return "cannot be compared"
    if abs(difference) < 0.005:
        return "the prediction is the same"
    return f"{start} {number(abs(difference), 2)} {up if difference > 0 else down}"


def balance(explanation: Explanation) -> str:
    """One sentence: which way the listed reasons point, or what is shown in their place."""
    if explanation.prevailing is None:
        return (
            f"Below is what the model {explanation.model} listened to most in what the person wrote and in what "
            "people wrote about the thing."
        )
    count = Counter(unit.sentiment for unit in explanation.units)
    if not count:
        return "No reason stands out: no logic unit was listed for this prediction."
    said = [
        f"{_counted(many)} {SPEAKS[sentiment] if many == 1 else SPEAKS[sentiment].replace('speaks', 'speak')}"
        for sentiment, many in count.most_common()
    ]
    return f"Of the reasons below, {' and '.join(said)}.{_opposed(explanation)}"


def _opposed(explanation: Explanation) -> str:
    """How many of the reasons have a sentence that says the opposite of what the model makes of it."""
    many = sum(unit.aspect.opposed > 0 for unit in explanation.units)
    if not many:
        return ""
    which = "There" if len(explanation.units) == 1 else f"In {_counted(many)} of them"
    return f" {which}, a sentence says the opposite of what the model makes of it."


def _counted(count: int) -> str:
    return {1: "one", 2: "two", 3: "three", 4: "four", 5: "five", 6: "six"}.get(count, str(count))


def weighed(explanation: Explanation) -> str:
    """One sentence: which capsule prevails."""
    longer, shorter = ("for", "against") if explanation.prevailing == "positive" else ("against", "for")
    return (
        f"The {explanation.prevailing} capsule is the longer one: the texts make it likelier that the person "
        f"speaks {longer} the thing than {shorter} it."
    )


def by_weight(sides: Sequence[Side]) -> list[Side]:
    """Those that the model listens to most first."""
    return sorted(sides, key=lambda side: (-(side.weight or 0.0), side.index))


def side_name(side: Side) -> str:
    return side.name or f"side {side.index}"


def less_heard(sides: Sequence[Side]) -> str:
    """One line on the sides that are not shown by their sentences."""
    rest = by_weight(sides)[SIDES_SHOWN:]
    if not rest:
        return ""
    return "Listened to less: " + ", ".join(f"{side_name(side)} ({number(side.weight, 2)})" for side in rest) + "."


def source_parts(sentence: Sentence, known: Literal["", "user", "item"] = "") -> list[str]:
    """Who wrote a sentence, about what, and the rating that went with it; what the reader knows already is left out."""
    rated = sentence.rating is not None and math.isfinite(sentence.rating)
    by = f"by {sentence.user}" if sentence.user is not None else "by the newcomer"
    about = thing_name(sentence.item, sentence.title) if sentence.item is not None else "an unnamed thing"
    return [
        *([by] if known != "user" else []),
        *([f"about {about}"] if known != "item" else []),
        f"rated {sentence.rating:g}" if rated else "without a rating",
    ]


def thing_name(item: str, title: str | None) -> str:
    """The title of an item with its id behind it, since two items may have the same title; the id alone without one.

    >>> thing_name("B017", "Tube amp"), thing_name("B017", None)
    ('Tube amp (B017)', 'B017')
    """
    return f"{title} ({item})" if title and title != item else item


def further_phrases(side: Side) -> list[str]:
    """The phrases of a side that neither its sentences nor its name show already."""
    shown = "\n".join(sentence.text for sentence in side.sentences).casefold()
    named = side.name.split(", ")
    return [one for one in side.phrases if one.strip() and one.casefold() not in shown and one not in named]


def listed_cells(explanation: Explanation, sentiment: Sentiment) -> dict[tuple[int, int], int]:
    """The cells (viewpoint, aspect) that are listed as reasons for a sentiment, with the number of the reason."""
    return {
        (unit.viewpoint.index, unit.aspect.index): place
        for place, unit in enumerate(explanation.units, 1)
        if unit.sentiment == sentiment
    }
