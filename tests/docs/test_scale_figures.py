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


def test_the_table_of_fitting_is_what_was_measured():
    found = lines("fit")
    assert len(found) == 4
    for line in found:
        reviews, seconds, memory = line["reviews"], line["processor_seconds"], line["memory"]
        cells = [f"{reviews:,}", f"{seconds:.0f} s", f"{1e3 * seconds / reviews:.2f} ms"]
        cells += [f"{memory / 1e9:.2f} GB", f"{memory / reviews / 1e3:.1f} kB"]
        assert f"| {' | '.join(cells)} |" in page()


def test_what_fitting_571_million_reviews_needs_follows_from_what_was_measured():
    here = lines("fit")[-1]
    on_a_card = [json.loads(line) for line in (ROOT / "results" / "speed-gpu.jsonl").read_text().splitlines()]
    there = [line for line in on_a_card if line["work"] == "meeting fit"][-1]
    times, times_there = 571e6 / here["reviews"], 571e6 / there["reviews"]
    needs = f"{times * here['processor_seconds'] / 86_400:.0f} days of one core or more, and "
    needs += f"{times * here['memory'] / 1e12:.1f} TB of memory, by the figures of {here['reviews']:,} reviews; or "
    needs += f"{times_there * there['seconds'] / 3_600:.0f} hours and {times_there * there['peak_bytes'] / 1e12:.1f} TB"
    assert needs in page()
    room = f"A card of 141 GB has room for {141e9 / there['peak_bytes'] * there['reviews'] / 1e6:.0f} million reviews, "
    room += f"a machine with 2 TB of memory for {2e12 / here['memory'] * here['reviews'] / 1e6:.0f} million"
    assert room in page()


def test_what_is_told_of_swaps_is_what_was_measured():
    kept = (ROOT / "results" / "torture-serve.jsonl").read_text().splitlines()
    found = [line["figures"] for line in map(json.loads, kept) if line["part"] == "swaps"][-1]
    assert (found["errors"], found["mixed"]) == (0, 0)
    text = " ".join(page().split())
    assert f"replaced {found['swaps']} times: {found['answers']:,} answers" in text
    assert f"The longest swap took {found['longest_swap_s']} s" in text
