"""A report shows what the cells hold: means, marks, tests over the same pairs, published figures, failures."""

from __future__ import annotations

import base64
import json
import re
from functools import partial

import numpy as np
import pytest
import scipy.stats

import carp
from carp.bench.compare import compare
from carp.bench.pair_errors import ERRORS, ErrorColumns, PairErrors, column_of
from carp.bench.plots import STYLE, ratio_plot
from carp.bench.published_figures import ANALYSES, COMPARISON, dataset_of, published_mse
from carp.bench.report import Section, make_report, plot_name, report_markdown, report_text, write_plots
from carp.bench.report_page import report_page
from carp.bench.results_folder import BENCH, FORMAT, STUDY, read_results
from carp.bench.study_findings import PointFound, StudyFound, found_studies
from carp.cli.entry import main
from carp.errors import DamagedError

SPLITS, RECORDS, TESTED = 4, 500, 100
LEVELS = {"mean": 1.0, "bias": 0.8, "carp": 0.6, "carp-ra": 0.6}
MARKUP = '<img src=x onerror="alert(1)">|*$x_'


def make_results(folder, *, corpus="musical-instruments", levels=LEVELS, leave_out=(), seed=0):
    """Cells as a grid would have left them, with errors around known levels."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    errors = ErrorColumns(folder)
    (folder / "results.json").write_text(json.dumps({"kind": "results", "format": FORMAT, "version": carp.__version__}))
    hard = rng.gamma(1, 1, RECORDS)
    for split in range(SPLITS):
        records = np.sort(rng.choice(RECORDS, TESTED, replace=False)).astype(np.int32)
        for model, level in levels.items():
            if (model, split) in leave_out:
                continue
            squared = (hard[records] * level * rng.uniform(0.8, 1.2, TESTED)).astype(np.float32)
            identity = f"{seed}-{split}-{list(levels).index(model)}"
            errors.add(identity, PairErrors(f"p{seed}-{split}", records, squared))
            line = {
                "id": identity,
                "corpus": corpus,
                "fingerprint": f"{corpus}-{seed}",
                "model": model,
                "name": model,
                "split_seed": split,
                "seed": 0,
                "given": {},
                "settings": {},
                "search": {},
                "valid_mse": level,
                "test_mse": float(squared.astype(np.float64).mean()),
                "test_pairs": TESTED,
                "pairs": f"p{seed}-{split}",
                "needs": ["ids"] if model in ("mean", "bias") else ["documents", "ids"],
                "seconds": 1.0,
            }
            with (folder / BENCH).open("a") as file:
                file.write(json.dumps(line) + "\n")
    return folder


def compared(folder):
    [found] = compare(list(read_results(folder, BENCH).lines.values()), folder)
    return found, {standing.model: standing for standing in found.standings}


def cells_of(folder, model):
    lines = [line for line in read_results(folder, BENCH).lines.values() if line["model"] == model]
    return sorted(lines, key=lambda line: line["split_seed"])


def test_systems_stand_in_order_with_mean_spread_and_place(tmp_path):
    found, standings = compared(make_results(tmp_path))
    test = [line["test_mse"] for line in cells_of(tmp_path, "bias")]
    assert standings["bias"].mean == pytest.approx(np.mean(test))
    assert standings["bias"].spread == pytest.approx(np.std(test, ddof=1))
    assert [standing.model for standing in found.standings][2:] == ["bias", "mean"]
    assert [standing.mark for standing in found.standings] == ["best", "second", "", ""]
    assert {"carp", "carp-ra"} == {standing.model for standing in found.standings[:2]}


def test_tests_are_paired_over_records_each_of_them_once(tmp_path):
    found, standings = compared(make_results(tmp_path))
    best = found.standings[0].model
    sums, counts = np.zeros(RECORDS), np.zeros(RECORDS)
    for ours, theirs in zip(cells_of(tmp_path, "bias"), cells_of(tmp_path, best), strict=True):
        for sign, line in ((1, ours), (-1, theirs)):
            records, squared = ErrorColumns(tmp_path).of(line)
            sums[records] += sign * squared
        counts[records] += 1
    differences = sums[counts > 0] / counts[counts > 0]
    shown = standings["bias"].difference
    assert shown.mean == pytest.approx(differences.mean())
    assert shown.p_pairs == pytest.approx(scipy.stats.ttest_1samp(differences, 0).pvalue, rel=1e-6)
    assert shown.p_wilcoxon == pytest.approx(scipy.stats.wilcoxon(differences, method="asymptotic").pvalue, rel=1e-6)
    runs = [[line["test_mse"] for line in cells_of(tmp_path, model)] for model in ("bias", best)]
    assert shown.p_runs == pytest.approx(scipy.stats.ttest_rel(*runs).pvalue, rel=1e-6)
    assert shown.low < shown.mean < shown.high
    assert shown.p_holm >= shown.p_pairs


def test_clear_differences_are_significant_and_equal_systems_are_not(tmp_path):
    found, standings = compared(make_results(tmp_path))
    assert standings["mean"].difference.significant
    assert standings["bias"].difference.significant
    assert not found.standings[1].difference.significant


def test_every_system_stands_beside_the_tuned_biases_on_the_splits_it_has(tmp_path):
    levels = {**LEVELS, "anr": 0.8, "dattn": 0.95}
    _, standings = compared(make_results(tmp_path, levels=levels, leave_out={("carp", 0)}))
    ours, floor = (cells_of(tmp_path, model) for model in ("carp", "bias"))
    expected = sum(line["test_mse"] for line in ours) / sum(line["test_mse"] for line in floor[1:])
    assert standings["carp"].floor_ratio == pytest.approx(expected)
    assert standings["bias"].floor_ratio == 1
    assert standings["bias"].floor_difference is None
    assert standings["carp"].floor_difference.mean < 0 < standings["dattn"].floor_difference.mean
    assert standings["dattn"].floor_difference.significant
    assert not standings["anr"].floor_difference.significant
    written = report_text(make_report(tmp_path))
    assert f"{standings['dattn'].floor_ratio:.3f}‡" in written
    assert f"{standings['anr'].floor_ratio:.3f}‡" not in written


def test_corpora_stand_side_by_side_in_terms_of_the_biases(tmp_path):
    make_results(tmp_path)
    make_results(tmp_path, corpus="ratebeer", levels={**LEVELS, "mf": 0.7}, seed=1)
    first, *_ = make_report(tmp_path)
    [table] = first.tables
    assert table.headings == ["system", "musical-instruments", "ratebeer"]
    rows = {row.cells[0]: row.cells[1:] for row in table.rows}
    assert rows.keys() == set(LEVELS)  # those that ran on both
    assert rows["bias"] == ["1.000", "1.000"]
    assert all(re.fullmatch(r"1\.\d{3}‡", cell) for cell in rows["mean"])
    assert [row.cells[0] for row in table.rows][-2:] == ["bias", "mean"]


def make_study(folder, name, levels, **more):
    """The cells of `make_results` as those of a study of carp; the points' cells."""
    make_results(folder, levels=levels)
    (folder / BENCH).rename(folder / STUDY)
    lines = [{**json.loads(line), **more} for line in (folder / STUDY).read_text().splitlines()]
    (folder / STUDY).write_text("".join(json.dumps(line) + "\n" for line in lines))
    points = {label: [line["id"] for line in lines if line["model"] == label] for label in levels}
    about = {"study": name, "model": "carp", "corpus": "musical-instruments", "given": {}, "points": points}
    (folder / "studies.json").write_text(json.dumps({"one": about}))
    return points


