"""Lines of terminal text: what explanations and profiles share, and how lines are wrapped and coloured."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from carp.explain.explanation import Mark, Sentence, Side
from carp.render.capsule_telling import doubt_words
from carp.render.wording import SIGN, further_phrases, neutral, phrases_of, source_parts

Piece = tuple[str, str]  # a stretch of text and its rich style

WIDEST = 100  # longer lines are hard to read, however wide the terminal is
NARROWEST = 40
PHRASES_SHOWN = 6
STYLE = {"positive": "bold blue", "negative": "bold yellow", "own": "black on yellow", "shared": "black on magenta"}


@dataclass(frozen=True)
class TextLine:
    """A line before it is wrapped."""

    pieces: list[Piece] = field(default_factory=list)
    indent: int = 0
    label: Piece = ("", "")  # stands before the first row; the others are set in by its length


def text_width(asked: int | None) -> int:
    """The width to write in: what was asked for, or the terminal's up to what reads well."""
    if asked is None:
        asked = min(shutil.get_terminal_size((WIDEST, 24)).columns, WIDEST)
    return max(asked, NARROWEST)


def bar(share: float, cells: int) -> str:
    """A bar of block characters for a share between 0 and 1.

    >>> bar(0.5, 8)
    '████····'
    """
    filled = round(max(0.0, min(share, 1.0)) * cells) if math.isfinite(share) else 0
    return "█" * filled + "·" * (cells - filled)


def signed_bar(share: float, cells: int) -> str:
    """A bar for a share between −1 and 1: to the right of a zero line where it is above zero, to the left below it.

    >>> signed_bar(0.5, 4), signed_bar(-0.5, 4)
    ('····│██··', '··██│····')
    """
    size = bar(abs(share), cells)
    return f"{'·' * cells}│{size}" if share >= 0 else f"{size[::-1]}│{'·' * cells}"


def one_line(text: str) -> str:
    """The text with nothing in it that a terminal would obey, line breaks and tabs included."""
    return neutral(text).replace("\n", " ").replace("\t", " ")


def heading_lines(words: str) -> list[TextLine]:
    return [TextLine(), TextLine([(words, "bold")]), TextLine([("─" * len(words), "dim")])]


def note_lines(notes: Sequence[str]) -> list[TextLine]:
    if not notes:
        return []
    return [*heading_lines("Notes"), *(TextLine([(one_line(note), "")], label=("• ", "")) for note in notes)]


def side_lines(side: Side, silent: str) -> list[TextLine]:
    """A side's sentences, a doubt where they say the opposite of what they are shown as, and the phrases beside them;
    `silent` where it has none."""
    lines = [] if side.sentences else [TextLine([(silent, "")], indent=5)]
    for sentence in side.sentences:
        lines += sentence_lines(sentence, 5)
    if doubt := doubt_words(side):
        lines.append(TextLine([(doubt, "italic")], indent=5))
    further = further_phrases(side)
    if further:
        more = len(further) - PHRASES_SHOWN
        shown = " · ".join(further[:PHRASES_SHOWN]) + (f" · and {more} more" if more > 0 else "")
        lines.append(TextLine([(one_line(shown), "")], indent=6, label=("also: ", "dim")))
    return lines


def sentence_lines(sentence: Sentence, indent: int, known: Literal["", "user", "item"] = "") -> list[TextLine]:
    """A sentence with its marks, and below it where it comes from, without what the reader knows already."""
    words = marked_pieces(sentence.text, sentence.marks)
    if not sentence.text.strip():
        words = [("(an empty sentence)", "dim")]
    source = one_line(", ".join(source_parts(sentence, known)))
    return [
        TextLine([*words, ("”", "dim")], indent=indent, label=("“", "dim")),
        TextLine([(source, "dim")], indent=indent + 1, label=("— ", "dim")),
    ]


def marked_pieces(text: str, marks: Iterable[Mark]) -> list[Piece]:
    """The text in pieces, each mark written out as signs and styled."""
    return [_marked_piece(words, kinds) for words, kinds in phrases_of(one_line(text), marks)]


def _marked_piece(words: str, kinds: frozenset[str]) -> Piece:
    style = ""
    if "shared" in kinds:
        words, style = f"{{{words}}}", STYLE["shared"]
    elif "own" in kinds:
        words, style = f"[{words}]", STYLE["own"]
    if "matched" in kinds:
        words, style = f"__{words}__", "underline"
    signs = "".join(sign for kind, sign in SIGN.items() if kind in kinds)
    if signs:
        words, style = f"__{words}__({signs})", style or "underline " + STYLE[min(kinds & SIGN.keys())]
    return words, style


def written(lines: Sequence[TextLine], width: int, colour: bool) -> str:
    """The lines wrapped and written out. The text goes in as data, so that no markup in it is obeyed."""
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
    rows: list[str] = []
    for line in lines:
        hang = line.indent + len(line.label[0])
        for place, row in enumerate(Text.assemble(*line.pieces).wrap(console, width - hang) or [Text()]):
            row.rstrip()
            start = Text.assemble(" " * line.indent, line.label) if place == 0 else Text(" " * hang)
            with console.capture() as capture:
                console.print(start + row, soft_wrap=True, end="")
            rows.append(capture.get().rstrip())
    return "\n".join(rows)
