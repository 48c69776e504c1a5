"""Training that is killed at any moment, even in the middle of a save, resumes to the same bits.

Run as a script, this file is the parent of the processes that are killed: it imports torch once and forks.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import pathlib
import random
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import carp.training.checkpoint as checkpoints
from carp.errors import CarpError, DamagedError, StorageError, UsageError
from carp.models.base import make_config
from carp.models.batch import Pairs, Sizes, TrainingData
from carp.models.carp import Carp
from carp.reviews.documents import make_documents
from carp.training.checkpoint import CHECKPOINT, LOG
from carp.training.loop import Silent, Stopped, TrainingSettings, train

pytestmark = pytest.mark.usefixtures("single_thread")

KILLS = int(os.environ.get("CARP_KILLS", "20"))
SETTINGS = TrainingSettings(epochs=6, patience=6, batch_size=12, learning_rate=0.05)
CPU = torch.device("cpu")
IN_SAVE, BETWEEN = b"s", b"b"


def small_data():
    rng = np.random.default_rng(0)
    users, items, words = 8, 6, 15
    user, item = (column.ravel() for column in np.meshgrid(np.arange(users), np.arange(items), indexing="ij"))
    ratings = np.clip(3 + rng.normal(0, 1, users)[user] + rng.normal(0, 1, items)[item], 1, 5).astype(np.float32)
    records = np.arange(len(user))
    held_out = records % 4 == 0
    review = np.repeat(records[~held_out], 3).astype(np.int32)
    text = rng.integers(1, words + 1, len(review)).astype(np.int32)
    place = np.tile(np.arange(3), len(review) // 3).astype(np.int32)

    def pairs(chosen):
        return Pairs(user[chosen], item[chosen], ratings[chosen], records[chosen])

    return TrainingData(
        pairs(~held_out),
        pairs(held_out),
        make_documents(text, review, place, user.astype(np.int32), users),
        make_documents(text, review, place, item.astype(np.int32), items),
        Sizes(users, items, words),
    )


def small_model(data):
    torch.manual_seed(1)
    config = make_config(Carp, {"dimension": 4, "filters": 4, "latent_size": 3, "viewpoints": 2, "dropout": 0.2})
    return Carp(config, data.sizes)


def run(data, folder, *, resume, watcher=None, settings=SETTINGS, identity="a training", seed=5):
    model = small_model(data)
    options = {"seed": seed, "device": CPU, "folder": folder, "identity": identity, "resume": resume}
    progress = train(model, data, settings, watcher=watcher, **options)
    return outcome(model, progress)


def outcome(model, progress):
    total = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        total.update(name.encode() + tensor.numpy().tobytes())
    history = [{k: v for k, v in record.items() if "seconds" not in k} for record in progress.history]
    return {"weights": total.hexdigest(), "best": [progress.best_epoch, progress.best_error], "history": history}


# ---- the parent of those that are killed


class Moments:
    """Tells the parent of each moment and waits for leave to go on; the parent may kill instead."""

    def __init__(self, tell, leave):
        self.tell, self.leave, self.saving = tell, leave, False

    def pause(self):
        os.write(self.tell, IN_SAVE if self.saving else BETWEEN)
        os.read(self.leave, 1)

    def before(self, operation):
        def call(*given, **named):
            self.pause()
            return operation(*given, **named)

        return call

    def watch(self):
        """Pause before each step of a save, in the middle of each file, and after each batch."""
        save, opened = checkpoints.Checkpoint.save, pathlib.Path.open
        checkpoints.Checkpoint.save = lambda *given: self.while_saving(save, *given)
        pathlib.Path.open = lambda path, mode="r", *rest, **named: (  # type: ignore[assignment]
            Pieces(opened(path, mode, *rest, **named), self) if mode == "xb" else opened(path, mode, *rest, **named)
        )
        os.fsync = self.before(os.fsync)
        pathlib.Path.replace = self.before(pathlib.Path.replace)
        pathlib.Path.unlink = self.before(pathlib.Path.unlink)
        checkpoints.append_json_line = self.before(checkpoints.append_json_line)
        watcher = Silent()
        watcher.batch_done = self.pause
        return watcher

    def while_saving(self, save, *given):
        self.saving = True
        self.pause()
        save(*given)
        self.pause()
        self.saving = False


class Pieces:
    """A file that reaches the disk in four pieces."""

    def __init__(self, file, moments):
        self.file, self.moments = file, moments

    def __enter__(self):
        return self

    def __exit__(self, *reason):
        self.file.close()

    def __getattr__(self, name):
        return getattr(self.file, name)

    def write(self, data):
        step = len(data) // 4 + 1
        for start in range(0, len(data), step):
            self.file.write(data[start : start + step])
            self.file.flush()
            self.moments.pause()


def forked(work):
    child = os.fork()
    if child:
        return child
    try:
        work()
        os._exit(0)
    except BaseException:
        import traceback

        traceback.print_exc()
        os._exit(1)


def finish(data, folder, answer, resume):
    child = forked(lambda: answer.write_text(json.dumps(run(data, folder, resume=resume))))
    assert os.waitpid(child, 0)[1] == 0, "training to the end failed"
    return json.loads(answer.read_text())


def step_through(data, folder, stop_at, resume):
    """Train with a pause at each moment, and kill at the given one. The kinds of all moments there were."""
    told, tell = os.pipe()
    leave, leave_end = os.pipe()

    def work():
        os.close(told)
        run(data, folder, resume=resume, watcher=Moments(tell, leave).watch())

    child = forked(work)
    os.close(tell)
    kinds = []
    while kind := os.read(told, 1):
        kinds.append(kind)
        if len(kinds) - 1 == stop_at:
            os.kill(child, signal.SIGKILL)
            break
        os.write(leave_end, b"g")
    status = os.waitpid(child, 0)[1]
    for end in (told, leave, leave_end):
        os.close(end)
    killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    assert killed or (status == 0 and stop_at is None), f"the child ended with {status}"
    return kinds


def kill_after(data, folder, seconds):
    """Train at full speed and kill after a while, wherever that is."""
    ended, end = os.pipe()
    child = forked(lambda: run(data, folder, resume=False))
    os.close(end)
    select.select([ended], [], [], seconds)  # readable as soon as the child is gone
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(ended)


def drive(folder, kills, seed):
    torch.set_num_threads(1)
    rng, data = random.Random(seed), small_data()
    run(data, None, resume=False)  # what torch does only once is done before the first fork
    began = time.monotonic()
    expected = finish(data, folder / "whole", folder / "whole.json", resume=False)
    took = time.monotonic() - began
    kinds = step_through(data, folder / "counted", None, resume=False)
    places = {kind: [n for n, found in enumerate(kinds) if found == kind] for kind in (IN_SAVE, BETWEEN)}
    report: dict[str, Any] = {"moments": len(kinds), "kills": []}
    for number in range(kills):
        place = folder / f"killed-{number}"
        kind = ("in a save", "in a save", "between saves", "at any time")[number % 4]
        if kind == "at any time":
            kill_after(data, place, rng.random() * took)
        else:
            step_through(data, place, rng.choice(places[IN_SAVE if kind == "in a save" else BETWEEN]), resume=False)
        if number % 5 == 0 and (place / CHECKPOINT).exists():  # and again, soon after resuming
            step_through(data, place, 1, resume=True) if unfinished(place) else None
        found = finish(data, place, folder / "answer.json", resume=True)
        names = sorted(file.name for file in place.iterdir())
        log = [json.loads(line)["epoch"] for line in (place / LOG).read_text().splitlines()]
        report["kills"].append({"kind": kind, "same": found == expected, "names": names, "log": log})
    print(json.dumps(report))


def unfinished(place):
    return json.loads((place / CHECKPOINT).read_bytes())["progress"]["epoch"] < SETTINGS.epochs


# ---- the tests


@pytest.fixture(scope="module")
def data():
    return small_data()


@pytest.fixture(scope="module")
def expected(data, tmp_path_factory):
    whole = run(data, tmp_path_factory.mktemp("whole") / "run", resume=False)
    assert 1 < whole["best"][0] < SETTINGS.epochs, "the best epoch must not be the last, or its weights go untested"
    return whole


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the killed processes are forked")
def test_training_killed_at_any_moment_resumes_to_the_same_bits(tmp_path):
    asked = [sys.executable, __file__, str(tmp_path), str(KILLS), str(random.randrange(10**6))]
    driver = subprocess.run(asked, capture_output=True, text=True, timeout=600 + 60 * KILLS, check=False)
    assert driver.returncode == 0, f"{asked}\n{driver.stderr}"
    report = json.loads(driver.stdout)
    kills = report["kills"]
    assert len(kills) == KILLS
    assert sum(kill["kind"] == "in a save" for kill in kills) >= KILLS / 4
    assert report["moments"] > 100
    for kill in kills:
        assert kill["same"], f"{asked}: {kill}"
        assert kill["names"] == [CHECKPOINT, f"epoch-{SETTINGS.epochs:04}.safetensors", LOG], "nothing is left over"
        assert kill["log"] == list(range(1, SETTINGS.epochs + 1)), "each epoch stands in the log once"


def test_a_folder_for_checkpoints_changes_nothing(data, expected):
    assert run(data, None, resume=False) == expected


def test_resuming_a_finished_training_changes_nothing(data, expected, tmp_path):
    assert run(data, tmp_path, resume=False) == expected
    before = (tmp_path / CHECKPOINT).read_bytes()
    assert run(data, tmp_path, resume=True) == expected
    assert (tmp_path / CHECKPOINT).read_bytes() == before


def test_resuming_where_nothing_was_begins_anew(data, expected, tmp_path):
    assert run(data, tmp_path / "new", resume=True) == expected


@pytest.mark.parametrize("stop", [1, 3, 5])
def test_training_in_two_parts_is_training_in_one(data, expected, tmp_path, stop):
    short = TrainingSettings(**{**vars(SETTINGS), "epochs": stop})
    run(data, tmp_path, resume=False, settings=short)
    assert run(data, tmp_path, resume=True) == expected


def test_an_interrupt_from_the_keyboard_keeps_a_checkpoint(data, expected, tmp_path):
    class Impatient(Silent):
        batches = 0

        def batch_done(self):
            self.batches += 1
            if self.batches == 8:
                raise KeyboardInterrupt

    with pytest.raises(Stopped, match="2 whole epochs") as caught:
        run(data, tmp_path, resume=False, watcher=Impatient())
    assert "--resume" in caught.value.fix
    assert run(data, tmp_path, resume=True) == expected


def test_a_full_disk_at_each_write_leaves_the_last_checkpoint(data, expected, tmp_path, monkeypatch):
    settings = TrainingSettings(**{**vars(SETTINGS), "epochs": 2})
    sync, calls = os.fsync, 0

    def counting(handle):
        nonlocal calls
        calls += 1
        if calls == full_at:
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(handle)

    monkeypatch.setattr(os, "fsync", counting)
    for full_at in range(1, 100):
        calls, place = 0, tmp_path / str(full_at)
        try:
            run(data, place, resume=False, settings=settings)
        except StorageError as error:
            assert error.fix  # noqa: PT017  the loop ends with the first run that is not refused
        else:
            break
        calls = -(10**6)  # space again
        assert (
            run(data, place, resume=True, settings=SETTINGS if full_at % 4 == 0 else settings)["history"]
            == (expected["history"][: 6 if full_at % 4 == 0 else 2])
        )
        assert not list(place.glob(".*")), "nothing half written stays"
    assert full_at > 10


# ---- what is refused


@pytest.fixture(scope="module")
def saved(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    run(data, folder, resume=False, settings=TrainingSettings(**{**vars(SETTINGS), "epochs": 2}))
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def restored(folder, files):
    folder.mkdir(exist_ok=True)
    for file in folder.iterdir():
        file.unlink()
    for name, content in files.items():
        (folder / name).write_bytes(content)


def test_a_checkpoint_of_another_training_is_refused(data, saved, tmp_path):
    restored(tmp_path / "x", saved)
    with pytest.raises(UsageError, match="another training"):
        run(data, tmp_path / "x", resume=True, identity="another")
    assert {file.name: file.read_bytes() for file in (tmp_path / "x").iterdir()} == saved


def test_other_settings_other_data_and_another_seed_are_another_training(tmp_path):
    """The Recommender names everything that matters; how long to train may change."""
    import polars

    from carp import Recommender, make_shop, read_reviews
    from carp.reviews.corpora.corpus import build_corpus

    rows = make_shop(people=16, things=8, reviews_per_person=6, seed=3).records()
    corpus = build_corpus(read_reviews(polars.DataFrame(rows)), min_reviews=1)
    tiny = {"dimension": 4, "filters": 3, "latent_size": 2, "viewpoints": 2, "epochs": 1, "device": "cpu"}

    def fit(**changed):
        options = {"progress": False, "checkpoints": tmp_path / "run", "resume": True}
        return Recommender("carp", **{**tiny, **changed}).fit(corpus, **options)

    fit()
    for changed in (
        {"seed": 1},
        {"split_seed": 1},
        {"viewpoints": 3},
        {"routing": "agreement"},
        {"learning_rate": 0.5},
        {"batch_size": 7},
        {"vocabulary_size": 50},
        {"target_reviews": "keep"},
    ):
        with pytest.raises(UsageError, match="another training"):
            fit(**changed)
    assert fit(epochs=2).facts["epochs"] == 2


def damaged(content, rng):
    way = rng.randrange(3)
    if way == 0:
        place = rng.randrange(len(content))
        return content[:place] + bytes([content[place] ^ 1 << rng.randrange(8)]) + content[place + 1 :]
    if way == 1:
        return content[: rng.randrange(len(content))]
    start = rng.randrange(len(content))
    return content[:start] + content[start + 1 + rng.randrange(40) :]


@pytest.mark.parametrize("kind", ["checkpoint.json", "safetensors"])
def test_a_damaged_checkpoint_is_refused(data, saved, tmp_path, kind):
    rng = random.Random(5)
    (name,) = (name for name in saved if name.endswith(kind))
    for _ in range(60):
        content = damaged(saved[name], rng)
        restored(tmp_path / "x", {**saved, name: content})
        if content.rstrip() == saved[name].rstrip():
            continue  # white space at the end of a JSON file means nothing
        with pytest.raises(CarpError) as caught:
            run(data, tmp_path / "x", resume=True)
        assert caught.value.fix


def test_a_checkpoint_without_its_tensors_is_refused(data, saved, tmp_path):
    restored(tmp_path / "x", {name: content for name, content in saved.items() if not name.startswith("epoch")})
    with pytest.raises(DamagedError, match="damaged"):
        run(data, tmp_path / "x", resume=True)


def test_a_damaged_log_is_mended_from_the_checkpoint(data, saved, expected, tmp_path):
    for content in (b"", b'{"epoch": 1', saved[LOG] * 2, saved[LOG][:-5]):
        restored(tmp_path / "x", {**saved, LOG: content})
        assert run(data, tmp_path / "x", resume=True) == expected
        lines = (tmp_path / "x" / LOG).read_text().splitlines()
        assert [json.loads(line)["epoch"] for line in lines] == list(range(1, SETTINGS.epochs + 1))


if __name__ == "__main__":
    drive(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
