"""An explanation as terminal text."""

from __future__ import annotations

from collections.abc import Sequence

from carp.explain.explanation import Capsule, Explanation, LogicUnit, Sentiment, Side
from carp.render.capsule_telling import is_named, unit_title
from carp.render.summed_lines import summed_lines
from carp.render.summed_telling import first_words, short_name, worth_telling
from carp.render.terminal_lines import (
    STYLE,
    TextLine,
    bar,
    heading_lines,
    marked_pieces,
    note_lines,
    one_line,
    side_lines,
    text_width,
    written,
)
from carp.render.wording import (
    HEARD_TITLE,
    PHRASE_MEANING,
    SIDE_TITLE,
    SIDES_SHOWN,
    SIGN,
    SPEAKS,
    TURNED_ROUND,
    by_weight,
    facts,
    less_heard,
    listed_cells,
    number,
    person,
    side_name,
    thing_name,
    weighed,
)

PHRASES_ABOUT = 3
AXIS = 10  # characters of a name beside a grid


def explanation_text(explanation: Explanation, *, width: int | None = None, colour: bool = False) -> str:
    """The explanation for a terminal. Colour only repeats what the words say."""
    width, explanation = text_width(width), worth_telling(explanation)
    lines = [*_header(explanation), *_body(explanation, width), *_target(explanation), *note_lines(explanation.notes)]
    return written(lines, width, colour)


def _body(explanation: Explanation, width: int) -> list[TextLine]:
    if explanation.parts:
        return summed_lines(explanation, width)
    if explanation.prevailing is None:
        return [] if explanation.little_known else _heard(explanation)
    return _capsules(explanation, width) if explanation.little_known else _met(explanation, width)


def _header(explanation: Explanation) -> list[TextLine]:
    lines = heading_lines("Why this rating")[1:]
    lines.append(TextLine([(one_line(person(explanation)), "bold")], label=(f"{'person':<14}", "dim")))
    lines.append(
        TextLine([(one_line(thing_name(explanation.item, explanation.title)), "bold")], label=(f"{'thing':<14}", "dim"))
    )
    for fact in facts(explanation):
        style = "bold" if fact.kind == "predicted" else ""
        lines.append(
            TextLine([(f"{number(fact.value, 2):<9}", style), (fact.remark, "dim")], label=(f"{fact.label:<14}", "dim"))
        )
    lines += [TextLine(), TextLine([(one_line(first_words(explanation)), "")])]
    return lines


def _met(explanation: Explanation, width: int) -> list[TextLine]:
    """What only a model with capsules can tell."""
    return [
        *_capsules(explanation, width),
        *_reasons(explanation),
        *_couplings(explanation, width),
        *_roster(explanation),
    ]


def _heard(explanation: Explanation) -> list[TextLine]:
    """What a model without capsules listened to, the weightiest sides first."""
    lines = heading_lines("What the model listened to")
    lines.append(TextLine([(one_line(explanation.meaning), "")]))
    words = PHRASE_MEANING[max(len(explanation.viewpoints), len(explanation.aspects)) > 1]
    signs = {"own": "[phrase]", "shared": "{phrase}"}
    lines.append(TextLine([("; ".join(f"{signs[kind]}: {meaning}" for kind, meaning in words.items()) + ".", "dim")]))
    for kind, sides in (("viewpoint", explanation.viewpoints), ("aspect", explanation.aspects)):
        lines += [TextLine(), TextLine([(HEARD_TITLE[kind], "underline")])]
        for side in by_weight(sides)[:SIDES_SHOWN]:
            if len(sides) > 1:
                lines.append(TextLine([(one_line(side_name(side)), "bold"), (_weight(side), "dim")], indent=3))
            lines += side_lines(side, "No word stands out.")
        if rest := less_heard(sides):
            lines.append(TextLine([(one_line(rest), "dim")], indent=3))
    return lines


def _weight(side: Side) -> str:
    return "" if side.weight is None else f"  weight {number(side.weight, 2)}"


def _capsules(explanation: Explanation, width: int) -> list[TextLine]:
    assert explanation.positive is not None
    assert explanation.negative is not None

    def rows(name: str, sentiment: Sentiment, capsule: Capsule) -> list[TextLine]:
        cells = max(8, min(width - 66, 30))
        figures = (
            f"  length {number(capsule.length)}  degree {number(capsule.degree)}"
            f" ({number(capsule.relative_degree)} of the largest)"
        )
        drawn = [(bar(capsule.length, cells), STYLE[sentiment]), (figures, "")]
        turned = [TextLine([(TURNED_ROUND[sentiment], "")], indent=12)] if capsule.degree < 0 else []
        return [TextLine(drawn, label=(f"{name:<12}", "")), *turned]

    return [
        *heading_lines("How the person is likely to feel"),
        *rows("for it", "positive", explanation.positive),
        *rows("against it", "negative", explanation.negative),
        TextLine([("Length: how likely the sentiment is, from 0 to 1. Degree: how strong it is.", "dim")]),
        TextLine([(weighed(explanation), "")]),
    ]


def _reasons(explanation: Explanation) -> list[TextLine]:
    lines = heading_lines("Reasons")
    if not explanation.units:
        return [*lines, TextLine([("No logic unit was listed for this prediction.", "")])]
    lines.append(TextLine([("[phrase] belongs to this viewpoint or aspect alone, {phrase} to several.", "dim")]))
    for place, unit in enumerate(explanation.units, 1):
        lines += [TextLine(), *_unit(place, unit)]
    return lines