def test_a_study_says_in_every_form_which_point_is_best_and_what_its_signs_mean(tmp_path):
    make_study(tmp_path, "viewpoints", {"3": 0.7, "5": 0.6, "7": 0.9})
    for written in (report_text(make_report(tmp_path)), report_markdown(make_report(tmp_path))):
        [best] = [line for line in written.splitlines() if "best" in line.replace("|", " ").split()]
        assert best.removeprefix("| ").startswith("5 ")
        assert "<0.0001†" in written.replace("&lt;", "<")
        assert "† differs from viewpoints = 5 at the 5% level" in written


def test_studies_of_two_corpora_of_one_name_are_told_apart(tmp_path):
    points = make_study(tmp_path, "viewpoints", {"3": 0.7, "5": 0.6})
    about = json.loads((tmp_path / "studies.json").read_text())["one"]
    both = {"one": about, "two": {**about, "fingerprint": "another", "points": {label: [] for label in points}}}
    (tmp_path / "studies.json").write_text(json.dumps(both))
    titles = [section.title for section in make_report(tmp_path)]
    names = ["musical-instruments (musical-)", "musical-instruments (another)"]
    assert titles == [f"{name}: viewpoints of carp" for name in names]
    assert [one.corpus for one in found_studies(tmp_path, ["two"])] == names[1:]


