"""What is opened is closed again, whatever happens in between, and places are made where they are missing."""

from __future__ import annotations

import errno
import fcntl
import gc
import hashlib
import json
import os
import sys
import threading
import warnings
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from carp.errors import CarpError, DamagedError, StorageError, UsageError
from carp.storage import (
    MANIFEST,
    SIGNATURE,
    append_json_line,
    check_folder,
    folder_locks,
    holding,
    holding_in_turn,
    new_folder,
    new_folders,
    opened_folder,
    seal,
    sign_folder,
    sole_writer,
    write_bytes,
    write_json,
    written_files,
)

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="this system does not say what is open")


def open_files():
    return sorted(str(one.readlink()) for one in Path("/proc/self/fd").iterdir() if one.is_symlink())


@pytest.fixture
def closed():
    """Nothing is open after a test that was not before it, and nothing was left for Python to close."""
    gc.freeze()  # what earlier tests left behind is not closed in the middle of this one, and not looked through either
    before = Counter(open_files())
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", ResourceWarning)
        yield
        gc.collect()
    gc.unfreeze()
    assert Counter(open_files()) - before == Counter()
    assert [str(one.message) for one in told if one.category is ResourceWarning] == []


def told(place):
    """What somebody else is told who wants to write there."""
    with ThreadPoolExecutor(1) as other:

        def ask():
            with holding(place):
                pass

        return str(other.submit(ask).exception())


def test_a_lock_is_closed_by_who_holds_it_and_by_who_is_refused(tmp_path, closed):
    with holding(tmp_path / "thing"):
        assert "another process is writing here" in told(tmp_path / "thing")


