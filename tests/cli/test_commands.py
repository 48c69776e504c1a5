"""Every command does what it says: results on standard output, the rest on standard error, the right exit code."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import tomllib
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.cells import cell_len

import carp
from carp.answers import Recommendations
from carp.cli import demo, doctor
from carp.cli import entry as cli
from carp.errors import UsageError
from carp.kernels import dispatch
from carp.render.console_tables import command, json_document, table
from carp.reviews.shop.made_up_shop import make_shop
from carp.reviews.sources.pair_files import read_pairs
from carp.storage import check_folder

TINY = ["dimension=8", "filters=6", "latent_size=4", "viewpoints=2", "epochs=1"]
TINY_OPTIONS = ["--model", "carp", *(part for setting in TINY for part in ("--set", setting))]
SOURCE = Path(carp.__file__).parents[1]


@pytest.fixture
def run(capsys):
    """Runs a command in this process; gives its exit code and both outputs."""

    def call(*arguments: object) -> SimpleNamespace:
        capsys.readouterr()
        code = cli.main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return SimpleNamespace(code=code, out=captured.out, err=captured.err)

    return call


def start(*arguments: object, **options) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": str(SOURCE)} | options.pop("env", {})
    words = [sys.executable, *options.pop("python", []), "-m", "carp", *map(str, arguments)]
    return subprocess.Popen(
        words, text=True, env=environment, **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    )


@pytest.fixture(scope="module")
def reviews(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("shop") / "reviews.jsonl"
    records = make_shop(people=30, things=15, reviews_per_person=8, seed=1).records()
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@pytest.fixture(scope="module")
def corpus(reviews) -> Path:
    out = reviews.parent / "corpus"
    assert cli.main(["prepare", str(reviews), "--out", str(out)]) == 0
    return out


@pytest.fixture(scope="module")
def model(corpus) -> Path:
    out = corpus.parent / "model"
    assert cli.main(["train", str(corpus), "--out", str(out), "--quiet", *TINY_OPTIONS]) == 0
    return out


@pytest.fixture(scope="module")
def bias(corpus) -> Path:
    out = corpus.parent / "bias"
    assert cli.main(["train", str(corpus), "--out", str(out), "--model", "bias", "--quiet"]) == 0
    return out


# ---- the command itself


def test_help_waits_for_the_command_line_alone():
    """Of all that carp needs, only typer and rich come in; of carp itself, the commands, errors and models' names."""
    process = start("--help", python=["-X", "importtime"])
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0
    assert "prepare" in out
    modules = {line.rpartition("|")[2].strip() for line in err.splitlines()}
    needed = {doctor.IMPORT_NAMES.get(one.name, one.name) for one in doctor.requirements()}
    assert {"torch", "numpy", "sklearn"} <= needed
    brought = needed & {name.partition(".")[0] for name in modules} - {"coverage"}  # which `make coverage` starts first
    assert brought == {"typer", "rich"}
    ours = {name for name in modules if name.startswith("carp.")}
    light = {"carp.errors", "carp.shown_addresses", "carp.models", "carp.moved", "carp.__main__"}
    assert {name for name in ours if not name.startswith("carp.cli")} <= light


@pytest.mark.parametrize("name", ["prepare", "train", "evaluate", "predict", "explain", "recommend", "models"])
def test_every_command_has_help(run, name):
    found = run(name, "--help")
    assert (found.code, found.err) == (0, "")
    assert "Usage: carp " + name in found.out


def test_version_is_that_of_the_package(run):
    assert run("--version").out == f"carp {carp.__version__}\n"


def test_without_a_command_help_is_shown_and_use_is_wrong(run):
    found = run()
    assert found.code == 2
    assert "recommend" in found.out + found.err
    assert "Fix: " not in found.err


def test_a_reader_who_leaves_early_causes_no_words():
    reading, writing = os.pipe()
    os.close(reading)
    process = start("models", "--json", stdout=writing)
    os.close(writing)
    assert process.communicate(timeout=600)[1] == ""
    assert process.returncode == 1


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_streams_that_were_closed_before_lead_nowhere(closed, tmp_path):
    """Whatever is opened first would get their numbers, be it a model or a connection."""
    made = tmp_path / "number"
    code = "import os, sys; from carp.cli.entry import begin_process; begin_process(); number = os.dup(0)"
    commands = ["-c", f"{code}; open(sys.argv[1], 'w').write(str(number))", str(made)], ["-m", "carp", "--version"]
    for words in commands:
        shell = ["sh", "-c", f'"$@" {closed}', "sh", sys.executable, *words]
        done = subprocess.run(
            shell, env=os.environ | {"PYTHONPATH": str(SOURCE)}, capture_output=True, timeout=600, check=False
        )
        assert (done.returncode, done.stderr) == (0, b"")
    assert int(made.read_text()) > 2


