"""The paper's analyses on all corpora, and models used on another corpus, as the tables of the documentation.

python benchmarks/analysis_tables.py results [--write docs/results.md]
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import source_tree  # noqa: F401
from carp.bench.study_findings import PointFound, StudyFound, found_studies
from carp.evaluate.significance import holm
from paper_studies import STUDIED
from tables_in_pages import Tables, print_or_write

CORPORA = {
    "musical-instruments": "Musical Instruments",
    "ratebeer": "RateBeer",
    "tripadvisor": "TripAdvisor",
    "made-up-shop": "the made-up shop",
}
NAMES = {
    "viewpoints": "M, viewpoints",
    "routing_iterations": "τ, rounds of routing",
    "rating_weight": "λ, weight of the rating",
    "routing": "routing",
    "mutual_exclusion": "mutual exclusion",
    "latent_size": "k, latent size",
    "logic_unit": "logic units",
}
LEVEL = 0.05
Line = dict[str, Any]


def tables_of(results: Path) -> Tables:
    file = results / "transfer.jsonl"
    lines = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    return {"analyses": analyses(found_studies(results)), "transfer": transfer(lines)}


def analyses(found: list[StudyFound]) -> str:
    known = {(study.name, study.corpus): study for study in found}
    rows = ["| setting | corpus | splits | test MSE by value |", "| --- | --- | --- | --- |"]
    for name in STUDIED:
        for corpus, called in CORPORA.items():
            if (name, corpus) in known:
                study = known[name, corpus]
                splits = max(point.runs for point in study.points)
                sure = _on_every_split(study.points)
                points = ", ".join(_point(point, study.usual, sure) for point in study.points)
                rows.append(f"| {NAMES[name]} | {called} | {splits} | {points} |")
    return "\n".join(rows)


def _on_every_split(points: Sequence[PointFound]) -> set[str]:
    """Points whose difference holds over the splits, each a training of its own, after Holm's correction."""
    known = {point.label: point.difference.p_runs for point in points if point.difference is not None}
    tested = {label: p for label, p in known.items() if p is not None}
    if not tested:
        return set()
    return {label for label, p in zip(tested, holm(list(tested.values())), strict=True) if p < LEVEL}


def _point(point: PointFound, usual: str, sure: set[str]) -> str:
    if point.test is None:
        return f"{point.label}: not run"
    differs = point.difference is not None and point.difference.p_holm < LEVEL
    marks = ("‡" if differs else "") + ("§" if point.label in sure else "")
    shown = f"{point.label}: {point.test:.4f}{marks}"
    return f"**{shown}**" if point.label == usual else shown


def transfer(lines: list[Line]) -> str:
    heads = ["in common", "from", "to", "known reviews", "model", "biases", "target alone"]
    heads += ["source, then shown the target", "source, then trained on it"]
    rows = [f"| {' | '.join(heads)} |", f"|{' --- |' * 5}{' ---: |' * 4}"]
    for about, by_way in _grouped(lines):
        first = next(iter(by_way.values()))
        told = [first["common"], first["source"], first["target"], f"{first['known_reviews']:,}", about[-1]]
        ways = ("biases of the target", "target alone", "source, then shown the target")
        figures = [by_way.get(way) for way in (*ways, "source, then trained on the target")]
        least = min(one["test_mse"] for one in figures if one is not None)
        rows.append(f"| {' | '.join([*told, *(_figure(one, least) for one in figures)])} |")
    return "\n".join(rows)


def _figure(line: Line | None, least: float) -> str:
    if line is None:
        return "–"
    figure = f"{line['test_mse']:.4f}"
    return f"**{figure}**" if line["test_mse"] == least else figure


def _grouped(lines: list[Line]) -> Iterator[tuple[tuple[Any, ...], dict[str, Line]]]:
    found: dict[tuple[Any, ...], dict[str, Line]] = {}
    for line in lines:
        place = line["split_seed"], line["source"], line["target"], line["share"], line["model"]
        found.setdefault(place, {})[line["way"]] = line
    yield from found.items()


if __name__ == "__main__":
    print_or_write(__doc__, tables_of)
