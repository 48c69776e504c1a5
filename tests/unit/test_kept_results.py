"""What the documentation says was measured is what the committed results hold."""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

import pytest

from carp.bench.report import Section, make_report, report_markdown
from carp.bench.results import BENCH, read_results
from carp.bench.study import NAMED, found_studies
from carp.models import REGISTRY

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "results"
SPLITS = range(5)
ASKED = {"corpus", "model", "split_seed", "seed", "valid_mse", "test_mse", "settings", "seconds", "peak_memory"}


@pytest.fixture(scope="module")
def sections() -> list[Section]:
    return make_report(RESULTS)


def test_every_model_ran_on_every_split_of_the_three_corpora():
    lines = read_results(RESULTS, BENCH).lines.values()
    assert all(line.keys() >= ASKED | {"commit", "machine"} for line in lines)
    ran = Counter((line["corpus"], line["model"], line["split_seed"]) for line in lines)
    for corpus in ("musical-instruments", "ratebeer", "tripadvisor"):
        for model in [*REGISTRY, "carp:variant=calibrated"]:
            assert [ran[corpus, model, split] for split in SPLITS] == [1] * len(SPLITS), (corpus, model)


def test_every_named_study_ran_on_five_splits():
    studies = {study.name: study for study in found_studies(RESULTS)}
    assert studies.keys() == set(NAMED)
    assert all(point.runs == len(SPLITS) for study in studies.values() for point in study.points)


def test_the_tables_of_the_documentation_are_the_report(sections):
    assert (ROOT / "docs" / "tables.md").read_text() == report_markdown(sections, "tables-plots").rstrip() + "\n"
    shown = re.findall(r"!\[[^]]+\]\(([^)]+)\)", (ROOT / "docs" / "tables.md").read_text())
    assert len(shown) >= 2 * 3 + len(NAMED)
    assert all((ROOT / "docs" / name).is_file() for name in shown)


def test_the_ratios_told_are_those_of_the_report(sections):
    told = re.findall(r"^\| ([\w:=-]+) \| ([\d.‡]+) \| ([\d.‡]+) \| ([\d.‡]+) \|$", _page(), re.MULTILINE)
    [table] = sections[0].tables
    assert [list(row) for row in told] == [row.cells for row in table.rows]


def test_no_system_is_above_its_published_figure_on_musical_instruments(sections):
    section = next(section for section in sections if section.title == "musical-instruments")
    table = section.tables[0]
    above = [row.cells[0] for row in table.rows if row.cells[table.headings.index("ours − published")].startswith("+")]
    assert above == []
    assert sum(1 for row in table.rows if row.cells[table.headings.index("published")]) == 11


def test_the_tables_on_true_explanations_are_those_of_the_results():
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        import faithfulness_tables
    finally:
        sys.path.pop(0)
    page = (ROOT / "docs" / "faithfulness.md").read_text()
    found = faithfulness_tables.read(RESULTS / "faithfulness.jsonl")
    assert page == faithfulness_tables.page_with(page, found)
    assert "| Musical Instruments | CARP, calibrated | 3 |" in page


def _page() -> str:
    return (ROOT / "docs" / "results.md").read_text()