# ---- prepare


def test_prepare_tells_what_was_read_dropped_and_kept(run, reviews, tmp_path):
    spoiled = tmp_path / "spoiled.jsonl"
    spoiled.write_text(reviews.read_text() + '{"user": "u", "item": "i", "rating": "many", "text": "x"}\nno json\n')
    found = run("prepare", spoiled, "--out", tmp_path / "corpus")
    assert found.code == 0
    for words in ("2 rejected", "rating is not a number", "stay as they are", "words per review", "kB", "dropped"):
        assert words in found.out
    listed = [json.loads(line) for line in (tmp_path / "corpus" / "rejects.jsonl").read_text().splitlines()]
    assert listed[0]["rejected"] == 2
    assert [one["reason"] for one in listed[1:]] == ["rating is not a number", "not valid JSON"]
    assert "rejects.jsonl" in check_folder(tmp_path / "corpus", "corpus")["files"]
    assert "train" in found.err


def test_prepare_says_how_many_rejected_lines_are_listed(run, reviews, tmp_path, monkeypatch):
    monkeypatch.setattr("carp.reviews.sources.ledger.KEPT_REJECTIONS", 3)
    spoiled = tmp_path / "spoiled.jsonl"
    spoiled.write_text(reviews.read_text() + "no json\n" * 5)
    found = run("prepare", spoiled, "--out", tmp_path / "corpus")
    assert f"listed in {tmp_path / 'corpus' / 'rejects.jsonl'} (the first 3 of 5)." in found.out
    totals, *rest = (tmp_path / "corpus" / "rejects.jsonl").read_text().splitlines()
    assert (json.loads(totals)["listed"], len(rest)) == (3, 3)


def test_prepare_says_how_many_dates_cannot_be_read(run, tmp_path):
    days = ["2024-04-25", "25/04/2024", ""]
    rows = [[f"p{u}", f"t{i}", 1 + (u + i) % 5, f"light{u} solid{i}", days[i % 3]] for u in range(6) for i in range(6)]
    path = tmp_path / "dated.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["user", "item", "rating", "text", "date"], *rows])
    found = run("prepare", path, "--out", tmp_path / "corpus", "--column", "time=date")
    assert "24 of 36 reviews have no date that can be read" in found.err


def test_prepare_gives_one_json_document(run, reviews, tmp_path):
    document = json.loads(run("prepare", reviews, "--out", tmp_path / "corpus", "--json").out)
    assert document["statistics"]["users"] == 30
    assert document["read"] == document["accepted"] == document["statistics"]["ratings"]
    assert document["bytes"] > 1000


def test_prepare_passes_columns_range_and_clipping_on(run, tmp_path):
    path = tmp_path / "own.csv"
    rows = [[f"p{u}", f"t{i}", 1 + (u * i) % 11, f"light{u} solid{i}"] for u in range(6) for i in range(6)]
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["who", "what", "points", "words"], *rows])
    columns = ["--column", "user=who", "--column", "item=what", "--column", "rating=points", "--column", "text=words"]
    scale = ["--rating-range", "1", "10", "--clip-ratings", "--min-reviews", "2"]
    found = run("prepare", path, "--out", tmp_path / "corpus", "--json", *columns, *scale)
    facts = json.loads(found.out)
    assert facts["scale_range"] == [1, 10]
    assert "above 10 counted as 10" in facts["scale"]
    assert facts["min_reviews"] == 2


def test_prepare_replaces_a_corpus_only_when_told(run, reviews, tmp_path):
    out = tmp_path / "corpus"
    assert run("prepare", reviews, "--out", out).code == 0
    before = (out / "manifest.json").read_bytes()
    assert run("prepare", reviews, "--out", out, "--min-reviews", "7").code == 2
    assert (out / "manifest.json").read_bytes() == before
    assert run("prepare", reviews, "--out", out, "--min-reviews", "7", "--overwrite").code == 0
    assert (out / "manifest.json").read_bytes() != before


