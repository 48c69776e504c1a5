"""An explanation as terminal text."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from carp.explain.explanation import Capsule, Explanation, LogicUnit, Mark, Sentiment, Side
from carp.render.wording import (
    HEARD_TITLE,
    PHRASE_MEANING,
    SIDE_TITLE,
    SIDES_SHOWN,
    SIGN,
    SPEAKS,
    balance,
    by_weight,
    facts,
    further_phrases,
    less_heard,
    listed_cells,
    neutral,
    number,
    person,
    phrases_of,
    side_name,
    source_parts,
    weighed,
)

Piece = tuple[str, str]  # a stretch of text and its rich style

WIDEST = 100  # longer lines are hard to read, however wide the terminal is
NARROWEST = 40
PHRASES_SHOWN = 6
PHRASES_ABOUT = 3
STYLE = {"positive": "bold blue", "negative": "bold yellow", "own": "black on yellow", "shared": "black on magenta"}


@dataclass(frozen=True)
class _Line:
    pieces: list[Piece] = field(default_factory=list)
    indent: int = 0
    label: Piece = ("", "")  # stands before the first row; the others are set in by its length


def explanation_text(explanation: Explanation, *, width: int | None = None, colour: bool = False) -> str:
    """The explanation for a terminal: it reads the same without colour, which only repeats what the words say."""
    if width is None:
        width = min(shutil.get_terminal_size((WIDEST, 24)).columns, WIDEST)
    width = max(width, NARROWEST)
    body = _heard(explanation) if explanation.prevailing is None else _met(explanation, width)
    lines = [*_header(explanation), *body, *_target(explanation), *_notes(explanation)]
    return _set(lines, width, colour)


def bar(share: float, cells: int) -> str:
    """A bar of block characters for a share between 0 and 1.

    >>> bar(0.5, 8)
    '████····'
    """
    filled = round(max(0.0, min(share, 1.0)) * cells) if math.isfinite(share) else 0
    return "█" * filled + "·" * (cells - filled)


def _heading(words: str) -> list[_Line]:
    return [_Line(), _Line([(words, "bold")]), _Line([("─" * len(words), "dim")])]


def _header(explanation: Explanation) -> list[_Line]:
    lines = _heading("Why this rating")[1:]
    lines.append(_Line([(_flat(person(explanation)), "bold")], label=(f"{'person':<14}", "dim")))
    lines.append(_Line([(_flat(explanation.item), "bold")], label=(f"{'thing':<14}", "dim")))
    for fact in facts(explanation):
        style = "bold" if fact.kind == "predicted" else ""
        lines.append(
            _Line([(f"{number(fact.value, 2):<9}", style), (fact.remark, "dim")], label=(f"{fact.label:<14}", "dim"))
        )
    lines += [_Line(), _Line([(_flat(balance(explanation)), "")])]
    return lines


def _met(explanation: Explanation, width: int) -> list[_Line]:
    """What only a model with capsules can tell."""
    return [
        *_capsules(explanation, width),
        *_reasons(explanation),
        *_couplings(explanation, width),
        *_roster(explanation),
    ]


def _heard(explanation: Explanation) -> list[_Line]:
    """What a model without capsules listened to, its sides by their weight."""
    lines = _heading("What the model listened to")
    lines.append(_Line([(_flat(explanation.meaning), "")]))
    words = PHRASE_MEANING[max(len(explanation.viewpoints), len(explanation.aspects)) > 1]
    signs = {"own": "[phrase]", "shared": "{phrase}"}
    lines.append(_Line([("; ".join(f"{signs[kind]}: {meaning}" for kind, meaning in words.items()) + ".", "dim")]))
    for kind, sides in (("viewpoint", explanation.viewpoints), ("aspect", explanation.aspects)):
        lines += [_Line(), _Line([(HEARD_TITLE[kind], "underline")])]
        for side in by_weight(sides)[:SIDES_SHOWN]:
            if len(sides) > 1:
                lines.append(_Line([(_flat(side_name(side)), "bold"), (_weight(side), "dim")], indent=3))
            lines += _quoted(side, "No word stands out.")
        if rest := less_heard(sides):
            lines.append(_Line([(_flat(rest), "dim")], indent=3))
    return lines


def _weight(side: Side) -> str:
    return "" if side.weight is None else f"  weight {number(side.weight, 2)}"


def _capsules(explanation: Explanation, width: int) -> list[_Line]:
    assert explanation.positive is not None
    assert explanation.negative is not None

    def row(name: str, sentiment: Sentiment, capsule: Capsule) -> _Line:
        cells = max(8, min(width - 66, 30))
        figures = (
            f"  length {number(capsule.length)}  degree {number(capsule.degree)}"
            f" ({number(capsule.relative_degree)} of the largest)"
        )
        return _Line([(bar(capsule.length, cells), STYLE[sentiment]), (figures, "")], label=(f"{name:<12}", ""))

    return [
        *_heading("How the person is likely to feel"),
        row("for it", "positive", explanation.positive),
        row("against it", "negative", explanation.negative),
        _Line([("Length: how likely the sentiment is, from 0 to 1. Degree: how strong it is.", "dim")]),
        _Line([(weighed(explanation), "")]),
    ]


def _reasons(explanation: Explanation) -> list[_Line]:
    lines = _heading("Reasons")
    if not explanation.units:
        return [*lines, _Line([("No logic unit was listed for this prediction.", "")])]
    lines.append(_Line([("[phrase] belongs to this viewpoint or aspect alone, {phrase} to several.", "dim")]))
    for place, unit in enumerate(explanation.units, 1):
        lines += [_Line(), *_unit(place, unit)]
    return lines


def _unit(place: int, unit: LogicUnit) -> list[_Line]:
    return [
        _Line(
            [
                (f"({SIGN[unit.sentiment]}) {SPEAKS[unit.sentiment]}", STYLE[unit.sentiment]),
                (f": viewpoint {unit.viewpoint.index} meets aspect {unit.aspect.index}", "bold"),
            ],
            label=(f"{place}. ", "bold"),
        ),
        _Line([(f"coupling  for {number(unit.positive)}  against {number(unit.negative)}", "dim")], indent=3),
        *_side(SIDE_TITLE["viewpoint"], "viewpoint", unit.viewpoint),
        *_side(SIDE_TITLE["aspect"], "aspect", unit.aspect),
    ]


def _side(title: str, name: str, side: Side) -> list[_Line]:
    heading = _Line([(f"{title} ({name} {side.index})", "underline")], indent=3)
    return [heading, *_quoted(side, f"No sentence stands for this {name}.")]


def _quoted(side: Side, silent: str) -> list[_Line]:
    """A side's sentences and the phrases beside them; `silent` where it has none."""
    lines = [] if side.sentences else [_Line([(silent, "")], indent=5)]
    for sentence in side.sentences:
        words = _marked(sentence.text, sentence.marks) if sentence.text.strip() else [("(an empty sentence)", "dim")]
        lines.append(_Line([*words, ("”", "dim")], indent=5, label=("“", "dim")))
        lines.append(_Line([(_flat(", ".join(source_parts(sentence))), "dim")], indent=6, label=("— ", "dim")))
    further = further_phrases(side)
    if further:
        more = len(further) - PHRASES_SHOWN
        shown = " · ".join(further[:PHRASES_SHOWN]) + (f" · and {more} more" if more > 0 else "")
        lines.append(_Line([(_flat(shown), "")], indent=6, label=("also: ", "dim")))
    return lines


