"""The paper's analyses on all corpora by one command: which cells run, and where what was found goes."""

from __future__ import annotations

import json
import shutil
from functools import partial

import pytest

import paper_studies
from carp.bench.results_folder import STUDY
from carp.bench.study_findings import found_studies

SMALL = {"epochs": 1, "dimension": 4, "filters": 3, "latent_size": 2, "viewpoints": 2, "max_words": 20}


@pytest.fixture
def command(monkeypatch, call_script):
    monkeypatch.setattr(paper_studies, "STUDIED", ["routing", "logic_unit"])
    monkeypatch.setattr(paper_studies, "settings_for", lambda source: SMALL)
    return partial(call_script, paper_studies)


def identities(folder):
    return [json.loads(line)["id"] for line in (folder / STUDY).read_text().splitlines()]


def test_what_is_kept_already_is_not_run_again_and_what_is_new_joins_it(corpus, tmp_path, command):
    kept, later = tmp_path / "kept", tmp_path / "later"
    assert command("run", corpus, "--out", kept, "--device", "cpu") == 0
    assert len(identities(kept)) == 3, "the usual point belongs to both studies"
    words = ["run", corpus, "--out", later, "--device", "cpu", "--splits", "0-1", "--kept", kept]
    assert command(*words) == 0
    assert len(identities(later)) == 3
    assert not set(identities(later)) & set(identities(kept))
    assert command("take", later, "--into", kept) == 0
    for study in found_studies(kept):
        assert [point.runs for point in study.points] == [2, 2]
        assert study.warning == ""
        assert study.points[1].difference is not None, "errors pair by pair came along"


def test_taking_twice_counts_once(corpus, tmp_path, command):
    folder, kept = tmp_path / "folder", tmp_path / "kept"
    assert command("run", corpus, "--out", folder, "--device", "cpu") == 0
    shutil.copytree(folder, kept)
    assert command("take", folder, "--into", kept) == 0
    assert identities(kept) == identities(folder)
    assert [point.runs for study in found_studies(kept) for point in study.points] == [1] * 4


def test_what_no_kernel_covers_starts_first(corpus):
    [source, *_] = [found for found, _ in paper_studies.all_studies([corpus])]
    cells = []
    for _, study in paper_studies.all_studies([corpus]):
        cells += paper_studies.study_cells(study, source, paper_studies.MODEL, 2, {})
    ordered = paper_studies.longest_first(cells)
    assert [cell.split_seed for cell in ordered] == sorted(cell.split_seed for cell in cells)
    assert "appended" in {cell.settings.get("logic_unit") for cell in ordered[:6]}
    assert {300, 200} <= {cell.settings.get("latent_size") for cell in ordered[:6]}