def test_a_lock_that_cannot_be_had_is_closed(tmp_path, closed, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(OSError, match="No locks"), holding(tmp_path / "thing"):
        pass


def test_a_lock_whose_file_was_removed_meanwhile_is_closed_and_asked_for_again(tmp_path, closed, monkeypatch):
    answers, asked = iter([False, True]), folder_locks.names
    monkeypatch.setattr(folder_locks, "names", lambda *given: next(answers) and asked(*given))
    with holding(tmp_path / "thing"):
        assert next(answers, "none left") == "none left"


def test_what_a_killed_holder_wrote_into_its_lock_does_not_hide_the_next_one(tmp_path):
    (tmp_path / ".thing.lock").write_text(json.dumps({"process": 1, "command": "x" * 5000}))
    with holding(tmp_path / "thing"):
        assert f"process {os.getpid()}" in told(tmp_path / "thing")


@pytest.mark.parametrize("begin", [lambda place: new_folder(place, "thing"), sole_writer], ids=["folder", "writer"])
def test_the_way_to_a_place_is_made(tmp_path, begin):
    with begin(tmp_path / "not" / "yet" / "thing"):
        assert (tmp_path / "not" / "yet").is_dir()


def test_the_way_to_a_file_is_made(tmp_path):
    write_bytes(tmp_path / "not" / "yet" / "file", b"a")
    assert (tmp_path / "not" / "yet" / "file").read_bytes() == b"a"


def test_folders_that_are_read_are_closed(folder, closed):
    with opened_folder(folder, "thing") as opened:
        assert opened.read("deep/b.txt") == b"content"
    check_folder(folder, "thing")


@pytest.mark.parametrize("gone", ["a.txt", "deep", MANIFEST])
def test_folders_that_are_refused_are_closed(folder, closed, gone):
    (folder / gone).rename(folder.parent / "elsewhere")
    with pytest.raises(DamagedError):
        check_folder(folder, "thing")


def test_a_folder_with_the_wrong_content_is_closed(folder, closed):
    (folder / "deep" / "b.txt").write_bytes(b"altered")
    with pytest.raises(DamagedError):
        check_folder(folder, "thing")


def test_a_file_can_be_read_twice(folder):
    with opened_folder(folder, "thing") as opened:
        assert opened.read("a.txt") == opened.read("a.txt") == b"content"


def test_a_column_can_be_read_twice_and_after_it_was_checked(folder):
    np.save(folder / "column.npy", np.arange(5))
    seal(folder, "thing")
    with opened_folder(folder, "thing") as opened:
        opened.check_all()
        for mmap in (True, False, True):
            assert opened.column("column.npy", mmap=mmap).tolist() == [0, 1, 2, 3, 4]


def test_a_file_that_was_read_is_not_read_again_to_be_checked(folder, monkeypatch):
    digests = []
    monkeypatch.setattr(hashlib, "file_digest", lambda file, kind: digests.append(file) or hashlib.sha256(file.read()))
    with opened_folder(folder, "thing") as opened:
        opened.read("a.txt")
        opened.check_all()
    assert len(digests) == 1


def test_where_the_new_folder_cannot_take_its_place_the_old_one_is_put_back_at_once(folder, monkeypatch):
    monkeypatch.setattr(new_folders, "exchanged", lambda *_: False)  # a system that cannot do it in one step
    rename = Path.rename

    def refuse(path, target):
        if path.name.endswith("partial") and target == folder:
            raise OSError(errno.EIO, "Input/output error")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(StorageError), new_folder(folder, "thing", overwrite=True) as partial:
        write_bytes(partial / "a.txt", b"new")
    assert (folder / "a.txt").read_bytes() == b"content"
    assert [one.name for one in folder.parent.iterdir()] == ["thing"]


def test_files_and_logs_that_are_written_are_closed(tmp_path, closed):
    write_json(tmp_path / "a.json", {"a": 1})
    append_json_line(tmp_path / "log", {"a": 1})


def test_files_and_logs_that_a_disk_refuses_are_closed(tmp_path, closed, monkeypatch):
    def refuse(_):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", refuse)
    for write in (lambda: write_bytes(tmp_path / "a", b"a"), lambda: append_json_line(tmp_path / "log", {})):
        with pytest.raises(StorageError):
            write()


def test_a_file_that_is_swept_before_it_is_locked_is_closed_and_begun_again(tmp_path, closed, monkeypatch):
    answers, asked = iter([False, True]), written_files.names
    monkeypatch.setattr(written_files, "names", lambda *given: next(answers) and asked(*given))
    write_bytes(tmp_path / "a", b"a")
    assert (tmp_path / "a").read_bytes() == b"a"


def test_sealing_again_leaves_no_signature_of_before(folder, tmp_path):
    key = tmp_path / "key"
    key.write_bytes(b"k" * 32)
    key.chmod(0o600)
    sign_folder(folder, "thing", key)
    assert (folder / SIGNATURE).exists()
    seal(folder, "thing")
    assert not (folder / SIGNATURE).exists()


def test_an_interrupt_while_a_place_is_taken_is_no_other_error(tmp_path, closed, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(fcntl, "flock", interrupted)
    with pytest.raises(KeyboardInterrupt), holding(tmp_path / "thing"):
        pass


def test_who_writes_in_turn_waits_for_who_was_there_before(tmp_path, monkeypatch):
    place, asked, wrote, really = tmp_path / "thing", threading.Event(), [], fcntl.flock

    def flock(handle, how):
        try:
            really(handle, how | fcntl.LOCK_NB)
        except BlockingIOError:
            asked.set()
            if how & fcntl.LOCK_NB:
                raise
            really(handle, how)

    def write():
        with holding_in_turn(place):
            wrote.append("second")

    with ThreadPoolExecutor(1) as pool:
        with holding(place):
            monkeypatch.setattr(fcntl, "flock", flock)
            second = pool.submit(write)
            assert asked.wait(60)
            wrote.append("first")
        second.result(60)
    assert wrote == ["first", "second"]


def test_a_lock_needs_no_command_line(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", [])  # as where another program brings Python along
    refused = pytest.raises(UsageError, match=rf"another process is writing here \(python, process {os.getpid()} ")
    with holding(tmp_path / "thing"), ThreadPoolExecutor(1) as other, refused:
        other.submit(holding(tmp_path / "thing").__enter__).result()


def test_a_second_thread_is_refused_in_words(tmp_path):
    with sole_writer(tmp_path / "thing"), ThreadPoolExecutor(1) as other:

        def ask():
            with sole_writer(tmp_path / "thing"):
                pass

        refusal = other.submit(ask).exception()
    assert isinstance(refusal, UsageError)
    assert isinstance(refusal, CarpError)
    assert Path(sys.argv[0]).name in refusal.what


def test_missing_memory_is_not_taken_for_a_disk(tmp_path, monkeypatch):
    def refuse(_):
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(MemoryError):
        write_bytes(tmp_path / "a", b"a")
