"""A change at an address that was broken off: the next command that writes there finishes it, and no reader does."""

from __future__ import annotations

import functools
import json
import os
import signal

import fsspec
import pytest

from carp.cli import entry
from carp.scale import remote_folders
from carp.scale.remote_changes import change_there
from carp.scale.remote_exchanges import finish_there
from carp.storage import MANIFEST, new_folder
from watched_store import files_below, let_be_below, states_below

MODEL = "memory://bucket/model"
TERMINATED = 143
there = functools.partial(files_below, "/bucket/model")
states_of = functools.partial(states_below, "/bucket/model")
let_be = functools.partial(let_be_below, "/bucket/model")


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "new.csv").write_text("user,item,rating,text\nann,thing-001,5,It is light and it lasts.\n")
    system = fsspec.filesystem("memory")
    yield system
    system.store.clear()
    system.pseudo_dirs[:] = [""]


@pytest.fixture
def model(store, saved):
    store.put(str(saved), "/bucket/model", recursive=True)


@pytest.fixture
def change(store, tmp_path):
    """A folder at the address, and a change of it that replaces a file, adds one, and removes one."""
    with new_folder(tmp_path / "before", "model") as folder:
        for name in ("same", "changed", "removed"):
            (folder / name).write_text(f"{name}, as it was")
    with new_folder(tmp_path / "after", "model") as folder:
        for name, content in (("same", "same, as it was"), ("changed", "as it is"), ("added", "new")):
            (folder / name).write_text(content)
    store.put(str(tmp_path / "before"), "/bucket/model", recursive=True)
    store.pipe_file("/bucket/model/strange", b"of somebody")
    return lambda: change_there(tmp_path / "after", MODEL, tmp_path / "before")


def carp(*words):
    return entry.main(list(map(str, words)))


def readable(state):
    return {name: one for name, one in state.items() if not name.startswith(".")}


def test_whatever_a_killed_command_left_there_is_whole_or_is_finished(store, change, tmp_path, monkeypatch):
    states = states_of(store, change, monkeypatch)
    old, new = states[0], states[-1]
    assert set(new) == {"same", "changed", "added", "strange", MANIFEST}
    finished = 0
    for number, state in enumerate(states):
        let_be(store, state)
        told: list[int] = []
        if finish_there(MODEL, functools.partial(told.append, 1)):
            assert told, "it is said before it is done"
            assert there() == new
            finished += 1
        else:
            assert readable(state) in (readable(old), new)
        remote_folders.bring_here(MODEL, tmp_path / f"fetched-{number}")
    assert finished > 3


def test_whoever_is_killed_while_finishing_leaves_what_the_next_one_finishes(store, change, monkeypatch):
    states = states_of(store, change, monkeypatch)
    new, half = states[-1], [one for one in states if MANIFEST not in one][2]
    let_be(store, half)
    for state in states_of(store, lambda: finish_there(MODEL, lambda: None), monkeypatch):
        let_be(store, state)
        finish_there(MODEL, lambda: None)
        assert readable(there()) == new


def test_a_writer_whose_exchange_another_one_finishes_is_done(store, change, monkeypatch):
    copy, begun = store.cp_file, []

    def overtaken(one, other):
        if not begun:
            begun.append(one)
            assert finish_there(MODEL, lambda: None)
        copy(one, other)

    monkeypatch.setattr(store, "cp_file", overtaken)
    assert change()
    assert set(there()) == {"same", "changed", "added", "strange", MANIFEST}


@pytest.mark.parametrize("damage", ["a file that waits", "a file in its place", "no file"])
def test_what_does_not_have_its_sums_is_not_finished(store, change, monkeypatch, damage):
    half = next(one for one in states_of(store, change, monkeypatch) if MANIFEST not in one)
    waiting = next(name for name in half if name.endswith(".coming/changed"))
    broken = {**half, {"a file that waits": waiting}.get(damage, "same"): b"same, as it wos"}
    if damage == "no file":
        del broken["same"]
    let_be(store, broken)
    assert not finish_there(MODEL, lambda: None)
    assert there() == broken


def test_the_next_update_finishes_what_was_broken_off_and_readers_say_so(store, model, capsys, monkeypatch):
    states = states_of(store, lambda: carp("update", MODEL, "new.csv"), monkeypatch)
    new, half = states[-1], [one for one in states if MANIFEST not in one][2]
    let_be(store, half)
    capsys.readouterr()
    for reader in (["predict", MODEL, "--user", "ann", "--item", "thing-001"], ["aspects", MODEL]):
        assert carp(*reader) == 1
        told = capsys.readouterr().err
        assert f"{MODEL}: there is no whole folder here: its manifest is missing, since a command that writes" in told
        assert "run that command again: it finishes what it began" in told
        assert there() == half, "readers change nothing"
    assert carp("update", MODEL, "new.csv", "--json") == 0
    said = capsys.readouterr()
    assert f"{MODEL}: a command that changed it ended in its last step, which is finished now." in said.err
    assert json.loads(said.out)["known_already"] == 1
    assert there() == new


def test_looking_at_a_signature_or_at_aspects_writes_nothing_there(store, model, tmp_path, monkeypatch, capsys):
    key = tmp_path / "key"
    key.write_bytes(b"k" * 32)
    key.chmod(0o600)
    half = {name: one for name, one in there().items() if name != MANIFEST}
    half |= {f".{'0' * 16}.coming/{MANIFEST}": there()[MANIFEST]}
    let_be(store, half)
    assert carp("sign", MODEL, "--key-file", key, "--check") == 1
    assert "its manifest is missing" in capsys.readouterr().err
    assert there() == half
    assert carp("sign", MODEL, "--key-file", key) == 0
    assert MANIFEST in there()


def test_who_may_not_write_there_is_told_that_it_is_not_finished(store, change, monkeypatch, capsys):
    half = next(one for one in states_of(store, change, monkeypatch) if MANIFEST not in one)
    let_be(store, half)
    for name in ("rm_file", "cp_file"):
        monkeypatch.setattr(store, name, lambda *_: (_ for _ in ()).throw(PermissionError("read only")))
    assert carp("update", MODEL, "new.csv") == 1
    told = capsys.readouterr().err
    assert (
        f"{MODEL}: a change here was not finished, and could not be finished now (PermissionError: read only)" in told
    )
    assert there() == half


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, TERMINATED), (signal.SIGINT, 1)])
@pytest.mark.parametrize("step", ["put_file", "cp_file"])
def test_a_signal_in_the_middle_leaves_the_model_as_it_was(store, model, capsys, monkeypatch, number, code, step):
    before, taken, handler = there(), [], signal.getsignal(signal.SIGTERM)
    do = getattr(store, step)

    def interrupted(*given, **more):
        do(*given, **more)
        taken.append(given)
        if len(taken) == 2:
            os.kill(os.getpid(), number)

    monkeypatch.setattr(store, step, interrupted)
    assert carp("update", MODEL, "new.csv") == code
    assert f"carp: {MODEL}: interrupted; what is there is whole" in capsys.readouterr().err
    assert len(taken) >= 2
    assert there() == before
    assert signal.getsignal(signal.SIGTERM) is handler


def test_a_store_that_cannot_copy_by_itself_is_written_to_by_way_of_here(store, change, monkeypatch):
    monkeypatch.setattr(store, "cp_file", lambda *_: (_ for _ in ()).throw(NotImplementedError))
    assert change()
    assert there()["changed"] == b"as it is"