def test_a_study_of_a_model_that_is_not_there_now_is_still_shown(tmp_path):
    make_study(tmp_path, "level", {"3": 0.7, "5": 0.6})
    about = json.loads((tmp_path / "studies.json").read_text())["one"]
    (tmp_path / "studies.json").write_text(json.dumps({"one": {**about, "model": "toy"}}))
    [found] = found_studies(tmp_path)
    assert found.usual == "3"
    assert "level of toy" in report_text(make_report(tmp_path))


def test_the_routings_ratios_are_shown_as_medians_and_quartiles(tmp_path):
    quartiles = [[3.0, 0.5], [4.0, 2.0], [9.0, 2.5]]
    make_study(tmp_path, "routing", {"bi-agreement": 0.6, "agreement": 0.7}, coupling_ratio_quartiles=quartiles)
    [section] = make_report(tmp_path)
    table = section.tables[1]
    assert table.headings == [
        "rank",
        *(f"{of}agreement, {what}" for of in ("bi-", "") for what in ("median", "quartiles")),
    ]
    assert table.rows[1].cells == ["2", *["2.0000", "0.5000 to 2.5000"] * 2]


def test_the_commits_and_machines_of_a_table_are_told(tmp_path):
    make_results(tmp_path, levels={"bias": 0.8, "carp": 0.6})
    assert "Measured" not in report_text(make_report(tmp_path))
    lines = [json.loads(line) for line in (tmp_path / BENCH).read_text().splitlines()]
    for line in lines:
        line.update(commit="aaa1", machine="card")
    lines[0].update(commit="bbb2-dirty")
    lines[1].update(machine="chip, 2 cores")
    (tmp_path / BENCH).write_text("".join(json.dumps(line) + "\n" for line in lines))
    expected = "commit aaa1 (7 cells) and bbb2-dirty (1 cell) on card (7 cells) and chip, 2 cores (1 cell)."
    assert f"Measured at {expected}" in report_text(make_report(tmp_path))


def test_plots_whose_captions_read_alike_are_files_of_their_own(tmp_path):
    sections = [Section(name, [], plots=[(f"MSE on {name}", partial(str, name))]) for name in ("a b", "a/b", "a b")]
    write_plots(sections, tmp_path)
    shown = re.findall(r"!\[[^]]+\]\(([^)]+)\)", report_markdown(sections, "plots"))
    assert shown == ["plots/MSE-on-a-b.svg", "plots/MSE-on-a-b-2.svg", "plots/MSE-on-a-b-3.svg"]
    assert [(tmp_path / name.removeprefix("plots/")).read_text() for name in shown] == ["a b", "a/b", "a b"]
    long = [plot_name(f"MSE of carp, {'setting=1, ' * 50}last={last}") for last in "12"]
    assert len(set(long)) == 2
    assert max(map(len, long)) < 200


