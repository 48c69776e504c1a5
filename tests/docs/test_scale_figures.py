"""The tables of docs/scale.md say what results/scale.jsonl holds."""

from __future__ import annotations

import json
import math
from pathlib import Path

ROOT = Path(__file__).parents[2]


def lines(part):
    kept = map(json.loads, (ROOT / "results" / "scale.jsonl").read_text().splitlines())
    return [line for line in kept if line["part"] == part]


def page():
    return (ROOT / "docs" / "scale.md").read_text()


def share(value):
    return f"{100 * value:.1f} %" if value < 0.1 else f"{100 * value:.0f} %"


def test_the_table_of_opening_is_what_was_measured():
    found = lines("open")
    assert len(found) == 3
    trainings = sorted(lines("train"), key=lambda line: line["reviews"])
    for line, trained in zip(found, trainings, strict=True):
        seconds, memory = line["seconds"], {name: f"{size / 1e9:.2f} GB" for name, size in line["memory"].items()}
        cells = [f"{10 ** round(math.log10(line['reviews'])):,}", f"{line['model_bytes'] / 1e6:,.0f} MB"]
        cells += [f"{trained['train_seconds']:.0f} s", f"{seconds['open']:.1f} s"]
        cells += [f"{seconds['open_by_the_clock']:.1f} s", memory["open"]]
        cells += [f"{seconds['answer']:.1f} s", memory["answer"]]
        assert f"| {' | '.join(cells)} |" in page()


def test_the_table_of_updates_is_what_was_measured():
    found = lines("upkeep")
    assert len(found) == 2
    for line in found:
        seconds, shares = line["processor_seconds"], line["share"]
        cells = [f"`{line['model']}`", f"{seconds['train']:.1f}", f"{seconds['update']:.1f}", share(shares["whole"])]
        cells += [share(shares["without_start"]), f"{seconds['forget']:.1f}"]
        assert f"| {' | '.join(cells)} |" in page()
