"""What a command brings to an address replaces what it may replace, whoever else is at work and whatever was killed."""

from __future__ import annotations

import functools
import json
import os
import threading
from pathlib import Path

import fsspec
import pytest

from carp.cli import elsewhere, entry, prepare_command
from carp.cli.places import new_model
from carp.errors import StorageError, UsageError
from carp.reviews.shop.made_up_shop import make_shop
from carp.scale import remote_deliveries
from carp.storage import MANIFEST, new_folder
from watched_store import files_below, let_be_below, states_below

STORE = "memory://bucket"
states_of = functools.partial(states_below, "/bucket")
let_be = functools.partial(let_be_below, "/bucket")


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    system = fsspec.filesystem("memory")
    records = make_shop(people=12, things=8, reviews_per_person=6, seed=1).records()
    (tmp_path / "reviews.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
    yield system
    system.store.clear()
    system.pseudo_dirs[:] = [""]


def carp(*words):
    return entry.main(list(map(str, words)))


def prepared(place, *more):
    return carp("prepare", "reviews.jsonl", "--out", f"{STORE}{place}", "--min-reviews", "1", *more)


def there(place=""):
    return files_below(f"/bucket{place}")


@pytest.mark.parametrize("place", ["/data", ""])
def test_files_that_carp_did_not_make_are_never_replaced(store, capsys, place):
    store.pipe_file("/bucket/data/raw-1.jsonl", b"raw")
    before = there()
    assert prepared(place, "--overwrite") == 2
    said = capsys.readouterr().err
    assert f"carp: {STORE}{place}: " in said
    assert "raw-1.jsonl" in said
    assert "not made by carp" in said if place else "this is a whole bucket" in said
    assert there() == before


def test_a_manifest_of_another_program_makes_no_corpus_of_a_folder(store, capsys):
    store.pipe_file("/bucket/app/manifest.json", b'{"name": "An app", "icons": []}')
    before = there()
    assert prepared("/app", "--overwrite") == 2
    assert "not made by carp" in capsys.readouterr().err
    assert there() == before


def test_only_a_folder_of_the_same_kind_is_replaced(capsys):
    assert prepared("/corpus") == 0
    before = there()
    words = ("--model", "bias", "--device", "cpu", "--quiet", "--overwrite")
    assert carp("train", f"{STORE}/corpus", "--out", f"{STORE}/corpus", *words) == 2
    assert f"{STORE}/corpus: this is a corpus, and a model would replace it" in capsys.readouterr().err
    assert there() == before


def test_replacing_a_folder_leaves_what_was_not_of_it(store):
    assert prepared("/corpus") == 0
    store.pipe_file("/bucket/corpus/notes.txt", b"ours")
    manifest = json.loads(store.cat_file(f"/bucket/corpus/{MANIFEST}"))
    manifest["files"]["older.npy"] = {"bytes": 1, "sha256": ""}  # an earlier version wrote it
    store.pipe_file(f"/bucket/corpus/{MANIFEST}", json.dumps(manifest).encode())
    store.pipe_file("/bucket/corpus/older.npy", b"1")
    assert prepared("/corpus", "--overwrite") == 0
    after = there("/corpus")
    assert after["notes.txt"] == b"ours"
    assert "older.npy" not in after
    assert set(after) == {"notes.txt", MANIFEST, *json.loads(after[MANIFEST])["files"]}


def test_a_whole_bucket_may_be_a_corpus_and_nothing_else(store, capsys):
    assert prepared("") == 0
    assert prepared("", "--overwrite") == 0
    store.pipe_file("/bucket/raw.jsonl", b"raw")
    before = there()
    assert prepared("", "--overwrite") == 2
    assert f"other things, such as raw.jsonl. Fix: give a place in it: {STORE}/corpus." in capsys.readouterr().err
    assert there() == before


def test_a_file_is_no_folder_and_a_folder_no_file(store, capsys):
    store.pipe_file("/bucket/raw.jsonl", b"raw")
    assert prepared("/raw.jsonl", "--overwrite") == 2
    assert "this is a file, and a corpus would replace it" in capsys.readouterr().err
    assert prepared("/corpus") == 0
    before = there()
    assert carp("predict", "no-model", "no-pairs", "--out", f"{STORE}/corpus", "--overwrite") == 2
    assert f"{STORE}/corpus: this is a folder" in capsys.readouterr().err
    assert carp("predict", "no-model", "no-pairs", "--out", "memory://", "--overwrite") == 2
    assert "names no bucket" in capsys.readouterr().err
    assert there() == before


def test_what_came_meanwhile_is_not_replaced_and_the_result_is_kept(store, tmp_path, capsys, monkeypatch):
    def slow(*given, command=prepare_command._report_corpus):
        store.pipe_file("/bucket/corpus/theirs.csv", b"theirs")
        command(*given)

    monkeypatch.setattr(prepare_command, "_report_corpus", slow)
    assert prepared("/corpus") == 2
    said = capsys.readouterr().err
    kept = next(tmp_path.glob("carp-kept-*/corpus"))
    assert f"kept in {kept}" in said
    assert (kept / MANIFEST).exists()
    assert there("/corpus") == {"theirs.csv": b"theirs"}


@pytest.fixture
def brought(tmp_path):
    """Brings one of two folders to an address, as a command does when it has made it."""
    for number in (1, 2):
        with new_folder(tmp_path / f"made-{number}", "corpus") as folder:
            for name in ("a", "b", f"of-{number}-alone"):
                (folder / name).write_text(f"{name} of {number}")

    def bring(number, *, overwrite=False):
        remote_deliveries.check_address(f"{STORE}/corpus", "corpus", overwrite)
        remote_deliveries.bring_there(tmp_path / f"made-{number}", f"{STORE}/corpus", "corpus", overwrite)

    return bring


def test_a_file_that_came_meanwhile_is_not_replaced(store, tmp_path):
    store.pipe_file("/bucket/best.csv", b"theirs")
    (tmp_path / "best.csv").write_text("ours")
    with pytest.raises(UsageError, match="this already exists"):
        remote_deliveries.bring_there(tmp_path / "best.csv", f"{STORE}/best.csv", None, overwrite=False)
    assert there() == {"best.csv": b"theirs"}
    remote_deliveries.bring_there(tmp_path / "best.csv", f"{STORE}/best.csv", None, overwrite=True)
    assert there() == {"best.csv": b"ours"}


def test_a_delivery_that_was_killed_can_be_made_again(store, brought, monkeypatch):
    states = states_of(store, lambda: brought(1), monkeypatch)
    whole, refused = states[-1], []
    for state in states[:-1]:
        let_be(store, state)
        try:
            brought(1)
        except UsageError as error:
            refused.append(str(error))
            brought(1, overwrite=True)
        assert there() == whole
    half = f"{STORE}/corpus: a command ended in the last step of writing here. Fix: "
    assert 0 < len([one for one in refused if one.startswith(half)]) < len(states) / 2, "only in the last step"
    exists = f"{STORE}/corpus: this already exists. Fix: choose another out, or add overwrite."
    assert not [one for one in refused if not one.startswith((half, exists))]


def test_what_is_replaced_is_there_until_all_of_the_new_is(store, brought, monkeypatch):
    brought(1)
    old = there()
    states = states_of(store, lambda: brought(2, overwrite=True), monkeypatch)
    whole, broken = states[-1], [one for one in states if f"corpus/{MANIFEST}" not in one]
    assert "corpus/of-1-alone" not in whole
    assert all(old.items() <= state.items() for state in states[: states.index(broken[0])])
    waiting = {name.partition(".coming/")[2]: one for name, one in broken[0].items() if ".coming/" in name}
    assert whole.items() <= {f"corpus/{name}": one for name, one in waiting.items()}.items()
    for state in states:
        let_be(store, state)
        brought(2, overwrite=True)
        assert there() == whole


def test_a_process_that_another_leads_leaves_the_address_to_it(capsys, monkeypatch):
    assert prepared("/corpus") == 0
    before = there()
    for name, value in (("RANK", "1"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "127.0.0.1")):
        monkeypatch.setenv(name, value)
    words = ["train", f"{STORE}/corpus", "--out", f"{STORE}/model", "--model", "bias", "--device", "cpu"]
    given = []
    elsewhere.at_addresses(lambda out: given.append(out))(out=new_model(f"{STORE}/model"))
    given[0].mkdir(parents=True)
    (given[0] / "of-the-first").write_text("is not its own to remove")
    assert carp(*words) == 0, capsys.readouterr().err
    assert there() == before
    assert (given[0] / "of-the-first").exists()


def test_a_command_that_made_nothing_is_told_so():
    with pytest.raises(StorageError, match="ended without making what was to be brought here"):
        remote_deliveries.bring_there(Path("nothing"), f"{STORE}/model", "model", overwrite=False)


def test_the_second_command_at_an_address_is_told_who_is_at_work_and_harms_nothing(tmp_path, capsys, monkeypatch):
    def meanwhile(*given, command=prepare_command._report_corpus):
        monkeypatch.undo()
        monkeypatch.chdir(tmp_path)
        second = threading.Thread(target=lambda: codes.append(prepared("/corpus", "--overwrite")))
        second.start()
        second.join()
        command(*given)

    codes = []
    monkeypatch.setattr(prepare_command, "_report_corpus", meanwhile)
    assert prepared("/corpus") == 0
    assert codes == [2]
    said = capsys.readouterr().err
    assert f"carp: {STORE}/corpus: another process is writing here (" in said
    assert f"process {os.getpid()} on" in said
    assert MANIFEST in there("/corpus")
    assert not list(Path().glob(".*carp-out-*"))


def test_what_a_killed_command_left_here_is_in_nobodys_way_and_checkpoints_stay():
    seen = []

    def command(out, overwrite=False):
        seen.append((out, out.exists(), out.with_name("model.training").exists()))
        with new_folder(out, "model"):
            pass

    for name in ("model", "other/model"):
        elsewhere.at_addresses(command)(out=new_model(f"{STORE}/{name}"))
    (left, *_), (other, *_) = seen
    for one in (left, other):
        assert not one.parent.exists()
        one.mkdir(parents=True)
        (one / "model.json").write_text("of a command that was killed while it was bringing it")
        one.with_name("model.training").mkdir()
    elsewhere.at_addresses(command)(out=new_model(f"{STORE}/model"), overwrite=True)
    assert seen[-1] == (left, False, True)
    assert left.with_name("model.training").exists()
    assert other.exists(), "it is of another address"