def test_points_of_a_study_are_tested_against_the_models_own_setting(tmp_path):
    points = make_study(tmp_path, "viewpoints", {"3": 0.6, "5": 0.6, "7": 0.9})
    [found] = found_studies(tmp_path)
    assert found.usual == "5"
    shown = {point.label: point.difference for point in found.points}
    assert shown["5"] is None
    assert shown["7"].significant
    assert shown["7"].mean == pytest.approx(0.3, abs=0.1)
    assert not shown["3"].significant
    nothing = PairErrors("p0-0", np.arange(TESTED, dtype=np.int32), np.zeros(TESTED, np.float32))
    ErrorColumns(tmp_path).add(points["3"][0], nothing)
    assert "differences are not shown" in report_text(make_report(tmp_path))


def test_points_of_a_study_are_compared_on_the_splits_that_all_of_them_have(tmp_path):
    points = make_study(tmp_path, "viewpoints", {"3": 0.6, "5": 0.6, "7": 0.9})
    about = json.loads((tmp_path / "studies.json").read_text())["one"]
    about["points"] |= {"7": points["7"][:2], "9": []}
    (tmp_path / "studies.json").write_text(json.dumps({"one": about}))
    lines = {line["id"]: line for line in map(json.loads, (tmp_path / STUDY).read_text().splitlines())}
    [found] = found_studies(tmp_path)
    assert [(point.runs, point.failed) for point in found.points] == [(2, 0), (2, 0), (2, 0), (0, 0)]
    for point in found.points[:3]:
        assert point.test == pytest.approx(sum(lines[one]["test_mse"] for one in points[point.label][:2]) / 2)


def test_the_axis_of_the_ratio_reads_as_numbers(monkeypatch):
    monkeypatch.setitem(STYLE, "svg.fonttype", "none")  # letters, so that they can be read here
    ratios = {"bi-agreement": [90_000.0, 30.0, 0.1], "agreement": [2.0, 1.5, 1.1]}
    points = [PointFound(label, 1, 0, 1.0, None, 1.0, None, None, [ratio] * 3) for label, ratio in ratios.items()]
    drawn = ratio_plot(StudyFound("routing", "carp", "corpus", {}, points, []))
    assert "mathdefault" not in drawn
    assert all(f">{number}<" in drawn for number in ("0.1", "1", "100", "10000"))


def test_the_improvement_is_over_other_systems_that_read_reviews(tmp_path):
    found, standings = compared(make_results(tmp_path, levels={**LEVELS, "carp-paper": 0.65, "anr": 0.75, "mpcn": 0.9}))
    assert found.reference == "carp-paper"
    expected = 100 * (standings["anr"].mean - standings["carp-paper"].mean) / standings["anr"].mean
    assert standings["anr"].improvement == pytest.approx(expected)
    assert found.improvement == pytest.approx((standings["anr"].improvement, standings["mpcn"].improvement))


def test_a_system_whose_name_merely_begins_like_the_reference_is_another(tmp_path):
    found, standings = compared(make_results(tmp_path, levels={**LEVELS, "anr": 0.75, "carpet": 0.9}))
    assert found.improvement == pytest.approx((standings["anr"].improvement, standings["carpet"].improvement))


def test_a_system_that_lacks_a_split_takes_no_place(tmp_path):
    levels = {"mean": 1.0, "bias": 0.8, "carp": 0.1}
    found, standings = compared(make_results(tmp_path, levels=levels, leave_out={("carp", 0)}))
    assert [(s.model, s.mark) for s in found.standings] == [("bias", "best"), ("mean", "second"), ("carp", "")]
    assert standings["carp"].difference.mean < 0  # over the splits that both have
    assert "3 of 4" in report_text(make_report(tmp_path))


def test_the_published_figures_stand_beside_ours(tmp_path):
    _, standings = compared(make_results(tmp_path, levels={**LEVELS, "carp-paper": 0.65}))
    assert standings["carp-paper"].published == 0.773
    assert standings["carp"].published is None
    assert standings["bias"].published is None
    written = report_text(make_report(tmp_path))
    assert "0.789" in written
    assert "Musical Instruments" in written