def _couplings(explanation: Explanation, width: int) -> list[_Line]:
    lines = _heading("Every viewpoint with every aspect")
    lines.append(
        _Line(
            [
                (
                    "How much each sentiment listens to a pair. Rows: viewpoints. Columns: aspects. *: a reason above.",
                    "dim",
                )
            ]
        )
    )
    left = _grid("for it", explanation.coupling_positive, listed_cells(explanation, "positive"), width)
    right = _grid("against it", explanation.coupling_negative, listed_cells(explanation, "negative"), width)
    breadth = max(map(len, left)) + 4
    if len(left) == len(right) and breadth + max(map(len, right)) <= width:
        return lines + [_Line([(f"{one:<{breadth}}{other}", "")]) for one, other in zip(left, right, strict=True)]
    return [*lines, *(_Line([(row, "")]) for row in (*left, "", *right))]


def _grid(name: str, rows: Sequence[Sequence[float]], listed: dict[tuple[int, int], int], width: int) -> list[str]:
    columns = max(map(len, rows), default=0)
    if not columns:
        return [f"{name}: no coupling coefficients were given"]
    shown = []
    fitting = max(1, (width - 11) // 7)
    for first in range(0, columns, fitting):
        span = range(first, min(first + fitting, columns))
        shown.append(f"{name:<11}" + "".join(f"{f'a{aspect + 1}':>6} " for aspect in span))
        for viewpoint, row in enumerate(rows, 1):
            cells = (
                f"{number(row[aspect]):>6}{'*' if (viewpoint, aspect + 1) in listed else ' '}"
                for aspect in span
                if aspect < len(row)
            )
            shown.append(f"{f'v{viewpoint}':>9}  " + "".join(cells))
    return [line.rstrip() for line in shown]


def _roster(explanation: Explanation) -> list[_Line]:
    """What stands behind the letters of the grids."""
    if not explanation.viewpoints or not explanation.aspects:
        return []
    lines = _heading("What each viewpoint and aspect is about")
    lines.append(
        _Line([("With the share of the longer capsule's listening that falls on it, and its best phrases.", "dim")])
    )
    for letter, sides in (("v", explanation.viewpoints), ("a", explanation.aspects)):
        for side in sides:
            phrases = " · ".join(phrase for phrase in side.phrases[:PHRASES_ABOUT] if phrase.strip())
            label = (f"{letter}{side.index}  {number(side.weight, 2)}  ", "")
            lines.append(_Line([(_flat(phrases) or "no phrase stands for it", "")], indent=2, label=label))
    return lines


def _target(explanation: Explanation) -> list[_Line]:
    lines = _heading("What the person really wrote")
    target = explanation.target
    if target is None:
        return [*lines, _Line([("No held-out review: the person's own words on the thing are not known.", "")])]
    matching = "__part__(+) matches a reason for it, __part__(−) a reason against it."
    if explanation.prevailing is None:
        matching = "__part__: words that the model listened to in other reviews."
    legend = f"Rated {number(target.rating, 2)}. {matching}"
    lines.append(_Line([(legend, "dim")]))
    if not target.text.strip():
        return [*lines, _Line([("The review has no words.", "")])]
    return [*lines, _Line([*_marked(target.text, target.marks), ("”", "dim")], label=("“", "dim"))]


def _notes(explanation: Explanation) -> list[_Line]:
    if not explanation.notes:
        return []
    return [*_heading("Notes"), *(_Line([(_flat(note), "")], label=("• ", "")) for note in explanation.notes)]


def _marked(text: str, marks: Iterable[Mark]) -> list[Piece]:
    """The text in pieces, each mark written out as signs and styled."""
    pieces: list[Piece] = []
    for fragment, kinds in phrases_of(_flat(text), marks):
        words, style = fragment, ""
        if "shared" in kinds:
            words, style = f"{{{words}}}", STYLE["shared"]
        elif "own" in kinds:
            words, style = f"[{words}]", STYLE["own"]
        if "matched" in kinds:
            words, style = f"__{words}__", "underline"
        signs = "".join(sign for kind, sign in SIGN.items() if kind in kinds)
        if signs:
            words, style = f"__{words}__({signs})", style or "underline " + STYLE[min(kinds & SIGN.keys())]
        pieces.append((words, style))
    return pieces


def _flat(text: str) -> str:
    return neutral(text).replace("\n", " ").replace("\t", " ")


def _set(lines: Sequence[_Line], width: int, colour: bool) -> str:
    """Wraps the lines and writes them out; the text goes in as data, so that no markup in it is obeyed."""
    from io import StringIO

    from rich.console import Console
    from rich.text import Text

    console = Console(
        file=StringIO(),
        width=width,
        color_system="standard" if colour else None,
        force_terminal=colour,
        no_color=not colour,
        force_jupyter=False,
        legacy_windows=False,
        _environ={},
    )
    written: list[str] = []
    for line in lines:
        hang = line.indent + len(line.label[0])
        for place, row in enumerate(Text.assemble(*line.pieces).wrap(console, width - hang) or [Text()]):
            row.rstrip()
            start = Text.assemble(" " * line.indent, line.label) if place == 0 else Text(" " * hang)
            with console.capture() as capture:
                console.print(start + row, soft_wrap=True, end="")
            written.append(capture.get().rstrip())
    return "\n".join(written)
