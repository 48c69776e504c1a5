"""The report as one page that opens anywhere: no script, nothing fetched, every word from data escaped."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from carp.bench.report import Section, Table
from carp.render.html_templates import filled


@dataclass(frozen=True)
class DrawnPlot:
    """A plot as it stands in a page."""

    caption: str
    picture: str  # SVG in base64


@dataclass(frozen=True)
class DrawnSection:
    """A section whose plots are drawn."""

    title: str
    tables: list[Table]
    notes: list[str]
    plots: list[DrawnPlot]


def report_page(sections: Sequence[Section], *, title: str = "What was measured") -> str:
    return filled("report.html", title=title, sections=[_drawn(section) for section in sections])


def section_part(section: Section) -> str:
    """One section alone, for a page that has others."""
    return filled("report_section.html", section=_drawn(section))


def _drawn(section: Section) -> DrawnSection:
    plots = [DrawnPlot(caption, _picture(draw)) for caption, draw in section.plots]
    return DrawnSection(section.title, section.tables, section.notes, plots)


def _picture(draw: Callable[[], str]) -> str:
    return base64.b64encode(draw().encode()).decode()
