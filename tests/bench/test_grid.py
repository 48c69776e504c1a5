"""A grid measures each cell once, chooses on validation alone, and goes on when a cell fails."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

import carp
from carp.bench import cell_processes
from carp.bench import cells as cells_module
from carp.bench.__main__ import main as bare
from carp.bench.cells import Cell, changed, run_cell
from carp.bench.datasets import find_sources, load_corpus, save_slim
from carp.bench.grid import Grid, read_systems, run_grid
from carp.bench.pair_errors import ERRORS, ErrorColumns
from carp.bench.results_folder import BENCH, owned_results, read_results
from carp.bench.settings_search import choose_settings, search_file, search_space
from carp.cli.entry import main
from carp.errors import CarpError, DamagedError, UsageError
from carp.models import REGISTRY, Entry
from carp.models.carp import NEGATIVE, POSITIVE
from carp.reviews.corpora.item_texts import ItemTexts
from carp.reviews.corpora.worker_processes import WorkerDied
from carp.reviews.sources.item_records import ItemText

pytestmark = pytest.mark.usefixtures("single_thread")

TINY = {"dimension": 4, "filters": 4, "latent_size": 3, "viewpoints": 2, "epochs": 2, "vocabulary_size": 100}
NEEDED = {"corpus", "model", "split_seed", "seed", "valid_mse", "test_mse", "settings", "seconds", "peak_memory"}
NEEDED |= {"commit", "machine", "version"}
TOY = '''
"""Everybody likes everything as much as this."""
from dataclasses import dataclass
import torch
from carp.models.base import Prediction, RatingModel


@dataclass(frozen=True)
class ToyConfig:
    level: float = 3.0

class Toy(RatingModel):
    Config = ToyConfig
    learns = False
    def forward(self, batch):
        if self.config.level == 13:
            raise RuntimeError("thirteen <b>brings</b> bad luck")
        return Prediction(torch.full((len(batch),), self.config.level, device=batch.users.device))
'''


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """One new file and one line of the registry."""
    (tmp_path / "toy_model.py").write_text(TOY)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(REGISTRY, "toy", Entry("toy_model:Toy", "a constant"))
    yield tmp_path
    sys.modules.pop("toy_model", None)


@pytest.fixture(scope="module")
def measured(corpus, tmp_path_factory):
    """Three systems on two splits."""
    out = tmp_path_factory.mktemp("measured") / "results"
    return out, run_grid(grid(corpus, "mean,bias,carp").cells(), out, device="cpu")


def grid(*corpora, models="mean,bias", seeds=2, **more):
    *folders, models = (*corpora, models) if isinstance(corpora[-1], Path) else corpora
    return Grid(read_systems(models), find_sources(list(folders)), seeds, more.pop("settings", TINY), **more)


def set_options():
    return [word for key, value in TINY.items() for word in ("--set", f"{key}={value}")]


def bench(*words):
    return main(["bench", *map(str, words), "--device", "cpu"])


def lines_of(out, file=BENCH):
    return [json.loads(line) for line in (out / file).read_text().splitlines()]


# ---- cells


def test_each_cell_is_one_line_with_all_that_was_asked_for(measured):
    out, outcome = measured
    lines = lines_of(out)
    assert len(lines) == len(outcome.lines) == 6
    assert len({line["id"] for line in lines}) == 6
    for line in lines:
        assert line.keys() >= NEEDED
        assert line["version"] == carp.__version__
        assert line["peak_memory"] > 10_000_000
        records, squared = ErrorColumns(out).of(line)
        assert squared.mean() == pytest.approx(line["test_mse"], rel=1e-6)
        assert len(set(records.tolist())) == len(records) == line["test_pairs"]
    assert lines[2]["settings"] == TINY


def test_a_cell_finds_what_training_by_hand_finds(corpus, measured):
    rec = carp.Recommender("carp", split_seed=1, device="cpu", **TINY).fit(carp.Corpus.load(corpus), progress=False)
    line = next(line for line in measured[1].lines if line["name"] == "carp" and line["split_seed"] == 1)
    assert line["valid_mse"] == pytest.approx(rec.facts["valid_mse"], rel=1e-9)
    assert line["test_mse"] == pytest.approx(rec.evaluate()["rows"]["carp"]["mse"], rel=1e-9)


def test_a_second_run_measures_nothing_again_and_a_larger_one_the_rest(corpus, tmp_path):
    out = tmp_path / "results"
    assert run_grid(grid(corpus, "mean,bias").cells(), out, device="cpu").ran == 4
    before = (out / BENCH).read_bytes()
    assert run_grid(grid(corpus, "mean,bias").cells(), out, device="cpu").ran == 0
    assert (out / BENCH).read_bytes() == before
    assert run_grid(grid(corpus, "mean,bias", seeds=3).cells(), out, device="cpu").ran == 2
    assert (out / BENCH).read_bytes().startswith(before)


def test_settings_written_differently_are_the_same_cell(corpus):
    def identity(**settings):
        return grid(corpus, "carp", seeds=1, settings=settings).cells()[0].identity

    assert identity() == identity(viewpoints="5", learning_rate="1e-3") == identity(variant="calibrated")
    assert len({identity(), identity(viewpoints=7), identity(target_reviews="keep")}) == 3


def test_systems_with_settings_of_their_own_are_rows_of_their_own(corpus):
    cells = grid(corpus, "carp,carp:variant=released", seeds=1, settings={"epochs": 1, "level": 2}).cells()
    assert [cell.label for cell in cells] == ["carp", "carp:variant=released"]
    assert cells[1].settings == {"epochs": 1, "variant": "released"}


def test_a_corpus_with_its_own_split_is_repeated_over_seeds(corpus, tmp_path):
    loaded = load_corpus(corpus)
    parts = np.arange(len(loaded)) % 5 // 3
    dataclasses.replace(loaded, split=parts.astype(np.int8)).save(tmp_path / "own")
    cells = grid(tmp_path / "own", "mean", seeds=3).cells()
    assert [(cell.split_seed, cell.seed) for cell in cells] == [(0, 0), (0, 1), (0, 2)]


def test_names_of_things_make_another_cell_for_models_that_read_them(corpus, tmp_path):
    loaded = load_corpus(corpus)
    texts = ItemTexts.of([ItemText(f"Amp {number % 7}") for number in range(len(loaded.items))])
    named = dataclasses.replace(loaded, item_texts=texts)
    (folder := tmp_path / "named" / "musical-instruments").parent.mkdir()
    named.save(folder)
    save_slim(named, slim := tmp_path / "musical-instruments.npz")

    def identity(path, model):
        return grid(path, model, seeds=1).cells()[0].identity

    assert identity(folder, "bias") == identity(corpus, "bias")
    assert identity(folder, "meeting") == identity(slim, "meeting") != identity(corpus, "meeting")


def test_a_slim_copy_gives_the_same_cell_where_little_is_installed(corpus, tmp_path, measured):
    slim = tmp_path / "musical-instruments.npz"
    save_slim(load_corpus(corpus), slim)
    absent = ["msgspec", "polars", "pandas", "pyarrow", "zstandard", "typer", "rich", "scipy", "matplotlib"]
    words = [str(slim), "--models", "carp,bias", "--seeds", "1", "--out", str(tmp_path / "out"), "--device", "cpu"]
    script = (
        f"import sys; sys.modules.update(dict.fromkeys({absent!r}))\n"
        f"from carp.bench.__main__ import main; sys.exit(main({[*words, *set_options()]!r}))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    known = {line["id"]: line for line in measured[1].lines}
    for line in lines_of(tmp_path / "out"):
        assert line["test_mse"] == pytest.approx(known[line["id"]]["test_mse"], rel=1e-4)
    slim.write_bytes(slim.read_bytes()[:200])
    with pytest.raises(DamagedError):
        load_corpus(slim)


# ---- choosing on validation


def search_cell(corpus, trials=3, space=None):
    space = {"latent_size": [2, 3, 4]} if space is None else space
    given = {key: value for key, value in TINY.items() if key not in space}
    return grid(corpus, "carp", seeds=1, settings=given, trials=trials, space=space).cells()[0]


def test_the_usual_search_is_the_papers_grid_of_latent_sizes():
    searched, of_factors = search_space("carp"), search_space("mf")
    assert searched["latent_size"] == of_factors["latent_size"] == [25, 50, 100, 150, 200, 300]
    assert set(searched) == {"latent_size", "learning_rate"}
    assert set(of_factors) == {"latent_size", "penalty"}
    assert search_space("rblt") == of_factors
    assert search_space("bias") == {}
    assert search_space("carp", {"dropout": [0.3, 0.1], "level": [1]}) == {"dropout": [0.1, 0.3]}


def test_settings_are_chosen_on_validation_and_never_on_test(corpus, tmp_path):
    loaded = load_corpus(corpus)
    parts = (np.arange(len(loaded)) % 5 // 3 + (np.arange(len(loaded)) % 5 == 4)).astype(np.int8)
    spoiled = np.where(parts == 2, 6 - loaded.rating, loaded.rating).astype(np.float32)
    found = []
    for name, ratings in (("as-it-is", loaded.rating), ("spoiled", spoiled)):
        dataclasses.replace(loaded, split=parts, rating=ratings).save(tmp_path / name)
        found.append(run_cell(search_cell(tmp_path / name), tmp_path / "out", "cpu", choose=choose_settings))
    plain, other = (one.line for one in found)
    assert plain["trials"] == other["trials"]
    assert plain["settings"] == other["settings"]
    assert plain["test_mse"] != other["test_mse"]
    assert plain["valid_mse"] == min(trial["valid_mse"] for trial in plain["trials"])
    assert {trial["settings"]["latent_size"] for trial in plain["trials"]} == {2, 3, 4}


def test_a_search_that_was_stopped_goes_on_without_trying_anything_twice(corpus, tmp_path):
    tried = []

    def error_with(settings, *, stop_at):
        if len(tried) == stop_at:
            raise KeyboardInterrupt
        tried.append(settings["latent_size"])
        return 1.0 / settings["latent_size"]

    cell = search_cell(corpus, trials=6, space={"latent_size": [2, 3, 4, 5, 6, 7]})
    with pytest.raises(KeyboardInterrupt):
        choose_settings(cell, tmp_path, lambda settings: error_with(settings, stop_at=3))
    trials = choose_settings(cell, tmp_path, lambda settings: error_with(settings, stop_at=99))
    assert sorted(tried) == [2, 3, 4, 5, 6, 7]
    assert min(trials, key=lambda trial: trial["valid_mse"])["settings"] == {"latent_size": 7}


@pytest.mark.parametrize("left", [b'{"settings": {"latent_size": 4}, "val', '{"settings": {"é'.encode()[:-1]])
def test_a_search_goes_on_behind_a_trial_that_a_full_disk_cut_off(corpus, tmp_path, left):
    cell, tried = search_cell(corpus, trials=3, space={"latent_size": [2, 3, 4]}), []
    choose_settings(cell, tmp_path, lambda settings: 1.0)
    file = search_file(cell, tmp_path)
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:1]) + left)
    for _ in range(2):
        trials = choose_settings(cell, tmp_path, lambda settings: tried.append(settings) or 1.0)
        assert sorted(trial["settings"]["latent_size"] for trial in trials) == [2, 3, 4]
    assert len(tried) == 2


def test_fewer_trials_than_the_grid_has_points_are_all_there_are(corpus, tmp_path):
    tried = []
    cell = search_cell(corpus, trials=5, space={"latent_size": list(range(2, 8)), "dropout": [0.1, 0.2, 0.3]})
    trials = choose_settings(cell, tmp_path, lambda settings: tried.append(settings) or 1.0)
    assert len(trials) == len(tried) == 5
    assert len({json.dumps(settings, sort_keys=True) for settings in tried}) == 5


def test_a_search_walks_until_both_neighbours_of_the_best_are_known(corpus, tmp_path):
    """Errors with one low place, far from where the search begins: it is found, and found to be inside."""
    sizes, rates = [25, 50, 100, 150, 200, 300], [0.0001, 0.0003, 0.001, 0.003, 0.01]
    cell = search_cell(corpus, trials=12, space={"latent_size": sizes, "learning_rate": rates})

    def error_with(settings):
        place = sizes.index(settings["latent_size"]), rates.index(settings["learning_rate"])
        return abs(place[0] - 2) + 3 * abs(place[1] - 1)

    trials = choose_settings(cell, tmp_path, error_with)
    best = min(trials, key=lambda trial: trial["valid_mse"])["settings"]
    assert best == {"latent_size": 100, "learning_rate": 0.0003}
    known = {(trial["settings"]["latent_size"], trial["settings"]["learning_rate"]) for trial in trials}
    assert {(50, 0.0003), (150, 0.0003), (100, 0.0001), (100, 0.001)} <= known
    assert len(known) == len(trials) == 12


def shared_cells(corpus, seeds=2):
    space = {"latent_size": [2, 3, 4, 5]}
    given = {key: value for key, value in TINY.items() if key not in space}
    whole = grid(corpus, "carp", seeds=seeds, settings=given, trials=9, space=space)
    return dataclasses.replace(whole, choose_on=(100, 101)).cells()


def test_one_choice_on_splits_of_its_own_serves_all_splits(corpus, tmp_path):
    cells = shared_cells(corpus)
    lines = run_grid(cells, tmp_path, device="cpu").lines
    assert lines[0]["trials"] == lines[1]["trials"]
    assert lines[0]["settings"] == lines[1]["settings"]
    assert lines[0]["test_mse"] != lines[1]["test_mse"]
    alone = [
        run_cell(
            dataclasses.replace(
                cells[0],
                split_seed=seed,
                search={},
                settings={**cells[0].settings, **lines[0]["trials"][0]["settings"]},
            ),
            tmp_path / "alone",
            "cpu",
        ).line["valid_mse"]
        for seed in (100, 101)
    ]
    assert lines[0]["trials"][0]["valid_mse"] == pytest.approx(np.mean(alone), rel=1e-12)


def test_a_shared_walk_ends_when_the_neighbours_of_the_best_are_known(corpus, tmp_path):
    cell = shared_cells(corpus, seeds=1)[0]
    trials = choose_settings(cell, tmp_path, lambda settings: abs(settings["latent_size"] - 4))
    assert sorted(trial["settings"]["latent_size"] for trial in trials) == [3, 4, 5]
    again = choose_settings(cell, tmp_path, lambda settings: pytest.fail("a trial was made twice"))
    assert again == trials
    few = choose_settings(cell, tmp_path / "large", lambda settings: -settings["latent_size"])
    assert sorted(trial["settings"]["latent_size"] for trial in few) == [4, 5]


SPACE = {"latent_size": [2, 3, 4, 5, 6, 7], "dropout": [0.1, 0.2, 0.3, 0.4]}


def far_cells(corpus):
    """Cells that choose together from many points, beginning far from the best."""
    given = {key: value for key, value in TINY.items() if key not in SPACE}
    whole = grid(corpus, "carp", seeds=2, settings=given, trials=16, space=SPACE)
    return dataclasses.replace(whole, choose_on=(100, 101)).cells()


def far_error(settings):
    return abs(settings["latent_size"] - 6) + 10 * abs(settings["dropout"] - 0.3)


def test_whoever_would_wait_tries_a_point_ahead_and_the_walk_stays_the_same(corpus, tmp_path):
    cells, two_at_once, tried = far_cells(corpus), threading.Event(), []

    def slowly(settings):
        tried.append(json.dumps(settings, sort_keys=True))
        if len(tried) == 2:
            two_at_once.set()
        assert two_at_once.wait(60)  # the first trial does not end before another one has begun
        return far_error(settings)

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda cell: choose_settings(cell, tmp_path / "together", slowly), cells)
    assert first == second == choose_settings(cells[0], tmp_path / "alone", far_error)
    assert len(tried) == len(set(tried)) >= len(first)


def test_a_trial_whose_process_was_killed_is_made_by_the_next(corpus, tmp_path):
    cell = far_cells(corpus)[0]
    alone = choose_settings(cell, tmp_path / "alone", far_error)
    tried = []

    def killed_at_the_third(settings):
        if len(tried) == 2:
            raise KeyboardInterrupt
        tried.append(settings)
        return far_error(settings)

    with pytest.raises(KeyboardInterrupt):
        choose_settings(cell, tmp_path / "killed", killed_at_the_third)
    again = choose_settings(cell, tmp_path / "killed", lambda settings: tried.append(settings) or far_error(settings))
    assert again == alone
    assert len(tried) == len(alone)


def test_a_trial_that_fails_leaves_the_choice_to_the_others(corpus, tmp_path):
    def error_with(settings):
        if settings["latent_size"] != 3:
            raise CarpError("diverged")
        return 1.0

    assert choose_settings(search_cell(corpus), tmp_path, error_with)[0]["settings"] == {"latent_size": 3}
    with pytest.raises(CarpError, match=r"all trials failed.*diverged"):
        choose_settings(search_cell(corpus), tmp_path / "again", lambda _: error_with({"latent_size": 9}))


# ---- a new model


def test_a_new_model_is_one_file_and_one_line(toy, corpus, tmp_path, capsys):
    assert main(["models", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["toy"]["settings"]["model"] == {"level": 3.0}
    out = tmp_path / "results"
    assert bench(corpus, "--models", "toy,toy:level=4,mean", "--seeds", 1, "--out", out) == 0
    assert "toy:level=4" in capsys.readouterr().out
    assert [line["name"] for line in lines_of(out)] == ["toy", "toy", "mean"]


def test_the_contract_suite_takes_the_documented_model_up_and_it_holds(tmp_path):
    """In a process of its own: the suite reads the registry when it is collected."""
    root = Path(__file__).resolve().parents[2]
    page = (root / "docs" / "howto" / "new-model.md").read_text()
    [model] = re.findall(r'^```python title="overlap.py"\n(.*?)^```$', page, re.M | re.S)
    (tmp_path / "overlap.py").write_text(model)
    options = ["-v", "-p", "no:cacheprovider", "-o", "addopts=", "--import-mode=importlib", "-k", "[overlap]"]
    script = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from carp.models import REGISTRY, Entry\n"
        "REGISTRY['overlap'] = Entry('overlap:Overlap', 'word vectors on top of the biases')\n"
        f"import pytest; sys.exit(pytest.main({[*options, str(root / 'tests' / 'contract')]!r}))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    passed = set(re.findall(r"::(\w+)\[overlap\] PASSED", done.stdout))
    assert passed >= {
        "test_it_beats_the_mean_where_ratings_follow_from_people_and_things",
        "test_held_out_texts_leave_no_trace",
        "test_a_saved_model_predicts_the_same_bits",
        "test_every_side_shares_itself_out_among_the_words_and_gives_padding_nothing",
        "test_quotes_are_what_people_wrote_of_other_pairs_and_marks_lie_inside",
    }


def test_a_cell_whose_process_died_says_on_which_machine_and_with_what(corpus, monkeypatch):
    monkeypatch.setattr(cell_processes, "machine", lambda device: f"the machine of {device}")
    [cell] = grid(corpus, "mean", seeds=1).cells()
    line = cell_processes.line_of_the_dead(cell, "cuda:1", WorkerDied("by signal SIGKILL"))
    assert line["error"] == "the process of this cell ended by signal SIGKILL"
    assert line["machine"] == "the machine of cuda:1"
    assert line["torch"] == torch.__version__
    assert line.keys() >= cell.describe().keys() | {"error", "seconds", "peak_memory", "version"}


# ---- bad input


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--models", "carpp"], "did you mean carp"),
        (["--models", "bias,carp:vewpoints=3"], "did you mean viewpoints"),
        (["--models", "carp:viewpoints"], "name:key=value"),
        (["--models", " , "], "no model"),
        (["--set", "vewpoints=3"], "no model of the grid has a setting 'vewpoints'"),
        (["--models", "mean", "--set", "viewpoints=3"], "no model of the grid has a setting 'viewpoints'"),
        (["--set", "viewpoints=many"], "viewpoints cannot be 'many'"),
        (["--search", "3", "--grid", "latent_sise=3,4"], "did you mean latent_size"),
        (["--search", "3", "--grid", "latent_size=3,x"], "latent_size cannot be 'x'"),
        (["--search", "3", "--grid", "latent_size"], "setting=value,value"),
        (["--grid", "latent_size=3"], "--search"),
        (["--search", "2", "--search-on", "3-4"], "chosen on a split that is measured"),
        (["--search-on", "100"], "--search-on is for a search"),
        (["--search", "2", "--search-on", "x"], "'x' names no split seeds"),
        (["--search", "2", "--search-on", "200-100"], "names 0 split seeds"),
        (
            ["--models", "carp:latent_size=2", "--search", "2", "--grid", "latent_size=3,4"],
            "every model that has latent",
        ),
        (
            ["--set", "latent_size=2", "--search", "2", "--grid", "latent_size=3,4"],
            "--grid: every model that has latent",
        ),
        (
            ["--models", "mean,carp:latent_size=2:learning_rate=0.1", "--search", "2"],
            "--search: no model of the grid has anything left",
        ),
        (["--seeds", "0"], "--seeds"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_runs(words, said, corpus, tmp_path, capsys):
    assert bench(corpus, "--out", tmp_path / "out", *words) == 2
    told = capsys.readouterr()
    assert said in told.err
    assert "bug" not in told.err
    assert told.out == ""
    assert not (tmp_path / "out" / BENCH).exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--grid", "latent_size=3"], "--grid is for a search"),
        (["--set", "viewpoints=3,5"], "--set: viewpoints is given 2 values"),
        (["--study", "routing", "--models", "capr"], "--models: there is no model 'capr'"),
        (["--vary", "viewpoints=1,2", "--set", "vewpoints=3"], "--set: carp has no setting 'vewpoints'"),
    ],
)
def test_the_bare_command_refuses_the_same(words, said, corpus, tmp_path, capsys):
    assert bare([str(corpus), "--models", "carp", "--out", str(tmp_path / "out"), *words]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_missing_corpus_and_a_file_are_named(corpus, tmp_path, capsys):
    assert bench(tmp_path / "nowhere", "--out", tmp_path / "out") == 1
    (tmp_path / "reviews.json").write_text("{}")
    assert bench(tmp_path / "reviews.json", "--out", tmp_path / "out") == 2
    assert "carp prepare" in capsys.readouterr().err


def test_a_corpus_too_small_to_split_is_a_failed_row_and_the_rest_goes_on(corpus, tmp_path, capsys):
    loaded = load_corpus(corpus)
    offsets = np.asarray(loaded.token_offsets[:4])
    short = dict.fromkeys(("user", "item", "rating", "time"))
    columns = {name: np.asarray(getattr(loaded, name))[:3] for name in short}
    texts = type(loaded.texts).from_strings([loaded.texts[r] for r in range(3)])
    tokens = {name: np.asarray(getattr(loaded, name))[: offsets[-1]] for name in ("tokens", "token_starts")}
    lengths = np.asarray(loaded.token_lengths)[: offsets[-1]]
    small = dataclasses.replace(loaded, **columns, **tokens, texts=texts, token_offsets=offsets, token_lengths=lengths)
    small.save(tmp_path / "small")
    out = tmp_path / "results"
    assert bench(tmp_path / "small", corpus, "--models", "mean", "--seeds", 1, "--out", out) == 1
    failed, good = lines_of(out)
    assert "part of the split is empty" in failed["error"]
    assert good["test_mse"] > 0
    told = capsys.readouterr()
    assert "Cells that failed" in told.out
    assert "1 of 2 cells failed" in told.err


def test_a_failing_cell_is_a_row_and_runs_again_when_asked(toy, corpus, tmp_path, capsys):
    out = tmp_path / "results"
    words = [corpus, "--models", "toy:level=13,mean", "--seeds", 2, "--out", out]
    assert bench(*words) == 1
    assert ["error" in line for line in lines_of(out)] == [True, False, True, False]
    assert main(["report", str(out)]) == 0
    assert "thirteen <b>brings</b> bad luck" in capsys.readouterr().out
    assert main(["report", str(out), "--format", "html"]) == 0
    assert "thirteen &lt;b&gt;brings" in capsys.readouterr().out
    # As long as before and within the same second, Python would take the bytecode that it kept for the old source.
    (toy / "toy_model.py").write_text(TOY.replace("== 13", "== 1300"))
    sys.modules.pop("toy_model")
    assert bench(*words) == 1  # failed cells stay as they are
    assert bench(*words, "--retry") == 0
    assert len(lines_of(out)) == len({line["id"] for line in lines_of(out)}) == 4


def test_a_retry_runs_its_own_cells_and_leaves_other_failures_on_record(toy, corpus, tmp_path):
    out = tmp_path / "results"
    assert bench(corpus, "--models", "toy:level=13", "--seeds", 2, "--out", out) == 1
    first, second = lines_of(out)
    assert bench(corpus, "--models", "toy:level=13", "--seeds", 1, "--retry", "--out", out) == 1
    assert [line["id"] for line in lines_of(out)] == [second["id"], first["id"]]
    assert lines_of(out)[0] == second


@pytest.mark.parametrize("change", [{"version": "0.0.1"}, {"format": 99}, None])
def test_results_of_another_version_are_not_added_to(change, corpus, tmp_path, capsys):
    out = tmp_path / "results"
    assert bench(corpus, "--models", "mean", "--seeds", 1, "--out", out) == 0
    about = json.loads((out / "results.json").read_text())
    if change is None:
        (out / "results.json").unlink()
    else:
        (out / "results.json").write_text(json.dumps(about | change))
    before = (out / BENCH).read_bytes()
    assert bench(corpus, "--models", "mean,bias", "--seeds", 1, "--out", out) == 2
    assert "choose another --out" in capsys.readouterr().err
    assert (out / BENCH).read_bytes() == before
    assert main(["report", str(out)]) == (0 if change and "version" in change else 2)
    told = capsys.readouterr()
    assert "--out" not in told.err
    assert ("made by carp 0.0.1" in told.out) == (change == {"version": "0.0.1"})


def test_two_grids_never_add_to_the_same_results(corpus, tmp_path, capsys):
    with owned_results(tmp_path / "out", BENCH):
        assert bench(corpus, "--models", "mean", "--out", tmp_path / "out") == 2
    assert "another process" in capsys.readouterr().err


def test_errors_cut_off_are_dropped_and_cells_with_the_same_test_pairs_share_their_records(corpus, tmp_path):
    out = tmp_path / "results"
    run_grid(grid(corpus, "mean", seeds=1).cells(), out, device="cpu")
    with (out / ERRORS).open("ab") as file:
        file.write(b'{"name": "half')
    run_grid(grid(corpus, "mean,bias", seeds=1).cells(), out, device="cpu")
    names = [json.loads(line)["name"] for line in (out / ERRORS).read_text().splitlines()]
    assert [name.partition(".")[2] for name in names] == ["records", "squared", "squared"]
    assert all(len(ErrorColumns(out).of(line)[0]) == line["test_pairs"] for line in lines_of(out))


def test_a_line_cut_off_is_dropped_and_a_damaged_one_named(corpus, tmp_path):
    out = tmp_path / "results"
    cells = grid(corpus, "mean,bias").cells()
    run_grid(cells, out, device="cpu")
    whole = (out / BENCH).read_bytes()
    (out / BENCH).write_bytes(whole[:-30])
    assert len(read_results(out, BENCH).lines) == 3
    assert run_grid(cells, out, device="cpu").ran == 1
    assert len(lines_of(out)) == 4
    (out / BENCH).write_bytes(b"{broken\n" + whole)
    with pytest.raises(DamagedError, match="line is damaged") as caught:
        run_grid(cells, out, device="cpu")
    assert caught.value.where.endswith("line 1")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (None, "the line is damaged (test_mse is missing)"),
        ({"test_mse": "small"}, "the line is damaged (test_mse cannot be 'small')"),
        ({"given": [1]}, "the line is damaged (given cannot be [1])"),
        ({"error": None}, "the line is damaged (error cannot be None)"),
    ],
)
def test_a_line_that_is_no_cell_is_named(change, said, corpus, tmp_path, capsys):
    out = tmp_path / "results"
    run_grid(grid(corpus, "mean,bias", seeds=1).cells(), out, device="cpu")
    first, second = lines_of(out)
    second = second | change if change else {name: value for name, value in second.items() if name != "test_mse"}
    (out / BENCH).write_text(f"{json.dumps(first)}\n{json.dumps(second)}\n")
    assert main(["report", str(out)]) == 1
    told = capsys.readouterr().err
    assert f"{out / BENCH}, line 2: {said}" in told
    assert "bug" not in told


# ---- what a run tells


def test_the_bar_of_a_continued_run_begins_where_it_was(corpus, tmp_path):
    began = []
    for seeds in (1, 3):
        cells = grid(corpus, "mean,bias", seeds=seeds).cells()
        run_grid(cells, tmp_path / "out", device="cpu", began=lambda done, total: began.append((done, total)))
    assert began == [(0, 2), (2, 6)]


def test_the_bar_is_told_what_is_done_before_anything_runs(monkeypatch, corpus, tmp_path):
    moved = []
    bars = contextlib.nullcontext(lambda _: lambda done, total: moved.append((done, total)))
    monkeypatch.setattr("carp.cli.measure_commands.progress_bars", lambda: bars)
    assert bench(corpus, "--models", "mean", "--seeds", 1, "--out", tmp_path / "out") == 0
    assert bench(corpus, "--models", "mean", "--seeds", 2, "--out", tmp_path / "out") == 0
    assert moved == [(0, 1), (1, 1), (1, 2), (2, 2)]


def test_the_ratio_by_rank_is_its_definition(corpus, monkeypatch, tmp_path):
    kept = {}
    real = cells_module._coupling_ratio

    def keep(fitted, pairs, device):
        kept.update(fitted=fitted, pairs=pairs)
        return real(fitted, pairs, device)

    monkeypatch.setattr(cells_module, "_coupling_ratio", keep)
    monkeypatch.setattr("carp.models.predict.BLOCK_PAIRS", 7)
    line = run_cell(grid(corpus, "carp", seeds=1).cells()[0], tmp_path, "cpu").line
    model, data = kept["fitted"].model.eval(), kept["fitted"].data
    ratios = []
    with torch.no_grad():
        for batch in data.batches(kept["pairs"], 1):
            coupling = model(batch).tensors["coupling"].double().numpy().reshape(2, -1)
            order = np.argsort(-coupling[POSITIVE], kind="stable")
            ratios.append(coupling[POSITIVE][order] / coupling[NEGATIVE][order])
    low, median, high = line["coupling_ratio_quartiles"]
    assert median == pytest.approx(np.median(ratios, axis=0), rel=1e-3)
    assert low == pytest.approx(np.quantile(ratios, 0.25, axis=0), rel=1e-3)
    assert high == pytest.approx(np.quantile(ratios, 0.75, axis=0), rel=1e-3)


def test_what_a_cell_was_given_is_seen_as_values():
    assert changed("carp", {"viewpoints": "5", "epochs": "3"}) == {"epochs": 3}
    with pytest.raises(UsageError):
        changed("carp", {"vewpoints": 3})


def test_a_cell_says_what_it_is(corpus):
    cell = grid(corpus, "carp", seeds=1).cells()[0]
    assert isinstance(cell, Cell)
    assert cell.describe()["corpus"] == "musical-instruments"
