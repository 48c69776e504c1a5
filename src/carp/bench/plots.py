"""Plots of what was measured, as SVG whose letters are shapes: they look the same everywhere and run nothing."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from carp.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from carp.bench.compare import Comparison
    from carp.bench.study_findings import StudyFound

OURS, THEIRS, QUIET = "#1f5f8b", "#b5532a", "#8a8a8a"
BARS_APART = 0.015  # of the width: two bars at one value
STYLE: Any = {
    "svg.fonttype": "path",
    "svg.hashsalt": "carp",  # the same numbers give the same file
    "text.parse_math": False,  # a dollar in a name is a dollar
    "axes.spines.top": False,
    "axes.spines.right": False,
    "font.size": 9,
}


@contextlib.contextmanager
def drawing(width: float, height: float) -> Iterator[tuple[Figure, Axes]]:
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        fix = "pip install 'carp-rec[bench]'"
        raise UsageError("plots need matplotlib, which is not installed", fix=fix) from error
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure, figure.subplots()


def as_svg(figure: Figure) -> str:
    written = io.StringIO()
    figure.savefig(written, format="svg", metadata={"Date": None, "Creator": "carp"})
    return written.getvalue()


def standing_plot(found: Comparison) -> str:
    """Mean test MSE of each system with its spread over splits; hollow marks are the published figures."""
    rows = found.standings[::-1]
    with drawing(7, 0.9 + 0.3 * len(rows)) as (figure, axes):
        for place, standing in enumerate(rows):
            colour = OURS if standing.complete else QUIET
            axes.errorbar(standing.mean, place, xerr=standing.spread or 0, fmt="o", color=colour, capsize=3)
            if standing.published is not None:
                axes.plot(standing.published, place, "D", markerfacecolor="none", markeredgecolor=THEIRS)
        axes.set_yticks(range(len(rows)), [standing.model for standing in rows])
        axes.set_xlabel("test MSE: mean and spread over splits (hollow: published)")
        axes.grid(axis="x", alpha=0.3)
        return as_svg(figure)


def difference_plot(found: Comparison) -> str:
    """Differences to the best system with their bootstrap intervals: all that split noise leaves."""
    rows = [(s.model, s.difference) for s in found.standings[::-1] if s.difference is not None]
    with drawing(7, 0.9 + 0.3 * len(rows)) as (figure, axes):
        for place, (_, found_difference) in enumerate(rows):
            mean, low, high = found_difference.mean, found_difference.low, found_difference.high
            colour = THEIRS if found_difference.significant else QUIET
            reach = [[max(mean - low, 0)], [max(high - mean, 0)]]
            axes.errorbar(mean, place, xerr=reach, fmt="o", color=colour, capsize=3)
        axes.axvline(0, color="black", linewidth=0.8)
        axes.set_yticks(range(len(rows)), [model for model, _ in rows])
        axes.set_xlabel("MSE minus that of the best system, 95 % interval (grey: may be chance)")
        return as_svg(figure)


def study_plot(found: StudyFound) -> str:
    """Validation and test error over the values of a setting; numbers stand where they belong."""
    points = [point for point in found.points if point.valid is not None]
    places, labels = _places([point.label for point in points])
    apart = BARS_APART * (max(places, default=0) - min(places, default=0) or 1)  # else one bar would hide the other
    with drawing(6, 3.2) as (figure, axes):
        for name, colour, aside in (("valid", OURS, -apart / 2), ("test", THEIRS, apart / 2)):
            means = [getattr(point, name) for point in points]
            spreads = [getattr(point, f"{name}_spread") or 0 for point in points]
            title = {"valid": "validation", "test": "test"}[name]
            joined: dict[str, Any] = {"fmt": "o-" if labels is None else "o", "color": colour, "capsize": 3}
            axes.errorbar([place + aside for place in places], means, yerr=spreads, label=title, **joined)
        if labels is not None:
            axes.set_xticks(places, labels)
            axes.margins(x=0.2)
        else:
            axes.set_xticks(places)
        axes.set_xlabel(found.name)
        axes.set_ylabel("MSE")
        axes.legend(frameon=False)
        return as_svg(figure)


def _places(labels: list[str]) -> tuple[list[float], list[str] | None]:
    try:
        return [float(label) for label in labels], None
    except ValueError:
        return [float(place) for place in range(len(labels))], labels


def ratio_plot(found: StudyFound) -> str:
    """The paper's figure: c_pos/c_neg of logic units by their rank in the positive capsule, for each routing.

    The line is the median over pairs; half of the pairs lie in the band.
    """
    with drawing(6, 3.2) as (figure, axes):
        for point, colour in zip(found.points, (OURS, THEIRS, QUIET, "black"), strict=False):
            if point.coupling_ratio:
                low, median, high = point.coupling_ratio
                ranks = range(1, len(median) + 1)
                axes.plot(ranks, median, "o-", markersize=3, color=colour, label=point.label)
                axes.fill_between(ranks, low, high, color=colour, alpha=0.15, linewidth=0)
        axes.axhline(1, color="black", linewidth=0.6)
        axes.set_yscale("log")  # where one capsule alone listens to a unit, the ratio has no bound
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")  # the usual one writes mathematics
        axes.yaxis.set_minor_formatter(lambda value, _: "")
        axes.set_xlabel("rank of the logic unit in the positive capsule")
        axes.set_ylabel("c_pos / c_neg, median and quartiles")
        axes.legend(frameon=False)
        return as_svg(figure)