# ---- train


def test_train_ends_with_a_bundle_no_checkpoints_and_commands_that_work(run, corpus, tmp_path):
    out = tmp_path / "model"
    found = run("train", corpus, "--out", out, *TINY_OPTIONS)
    assert found.code == 0
    assert "validation MSE" in found.out
    assert f"carp, {carp.load(out).config.variant} form, in {out}" in found.out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model"]
    check_folder(out, "model")
    following = [line.partition("carp ")[2].split() for line in found.err.splitlines() if "carp " in line]
    assert [words[0] for words in following] == ["evaluate", "explain", "recommend"]
    assert [run(*words).code for words in following] == [0, 0, 0]


def test_train_gives_one_json_document_and_quiet_gives_nothing_else(run, corpus, tmp_path):
    found = run("train", corpus, "--out", tmp_path / "model", "--json", "--quiet", *TINY_OPTIONS)
    document = json.loads(found.out)
    assert (document["model"], document["epochs"], document["best_epoch"]) == ("carp", 1, 1)
    assert document["form"] == carp.load(tmp_path / "model").config.variant
    assert document["valid_mse"] > 0
    assert found.err == ""


def test_train_obeys_model_seeds_and_split(run, corpus, tmp_path):
    loaded = carp.Corpus.load(corpus)
    parts = ["train", "valid", "test"]
    rows = [
        [loaded.users[int(u)], loaded.items[int(i)], parts[place % 3]]
        for place, (u, i) in enumerate(zip(loaded.user, loaded.item, strict=True))
    ]
    own = tmp_path / "split.csv"
    with own.open("w", newline="") as file:
        csv.writer(file).writerows([["user", "item", "split"], *rows])
    out = tmp_path / "model"
    assert run("train", corpus, "--out", out, "--model", "mean", "--seed", 3, "--split", own, "--quiet").code == 0
    recommender = carp.load(out)
    assert (recommender.name, recommender.seed) == ("mean", 3)
    assert len(recommender.fitted_corpus.test_pairs()) == len(loaded) // 3


def test_interrupted_training_leaves_a_checkpoint_and_resume_finishes_it(run, corpus, tmp_path):
    out = tmp_path / "model"
    words = ["train", corpus, "--out", out, *TINY_OPTIONS, "--set", "patience=100000"]
    process = start(*words, "--set", "epochs=100000")
    assert any("validation MSE" in line for line in process.stderr)  # an epoch is over and its checkpoint written
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=600)
    assert process.returncode == 1
    message = err.splitlines()[-1]
    assert message.startswith("carp: ")
    assert str(tmp_path / "model.training") in message
    assert "--resume" in message
    assert "Traceback" not in err
    assert not out.exists()
    log = (tmp_path / "model.training" / "log.jsonl").read_text()

    refused = run(*words)
    assert refused.code == 2
    assert "--resume" in refused.err
    assert "--overwrite" in refused.err

    done = json.loads((tmp_path / "model.training" / "checkpoint.json").read_text())["progress"]["epoch"]
    resumed = run(*words, "--set", f"epochs={done + 1}", "--resume")
    assert resumed.code == 0
    assert (out / "log.jsonl").read_text().startswith(log)
    assert carp.load(out).facts["epochs"] == done + 1
    assert not (tmp_path / "model.training").exists()


def test_training_in_a_pipe_writes_one_line_for_each_epoch_and_nothing_else(run, corpus, tmp_path):
    found = run("train", corpus, "--out", tmp_path / "model", *TINY_OPTIONS, "--set", "epochs=2")
    lines = found.err.partition("Next:")[0].splitlines()
    assert [line.split()[:3] for line in lines] == [["epoch", "1", "loss"], ["epoch", "2", "loss"]]
    assert all("validation MSE" in line for line in lines)
    assert "\x1b" not in found.err


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_the_bar_is_closed_when_training_ends_early(corpus, monkeypatch, error):
    from carp.render.progress_bar import Bar

    def fail(*_: object, watcher: Bar, **__: object) -> None:
        watcher.epoch_begins(1, 10)
        raise error

    closed = []
    monkeypatch.setattr(Bar, "close", lambda bar: closed.append(bar))
    monkeypatch.setattr("carp.recommender.train", fail)
    with pytest.raises(error):
        carp.Recommender("carp", epochs=1).fit(carp.Corpus.load(corpus))
    assert len(closed) == 1


