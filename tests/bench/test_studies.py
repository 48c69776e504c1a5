"""A study varies one thing, is noted before it runs, and stands apart from other studies."""

from __future__ import annotations

import pytest

from carp.bench import grid as grid_module
from carp.bench.datasets import find_sources
from carp.bench.results_folder import STUDY, read_results
from carp.bench.study import named_studies, read_varied, study_cells
from carp.cli.entry import main

pytestmark = pytest.mark.usefixtures("single_thread")

TINY = ["dimension=4", "filters=4", "latent_size=3", "viewpoints=2", "epochs=2", "vocabulary_size=100"]


def test_a_study_is_a_table_and_a_plot(corpus, tmp_path, capsys):
    out = tmp_path / "results"
    words = ["study", str(corpus), "--vary", "viewpoints=1,2", "--seeds", "2", "--out", str(out), "--device", "cpu"]
    assert main([*words, "--named", "routing", *(word for setting in TINY for word in ("--set", setting))]) == 0
    told = capsys.readouterr().out
    assert "viewpoints" in told
    assert "c_pos/c_neg by rank" in told
    plots = sorted(file.name for file in (out / "plots").iterdir())
    assert len(plots) == 3
    assert all("<svg" in (out / "plots" / name).read_text() for name in plots)
    assert len(read_results(out, STUDY).lines) == 6  # two viewpoints with bi-agreement is a point of both studies
    assert main(["report", str(out), "--format", "markdown"]) == 0
    assert "musical-instruments: routing of carp" in capsys.readouterr().out


def study(corpus, out, model, *words):
    usual = ["--vary", "latent_size=2,3", "--model", model, "--seeds", "1", "--device", "cpu"]
    return main(["study", str(corpus), "--out", str(out), "--set", "epochs=1", *usual, *words])


def test_studies_of_other_models_and_settings_stand_apart(corpus, tmp_path, capsys):
    out = tmp_path / "results"
    assert study(corpus, out, "mf") == 0
    assert study(corpus, out, "mf", "--set", "batch_size=50") == 0
    capsys.readouterr()
    assert study(corpus, out, "pmf") == 0
    told = capsys.readouterr().out
    assert "latent_size of pmf" in told
    assert "latent_size of mf" not in told
    of = "latent_size-of-{}-on-musical-instruments-epochs-1{}.svg"
    names = {of.format("mf", ""), of.format("mf", "-batch_size-50"), of.format("pmf", "")}
    assert {file.name for file in (out / "plots").iterdir()} == names
    assert main(["report", str(out), "--out", str(tmp_path / "r.md")]) == 0
    assert {file.name for file in (tmp_path / "r-plots").iterdir()} == names


def test_a_stopped_study_is_reported_with_the_cells_that_are_done(corpus, tmp_path, monkeypatch, capsys):
    measure, out, stop = grid_module.run_cell, tmp_path / "results", iter([False, True])

    def until_stopped(*given, **more):
        if next(stop):
            raise KeyboardInterrupt
        return measure(*given, **more)

    monkeypatch.setattr(grid_module, "run_cell", until_stopped)
    assert study(corpus, out, "mf") == 1
    assert "interrupted" in capsys.readouterr().err
    assert main(["report", str(out)]) == 0
    assert "musical-instruments: latent_size of mf" in capsys.readouterr().out


def test_the_named_studies_are_the_papers_and_ours():
    studies = {study.name: list(study.points) for study in named_studies("all")}
    assert studies["viewpoints"] == ["3", "5", "7", "9"]
    assert studies["routing_iterations"] == ["1", "2", "3", "4"]
    assert studies["rating_weight"] == [f"{tenth / 10}" for tenth in range(1, 11)]
    assert studies.keys() >= {"routing", "mutual_exclusion", "target_reviews", "variant"}


def test_every_named_study_can_be_run(corpus):
    [source] = find_sources([corpus])
    for study in named_studies("all"):
        assert len(study_cells(study, source, "carp-paper", 1, {})) == len(study.points)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "no setting to vary"),
        (["--vary", "vewpoints=1,2"], "did you mean viewpoints"),
        (["--vary", "viewpoints="], "setting=value,value"),
        (["--vary", "viewpoints=1,x"], "viewpoints cannot be 'x'"),
        (["--named", "rooting"], "did you mean routing"),
        (
            ["--vary", "viewpoints=1,2", "--model", "capr"],
            "--model: there is no model 'capr'. Fix: did you mean",
        ),
        (["--vary", "viewpoints=1,2", "--set", "vewpoints=3"], "--set: carp-paper has no setting 'vewpoints'"),
        (["--vary", "viewpoints=1,2", "--set", "epochs=few"], "--set: epochs cannot be 'few'"),
        (["--named", "routing", "--model", "mf"], "--named: mf has no setting 'routing'"),
    ],
)
def test_a_study_of_nothing_known_is_refused(words, said, corpus, tmp_path, capsys):
    assert main(["study", str(corpus), "--out", str(tmp_path / "out"), *words]) == 2
    assert said in capsys.readouterr().err


def test_all_combinations_are_one_study():
    [study] = read_varied(["viewpoints=1,2", "routing=agreement,bi-agreement"], product=True)
    assert list(study.points.values())[1] == {"viewpoints": 1, "routing": "bi-agreement"}