def test_the_papers_tables_are_whole():
    assert all(len(row) == 7 for row in COMPARISON.values())
    assert len(COMPARISON) == 11
    assert published_mse("ratebeer-5core", "pmf") == 1.641
    assert dataset_of("Digital_Music_5") == "Digital Music"
    assert [ANALYSES["routing_iterations"][tau]["Beer"] for tau in "1234"] == [0.573, 0.557, 0.552, 0.555]


def add_like(folder, system, ending, **changes):
    """The cells that `make_results` gave a system once more, with something about them changed."""
    errors = ErrorColumns(folder)
    with (folder / BENCH).open("a") as file:
        for line in cells_of(folder, system)[:: len(cells_of(folder, system)) // SPLITS]:
            records, squared = errors.of(line)
            other = {**line, "id": f"{line['id']}-{ending}", **changes}
            errors.add(other["id"], PairErrors(line["pairs"], records, squared.astype(np.float32)))
            file.write(json.dumps(other) + "\n")


def test_one_label_with_different_settings_is_two_rows(tmp_path):
    make_results(tmp_path, levels={"bias": 0.8, "carp": 0.6})
    add_like(tmp_path, "carp", "b", given={"epochs": 3})
    _, standings = compared(tmp_path)
    assert standings.keys() == {"bias", "carp (as it is)", "carp (epochs=3)"}
    assert all(standing.runs == SPLITS for standing in standings.values())


def test_searches_of_other_spaces_are_rows_of_their_own(tmp_path):
    make_results(tmp_path, levels={"bias": 0.8, "carp": 0.6})
    spaces = [{"latent_size": [25, 50]}, {"latent_size": [100]}, {"latent_size": ["25", "50"]}]
    for number, space in enumerate(spaces):
        add_like(tmp_path, "carp", number, model="carp:x=1", search={"trials": 6, "space": space})
    _, standings = compared(tmp_path)
    assert standings.keys() - {"bias", "carp"} == {
        "carp:x=1 (search of 6 over latent_size=25,50)",
        "carp:x=1 (search of 6 over latent_size=100)",
        "carp:x=1 (search of 6 over latent_size=25,50) #2",
    }
    assert all(standing.runs == SPLITS for standing in standings.values())


def test_rows_with_settings_in_their_names_stand_beside_the_published_the_floor_and_the_reference(tmp_path):
    make_results(tmp_path, levels={"bias": 0.8, "carp": 0.6, "pmf": 0.9})
    before = compared(tmp_path)[1]
    for model in ("bias", "carp", "pmf"):
        add_like(tmp_path, model, "b", given={"epochs": 3})
    found, standings = compared(tmp_path)
    assert standings.keys() == {"bias"} | {f"{m} ({g})" for m in ("carp", "pmf") for g in ("as it is", "epochs=3")}
    assert found.reference in ("carp (as it is)", "carp (epochs=3)")
    for given in ("as it is", "epochs=3"):
        shown = standings[f"pmf ({given})"]
        assert shown.published == 1.398
        assert shown.floor_ratio == pytest.approx(before["pmf"].floor_ratio)
        assert shown.floor_difference.significant
        assert shown.improvement == pytest.approx(before["pmf"].improvement)


def test_what_a_model_never_looks_at_does_not_make_another_row(tmp_path):
    make_results(tmp_path, levels={"bias": 0.8, "mf": 0.7, "ridge": 0.6})
    for model in ("bias", "mf", "ridge"):
        add_like(tmp_path, model, "a", given={"epochs": 3})
        add_like(tmp_path, model, "b", given={"vocabulary_size": 100})
    _, standings = compared(tmp_path)
    rows = {"bias", "mf (as it is)", "mf (epochs=3)", "ridge (as it is)", "ridge (vocabulary_size=100)"}
    assert standings.keys() == rows


def test_a_corpus_of_two_names_is_one_and_two_corpora_of_one_name_are_two(tmp_path):
    make_results(tmp_path / "one", levels={"bias": 0.8, "carp": 0.6})
    add_like(tmp_path / "one", "carp", "b", model="anr", name="anr", corpus="renamed")
    found, standings = compared(tmp_path / "one")
    assert found.corpus == "renamed"
    assert standings.keys() == {"bias", "carp", "anr"}
    make_results(tmp_path / "two")
    make_results(tmp_path / "two", seed=1)
    sections = make_report(tmp_path / "two")
    names = ["musical-instruments (musical-instruments-0)", "musical-instruments (musical-instruments-1)"]
    assert [section.title for section in sections] == ["All corpora", "Leaderboard", *names]
    assert sections[0].tables[0].headings == ["system", *names]
    assert main(["report", str(tmp_path / "two"), "--out", str(tmp_path / "r.md")]) == 0
    assert len(list((tmp_path / "r-plots").iterdir())) == 4


def test_a_system_that_lacks_splits_of_a_corpus_says_so_beside_the_others(tmp_path):
    make_results(tmp_path)
    make_results(tmp_path, seed=1)
    lines = (tmp_path / BENCH).read_text().splitlines()
    first = next(text for text in lines if json.loads(text)["model"] == "carp")
    (tmp_path / BENCH).write_text("".join(f"{text}\n" for text in lines if text != first))
    rows = {row.cells[0]: row.cells[1:] for row in make_report(tmp_path)[0].tables[0].rows}
    runs = sum(json.loads(text)["model"] == "bias" for text in lines) // 2
    assert rows["carp"][0].endswith(f" ({runs - 1} of {runs} splits)")
    assert "splits" not in rows["carp"][1] + "".join(rows["bias"])


def test_errors_that_are_not_those_of_the_line_are_never_tested(tmp_path):
    make_results(tmp_path)
    errors, line = ErrorColumns(tmp_path), cells_of(tmp_path, "mean")[1]
    records, squared = errors.of(line)
    errors.add(line["id"], PairErrors(line["pairs"], records, 2 * squared.astype(np.float32)))
    found, standings = compared(tmp_path)
    assert all(standing.difference is None for standing in found.standings)
    assert standings["carp"].mark
    assert "significance is not shown" in report_text(make_report(tmp_path))


def test_errors_in_files_of_their_own_as_carp_0_1_0_left_them_give_the_same_report(tmp_path):
    make_results(tmp_path)
    expected = report_text(make_report(tmp_path))
    (tmp_path / "errors").mkdir()
    for text in (tmp_path / ERRORS).read_text().splitlines():
        column = json.loads(text)
        np.save(tmp_path / "errors" / f"{column['name']}.npy", column_of(column))
    (tmp_path / ERRORS).unlink()
    about = {"kind": "results", "format": 1, "version": carp.__version__}
    (tmp_path / "results.json").write_text(json.dumps(about))
    assert report_text(make_report(tmp_path)) == expected
    (tmp_path / "errors" / "0-1-0.squared.npy").unlink()
    assert "the errors of cell 0-1-0 cannot be read" in report_text(make_report(tmp_path))


@pytest.mark.parametrize("damage", ["a letter", "half a line", "no JSON", "no data"])
def test_damaged_errors_cost_the_tests_of_significance_and_no_more(damage, tmp_path):
    make_results(tmp_path)
    lines = (tmp_path / ERRORS).read_text().splitlines()
    first = json.loads(lines[1])
    letters = first["data"]
    damaged = {
        "a letter": json.dumps({**first, "data": ("B" if letters[0] == "A" else "A") + letters[1:]}),
        "half a line": lines[1][:100],
        "no JSON": "[",
        "no data": json.dumps({"name": first["name"]}),
    }[damage]
    (tmp_path / ERRORS).write_text("\n".join([lines[0], damaged, *lines[2:]]) + "\n")
    shown = report_text(make_report(tmp_path))
    assert f"the errors of cell {first['name'].removesuffix('.squared')} cannot be read" in shown
    assert "carp" in shown


def test_markdown_marks_the_best_and_the_second_best(tmp_path):
    written = report_markdown(make_report(make_results(tmp_path)))
    assert len(re.findall(r"\| \*\*0\.\d{4}†?\*\* \|", written)) == 1
    assert len(re.findall(r"\| <u>0\.\d{4}†?</u> \|", written)) == 1
    widths = {line.count("|") for line in written.splitlines() if line.startswith("| ") and "Test MSE" not in line}
    assert len(widths) == 2  # each line of a table has all its columns


def test_the_page_is_whole_and_runs_nothing(tmp_path):
    make_results(tmp_path, corpus=MARKUP, levels={**LEVELS, MARKUP: 0.7})
    page = report_page(make_report(tmp_path))
    assert "<script" not in page
    assert "<img src=x" not in page
    assert "&lt;img src=x onerror=&#34;alert(1)&#34;&gt;" in page
    assert not re.findall(r"(?:href|src)=\"(?!data:image/svg)", page)
    assert "default-src 'none'" in page
    plots = re.findall(r"data:image/svg\+xml;base64,([A-Za-z0-9+/=]+)", page)
    assert len(plots) == 2
    assert all(b"<svg" in base64.b64decode(plot) and b"<script" not in base64.b64decode(plot) for plot in plots)
    assert page == report_page(make_report(tmp_path))


def test_names_cannot_break_markdown(tmp_path):
    make_results(tmp_path, corpus=MARKUP, levels={MARKUP: 0.7, "bias": 1.0})
    written = report_markdown(make_report(tmp_path))
    assert "<img" not in written
    assert "\\|\\*$x\\_" in written


@pytest.mark.parametrize(("name", "begins"), [("r.html", "<!DOCTYPE html>"), ("r.md", "## "), ("r.txt", "musical")])
def test_the_command_writes_what_the_name_says(name, begins, tmp_path):
    make_results(tmp_path / "results")
    assert main(["report", str(tmp_path / "results"), "--out", str(tmp_path / name)]) == 0
    assert (tmp_path / name).read_text().startswith(begins)


def test_plots_of_a_markdown_file_lie_beside_it(tmp_path):
    make_results(tmp_path / "results")
    assert main(["report", str(tmp_path / "results"), "--out", str(tmp_path / "r.md")]) == 0
    shown = re.findall(r"!\[[^]]+\]\(([^)]+)\)", (tmp_path / "r.md").read_text())
    assert len(shown) == 2
    assert all(b"<svg" in (tmp_path / name).read_bytes() for name in shown)


def test_a_folder_without_results_is_named(tmp_path, capsys):
    assert main(["report", str(tmp_path / "nowhere")]) == 2
    assert main(["report", str(tmp_path)]) == 2
    assert "carp bench" in capsys.readouterr().err


def _chosen_row(folder):
    [section] = make_report(folder)
    [row] = next(table for table in section.tables if table.title == "What the searches chose").rows
    return row


def test_what_searches_chose_is_told_with_how_often_it_was_on_the_edge(tmp_path):
    make_results(tmp_path, levels={"bias": 0.8, "carp": 0.6})
    lines = [json.loads(line) for line in (tmp_path / BENCH).read_text().splitlines()]
    space = {"latent_size": [25, 50, 100], "learning_rate": [0.001, 0.0003, 0.0001]}
    for line in lines:
        if line["model"] == "carp":
            best = {"latent_size": 25 if line["split_seed"] == 0 else 50, "learning_rate": 0.0003}
            tried = [(best, 0.5), ({"latent_size": 100, "learning_rate": 0.001}, 0.6)]
            line["trials"] = [{"settings": settings, "valid_mse": error} for settings, error in tried]
            line["search"] = {"trials": 2, "space": space}
    (tmp_path / BENCH).write_text("".join(json.dumps(line) + "\n" for line in lines))
    row = _chosen_row(tmp_path)
    chosen = f"latent_size 25 (1), 50 ({SPLITS - 1}); learning_rate 0.0003 ({SPLITS})"
    assert row.cells == ["carp", "2 a split", chosen, f"latent_size 1 of {SPLITS}"]
    for line in lines:
        line.get("search", {}).update(splits=[100])
    (tmp_path / BENCH).write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert _chosen_row(tmp_path).cells[1] == "2 for all splits"


def test_plain_agreement_is_tested_against_bi_agreement_over_pairs_and_over_runs(tmp_path):
    make_results(tmp_path, levels={"bias": 0.8, "carp-paper": 0.6, "carp-ra": 0.75})
    [section] = make_report(tmp_path)
    [note] = [note for note in section.notes if note.startswith("Plain agreement against bi-agreement")]
    assert re.search(r"carp-ra − carp-paper: \+0\.1\d+ over test pairs", note)
    assert "over pairs, and" in note
    assert "over the runs' errors" in note


def test_the_leaderboard_gives_places_to_those_who_ran_everywhere(tmp_path):
    levels = {"bias": 0.8, "carp": 0.6, "mf": 0.7}
    make_results(tmp_path, levels=levels, leave_out={("carp", 0)})
    make_results(tmp_path, levels=levels, corpus="ratebeer", seed=1)
    section = next(section for section in make_report(tmp_path) if section.title == "Leaderboard")
    [table] = section.tables
    shown = [dict(zip(table.headings, row.cells, strict=True)) for row in table.rows]
    assert [(row["system"], row["place"]) for row in shown] == [("mf", "1"), ("bias", "2"), ("carp", "")]
    assert [int(row["runs"]) for row in shown] == [2 * SPLITS, 2 * SPLITS, 2 * SPLITS - 1]
    assert 0.8 < float(shown[0]["musical-instruments"]) < 0.95
    assert shown[1]["mean"] == "1.000"


def faithful(model, named, chance, commit="aaaaaaa", fingerprint=None, **settings):
    moved = {"sentences": {"beside_words": {"comprehensiveness": {"named": named, "chance": chance}}}}
    about = {"model": model, "settings": settings, "commit": commit, "fingerprint": fingerprint}
    return json.dumps({**about, "explanations": moved}) + "\n"


def test_the_leaderboard_tells_how_true_reasons_are_and_has_a_dash_where_nobody_measured_it(tmp_path):
    levels = {"bias": 0.8, "carp": 0.6, "carp-paper": 0.7}
    make_results(tmp_path, levels=levels)
    make_results(tmp_path, levels=levels, corpus="ratebeer", seed=1)
    first, second = dict.fromkeys(
        json.loads(line)["fingerprint"] for line in (tmp_path / BENCH).read_text().splitlines()
    )
    (tmp_path / "faithfulness.jsonl").write_text(
        faithful("carp:patience=3", 9.0, 1.0, fingerprint=first)
        + faithful("carp", 4.0, 2.0, "bbbbbbb", first)
        + faithful("carp", 6.0, 2.0, "bbbbbbb", first)
        + faithful("carp", 7.0, 2.0, "bbbbbbb", second)
        + faithful("carp", 99.0, 1.0, fingerprint="another corpus")
        + faithful("carp:variant=paper", 3.0, 2.0, fingerprint=first, variant="paper")
        + faithful("bias", 0.0, 0.0, fingerprint=first)
    )
    [table] = next(section for section in make_report(tmp_path) if section.title == "Leaderboard").tables
    shown = {row.cells[0]: dict(zip(table.headings, row.cells, strict=True)) for row in table.rows}
    truth = {system: row["truth of reasons"] for system, row in shown.items()}
    assert truth == {"carp": "3.0", "carp-paper": "1.5", "bias": "–"}
    assert shown["carp"]["µs a prediction"] == "–"
    (tmp_path / "faithfulness.jsonl").write_text("[]\n")
    with pytest.raises(DamagedError, match="line 1"):
        make_report(tmp_path)


def test_every_version_that_made_results_is_named(tmp_path):
    make_results(tmp_path, levels={"bias": 0.8, "carp": 0.6})
    assert "made by carp" not in report_text(make_report(tmp_path))
    lines = [json.loads(line) for line in (tmp_path / BENCH).read_text().splitlines()]
    lines[0]["version"] = "0.0.1"
    (tmp_path / BENCH).write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert f"made by carp 0.0.1 and {carp.__version__}." in report_text(make_report(tmp_path))
