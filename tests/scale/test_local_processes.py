"""`carp train --processes`: one training in several processes, which end together and leave a checkpoint for others."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import carp
from carp.cli import entry
from carp.reviews.shop.made_up_shop import make_shop
from carp.scale import launched_process
from carp.scale.local_processes import ProcessLost, run_together
from carp.training.checkpoint import CHECKPOINT
from carp.training.loop import Stopped

SOURCE = Path(carp.__file__).parents[1]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
SMALL = ["dimension=8", "filters=6", "latent_size=4", "viewpoints=2", "patience=100000"]


long = pytest.mark.skipif(
    os.environ.get("CARP_CLUSTER") != "1", reason="several interpreters take long; make cluster runs this"
)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus") / "corpus"
    shop = make_shop(people=12, things=8, reviews_per_person=6, seed=1)
    carp.build_corpus(carp.read_reviews(shop.frame()), min_reviews=1).save(folder)
    return folder


def words_of(corpus, out, epochs):
    settings = [*SMALL, f"epochs={epochs}"]
    options = [part for setting in settings for part in ("--set", setting)]
    return ["train", str(corpus), "--out", str(out), "--model", "carp", "--device", "cpu", *options]


def in_two_processes(words):
    return [sys.executable, "-m", "carp", *words, "--processes", "2"]


@long
@pytest.mark.parametrize("word_table", ["whole", "divided"])
def test_a_killed_process_ends_the_training_with_one_line_and_a_checkpoint_that_one_process_goes_on_from(
    corpus, tmp_path, capsys, word_table
):
    out, kept = tmp_path / "model", tmp_path / "model.training"
    command = [*in_two_processes(words_of(corpus, out, 100_000)), "--word-table", word_table]
    training = subprocess.Popen(command, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)
    seen = [next(training.stderr) for _ in range(2)]  # each line is an epoch, whose checkpoint is written
    found = subprocess.run(["pgrep", "-P", str(training.pid)], capture_output=True, text=True, check=True)
    os.kill(max(map(int, found.stdout.split())), signal.SIGKILL)
    said = [line for line in training.communicate(timeout=600)[1].splitlines() if not line.startswith("epoch")]
    assert [line.split()[0] for line in seen] == ["epoch", "epoch"]
    assert training.returncode == 1
    assert len(said) == 1
    assert "was lost (ended by SIGKILL), and the others were ended. Fix: run the same command with --resume" in said[0]
    reached = json.loads((kept / CHECKPOINT).read_text())["progress"]["epoch"]
    assert entry.main([*words_of(corpus, out, reached + 1), "--resume", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["epochs"] == reached + 1


@long
def test_a_model_whose_word_table_was_divided_is_saved_whole_and_answers_like_one_of_one_process(corpus, tmp_path):
    plain = ["--set", "weight_decay=0.001", "--quiet"]  # kernels know no decay: both take the ordinary path
    divided, alone = tmp_path / "divided", tmp_path / "alone"
    command = [*in_two_processes(words_of(corpus, divided, 2)), "--word-table", "divided", *plain]
    subprocess.run(command, env=ENVIRONMENT, check=True)
    assert entry.main([*words_of(corpus, alone, 2), *plain]) == 0
    models = [carp.load(folder, device="cpu") for folder in (divided, alone)]
    whole, expected = (one.model.state_dict()["embedding.weight"] for one in models)
    known = models[0].fitted_corpus
    assert len(whole) == known.sizes.words + 1
    assert torch.allclose(whole, expected, rtol=0, atol=1e-4)
    pairs = [(person, thing) for person in list(known.users)[:3] for thing in list(known.items)[:3]]
    assert np.allclose(models[0].predict(pairs), models[1].predict(pairs), atol=1e-3)


def test_one_process_has_nobody_to_divide_a_word_table_with(corpus, tmp_path, capsys):
    assert entry.main([*words_of(corpus, tmp_path / "model", 1), "--word-table", "divided"]) == 2
    said = capsys.readouterr().err
    assert "a word table is divided among several processes, and there is one" in said
    assert "train with --processes 2 or more" in said


def test_a_model_in_closed_form_is_fitted_by_one_process_and_says_so(corpus, tmp_path, capsys):
    words = ["train", str(corpus), "--out", str(tmp_path / "model"), "--model", "bias", "--processes", "3"]
    assert entry.main([*words, "--device", "cpu"]) == 0
    assert "one process fits it, and the others have nothing to do" in capsys.readouterr().err


def test_a_process_that_is_killed_is_named_in_one_line(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import os, signal\nif os.environ.get('RANK') == '1':\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{SOURCE}"}
    with pytest.raises(ProcessLost, match=r"process 2 of 2 was lost \(ended by SIGKILL\)") as caught:
        run_together(["--version"], 2, "model.training", environment)
    assert caught.value.where == "model.training"
    assert "--resume" in caught.value.fix


def test_all_processes_well_is_well():
    assert run_together(["--version"], 2, "here") == 0


def test_a_process_that_refuses_has_said_why():
    assert run_together(["train"], 2, "here") == 2


def test_a_process_that_trains_with_others_ends_with_its_launcher(monkeypatch, tmp_path):
    watched = []
    monkeypatch.setattr(launched_process, "end_with_launcher", lambda: watched.append(True))
    entry.main(["train", "nothing", "--out", str(tmp_path / "model"), "--set", "strange=1"])
    assert watched


# What each process does instead of a command: say that it is there, and wait until it is asked to end.
WAITING = """
import os, time
if "RANK" in os.environ:
    from carp.scale import launched_process
    there = open(os.environ["THERE"], "w", buffering=1)
    try:
        launched_process.end_with_launcher()
        print(os.getpid(), file=there)
        while True:
            time.sleep(0.01)
    except KeyboardInterrupt:
        print("interrupted", file=there)
        os._exit(int(os.environ["ENDS_WITH"]))
