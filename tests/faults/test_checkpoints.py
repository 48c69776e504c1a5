"""Training that is killed at any moment, even in the middle of a save, resumes to the same bits."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import random
import shutil

import pytest

import killed_training
from carp import Recommender
from carp.errors import CarpError, DamagedError, StorageError, UsageError
from carp.reviews.corpora.corpus import build_corpus
from carp.storage import SIGNATURE
from carp.storage.signatures import write_signature
from carp.training.checkpoint import CHECKPOINT, LOG
from carp.training.loop import Silent, Stopped, TrainingSettings
from killed_training import SETTINGS, small_data
from made_up_reviews import shop_reviews

pytestmark = pytest.mark.usefixtures("single_thread")

KILLS = int(os.environ.get("CARP_KILLS", "8"))  # two of each kind, four of those in a save; `make torture` has 200


def run(data, folder, **options):
    return killed_training.trained(data, folder, **options)


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
def test_training_killed_at_any_moment_resumes_to_the_same_bits():
    seed = random.randrange(10**6)
    report = killed_training.run(KILLS, seed)
    assert report["faults"] == [], f"python benchmarks/killed_training.py --kills {KILLS} --seed {seed}"
    assert report["tried"] == KILLS
    assert report["counts"]["in a save"] >= KILLS / 4


def test_a_folder_for_checkpoints_changes_nothing(data, expected):
    assert run(data, None, resume=False) == expected


def test_resuming_a_finished_training_changes_nothing(data, expected, tmp_path):
    assert run(data, tmp_path, resume=False) == expected
    before = (tmp_path / CHECKPOINT).read_bytes()
    assert run(data, tmp_path, resume=True) == expected
    assert (tmp_path / CHECKPOINT).read_bytes() == before


def test_what_a_kill_left_after_the_last_checkpoint_goes_with_the_next_resuming(data, expected, tmp_path):
    """Between naming the tensors of the last epoch and removing those of the one before."""
    run(data, tmp_path, resume=False)
    left = tmp_path / f"epoch-{SETTINGS.epochs - 1:04}.safetensors"
    left.write_bytes(b"of the epoch before")
    assert run(data, tmp_path, resume=True) == expected
    assert not left.exists()


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
    corpus = build_corpus(shop_reviews(seed=3), min_reviews=1)
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


def test_a_checkpoint_names_no_file_of_another_folder(data, saved, tmp_path):
    """Its own sum is right: somebody has edited it, or moved it."""
    folder = tmp_path / "x"
    restored(folder, saved)
    facts = json.loads((folder / CHECKPOINT).read_text())
    (tmp_path / "elsewhere.safetensors").write_bytes((folder / facts["file"]).read_bytes())
    facts["file"] = "../elsewhere.safetensors"
    del facts["check"]
    check = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    (folder / CHECKPOINT).write_text(json.dumps({**facts, "check": check}))
    with pytest.raises(DamagedError, match="the checkpoint is damaged"):
        run(data, folder, resume=True)
    assert (folder / json.loads(saved[CHECKPOINT])["file"]).exists()


@pytest.mark.parametrize("content", [b"[]", b"7", b"null", b'"checkpoint"', b"{}"])
def test_what_is_no_description_of_a_checkpoint_is_refused(data, saved, tmp_path, content):
    restored(tmp_path / "x", {**saved, CHECKPOINT: content})
    with pytest.raises(DamagedError, match="the checkpoint is damaged"):
        run(data, tmp_path / "x", resume=True)


@pytest.mark.parametrize("circumstances", [None, [], {}])
def test_a_checkpoint_that_does_not_say_where_it_was_made_is_resumed_without_a_word(
    data, saved, expected, tmp_path, circumstances, recwarn
):
    restored(tmp_path / "x", saved)
    facts = json.loads(saved[CHECKPOINT])
    facts["circumstances"] = circumstances
    del facts["check"]
    facts["check"] = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    (tmp_path / "x" / CHECKPOINT).write_text(json.dumps(facts))
    assert run(data, tmp_path / "x", resume=True) == expected
    assert not [one for one in recwarn if "began with" in str(one.message)]


def test_the_log_grows_in_its_place_so_that_it_can_be_followed(data, saved, tmp_path):
    restored(tmp_path / "x", saved)
    with (tmp_path / "x" / LOG).open() as followed:
        assert len(followed.readlines()) == 2
        run(data, tmp_path / "x", resume=True)
        assert len(followed.readlines()) == SETTINGS.epochs - 2


def test_a_model_that_is_solved_for_at_once_keeps_a_checkpoint_too(tmp_path):
    """There is no state of an optimizer in it."""
    corpus = build_corpus(shop_reviews(seed=3), min_reviews=1)

    def fitted():
        made = Recommender("bias", device="cpu").fit(corpus, checkpoints=tmp_path, resume=True, progress=False)
        return list(made.predict([(corpus.users[0], corpus.items[0])]))

    first = fitted()
    assert (tmp_path / CHECKPOINT).exists()
    assert fitted() == first


def key_in(file, content=b"k" * 32):
    file.write_bytes(content)
    file.chmod(0o600)
    return str(file)


SHORT = TrainingSettings(**{**vars(SETTINGS), "epochs": 2})


@pytest.fixture
def signed(data, tmp_path, monkeypatch):
    """The folder of a training that stopped after two epochs and was signed; the key stays set."""
    monkeypatch.setenv("CARP_KEY_FILE", key_in(tmp_path / "key"))
    run(data, tmp_path / "signed", resume=False, settings=SHORT)
    return tmp_path / "signed"


def test_a_signed_checkpoint_resumes_to_the_same_bits_with_its_key_and_where_none_is_asked_for(
    data, expected, signed, tmp_path, monkeypatch
):
    shutil.copytree(signed, tmp_path / "copy")
    assert run(data, signed, resume=True) == expected
    monkeypatch.delenv("CARP_KEY_FILE")
    assert run(data, tmp_path / "copy", resume=True) == expected


def test_a_checkpoint_says_nothing_of_signatures_where_no_key_is_set(saved):
    """So it is what it was before there were any."""
    assert json.loads(saved[CHECKPOINT]).keys() == {"file", "sha256", "identity", "progress", "circumstances", "check"}


@pytest.mark.parametrize("content", [None, b"other" * 8])
def test_a_checkpoint_that_was_not_signed_with_the_key_is_refused(data, signed, tmp_path, monkeypatch, content):
    """Its sums are right, so without a key it would be resumed, and the model of it signed."""
    monkeypatch.delenv("CARP_KEY_FILE")
    if content is not None:
        monkeypatch.setenv("CARP_KEY_FILE", key_in(tmp_path / "other", content))
    run(data, tmp_path / "theirs", resume=False, settings=SHORT)
    monkeypatch.setenv("CARP_KEY_FILE", str(tmp_path / "key"))
    before = {file.name: file.read_bytes() for file in (tmp_path / "theirs").iterdir()}
    with pytest.raises(DamagedError) as caught:
        run(data, tmp_path / "theirs", resume=True)
    assert ("is not signed" if content is None else "not signed with this key") in caught.value.what
    assert ("carp sign" in caught.value.fix) == (content is None)
    assert {file.name: file.read_bytes() for file in (tmp_path / "theirs").iterdir()} == before


@pytest.mark.parametrize("given", ["0" * 64, 7, ["0"], {}, "ä", None])
def test_a_signed_checkpoint_that_was_altered_is_refused_though_its_sums_are_right(data, signed, given):
    facts = json.loads((signed / CHECKPOINT).read_text())
    facts["progress"]["best_epoch"] = 1
    facts["signature"] = given or facts["signature"]
    checked = {name: value for name, value in facts.items() if name not in ("check", "signature")}
    facts["check"] = hashlib.sha256(json.dumps(checked, sort_keys=True).encode()).hexdigest()
    (signed / CHECKPOINT).write_text(json.dumps(facts))
    with pytest.raises(DamagedError, match="not signed with this key"):
        run(data, signed, resume=True)


def test_no_signature_of_a_manifest_is_one_of_a_checkpoint(data, signed, tmp_path, monkeypatch):
    """Whoever has the key may have signed a folder that somebody else made, with this content as its manifest."""
    facts = json.loads((signed / CHECKPOINT).read_text())
    checked = {name: value for name, value in facts.items() if name not in ("check", "signature")}
    content = json.dumps(checked, sort_keys=True).encode()
    (tmp_path / "folder").mkdir()
    write_signature(tmp_path / "folder", content, tmp_path / "key")
    facts["signature"] = json.loads((tmp_path / "folder" / SIGNATURE).read_text())["signature"]
    (signed / CHECKPOINT).write_text(json.dumps(facts))
    with pytest.raises(DamagedError, match="not signed with this key"):
        run(data, signed, resume=True)


def test_a_key_that_cannot_be_read_stops_training_before_its_first_epoch(data, tmp_path, monkeypatch):
    monkeypatch.setenv("CARP_KEY_FILE", str(tmp_path / "none"))
    with pytest.raises(StorageError, match="the key cannot be read"):
        run(data, tmp_path / "run", resume=False)
    assert not (tmp_path / "run" / CHECKPOINT).exists()


def test_a_checkpoint_without_its_tensors_is_refused(data, saved, tmp_path):
    restored(tmp_path / "x", {name: content for name, content in saved.items() if not name.startswith("epoch")})
    with pytest.raises(DamagedError, match="damaged"):
        run(data, tmp_path / "x", resume=True)


def test_a_damaged_log_is_mended_from_the_checkpoint(data, saved, expected, tmp_path):
    for content in (b"", b'{"epoch": 1', saved[LOG] * 2, saved[LOG][:-5], None):
        restored(tmp_path / "x", {**saved, LOG: content or b""})
        if content is None:
            (tmp_path / "x" / LOG).unlink()
        assert run(data, tmp_path / "x", resume=True) == expected
        lines = (tmp_path / "x" / LOG).read_text().splitlines()
        assert [json.loads(line)["epoch"] for line in lines] == list(range(1, SETTINGS.epochs + 1))
