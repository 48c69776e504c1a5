"""The whole comparison by one command: which cells it has, what it takes over, and where what was found goes."""

from __future__ import annotations

import json
from functools import partial

import pytest

import comparison
from carp.bench.cells import Bench
from carp.bench.pair_errors import ErrorColumns
from carp.bench.results_folder import BENCH, read_results


@pytest.fixture
def command(call_script):
    """The script as it is called; its exit code."""
    return partial(call_script, comparison)


def lines(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_systems_that_learn_have_the_same_trials_and_splits_come_one_after_the_other(corpus):
    cells = comparison.comparison_cells([corpus], "bias,mf,carp,meeting", 8, 2)
    assert [cell.split_seed for cell in cells] == [0] * 4 + [1] * 4
    trials = {cell.model: cell.search.get("trials", 0) for cell in cells}
    assert trials == {"bias": 0, "meeting": 0, "mf": 8, "carp": 8}
    assert {name for cell in cells if cell.model == "mf" for name in cell.search["space"]} == {"latent_size", "penalty"}


def test_what_was_found_takes_the_place_of_what_was_there(corpus, tmp_path, command):
    kept = tmp_path / "kept"
    kept.mkdir()
    for out in ("first", "again"):
        words = ["run", corpus, "--models", "mean,bias", "--splits", "4-5", "--device", "cpu"]
        assert command(*words, "--out", tmp_path / out) == 0
        assert command("take", tmp_path / out, "--into", kept) == 0
    assert [(line["model"], line["split_seed"]) for line in lines(kept / BENCH)] == [("mean", 4), ("bias", 4)]
    assert [(line["model"], line["split_seed"]) for line in lines(kept / "fresh-splits.jsonl")] == [
        ("mean", 5),
        ("bias", 5),
    ]
    (kept / "results.json").write_bytes((tmp_path / "first" / "results.json").read_bytes())
    for line in read_results(kept, BENCH).lines.values():
        records, squared = ErrorColumns(kept).of(line)
        assert len(records) == len(squared) == line["test_pairs"]
    assert command("take", tmp_path / "first", "--into", kept, "--lines", "apart.jsonl") == 0
    assert len(lines(kept / "apart.jsonl")) == 4


def test_choices_that_are_known_are_not_made_again(corpus, tmp_path, command, monkeypatch):
    words = ["run", corpus, "--models", "mf", "--splits", "0-0", "--device", "cpu", "--trials"]
    assert command(*words, 2, "--out", tmp_path / "first") == 0
    [before] = lines(tmp_path / "first" / BENCH)
    fitted = []
    fit = Bench.fit
    monkeypatch.setattr(Bench, "fit", lambda self, settings: fitted.append(self.cell.split_seed) or fit(self, settings))
    assert command(*words, 2, "--chosen", tmp_path / "first" / BENCH, "--out", tmp_path / "again") == 0
    [after] = lines(tmp_path / "again" / BENCH)
    assert after["trials"] == before["trials"]
    assert after["test_mse"] == before["test_mse"]
    assert fitted == [0]
    fitted.clear()
    assert command(*words, 1, "--chosen", tmp_path / "first" / BENCH, "--out", tmp_path / "other") == 0
    assert len(fitted) > 1  # another search, whose choice is not known
