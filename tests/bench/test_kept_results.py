"""What the documentation says was measured is what the committed results hold."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Any

import pytest
from scipy.stats import ttest_1samp, ttest_rel, wilcoxon

import analysis_tables
import comparison_tables
import faithfulness_tables
import ranking_tables
import reliability_tables
import successor_tables
from carp.bench import report
from carp.bench.report import Section, make_report, report_markdown
from carp.bench.results_folder import BENCH, read_results
from carp.bench.study import NAMED
from carp.bench.study_findings import StudyFound, found_studies
from carp.models import REGISTRY
from tables_in_pages import page_with

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "results"
SPLITS = range(5)
CORPORA = ("musical-instruments", "ratebeer", "tripadvisor")
EXACT = "gaussian-process"  # its cost grows with the cube of the pairs: too many on TripAdvisor
ASKED = {"corpus", "model", "split_seed", "seed", "valid_mse", "test_mse", "settings", "seconds", "peak_memory"}


@pytest.fixture(scope="module", autouse=True)
def studies() -> Iterator[list[StudyFound]]:
    """What the studies found: once, for the report, for the page and for the tests."""
    found = found_studies(RESULTS)
    with pytest.MonkeyPatch.context() as patch:
        for reader in (report, analysis_tables):
            patch.setattr(reader, "found_studies", lambda folder: found)
        yield found


@pytest.fixture(scope="module")
def sections(studies: list[StudyFound]) -> list[Section]:
    return make_report(RESULTS)


def test_every_model_ran_on_every_split_of_the_three_corpora_or_is_told_to_be_unfinished():
    lines = list(read_results(RESULTS, BENCH).lines.values())
    assert all(line.keys() >= ASKED | {"commit", "machine"} for line in lines)
    ran = Counter((line["corpus"], line["model"], line["split_seed"]) for line in lines)
    assert set(ran.values()) == {1}
    assert REGISTRY.keys() <= {line["model"] for line in lines}
    told = set(comparison_tables.unfinished(comparison_tables.errors_of(lines)))
    for corpus in CORPORA:
        for model in REGISTRY.keys() - told - ({EXACT} if corpus == "tripadvisor" else set()):
            assert [ran[corpus, model, split] for split in SPLITS] == [1] * len(SPLITS), (corpus, model)
    page = _page()
    assert page == page_with(page, comparison_tables.tables_of(RESULTS))


def test_every_named_study_ran_on_some_corpus_and_the_pages_tables_are_the_results(studies):
    assert {study.name for study in studies} == set(NAMED)
    assert {study.corpus for study in studies} >= set(CORPORA)
    assert not [study.name for study in studies if study.warning]
    page = _page()
    assert page == page_with(page, analysis_tables.tables_of(RESULTS))


def test_the_tables_of_the_documentation_are_the_report(sections):
    assert (ROOT / "docs" / "tables.md").read_text() == report_markdown(sections, "tables-plots").rstrip() + "\n"
    shown = re.findall(r"!\[[^]]+\]\(([^)]+)\)", (ROOT / "docs" / "tables.md").read_text())
    assert len(shown) >= 2 * 3 + len(NAMED)
    assert all((ROOT / "docs" / name).is_file() for name in shown)


def test_the_ratios_told_are_those_of_the_report(sections):
    ratio = r"(\d\.\d+‡?(?: \(\d of \d splits\))?)"
    told = re.findall(rf"^\| ([\w:=, -]+) \| {ratio} \| {ratio} \| {ratio} \|$", _page(), re.MULTILINE)
    [table] = sections[0].tables
    assert [list(row) for row in told] == [row.cells for row in table.rows]


def test_the_table_of_the_readme_is_that_of_the_report(sections):
    readme = (ROOT / "README.md").read_text()
    rows = re.findall(r"^\| ([^|]+) \| (\d[^|]+) \| (\d[^|]+) \| (\d[^|]+) \|$", readme, re.MULTILINE)
    [table] = sections[0].tables
    systems = [row for row in table.rows if ":" not in row.cells[0]]  # own forms stand on the page of results
    assert [figures for _, *figures in rows] == [row.cells[1:] for row in systems]
    for (name, *_), row in zip(rows, systems, strict=True):
        label = row.cells[0]
        assert f"(`{label}`)" in name or label == "carp" or label == name.lower().replace("d-attn", "dattn")


def test_what_is_told_of_the_two_routings_is_what_the_splits_and_the_pairs_say(sections):
    errors: dict[tuple[str, str], list[float]] = {}
    for line in sorted(read_results(RESULTS, BENCH).lines.values(), key=lambda line: line["split_seed"]):
        errors.setdefault((line["corpus"], line["model"]), []).append(line["test_mse"])
    pairs = [(errors[corpus, "carp-paper"], errors[corpus, "carp-ra"]) for corpus in CORPORA]
    assert [mean(ours) < mean(plain) for ours, plain in pairs] == [True, False, False]
    first, second, third = (f"{ttest_rel(ours, plain).pvalue:.2f}" for ours, plain in pairs)
    told = " ".join(_page().split())
    assert f"paired t-tests over the splits: p = {first}, {second} and {third}" in told
    notes = [note for section in sections for note in section.notes if note.startswith("Plain agreement")]
    first, second, third = (re.search(r"has p = ([\d.e-]+) over pairs", note)[1] for note in notes)
    assert f"over test pairs: p = {first}, {second} and {third}" in told
    ten = comparison_tables.errors_of(_lines("bench.jsonl") + _lines("fresh-splits.jsonl"))
    forms = ("carp-paper", "carp-ra")
    both = [[[ten[form, corpus, split] for split in range(10)] for form in forms] for corpus in CORPORA]
    first, second, third = (f"{ttest_rel(*one).pvalue:.1g}" for one in both)
    assert f"over ten splits: p = {first}, {second} and {third}" in told


def test_no_system_is_above_its_published_figure_on_musical_instruments(sections):
    section = next(section for section in sections if section.title == "musical-instruments")
    table = section.tables[0]
    above = [row.cells[0] for row in table.rows if row.cells[table.headings.index("ours − published")].startswith("+")]
    assert above == []
    assert sum(1 for row in table.rows if row.cells[table.headings.index("published")]) == 11


def test_the_tables_on_true_explanations_are_those_of_the_results():
    page = (ROOT / "docs" / "faithfulness.md").read_text()
    assert page == page_with(page, faithfulness_tables.tables_of(RESULTS / "faithfulness.jsonl"))
    assert "| Musical Instruments | CARP, calibrated | 2 |" in page


def test_the_tables_of_recommendations_are_those_of_the_results():
    page = (ROOT / "docs" / "explanation" / "recommendations.md").read_text("utf-8")
    assert page == page_with(page, ranking_tables.tables_of(RESULTS / "ranking.jsonl"))


def test_the_tables_of_the_successor_are_those_of_the_results():
    page = (ROOT / "docs" / "explanation" / "successor.md").read_text("utf-8")
    assert page == page_with(page, successor_tables.tables_of(RESULTS))


def test_the_tables_of_reliability_are_those_of_the_results():
    page = (ROOT / "docs" / "explanation" / "reliability.md").read_text("utf-8")
    assert page == page_with(page, reliability_tables.tables_of(RESULTS))


def test_the_table_of_the_service_names_the_commit_that_each_line_was_measured_on():
    lines = _lines("torture-serve.jsonl")
    rows = reliability_tables.service_table(lines).splitlines()
    assert rows[0].endswith("| commit |")
    assert [row.split("`")[-2] for row in rows[2:]] == [line["commit"] for line in lines]


def test_a_part_without_faults_that_was_not_tried_to_the_end_is_not_said_to_be_reached():
    for line in _lines("torture.jsonl"):
        whole = line["tried"] >= line["wanted"] > 0 and not line["unfinished_pieces"]
        assert line["reached"] == (whole and not line["faults"]), line["part"]


@pytest.mark.parametrize("corpus", successor_tables.CORPORA)
def test_nine_ratings_of_ten_lie_in_the_intervals_in_each_third_by_number_of_reviews(corpus):
    lines = [line for line in _lines("successor.jsonl") if (line["corpus"], line["part"]) == (corpus, "intervals")]
    shares = [mean(line["covered"] for line in lines)]
    for who in ("person", "thing"):
        shares += [mean(line["thirds"][who][third] for line in lines) for third in range(3)]
    assert all(0.88 <= share <= 0.92 for share in shares)


@pytest.mark.parametrize("corpus", ranking_tables.CORPORA)
def test_lists_by_taste_hold_a_third_of_the_catalogue_and_no_less_of_what_is_liked_than_any_by_rating(corpus):
    found = ranking_tables.means(ranking_tables.read(RESULTS / "ranking.jsonl"), corpus)
    ours = found["meeting, by taste"]
    by_rating = [one["ndcg"] for system, one in found.items() if system.endswith("by rating")]
    assert len(by_rating) == 5
    assert ours["ndcg"] > max(by_rating)
    assert ours["coverage"] >= 0.3
    assert ours["splits"] == len(SPLITS)


def test_the_errors_by_time_that_are_told_are_those_measured():
    measured = [line for line in _lines("by-time.jsonl") if "error" not in line]
    told = [row for row in _page().splitlines() if re.match(r"\| [a-z-]+ \| time", row)]
    assert len(told) == len(measured) > 0
    for row, line in zip(told, measured, strict=True):
        found = f"{line['test_pairs']:,} | {line['rows'][line['model']]['mse']:.4f} | {line['ratio_to_bias']:.3f}"
        assert row == f"| {line['corpus']} | {line['rule']} | {line['model']} | {found} |"


def test_the_gpus_figures_told_are_those_measured():
    measured = {line["work"]: line for line in _lines("speed-gpu.jsonl") if "ratio" in line}
    number, share = r"([\d.]+)", r"([\d.]+) %"
    row = rf"^\| ([^|]+) \| (s|\w+/s) \| {number} \| {number} \| {number}× \| {share} \| {share} \|"
    told = re.findall(row, _speed(), re.MULTILINE)
    assert [work for work, *_ in told] == list(measured)
    for work, unit, *figures in told:
        line = measured[work]
        assert line["unit"] == unit
        percent = [100 * line["bytes_share"], 100 * line["operations_share"]]
        for found, text in zip([line["straightforward"], line["ours"], line["ratio"], *percent], figures, strict=True):
            assert f"{found:.{len(text.partition('.')[2])}f}" == text


def test_what_is_told_of_fitting_the_successor_on_the_card_is_what_was_measured():
    lines = [line for line in _lines("speed-gpu.jsonl") if line["work"] == "meeting fit"]
    assert len(lines) == 3
    for line in lines:
        pace, memory = 1e6 * line["seconds"] / line["pairs"], line["peak_bytes"] / 1e9
        figures = f"{line['seconds']:.1f} | {pace:.0f} | {memory:.1f} GB"
        assert f"| {line['reviews']:,} | {line['pairs']:,} | {figures} |" in _speed()


def test_every_kernel_was_right_on_the_card():
    checks = [line for line in _lines("speed-gpu.jsonl") if line["work"] == "check"]
    assert len(checks) >= 30
    assert all(max(line["errors"].values()) <= line["limit"] for line in checks)
    assert not [line for line in _lines("speed-gpu.jsonl") if line["work"] == "failed"]


def test_what_is_told_of_training_by_the_kernels_is_what_was_measured():
    higher: dict[str, list[float]] = {}
    for run in _lines("kernels-validation.jsonl"):
        higher.setdefault(run["model"], []).append(100 * (run["kernels"] / run["plain"] - 1))
    every = [one for of_form in higher.values() for one in of_form]
    assert len(every) == 75
    page = " ".join(_speed().split())
    assert f"the paper's form are {mean(higher['carp-paper']):.2f} % higher" in page
    assert f"of CARP-RA {mean(higher['carp-ra']):.2f} % higher" in page
    assert f"of the calibrated form {-mean(higher['carp']):.2f} % lower" in page
    p = f"p = {ttest_1samp(every, 0).pvalue:.2f}, Wilcoxon {wilcoxon(every).pvalue:.2f}"
    assert f"on average {mean(every):.2f} % higher, which could be chance (paired t-test {p})" in page


def test_what_is_told_of_training_on_the_cpu_is_what_was_measured():
    plain, fast = ([min(line[way]) for line in _lines("cpu-validation.jsonl")] for way in ("plain", "fast"))
    assert len(plain) == 5
    higher = [ours / theirs - 1 for ours, theirs in zip(fast, plain, strict=True)]
    told = f"differ by {mean(higher):+.2%} on average".replace("%", " %")
    assert f"{told} (paired t-test p = {ttest_rel(plain, fast).pvalue:.2f})" in " ".join(_speed().split())
    assert 0.02 < max(map(abs, higher)) < 0.035  # "up to 3 %"


def _speed() -> str:
    return (ROOT / "docs" / "speed.md").read_text()


def _lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (RESULTS / name).read_text().splitlines()]


def _page() -> str:
    return (ROOT / "docs" / "results.md").read_text()
