"""What is said to be saved is on the disk: it is flushed before it gets its name, and so is the name."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import pathlib
from pathlib import Path

import pytest

from carp.bench.durable_lines import append_line
from carp.errors import StorageError
from carp.storage import MANIFEST, append_json_line, new_folder, write_bytes
from carp.storage import new_folders as folders


class Steps:
    """Writes down what is flushed and renamed, in order; a file is known by its inode, whatever its name."""

    def __init__(self, monkeypatch):
        self.steps: list[tuple[str, object]] = []
        fsync, replace, rename, exchanged = os.fsync, Path.replace, Path.rename, folders.exchanged
        monkeypatch.setattr(os, "fsync", lambda handle: (self.add("flush", os.fstat(handle).st_ino), fsync(handle))[1])
        monkeypatch.setattr(Path, "replace", lambda path, to: (self.add("name", Path(to)), replace(path, to))[1])
        monkeypatch.setattr(Path, "rename", lambda path, to: (self.add("name", Path(to)), rename(path, to))[1])
        monkeypatch.setattr(folders, "exchanged", lambda one, to: (self.add("name", to), exchanged(one, to))[1])

    def add(self, what, which):
        self.steps.append((what, which))

    def flushed(self, path, *, before=None, after=None):
        """Whether a file or folder was flushed, before or after something got its name."""
        inode = path.stat().st_ino
        places = [n for n, step in enumerate(self.steps) if step == ("flush", inode)]
        first = self.steps.index(("name", after)) if after else -1
        last = self.steps.index(("name", before)) if before else len(self.steps)
        return any(first < place < last for place in places)


@pytest.fixture
def steps(monkeypatch):
    return Steps(monkeypatch)


def test_a_file_is_flushed_before_it_gets_its_name_and_its_folder_after(tmp_path, steps):
    file = tmp_path / "note.json"
    write_bytes(file, b"content")
    assert steps.flushed(file, before=file)
    assert steps.flushed(tmp_path, after=file)


def test_all_of_a_file_is_handed_to_the_disk_before_it_is_flushed(tmp_path, monkeypatch):
    """What still waits in the process would reach the disk after the name does."""
    fsync, sizes = os.fsync, []
    monkeypatch.setattr(os, "fsync", lambda handle: (sizes.append(os.fstat(handle).st_size), fsync(handle))[1])
    write_bytes(tmp_path / "note.json", b"content")
    assert sizes[0] == len(b"content")


@pytest.mark.parametrize("there", [False, True], ids=["new", "replaced"])
def test_a_folder_is_flushed_whole_before_it_gets_its_name_and_its_parent_after(tmp_path, steps, there):
    place = tmp_path / "thing"
    for content in (b"old", b"new") if there else (b"new",):
        steps.steps.clear()
        with new_folder(place, "thing", overwrite=there) as partial:
            (partial / "deep").mkdir()
            (partial / "deep" / "plain").write_bytes(content)  # as numpy writes a column
            write_bytes(partial / "a.txt", content)
    for inside in (place / "deep" / "plain", place / "a.txt", place / MANIFEST, place / "deep", place):
        assert steps.flushed(inside, before=place), inside
    assert steps.flushed(tmp_path, after=place)


def test_the_entries_of_a_sealed_folder_are_flushed_after_its_manifest(tmp_path, steps):
    place = tmp_path / "thing"
    with new_folder(place, "thing") as partial:
        write_bytes(partial / "a.txt", b"content")
        manifest = partial / MANIFEST
    assert steps.flushed(place, after=manifest, before=place)


def test_a_line_of_results_is_flushed_and_so_is_the_folder_of_a_new_file(tmp_path, steps):
    file = tmp_path / "bench.jsonl"
    append_line(file, {"cell": 1})
    assert steps.flushed(file)
    assert steps.flushed(tmp_path)
    steps.steps.clear()
    append_line(file, {"cell": 2})
    assert steps.flushed(file)


def test_a_line_of_results_that_does_not_fit_leaves_nothing_of_itself(tmp_path, monkeypatch):
    file, write = tmp_path / "bench.jsonl", os.write
    append_line(file, {"id": "one"})
    monkeypatch.setattr(os, "write", lambda handle, data: write(handle, data[:5]))
    with pytest.raises(StorageError, match="no space left"):
        append_line(file, {"id": "two"})
    assert file.read_bytes() == b'{"id": "one"}\n'


def test_the_end_of_results_is_looked_for_by_one_process_at_a_time(tmp_path, monkeypatch):
    """Else a line that another one has just added could be cut off."""
    done, lock, cut = [], fcntl.flock, os.ftruncate
    monkeypatch.setattr(fcntl, "flock", lambda *given: (done.append("lock"), lock(*given))[1])
    monkeypatch.setattr(os, "ftruncate", lambda *given: (done.append("cut"), cut(*given))[1])
    append_line(tmp_path / "bench.jsonl", {"id": "one"})
    assert done == ["lock", "cut"]


def test_a_line_of_a_log_is_flushed(tmp_path, steps):
    append_json_line(tmp_path / "log.jsonl", {"epoch": 1})
    assert steps.flushed(tmp_path / "log.jsonl")


def test_a_line_of_a_log_that_does_not_fit_is_a_full_disk(tmp_path, monkeypatch):
    write = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: write(handle, data[:3]))
    with pytest.raises(StorageError, match="no space left"):
        append_json_line(pathlib.Path(tmp_path / "log.jsonl"), {"epoch": 1})


def test_a_full_disk_names_the_folder_that_was_asked_for_and_not_what_was_on_its_way(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(errno.ENOSPC, "no space left")))
    with (
        pytest.raises(StorageError, match="no space left") as caught,
        new_folder(tmp_path / "model", "model") as partial,
    ):
        write_bytes(partial / "weights", b"1")
    assert caught.value.where == str(tmp_path / "model")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("can_exchange", [True, False], ids=["in one step", "in two steps"])
def test_a_replaced_folder_leaves_nothing_beside_the_new_one(tmp_path, monkeypatch, can_exchange):
    if not can_exchange:
        monkeypatch.setattr(folders, "exchanged", lambda one, other: False)
    for content in (b"old", b"new"):
        with new_folder(tmp_path / "thing", "thing", overwrite=True) as partial:
            write_bytes(partial / "a.txt", content)
    assert (tmp_path / "thing" / "a.txt").read_bytes() == b"new"
    assert [item.name for item in tmp_path.iterdir()] == ["thing"]


@pytest.mark.parametrize("number", [None, *folders.NO_EXCHANGE])
def test_where_the_system_cannot_exchange_folders_that_is_no_error(tmp_path, monkeypatch, number):
    monkeypatch.setattr(folders, "_exchange", lambda: number and refusing(number))
    assert not folders.exchanged(tmp_path / "one", tmp_path / "other")


def test_folders_that_may_not_be_exchanged_are_an_error_of_the_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(folders, "_exchange", lambda: refusing(errno.EACCES))
    with pytest.raises(PermissionError, match="other"):
        folders.exchanged(tmp_path / "one", tmp_path / "other")


def refusing(number):
    """A function of the system that fails with this number."""

    def call(*_):
        ctypes.set_errno(number)
        return -1

    return call


@pytest.mark.skipif(folders._exchange() is None, reason="this system cannot exchange two folders in one step")
def test_a_folder_is_never_missing_while_it_is_replaced(tmp_path, monkeypatch):
    """Nothing is renamed away from the place: the old folder and the new one change places."""
    with new_folder(tmp_path / "thing", "thing") as partial:
        write_bytes(partial / "a.txt", b"old")
    moved = []
    rename = Path.rename
    monkeypatch.setattr(Path, "rename", lambda path, to: (moved.append(path), rename(path, to))[1])
    with new_folder(tmp_path / "thing", "thing", overwrite=True) as partial:
        write_bytes(partial / "a.txt", b"new")
    assert moved == []
    assert (tmp_path / "thing" / "a.txt").read_bytes() == b"new"
