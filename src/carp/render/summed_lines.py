"""A sum of parts for a terminal: what speaks for and against, the sum itself, earlier cases, who met whom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from carp.explain.explanation import AspectFinding, Explanation, Meetings, Sentence
from carp.render.amounts_shown import SumRow, signed
from carp.render.summed_telling import (
    CASES_TITLE,
    COUNTED_MARKS,
    FOUND_TITLE,
    MEETINGS_MEANING,
    MEETINGS_TITLE,
    SUM_TITLE,
    FindingTold,
    short_names,
    told,
    worth_telling,
)
from carp.render.terminal_lines import STYLE, TextLine, heading_lines, one_line, sentence_lines, signed_bar
from carp.render.wording import number

WIDE = 70  # narrower terminals get shorter bars
BAR_CELLS = 8  # on each side of the zero line
CELL = 7  # characters of a heat map's column
NAME = 12  # of its names


def summed_lines(explanation: Explanation, width: int) -> list[TextLine]:
    """All that follows the first words."""
    words = told(explanation)
    return [
        *_findings(worth_telling(explanation).findings, words.findings, words.digits),
        *_sum(words.sum, explanation.rating, words.digits, BAR_CELLS if width >= WIDE else BAR_CELLS // 2),
        *_cases(words.cases),
        *_meetings(words.meetings, words.digits + 1, width),
    ]


def _style(amount: float) -> str:
    return STYLE["positive" if amount > 0 else "negative"] if amount else "dim"


def _findings(findings: Sequence[AspectFinding], words: Sequence[FindingTold], digits: int) -> list[TextLine]:
    if not findings:
        return []
    lines = heading_lines(FOUND_TITLE)
    lines.append(TextLine([(f"[word]: {COUNTED_MARKS['own']}.", "dim")]))
    for finding, said in zip(findings, words, strict=True):
        lines += [TextLine(), *_finding(finding, said, digits)]
    return lines


def _finding(finding: AspectFinding, said: FindingTold, digits: int) -> list[TextLine]:
    amount = (f"{signed(said.amount, digits):>6}  ", _style(said.amount))
    lines = [TextLine([(one_line(finding.aspect), "bold")], label=amount)]
    lines.append(TextLine([(one_line(said.words), "")], indent=8))
    lines += _sentences(finding.sentences, "item")
    if said.shares:
        lines.append(TextLine([(said.shares, "dim")], indent=8))
    if said.own:
        lines += [TextLine([(one_line(said.own), "")], indent=8), *_sentences(finding.own_sentences, "user")]
    return lines


def _sentences(sentences: Sequence[Sentence], known: Literal["user", "item"]) -> list[TextLine]:
    return [line for sentence in sentences for line in sentence_lines(sentence, 10, known)]


def _sum(rows: Sequence[SumRow], rating: float, digits: int, cells: int) -> list[TextLine]:
    largest = max((abs(row.amount) for row in rows if row.kind != "mean"), default=0.0)
    no_bar = " " * (2 * cells + 1)
    lines = heading_lines(SUM_TITLE)
    for row in rows:
        if row.kind == "mean":
            lines.append(_sum_line(number(row.amount, digits), no_bar, row.name))
        else:
            drawn = signed_bar(row.amount / largest if largest else 0.0, cells)
            lines.append(_sum_line(signed(row.amount, digits), drawn, row.name, _style(row.amount)))
    lines.append(TextLine([("─" * 8, "dim")]))
    return [*lines, _sum_line(number(rating, digits), no_bar, "predicted", "bold")]


def _sum_line(amount: str, drawn: str, name: str, style: str = "") -> TextLine:
    return TextLine([(one_line(name), "bold" if style == "bold" else "")], label=(f"{amount:>8}  {drawn}  ", style))


def _cases(cases: Sequence[str]) -> list[TextLine]:
    if not cases:
        return []
    return [*heading_lines(CASES_TITLE), *(TextLine([(one_line(case), "")], label=("• ", "")) for case in cases)]


def _meetings(met: Meetings | None, digits: int, width: int) -> list[TextLine]:
    if met is None:
        return []
    rows, columns = short_names(met.viewpoints), short_names(met.aspects)
    lines = [*heading_lines(MEETINGS_TITLE), TextLine([(MEETINGS_MEANING, "dim")])]
    cell = max(CELL, *(min(len(name), NAME) + 1 for name in columns))
    fitting = max(1, (width - NAME - 2) // cell)
    for first in range(0, len(columns), fitting):
        span = range(first, min(first + fitting, len(columns)))
        lines.append(TextLine([(" " * NAME + "".join(_cut(columns[place], cell) for place in span), "dim")]))
        for name, amounts in zip(rows, met.amounts, strict=True):
            cells = "".join(f"{_cell(amounts[place], digits):>{cell}}" for place in span)
            lines.append(TextLine([(cells, "")], label=(f"{_cut(name, 0):<{NAME}}", "")))
    return lines


def _cut(name: str, cell: int) -> str:
    name = one_line(name)
    short = name if len(name) <= NAME else f"{name[: NAME - 1]}…"
    return f"{short:>{cell}}" if cell else short


def _cell(amount: float, digits: int) -> str:
    shown = signed(amount, digits)
    return shown if shown[0] in "+−" else "·"