@pytest.mark.parametrize(
    ("name", "gpus", "chosen"),
    [
        ("auto", 0, "cpu"),
        ("auto", 1, "cuda"),
        ("cpu", 2, "cpu"),
        ("cuda", 2, "cuda"),
        ("cuda:0", 1, "cuda:0"),
        ("cuda:1", 2, "cuda:1"),
    ],
)
def test_a_device_that_is_there_is_taken(monkeypatch, name, gpus, chosen):
    import torch

    from carp.training.loop import choose_device

    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    assert str(choose_device(name)) == chosen


def test_overwrite_starts_anew_where_a_training_stopped_but_spares_what_training_did_not_make(run, corpus, tmp_path):
    stopped = tmp_path / "model.training"
    stopped.mkdir()
    (stopped / "checkpoint.json").write_text("{}")
    (stopped / "notes.txt").write_text("mine")
    words = ["train", corpus, "--out", tmp_path / "model", "--model", "bias", "--overwrite"]
    assert run(*words).code == 2
    assert (stopped / "notes.txt").read_text() == "mine"
    (stopped / "notes.txt").unlink()
    assert run(*words).code == 0
    assert not stopped.exists()


def test_resume_without_a_checkpoint_says_so_and_starts(run, corpus, tmp_path):
    found = run("train", corpus, "--out", tmp_path / "model", "--model", "bias", "--resume")
    assert found.code == 0
    assert "no checkpoint" in found.err


# ---- evaluate, predict, explain, recommend


def test_evaluate_sets_the_model_beside_biases_and_mean(run, model):
    found = run("evaluate", model)
    lines = found.out.splitlines()
    assert lines[0].split() == ["model", "MSE", "RMSE", "MAE"]
    assert [line.split()[0] for line in lines[1:4]] == ["carp", "bias", "mean"]
    assert "paired bootstrap" in found.out
    assert "80:20, seed 0" in found.out
    document = json.loads(run("evaluate", model, "--json").out)
    assert document == json.loads(json.dumps(carp.load(model).evaluate()))
    assert f"{document['rows']['carp']['mse']:.4f}" in lines[1]


def test_evaluate_of_a_reference_does_not_compare_it_with_itself(run, bias):
    found = run("evaluate", bias)
    assert found.code == 0
    assert "bootstrap" not in found.out


def test_predict_keeps_order_and_other_columns_and_notes_the_unknown(run, model, tmp_path):
    pairs = tmp_path / "pairs.csv"
    pairs.write_text('item,user,rating,remark\nthing-001,person-002,4,"a, b"\n\nthing-001,nobody,,\n')
    out = tmp_path / "predictions.csv"
    found = run("predict", model, pairs, "--out", out)
    assert found.code == 0
    assert "1 have an unknown user" in found.out
    rows = list(csv.DictReader(out.open()))
    assert list(rows[0]) == ["user", "item", "rating", "low", "high", "note", "given_rating", "remark"]
    assert [row["user"] for row in rows] == ["person-002", "nobody"]
    assert (rows[0]["given_rating"], rows[0]["remark"], rows[0]["note"]) == ("4", "a, b", "")
    assert "unknown user" in rows[1]["note"]
    expected = carp.load(model).predict([("person-002", "thing-001")])[0]
    assert float(rows[0]["rating"]) == pytest.approx(expected, abs=1e-6)
    assert run("predict", model, pairs, "--out", out).code == 2
    assert run("predict", model, pairs, "--out", pairs, "--overwrite").code == 2
    assert run("predict", model, pairs, "--out", out, "--overwrite").code == 0


def test_predict_of_one_pair_and_as_json(run, model):
    one = run("predict", model, "--user", "person-002", "--item", "thing-001")
    assert one.out.splitlines()[0] == "user,item,rating,low,high,note"
    document = json.loads(run("predict", model, "--user", "person-002", "--item", "Ünknown", "--json").out)
    assert document["noted"] == 1
    assert document["predictions"][0]["item"] == "Ünknown"
    found, margin = document["predictions"][0], carp.load(model).facts["margin"]
    if margin is None:  # too few validation ratings
        assert found["low"] is found["high"] is None
    else:
        assert found["low"] == pytest.approx(max(1, found["rating"] - margin))
        assert found["high"] == pytest.approx(min(5, found["rating"] + margin))
    assert run("predict", model).code == 2
    assert run("predict", model, "--user", "person-002").code == 2


