"""Plots of what was measured of speed and growth, for the documentation.

    python benchmarks/speed_plots.py results docs/images

Times of a CPU are drawn as ratios: to the straightforward form, or to the smallest corpus; those of a GPU as they are.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import source_tree  # noqa: F401  carp of this checkout
from carp.bench.plots import OURS, QUIET, THEIRS, as_svg, drawing

Row = dict[str, Any]
MARKS = dict(zip(("training", "scoring"), (OURS, THEIRS), strict=True))


def plain_numbers(axis: Any) -> None:
    axis.set_major_formatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}")
    axis.set_minor_formatter(lambda value, _: "")


def in_powers(axes: Any, across: str, up: str) -> None:
    """Both axes in powers of ten, with plain numbers, their names and a legend."""
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        plain_numbers(axis)
    named(axes, across, up)


def from_zero(axes: Any, across: str, up: str) -> None:
    """The upright axis from zero; both with their names, and a legend."""
    axes.set_ylim(bottom=0)
    named(axes, across, up)


def named(axes: Any, across: str, up: str) -> None:
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.legend(frameon=False)


def times_plot(trained: list[Row], prepared: list[Row]) -> str:
    """How many times longer than the smallest corpus, against how many times as many reviews; the line is linear."""
    with drawing(6, 3.4) as (figure, axes):
        largest = max(row["reviews"] for row in (*trained, *prepared))
        smallest = min(row["reviews"] for row in (*trained, *prepared))
        axes.plot([smallest, largest], [1, largest / smallest], color=QUIET, linewidth=0.8, label="linear growth")
        for rows, key, colour, name in (
            (trained, "epoch_seconds", OURS, "one training epoch"),
            (prepared, "seconds", THEIRS, "carp prepare"),
        ):
            if rows:
                first = min(rows, key=lambda row: row["reviews"])
                places = [row["reviews"] for row in rows]
                times = [row[key] / first[key] * first["reviews"] / smallest for row in rows]
                axes.plot(places, times, "o-", color=colour, label=name)
        in_powers(axes, "reviews", "times the smallest corpus's time")
        return as_svg(figure)


def memory_plot(trained: list[Row], prepared: list[Row]) -> str:
    with drawing(6, 3.4) as (figure, axes):
        for rows, key, colour, name in (
            (trained, "peak_bytes", OURS, "training"),
            (prepared, "peak_pss", THEIRS, "carp prepare, all its processes"),
        ):
            if rows:
                axes.plot([r["reviews"] for r in rows], [r[key] / 1e9 for r in rows], "o-", color=colour, label=name)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        from_zero(axes, "reviews", "peak memory, GB")
        return as_svg(figure)


def batches_plot(rows: list[Row]) -> str:
    """Pairs a second over those of the straightforward form at the same number of pairs."""
    with drawing(6, 3.4) as (figure, axes):
        for work, colour in MARKS.items():
            some = [row for row in rows if row["work"] == work]
            ratios = [row["ours"] / row["straightforward"] for row in some]
            axes.plot([row["pairs"] for row in some], ratios, "o-", color=colour, label=work)
        axes.axhline(1, color="black", linewidth=0.6)
        axes.set_xscale("log")
        plain_numbers(axes.xaxis)
        from_zero(axes, "pairs at once", "pairs a second over the straightforward form's")
        return as_svg(figure)


def gpu_times_plot(rows: list[Row]) -> str:
    """Seconds of an epoch against reviews; the line is linear from the largest corpus down."""
    with drawing(6, 3.4) as (figure, axes):
        places, times = [row["reviews"] for row in rows], [row["epoch_seconds"] for row in rows]
        linear = [times[-1] * place / places[-1] for place in places]
        axes.plot(places, linear, color=QUIET, linewidth=0.8, label="linear growth")
        axes.plot(places, times, "o-", color=OURS, label=f"one training epoch, {rows[0]['card']}")
        in_powers(axes, "reviews", "seconds")
        return as_svg(figure)


def gpu_batches_plot(training: list[Row], scoring: list[Row]) -> str:
    """Pairs a second against pairs at once: ours, and dashed the straightforward form's."""
    with drawing(6, 3.4) as (figure, axes):
        for rows, work in ((training, "training"), (scoring, "scoring")):
            places = [row["pairs"] for row in rows]
            for key, style in (("ours", "o-"), ("straightforward", "o--")):
                rates = [row[key] for row in rows]
                axes.plot(places, rates, style, color=MARKS[work], label=work if key == "ours" else f"{work}, {key}")
        in_powers(axes, "pairs at once", f"pairs a second, {training[0]['card']}")
        return as_svg(figure)


def read_lines(file: Path) -> list[Row]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def latest(lines: list[Row]) -> dict[str, list[Row]]:
    """The last row of every size, smallest first, by their work: a file may hold several runs."""
    sizes = {"growth": "reviews", "training batches": "pairs", "scoring batches": "pairs"}
    found: dict[str, dict[int, Row]] = {work: {} for work in sizes}
    for line in lines:
        if line["work"] in sizes:
            found[line["work"]][int(line[sizes[line["work"]]])] = line
    return {work: [rows[size] for size in sorted(rows)] for work, rows in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    trained = json.loads((given.results / "growth-cpu.json").read_text())["growth"]
    lines = read_lines(given.results / "prepare-growth.jsonl")
    last = {int(line["reviews"]): line for line in lines if line["form"] == "ours"}
    prepared = [last[size] for size in sorted(last)]
    on_gpu = latest(read_lines(given.results / "speed-gpu.jsonl"))
    batches = json.loads((given.results / "batches-cpu.json").read_text())["batches"]
    drawn: dict[str, Callable[[], str]] = {
        "speed-growth": lambda: times_plot(trained, prepared),
        "speed-memory": lambda: memory_plot(trained, prepared),
        "speed-batches": lambda: batches_plot(batches),
        "speed-gpu-growth": lambda: gpu_times_plot(on_gpu["growth"]),
        "speed-gpu-memory": lambda: memory_plot(on_gpu["growth"], []),
        "speed-gpu-batches": lambda: gpu_batches_plot(on_gpu["training batches"], on_gpu["scoring batches"]),
    }
    for name, draw in drawn.items():
        (given.out / f"{name}.svg").write_text(draw())
        print(given.out / f"{name}.svg")


if __name__ == "__main__":
    main()