"""


@pytest.fixture
def waiting_processes(tmp_path):
    """The environment of processes that wait, and the end of a pipe that is open as long as one of them is there."""
    (tmp_path / "sitecustomize.py").write_text(WAITING)
    pipe = tmp_path / "there"
    os.mkfifo(pipe)
    there = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    path = f"{tmp_path}{os.pathsep}{SOURCE}"
    yield {**os.environ, "PYTHONPATH": path, "THERE": str(pipe), "ENDS_WITH": "1"}, there
    os.close(there)


def next_words(there):
    """The next words; none where all processes have ended."""
    assert select.select([there], [], [], 60)[0], "the processes are there and say nothing"
    return os.read(there, 1000).decode().split()


def last_words(there):
    """What is said until all processes have ended."""
    heard = []
    while new := next_words(there):
        heard += new
    return heard


def asking_when_all_are_there(there, asked, monkeypatch):
    """The launcher is asked to end as soon as both processes wait."""
    seen, asleep = [], time.sleep

    def sleep(seconds):
        if len(seen) == 2:
            asleep(seconds)
            return
        seen.extend(next_words(there))
        if len(seen) == 2:
            os.kill(os.getpid(), asked)

    monkeypatch.setattr(time, "sleep", sleep)


@pytest.fixture
def unmoved():
    """A signal that nobody handles fails a test instead of ending all of them."""
    before = signal.signal(signal.SIGTERM, lambda *_: pytest.fail("nobody handled the signal"))
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize(("asked", "code"), [(signal.SIGINT, 1), (signal.SIGTERM, 143)])
def test_a_launcher_that_is_asked_to_end_ends_all_processes_as_by_ctrl_c(
    waiting_processes, unmoved, monkeypatch, asked, code
):
    environment, there = waiting_processes
    asking_when_all_are_there(there, asked, monkeypatch)
    assert run_together(["--version"], 2, "model.training", environment) == code
    assert last_words(there) == ["interrupted", "interrupted"]


def test_what_is_kept_is_said_where_the_first_process_could_not(waiting_processes, unmoved, monkeypatch, tmp_path):
    environment, there = waiting_processes
    (tmp_path / CHECKPOINT).touch()
    asking_when_all_are_there(there, signal.SIGTERM, monkeypatch)
    with pytest.raises(Stopped, match="training was interrupted; a checkpoint is kept") as caught:
        run_together(["--version"], 2, str(tmp_path), {**environment, "ENDS_WITH": "75"})
    assert caught.value.exit_code == 143
    assert "--resume" in caught.value.fix


def test_processes_end_where_their_launcher_is_killed(waiting_processes):
    environment, there = waiting_processes
    command = "from carp.scale.local_processes import run_together; run_together(['--version'], 2, 'here')"
    launcher = subprocess.Popen([sys.executable, "-c", command], env=environment)
    known = []
    try:
        while len(known) < 2:
            known += next_words(there)
        launcher.kill()
        launcher.wait()
        assert last_words(there) == ["interrupted", "interrupted"]
    finally:
        for number in known:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(number), signal.SIGKILL)