def test_explain_speaks_text_page_and_json(run, model, tmp_path):
    text = run("explain", model, "person-002", "thing-001")
    assert text.code == 0
    assert "Why this rating" in text.out
    assert "\x1b" not in text.out
    document = json.loads(run("explain", model, "person-002", "thing-001", "--format", "json").out)
    assert (document["user"], document["item"]) == ("person-002", "thing-001")
    page = run("explain", model, "person-002", "thing-001", "--format", "html")
    assert page.out.startswith("<!DOCTYPE html>")
    assert run("explain", model, "person-002", "thing-001", "--out", tmp_path / "page.html").out == ""
    assert (tmp_path / "page.html").read_text() == page.out
    assert run("explain", model, "person-002", "thing-001", "--out", tmp_path / "page.html").code == 2


def test_explain_shows_as_many_reasons_as_asked(run, model):
    words = ["explain", model, "person-002", "thing-001", "--format", "json"]
    few = json.loads(run(*words, "--units", 1, "--other-units", 0, "--sentences", 1).out)
    assert len(few["units"]) == 1
    assert len(few["units"][0]["viewpoint"]["sentences"]) <= 1
    assert len(json.loads(run(*words, "--units", 3, "--other-units", 2).out)["units"]) == 5


def test_what_is_slower_than_it_could_be_is_told_in_one_line(run, model, monkeypatch):
    def recommend(*given, **wish):
        dispatch.give_way("ranking", RuntimeError("ptxas was not\nfound\x1b[31m"))
        dispatch.give_way("ranking", RuntimeError("ptxas was not\nfound\x1b[31m"))
        warnings.warn("of another kind", UserWarning, stacklevel=1)
        return Recommendations()

    monkeypatch.setattr(dispatch, "_TOLD", set())
    monkeypatch.setattr(carp.Recommender, "recommend", recommend)
    before = warnings.showwarning
    with pytest.warns(UserWarning, match="of another kind"):
        found = run("recommend", model, "person-002")
    assert found.code == 0
    assert found.err == "carp: ranking takes the plain path: ptxas was not found␛[31m\n"
    assert warnings.showwarning is before


def test_a_newcomer_is_explained_and_advised_from_a_file_or_standard_input(run, model, tmp_path, monkeypatch):
    words = tmp_path / "mine.txt"
    words.write_text("The sound is terrible.\n\nIt is light and sturdy.\n", encoding="utf-8")
    explained = json.loads(run("explain", model, "-", "thing-001", "--reviews", words, "--format", "json").out)
    assert explained["user"] is None
    advised = json.loads(run("recommend", model, "-", "--reviews", words, "-n", 3, "--json").out)
    assert advised["user"] is None
    assert len(advised["recommendations"]) == 3
    with words.open() as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        assert json.loads(run("recommend", model, "-", "--reviews", "-", "-n", 3, "--json").out) == advised


def test_recommend_lists_best_first_and_nothing_already_rated(run, model):
    document = json.loads(run("recommend", model, "person-002", "-n", 5, "--by", "rating", "--json").out)
    ratings = [one["rating"] for one in document["recommendations"]]
    assert ratings == sorted(ratings, reverse=True)
    fitted = carp.load(model).fitted_corpus
    number = fitted.users.index()["person-002"]
    rated = {fitted.items[int(i)] for i in fitted.item[fitted.user == number]}
    assert not rated & {one["item"] for one in document["recommendations"]}
    shown = run("recommend", model, "person-002", "-n", 1, "--by", "rating").out.splitlines()
    assert shown[0].split() == ["item", "predicted", "average"]
    assert shown[1].split()[0] == document["recommendations"][0]["item"]


def test_recommend_says_why_each_thing_suits_if_asked(run, model, bias, tmp_path):
    document = json.loads(run("recommend", model, "person-002", "-n", 3, "--why", "--json").out)
    reasons = [one["reason"] for one in document["recommendations"]]
    assert all(reasons)
    shown = run("recommend", model, "person-002", "-n", 3, "--why").out
    assert all(f"{one['item']}\n{one['reason']}\n" in shown for one in document["recommendations"])
    assert "reason" not in json.loads(run("recommend", model, "person-002", "--json").out)["recommendations"][0]
    assert "gives ratings without reasons" in run("recommend", bias, "person-002", "--why").err
    assert "--why is for one person" in run("recommend", model, "--all", "--why").err
    texts = tmp_path / "mine.txt"
    texts.write_text("A warm sound, and it is light to carry.")
    told = json.loads(run("recommend", model, "-", "--reviews", texts, "-n", 2, "--why", "--json").out)
    assert all(one["reason"] for one in told["recommendations"])