def _unit(place: int, unit: LogicUnit) -> list[TextLine]:
    return [
        TextLine(
            [
                (f"({SIGN[unit.sentiment]}) {SPEAKS[unit.sentiment]}", STYLE[unit.sentiment]),
                (f": {one_line(unit_title(unit))}", "bold"),
            ],
            label=(f"{place}. ", "bold"),
        ),
        TextLine([(f"coupling  for {number(unit.positive)}  against {number(unit.negative)}", "dim")], indent=3),
        *_side(SIDE_TITLE["viewpoint"], "viewpoint", unit.viewpoint),
        *_side(SIDE_TITLE["aspect"], "aspect", unit.aspect),
    ]


def _side(title: str, name: str, side: Side) -> list[TextLine]:
    heading = TextLine([(one_line(f"{title} ({side.name or f'{name} {side.index}'})"), "underline")], indent=3)
    return [heading, *side_lines(side, f"No sentence stands for this {name}.")]


def _couplings(explanation: Explanation, width: int) -> list[TextLine]:
    lines = heading_lines("Every viewpoint with every aspect")
    lines.append(
        TextLine(
            [
                (
                    "How much each sentiment listens to a pair. Rows: viewpoints. Columns: aspects. *: a reason above.",
                    "dim",
                )
            ]
        )
    )
    heads = _axis("viewpoint", explanation.viewpoints), _axis("aspect", explanation.aspects)
    left = _grid("for it", explanation.coupling_positive, listed_cells(explanation, "positive"), heads, width)
    right = _grid("against it", explanation.coupling_negative, listed_cells(explanation, "negative"), heads, width)
    breadth = max(map(len, left)) + 4
    if len(left) == len(right) and breadth + max(map(len, right)) <= width:
        return lines + [TextLine([(f"{one:<{breadth}}{other}", "")]) for one, other in zip(left, right, strict=True)]
    return [*lines, *(TextLine([(row, "")]) for row in (*left, "", *right))]


def _axis(kind: str, sides: Sequence[Side]) -> list[str]:
    """What stands beside the rows or over the columns of a grid: names, cut short; nothing where there are none."""
    named = [short_name(one_line(side.name)) if is_named(side, kind) else "" for side in sides]
    return [name if len(name) <= AXIS else f"{name[: AXIS - 1]}…" for name in named]


def _grid(
    name: str,
    rows: Sequence[Sequence[float]],
    listed: dict[tuple[int, int], int],
    heads: tuple[list[str], list[str]],
    width: int,
) -> list[str]:
    columns = max(map(len, rows), default=0)
    if not columns:
        return [f"{name}: no coupling coefficients were given"]
    beside, over = ([*names, *[""] * most][:most] for names, most in zip(heads, (len(rows), columns), strict=True))
    cell = max(6, *(len(one) + 1 for one in over))
    label = max(len(name), *(len(one) + 3 for one in beside)) + 1
    shown = []
    fitting = max(1, (width - label) // (cell + 1))
    for first in range(0, columns, fitting):
        span = range(first, min(first + fitting, columns))
        shown.append(f"{name:<{label}}" + "".join(f"{over[place] or f'a{place + 1}':>{cell}} " for place in span))
        for viewpoint, row in enumerate(rows, 1):
            cells = (
                f"{number(row[aspect]):>{cell}}{'*' if (viewpoint, aspect + 1) in listed else ' '}"
                for aspect in span
                if aspect < len(row)
            )
            shown.append(f"{beside[viewpoint - 1] or f'v{viewpoint}':>{label - 1}} " + "".join(cells))
    return [line.rstrip() for line in shown]


def _roster(explanation: Explanation) -> list[TextLine]:
    """What the viewpoints and aspects of the grids are about."""
    if not explanation.viewpoints or not explanation.aspects:
        return []
    lines = heading_lines("What each viewpoint and aspect is about")
    lines.append(
        TextLine([("With the share of the longer capsule's listening that falls on it, and its best phrases.", "dim")])
    )
    for kind, sides in (("viewpoint", explanation.viewpoints), ("aspect", explanation.aspects)):
        lines.append(TextLine([(SIDE_TITLE[kind], "underline")]))
        for side in sides:
            phrases = " · ".join(phrase for phrase in side.phrases[:PHRASES_ABOUT] if phrase.strip())
            label = (f"{number(side.weight, 2)}  ", "")
            words = [(one_line(phrases) or "no phrase stands for it", "")]
            lines.append(TextLine([(f"{_roster_name(kind, side)}  ", "bold"), *words], indent=2, label=label))
    return lines


def _roster_name(kind: str, side: Side) -> str:
    return one_line(side.name) if is_named(side, kind) else f"{kind[0]}{side.index}"


def _target(explanation: Explanation) -> list[TextLine]:
    lines = heading_lines("What the person really wrote")
    target = explanation.target
    if target is None:
        return [*lines, TextLine([("No held-out review: the person's own words on the thing are not known.", "")])]
    matching = "__part__(+) matches a reason for it, __part__(−) a reason against it."
    if explanation.prevailing is None:
        matching = "__part__: words that the model listened to in other reviews."
    legend = f"Rated {number(target.rating, 2)}. {'' if explanation.little_known else matching}".rstrip()
    lines.append(TextLine([(legend, "dim")]))
    if not target.text.strip():
        return [*lines, TextLine([("The review has no words.", "")])]
    return [*lines, TextLine([*marked_pieces(target.text, target.marks), ("”", "dim")], label=("“", "dim"))]