def test_answers_show_themselves_in_python(model):
    recommender = carp.load(model)
    assert re.fullmatch(r"Predictions\(\[\d\.\d+\]\)", repr(recommender.predict([("person-002", "thing-001")])))
    assert repr(recommender.recommend("person-002", 1)[0]).startswith("Recommendation(item='thing-")
    explanation = recommender.explain("person-002", "thing-001")
    assert str(explanation).startswith("Why this rating")
    assert explanation._repr_html_().startswith('<div class="carp-explanation">')


# ---- models, doctor, demo


def test_models_lists_the_registry_with_settings(run):
    from carp.models import REGISTRY

    document = json.loads(run("models", "--json").out)
    assert list(document) == list(REGISTRY)
    assert document["carp"]["explains"] is True
    assert document["bias"]["explains"] is False
    assert document["carp-ra"]["settings"]["model"]["routing"] == "agreement"
    assert document["carp"]["settings"]["training"]["batch_size"] == 100
    assert [line.split()[0] for line in run("models").out.splitlines()[1:]] == list(REGISTRY)
    assert "viewpoints" in run("models", "--settings", "carp").out


def test_doctor_finds_this_machine_healthy(run, monkeypatch, tmp_path):
    monkeypatch.setenv("CARP_DATA", str(tmp_path))
    found = run("doctor")
    assert found.code == 0
    assert found.out.rstrip().endswith("OK: carp can run here.")
    document = json.loads(run("doctor", "--json").out)
    assert document["ok"] is True
    values = {finding["name"]: finding["value"] for finding in document["findings"]}
    assert values["real data"] == str(tmp_path)
    project = tomllib.loads((SOURCE.parent / "pyproject.toml").read_text())["project"]
    assert {doctor.read_requirement(line).name for line in project["dependencies"]} <= values.keys()


def test_doctor_reads_the_requirements_from_the_source_when_carp_is_not_installed(monkeypatch):
    def not_installed(name: str) -> None:
        raise doctor.importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(doctor.importlib.metadata, "requires", not_installed)
    needed = {one.name: one.extra for one in doctor.requirements()}
    assert needed["torch"] is None
    assert needed["fastapi"] == "serve"


def test_doctor_names_what_is_broken_and_what_is_only_missing(run, monkeypatch):
    needs = [
        doctor.Requirement("no_such_library", "1.0", None),
        doctor.Requirement("numpy", "999", None),
        doctor.Requirement("no_such_extra", "1.0", "serve"),
    ]
    monkeypatch.setattr(doctor, "requirements", lambda: needs)
    found = run("doctor")
    assert found.code == 1
    assert "pip install 'no_such_library>=1.0'" in found.out
    assert "pip install 'numpy>=999'" in found.out
    assert "pip install 'carp-rec[serve]'" in found.out
    assert "Things to fix: 2." in found.out
    states = {one["name"]: one["state"] for one in json.loads(run("doctor", "--json").out)["findings"]}
    assert states["numpy"] == "broken"
    assert states["no_such_extra (extra serve)"] == "warning"


@pytest.mark.parametrize(
    ("variable", "value", "said", "state"),
    [("CARP_NATIVE", "0", "switched off", "ok"), ("PATH", "", "no working C compiler", "warning")],
)
def test_doctor_says_whether_kernels_are_compiled(variable, value, said, state, tmp_path):
    environment = {"XDG_CACHE_HOME": str(tmp_path), variable: value}
    out, _ = start("doctor", "--json", env=environment).communicate(timeout=600)
    findings = {one["name"]: one for one in json.loads(out)["findings"]}
    assert said in findings["compiled kernels"]["value"]
    assert findings["compiled kernels"]["state"] == state


def test_demo_goes_the_whole_way_and_its_next_commands_work(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = run("demo", "--quick", "--out", "shown")
    assert found.code == 0
    assert sorted(path.name for path in Path("shown").iterdir()) == sorted(demo.MADE)
    assert "Why this rating" in found.out
    assert Path("shown/explanation.html").read_text().startswith("<!DOCTYPE html>")
    steps = found.out.partition("What to try next:")[2].splitlines()
    following = [line.partition("carp ")[2].split() for line in steps if "carp " in line]
    assert len(following) == 5
    for words in following:
        assert run(*words).code == 0, words


def test_a_second_demo_replaces_its_own_files_and_nothing_else(run, tmp_path):
    out = tmp_path / "shown"
    assert run("demo", "--quick", "--out", out).code == 0
    first = (out / "reviews.jsonl").read_bytes()
    (out / "mine.txt").write_text("mine")
    assert run("demo", "--quick", "--out", out, "--seed", 5).code == 0
    assert (out / "mine.txt").read_text() == "mine"
    assert (out / "reviews.jsonl").read_bytes() != first
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "mine.txt").write_text("mine")
    assert run("demo", "--quick", "--out", foreign).code == 2
    assert [path.name for path in foreign.iterdir()] == ["mine.txt"]


# ---- what commands print


def test_tables_align_wide_letters_and_neutralise_controls():
    lines = table(["item", "stars"], [["日本", "4"], ["\x1b[31mred", "10"]]).splitlines()
    assert {cell_len(line) for line in lines} == {8 + 3 + 5}
    assert lines[1].endswith("    4")
    assert "\x1b" not in lines[2]


def test_a_command_to_paste_survives_spaces_and_dashes(monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: "/usr/bin/carp")
    assert command("explain", Path("my model"), "u1", "i") == "carp explain 'my model' u1 i"
    assert command("recommend", "m", "-u", options=["-n", "5"]) == "carp recommend -n 5 -- m -u"


def test_json_documents_hold_no_nan():
    with pytest.raises(ValueError):
        json_document({"rating": float("nan")})


def test_pairs_with_a_byte_order_mark_and_other_columns_are_read(tmp_path):
    path = tmp_path / "pairs.csv"
    path.write_bytes("\ufeffuser , item,note\r\nann,Röhre,x\r\n".encode())
    found = read_pairs(path)
    assert found.pairs == [("ann", "Röhre")]
    assert (found.extra_names, found.extras) == (["note"], [["x"]])


# ---- what people meet first


def test_every_setting_of_every_model_has_a_line_that_says_what_it_does(run):
    described = json.loads(run("models", "--json").out)
    for name, about in described.items():
        for group in about["settings"].values():
            for setting in group:
                assert len(about["meaning"][setting].split()) > 1, f"{name}: {setting}"
    shown = run("models", "--settings", "meeting").out
    assert "how large the steps of training are" in shown


@pytest.mark.parametrize("words", [("explain", "{user}", "{item}"), ("profile", "--user", "{user}")])
def test_json_is_one_document_and_an_unknown_ending_is_refused(run, model, words, tmp_path):
    corpus = carp.load(model).fitted_corpus
    command, *rest = (word.format(user=corpus.users[0], item=corpus.items[0]) for word in words)
    document = json.loads(run(command, model, *rest, "--json").out)
    assert document["user"] == corpus.users[0]
    refused = run(command, model, *rest, "--out", tmp_path / "a.pdf")
    assert refused.code == 2
    assert "nothing here writes .pdf files" in refused.err
    assert not (tmp_path / "a.pdf").exists()
    assert run(command, model, *rest, "--out", tmp_path / "a.txt").code == 0


def test_a_summary_tells_one_person_what_matters_of_a_thing(run, model):
    recommender = carp.load(model)
    user, item = recommender.fitted_corpus.users[0], recommender.fitted_corpus.items[0]
    expected = recommender.summary(user, item, 3)
    assert expected.sentences
    assert run("summary", model, user, item, "-n", "3").out.rstrip() == str(expected).rstrip()
    document = json.loads(run("summary", model, user, item, "-n", "3", "--json").out)
    assert document == json.loads(json.dumps(expected.as_dict()))
    refused = run("summary", model, "nobody at all", item)
    assert refused.code == 1
    assert "nobody at all" in refused.err
    assert str(model) in refused.err


def test_an_error_names_options_to_a_command_and_arguments_to_a_python_call(run, model):
    told = run("train", model.parent / "corpus", "--out", model.parent / "other", "--device", "tpu").err
    assert "--device: there is no device 'tpu'" in told
    with pytest.raises(UsageError, match=r"^device: there is no device 'tpu'"):
        carp.Recommender("mf", device="tpu")
    assert str(UsageError("a", fix="use --device cpu; carp doctor says more")) == (
        'a. Fix: use device="cpu"; carp doctor says more.'
    )
    assert str(UsageError("'--out' is no name", where="/tmp/--set", fix="give --min-reviews 1")) == (
        "/tmp/--set: '--out' is no name. Fix: give min_reviews 1."
    )


def test_a_shell_completes_commands_and_options(monkeypatch, capsys):
    from carp.cli.entry import main

    monkeypatch.setenv("_CARP_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "carp explain --o")
    monkeypatch.setenv("COMP_CWORD", "2")
    assert main([]) == 0
    assert capsys.readouterr().out.split() == ["--out", "--other-units", "--overwrite"]


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")]
)
def test_too_little_memory_is_no_bug_of_carp(error, run, monkeypatch, tmp_path):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(carp, "load", fail)
    found = run("evaluate", tmp_path)
    assert found.code == 1
    assert "this machine has too little memory" in found.err
    assert "bug" not in found.err


def test_a_training_that_diverged_is_not_in_the_way_of_the_next(run, corpus, tmp_path):
    small = ("dimension=4", "filters=2", "latent_size=2", "viewpoints=2", "epochs=1")
    given = [word for one in small for word in ("--set", one)]
    words = ["train", corpus, "--model", "carp", "--out", tmp_path / "model", "--quiet", *given]
    broken = run(*words, "--set", "learning_rate=1e30")
    assert broken.code == 1
    assert "diverged" in broken.err
    assert "--set learning_rate=" in broken.err
    assert [one.name for one in tmp_path.iterdir() if not one.name.startswith(".")] == []
    assert run(*words).code == 0


def test_a_python_call_is_told_what_python_can_do(model):
    loaded = carp.load(model)
    with pytest.raises(carp.CarpError) as refused:
        loaded.save(model)
    assert "overwrite=True" in str(refused.value)
    assert "--" not in str(refused.value)


def test_errors_are_told_on_the_scale_of_the_data():
    from carp.render.console_tables import evaluation_text

    row = {"mse": 0.04, "rmse": 0.2, "mae": 0.1}
    found = {"model": "bias", "rows": {"bias": row, "mean": row}, "rating_range": [0, 100], "levels": 5}
    shown = evaluation_text({**found, "test_pairs": 7, "split": "80:20, seed 0"})
    assert shown.splitlines()[1].split() == ["bias", "25.0000", "5.0000", "2.5000"]
    assert "ratings from 0 to 100" in shown


@pytest.mark.parametrize(
    ("given", "spins"), [({}, "1000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "active"}, None)]
)
def test_threads_wait_shortly_unless_the_user_says_how(given, spins):
    kept = {name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    words = "import os, carp; print(os.environ.get('GOMP_SPINCOUNT'))"
    command = [sys.executable, "-c", words]
    found = subprocess.run(command, env={**kept, **given}, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == str(spins)


@pytest.mark.parametrize(("command", "code"), [("models", 0), ("explain", 2), ("predict nothing pairs.csv", 1)])
def test_a_command_leaves_with_its_code_after_what_others_left_for_the_end(command, code, tmp_path):
    """Whatever is registered meanwhile is done, and threads are waited for; only objects are not given back."""
    words = """
        import atexit, sys, threading
        from carp.cli import entry
        plain = entry._run
        def run(arguments):
            atexit.register(print, "said at the end", end="")
            threading.Thread(target=lambda: print("a thread has ended")).start()
            return plain(arguments)
        entry._run = run
        sys.exit(entry.main())
    """
    asked = [sys.executable, "-c", textwrap.dedent(words), *command.split()]
    found = subprocess.run(asked, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert found.returncode == code
    assert "a thread has ended" in found.stdout
    assert found.stdout.endswith("said at the end")


def test_the_most_accurate_model_is_what_train_fits(run, corpus, tmp_path):
    assert json.loads(run("train", corpus, "--out", tmp_path / "model", "--json", "--quiet").out)["model"] == "meeting"
    found = run("train", corpus, "--out", tmp_path / "paper", "--set", "variant=paper")
    assert found.code == 2
    assert "variant is a setting of the model carp: choose that one" in found.err
