"""Whatever the disk does, what was there stays; whatever a folder holds, damage is not silent."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from carp.errors import CarpError, DamagedError, StorageError, UsageError
from carp.storage import (
    MANIFEST,
    array_files,
    block_sums,
    check_folder,
    disk_errors,
    folder_size,
    holding,
    holding_if_free,
    leftovers,
    load_arrays,
    new_file,
    new_folder,
    opened_folder,
    read_json,
    readable_size,
    save_arrays,
    sweep,
    write_bytes,
    write_json,
)


class FullDisk:
    """Lets the first `allowed` operations pass and refuses the next, as a disk does that has just filled up."""

    def __init__(self, monkeypatch, allowed, *, error=errno.ENOSPC):
        self.calls, self.allowed, self.error = 0, allowed, error
        for owner, name in ((os, "fsync"), (pathlib.Path, "open"), (pathlib.Path, "replace"), (pathlib.Path, "mkdir")):
            monkeypatch.setattr(owner, name, self.counted(getattr(owner, name)))
        monkeypatch.setattr(pathlib.Path, "rename", self.counted(pathlib.Path.rename))

    def counted(self, operation):
        def call(*given, **named):
            self.calls += 1
            if self.calls == self.allowed + 1:
                raise OSError(self.error, os.strerror(self.error))
            return operation(*given, **named)

        return call


def until_it_fits(monkeypatch, work):
    """Run the work with the disk full at the first operation, the second, ... until all of it passes."""
    for allowed in range(200):
        refusal = None
        with monkeypatch.context() as patch:
            disk = FullDisk(patch, allowed)
            try:
                work()
            except StorageError as error:
                refusal = error
        assert refusal is None or "no space left" in str(refusal)
        yield allowed, refusal is not None
        if disk.calls <= allowed:
            return
    raise AssertionError("the work never ends")


def listing(folder):
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def dead_process():
    """A process number that belonged to somebody who is gone."""
    finished = subprocess.Popen([sys.executable, "-c", ""])
    finished.wait()
    return finished.pid


# ---- single files


def test_a_full_disk_at_each_step_leaves_the_old_file_and_nothing_beside_it(tmp_path, monkeypatch):
    file = tmp_path / "note.json"
    write_bytes(file, b"old")
    failures = 0
    for _, failed in until_it_fits(monkeypatch, lambda: write_bytes(file, b"new")):
        assert sorted(item.name for item in tmp_path.iterdir()) == ["note.json"]
        assert file.read_bytes() in (b"old", b"new")
        failures += failed
        if failed and file.read_bytes() == b"new":
            write_bytes(file, b"old")  # renamed already; only the last flush failed
    assert failures >= 4  # opening, flushing, renaming, flushing the folder
    assert file.read_bytes() == b"new"


def test_a_write_cut_short_leaves_the_old_file(tmp_path, monkeypatch):
    file = tmp_path / "note.json"
    write_bytes(file, b"old")
    opened = pathlib.Path.open

    class Short:
        def __init__(self, inner):
            self.inner = inner

        def __enter__(self):
            return self

        def __exit__(self, *reason):
            self.inner.close()

        def fileno(self):
            return self.inner.fileno()

        def write(self, data):
            self.inner.write(data[: len(data) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pathlib.Path, "open", lambda path, mode="r", *rest: Short(opened(path, mode, *rest)))
    with pytest.raises(StorageError, match="no space left") as caught:
        write_bytes(file, b"new content")
    monkeypatch.undo()
    assert str(file) in str(caught.value)
    assert listing(tmp_path) == {"note.json": b"old"}


def test_a_file_is_never_written_in_its_place(tmp_path, monkeypatch):
    """Only a copy beside it is opened for writing, so that no moment shows half of it."""
    opened, names = pathlib.Path.open, []

    def recorded(path, mode="r", *rest, **named):
        names.append((path.name, mode))
        return opened(path, mode, *rest, **named)

    monkeypatch.setattr(pathlib.Path, "open", recorded)
    write_bytes(tmp_path / "note.json", b"old")
    write_bytes(tmp_path / "note.json", b"new")
    assert len(names) == len(set(names)) == 2, "each under a name of its own"
    for name, mode in names:
        assert re.fullmatch(r"\.note\.json\.[0-9a-f]{16}\.partial", name)
        assert mode == "xb"


@pytest.mark.parametrize(
    ("number", "words"),
    [(errno.EACCES, "not allowed"), (errno.EROFS, "not allowed"), (errno.EDQUOT, "no space"), (errno.EIO, "refused")],
)
def test_every_refusal_says_what_and_where_and_how_to_mend_it(tmp_path, monkeypatch, number, words):
    FullDisk(monkeypatch, 1, error=number)
    with pytest.raises(StorageError, match=words) as caught:
        write_bytes(tmp_path / "x", b"")
    assert caught.value.fix
    assert caught.value.where == str(tmp_path / "x")


def test_a_file_where_a_folder_should_be_is_refused(tmp_path):
    (tmp_path / "x").write_bytes(b"")
    with pytest.raises(StorageError, match="a file stands where a folder is needed"):
        write_bytes(tmp_path / "x" / "y", b"")


def test_numbers_that_json_cannot_hold_are_never_written(tmp_path):
    write_json(tmp_path / "x", {"a": 1})
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "x", {"a": float("nan")})
    assert read_json(tmp_path / "x") == {"a": 1}


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe\x00", b"[" * 100_000, b'{"a": 1}}', b"nul"])
def test_a_damaged_json_file_is_refused(tmp_path, content):
    (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(DamagedError, match="cannot be read"):
        read_json(tmp_path / "x.json")


@pytest.mark.parametrize(
    ("size", "said"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1.0 kB"),
        (1_500_000, "1.5 MB"),
        (2.5e9, "2.5 GB"),
        (4e12, "4000.0 GB"),
    ],
)
def test_sizes_are_told_in_units_of_a_thousand(size, said):
    assert readable_size(size) == said


def test_the_size_of_a_folder_is_that_of_its_files(tmp_path):
    for name, size in (("a", 3), ("deep/b", 5)):
        write_bytes(tmp_path / "thing" / name, bytes(size))
    assert folder_size(tmp_path / "thing") == 8


def test_arrays_come_back_as_they_were(tmp_path):
    arrays: dict[str, np.ndarray] = {
        "numbers": np.arange(6, dtype=np.float32).reshape(2, 3).T,  # not contiguous
        "none": np.zeros((0, 4), np.int64),
        "one": np.array(3, np.int8),
    }
    file = tmp_path / "x.safetensors"
    assert save_arrays(file, arrays) == hashlib.sha256(file.read_bytes()).hexdigest()
    found = load_arrays(file)
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


def arrays_saying(path, places, *, length=None, size=16):
    """A file of `size` bytes of arrays, whose header says what it likes of them and of its own length."""
    heading = json.dumps({f"a{n}": {"dtype": "U8", **place} for n, place in enumerate(places)}).encode()
    path.write_bytes((length or len(heading)).to_bytes(8, "little") + heading + bytes(size))
    return path


def span(begin, end):
    return {"shape": [end - begin], "data_offsets": [begin, end]}


ALL, TWO = span(0, 16), [span(0, 8), span(8, 16)]
UNTRUE_HEADERS = {
    "arrays over each other": ({"places": [span(0, 8), *TWO]}, "do not lie end to end"),
    "arrays partly over each other": ({"places": [span(0, 8), span(4, 16)]}, "do not lie end to end"),
    "arrays with a gap": ({"places": [span(0, 8), span(9, 16)]}, "do not lie end to end"),
    "arrays not from the beginning": ({"places": [span(1, 16)]}, "do not lie end to end"),
    "longer than the file": ({"places": [ALL], "length": 1 << 20}, "header is longer than it can be"),
    "longer than any": ({"places": [ALL], "length": 1 << 60}, "header is longer than it can be"),
    "arrays longer than the file": ({"places": [ALL], "size": 15}, "length is not what it says"),
    "arrays shorter than the file": ({"places": [ALL], "size": 17}, "length is not what it says"),
    "half a place": ({"places": [{**ALL, "shape": [16.0]}]}, "a place in it is no number"),
    "a negative place": ({"places": [{**ALL, "shape": [-4, -4]}]}, "a place in it is no number"),
    "a place beyond all disks": ({"places": [{**ALL, "data_offsets": [0, 1 << 60]}]}, "a place in it is no number"),
    "a shape of another size": ({"places": [{**ALL, "shape": [4, 5]}]}, "has not the length it says"),
    "an end before the beginning": (
        {"places": [{"shape": [0], "data_offsets": [16, 0]}]},
        "has not the length it says",
    ),
}


@pytest.mark.parametrize(("said", "refusal"), UNTRUE_HEADERS.values(), ids=UNTRUE_HEADERS)
def test_arrays_are_not_mapped_by_an_untrue_header(tmp_path, said, refusal):
    file = arrays_saying(tmp_path / "arrays", **said)
    with file.open("rb") as opened, pytest.raises(DamagedError, match=refusal):
        array_files.mapped_arrays(opened, file)
    good = arrays_saying(tmp_path / "good", TWO)
    with good.open("rb") as opened:
        assert [len(array) for array in array_files.mapped_arrays(opened, good).values()] == [8, 8]


def test_a_header_may_be_so_long_and_no_longer(tmp_path, monkeypatch):
    file = arrays_saying(tmp_path / "arrays", TWO)
    length = file.stat().st_size - 16 - array_files.PLACE
    for most in (length, length - 1):
        monkeypatch.setattr(array_files, "MOST_HEADER", most)
        with file.open("rb") as opened:
            if most == length:
                assert [*array_files.mapped_arrays(opened, file)] == ["a0", "a1"]
            else:
                with pytest.raises(DamagedError, match="header is longer than it can be"):
                    array_files.mapped_arrays(opened, file)


def test_a_file_may_end_with_its_header(tmp_path):
    file = arrays_saying(tmp_path / "arrays", [], size=0)
    with file.open("rb") as opened:
        assert array_files.mapped_arrays(opened, file) == {}


def test_arrays_that_are_not_mapped_begin_at_nought():
    assert array_files.place_in(np.zeros(3)) == 0


def test_arrays_are_mapped_however_far_the_file_was_read(tmp_path):
    file = tmp_path / "x.safetensors"
    save_arrays(file, {"numbers": np.arange(50)})
    with file.open("rb") as opened:
        opened.read()
        end = array_files.header_end(opened)
        opened.read()
        found = array_files.mapped_arrays(opened, file)["numbers"]
    np.testing.assert_array_equal(found, np.arange(50))
    assert array_files.place_in(found) == end


def test_truncated_arrays_are_refused(tmp_path):
    file = tmp_path / "x.safetensors"
    save_arrays(file, {"numbers": np.arange(50)})
    whole = file.read_bytes()
    for cut in (0, 4, 8, 20, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:cut])
        with pytest.raises(DamagedError):
            load_arrays(file)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.EIO, "Input/output error"), r"the disk refused \(Input/output error\)"),
        (OSError("the stick was pulled out"), r"the disk refused \(the stick was pulled out\)"),
    ],
)
def test_what_the_disk_says_is_told_once_and_without_numbers(tmp_path, error, said):
    with pytest.raises(StorageError, match=said), disk_errors(tmp_path):
        raise error


def test_a_disk_that_finds_no_memory_is_out_of_memory(tmp_path):
    with pytest.raises(MemoryError, match="Cannot allocate"), disk_errors(tmp_path):
        raise OSError(errno.ENOMEM, "Cannot allocate memory")


# ---- whole folders


def make_folder(path, content, overwrite=False):
    with new_folder(path, "thing", overwrite=overwrite) as partial:
        write_bytes(partial / "a.txt", content)
        write_bytes(partial / "deep" / "b.txt", content * 2)


def test_a_full_disk_at_each_step_leaves_the_old_folder_whole(tmp_path, monkeypatch):
    folder = tmp_path / "thing"
    make_folder(folder, b"old")
    old = listing(folder)
    failures = 0
    for _, failed in until_it_fits(monkeypatch, lambda: make_folder(folder, b"new", overwrite=True)):
        check_folder(folder, "thing")
        assert [item.name for item in tmp_path.iterdir()] == ["thing"], "nothing is left beside it"
        if failed:
            failures += 1
            if listing(folder) != old:
                assert (folder / "a.txt").read_bytes() == b"new"
                make_folder(folder, b"old", overwrite=True)
    assert failures > 10
    assert (folder / "a.txt").read_bytes() == b"new"


def test_a_full_disk_at_each_step_leaves_no_new_folder(tmp_path, monkeypatch):
    folder = tmp_path / "thing"
    for _, failed in until_it_fits(monkeypatch, lambda: make_folder(folder, b"new")):
        if failed and folder.exists():
            check_folder(folder, "thing")
            make_folder(folder, b"", overwrite=True)
            for file in sorted(folder.rglob("*"), reverse=True):
                file.rmdir() if file.is_dir() else file.unlink()
            folder.rmdir()
        elif failed:
            assert list(tmp_path.iterdir()) == []
    check_folder(folder, "thing")


def test_an_error_while_filling_leaves_nothing(tmp_path):
    def fill_half():
        with new_folder(tmp_path / "thing", "thing") as partial:
            write_bytes(partial / "a.txt", b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fill_half()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("where", [None, "/elsewhere/reviews.csv"])
def test_an_error_of_something_else_while_filling_keeps_its_own_place(tmp_path, where):
    with pytest.raises(StorageError) as caught, new_folder(tmp_path / "thing", "thing"):
        raise StorageError("cannot be read", where=where)
    assert caught.value.where == where


def test_an_existing_folder_is_not_touched_unless_asked(tmp_path):
    make_folder(tmp_path / "thing", b"old")
    with pytest.raises(UsageError, match="already exists"):
        make_folder(tmp_path / "thing", b"new")
    assert (tmp_path / "thing" / "a.txt").read_bytes() == b"old"
    make_folder(tmp_path / "thing", b"new", overwrite=True)
    assert (tmp_path / "thing" / "a.txt").read_bytes() == b"new"


def test_a_folder_of_somebody_else_is_never_overwritten(tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("years of work")
    with pytest.raises(UsageError, match="not made by carp"):
        make_folder(tmp_path / "thesis", b"new", overwrite=True)
    assert listing(tmp_path) == {"thesis/chapter.tex": b"years of work"}


def test_an_empty_folder_is_of_nobody_and_may_be_replaced(tmp_path):
    (tmp_path / "thing").mkdir()
    with pytest.raises(UsageError, match="this already exists"):
        make_folder(tmp_path / "thing", b"new")
    make_folder(tmp_path / "thing", b"new", overwrite=True)
    assert (tmp_path / "thing" / "a.txt").read_bytes() == b"new"


# ---- leftovers


def test_leftovers_of_dead_writers_are_swept_and_those_of_living_ones_are_not(tmp_path):
    dead = ".thing.0123456789abcdef.partial"
    (tmp_path / dead).mkdir()
    (tmp_path / dead / "a.txt").write_bytes(b"half")
    (tmp_path / ".note.json.0123456789abcdef.partial").write_bytes(b"half")
    (tmp_path / ".thing.notes.partial").write_bytes(b"somebody's own file")
    with new_folder(tmp_path / "other", "thing") as living, new_file(tmp_path / "log") as file:
        make_folder(tmp_path / "thing", b"new")
        in_a_process("from carp.storage import sweep; sweep(Path(sys.argv[1]), '*')", tmp_path)
        names = {item.name for item in tmp_path.iterdir()}
        assert names == {"thing", ".thing.notes.partial", living.name, ".other.lock", Path(file.name).name}


def test_who_writes_a_file_sweeps_what_dead_writers_of_this_very_file_left(tmp_path):
    left = [tmp_path / f".{name}.0123456789abcdef.partial" for name in ("note[1].json", "note1.json")]
    for one in left:
        one.write_bytes(b"half")
    write_bytes(tmp_path / "note[1].json", b"whole")
    assert sorted(tmp_path.iterdir()) == [left[1], tmp_path / "note[1].json"]


def test_who_writes_a_file_leaves_folders_and_links_that_are_called_like_leftovers(tmp_path):
    folder, link = (tmp_path / f".note.json.{owner}.partial" for owner in ("0123456789abcdef", "fedcba9876543210"))
    folder.mkdir()
    link.symlink_to(tmp_path / "somebody's")
    write_bytes(tmp_path / "somebody's", b"own")
    write_bytes(tmp_path / "note.json", b"whole")
    assert folder.is_dir()
    assert link.read_bytes() == b"own"


def test_who_writes_a_file_begins_again_where_it_was_swept_before_it_was_locked(tmp_path, monkeypatch):
    def swept(handle, how):
        for left in tmp_path.glob(".*.partial"):
            left.unlink()
        monkeypatch.undo()

    monkeypatch.setattr(fcntl, "flock", swept)
    write_bytes(tmp_path / "note.json", b"whole")
    assert (tmp_path / "note.json").read_bytes() == b"whole"
    assert [one.name for one in tmp_path.iterdir()] == ["note.json"]


def in_a_process(code, *arguments):
    """What another process prints."""
    code = f"import sys\nfrom pathlib import Path\n{code}"
    asked = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(asked, check=True, capture_output=True, text=True).stdout


HOLD = (
    "from carp.storage import new_folder\n"
    "with new_folder(sys.argv[1], 'thing', overwrite=True) as partial:\n"
    "    (partial / 'a.txt').write_bytes(b'theirs')\n"
    "    print('holding', flush=True)\n"
    "    sys.stdin.read()\n"
)


@contextlib.contextmanager
def another_writer(folder):
    """A process that is writing a folder; it goes on when this ends."""
    code = f"import sys\n{HOLD}"
    asked = [sys.executable, "-c", code, str(folder)]
    writer = subprocess.Popen(asked, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert writer.stdin
    assert writer.stdout
    assert writer.stdout.readline() == "holding\n"
    try:
        yield writer
    finally:
        writer.stdin.close()
        writer.wait()
        writer.stdout.close()


def test_a_second_writer_is_told_who_holds_the_place_and_changes_nothing(tmp_path):
    make_folder(tmp_path / "thing", b"old")
    with another_writer(tmp_path / "thing") as writer:
        before = listing(tmp_path)
        with pytest.raises(UsageError, match=f"process {writer.pid} on {re.escape(socket.gethostname())}") as caught:
            make_folder(tmp_path / "thing", b"mine", overwrite=True)
        assert "wait" in caught.value.fix
        assert listing(tmp_path) == before
    assert (tmp_path / "thing" / "a.txt").read_bytes() == b"theirs"
    assert [item.name for item in tmp_path.iterdir()] == ["thing"]


def test_process_numbers_play_no_part_in_who_owns_a_place(tmp_path, monkeypatch):
    """Two containers share a disk, and in each the writer is process number 1."""
    with another_writer(tmp_path / "thing") as writer:
        monkeypatch.setattr(os, "getpid", lambda: writer.pid)
        with pytest.raises(UsageError, match="another process is writing here"):
            make_folder(tmp_path / "thing", b"mine")
        sweep(tmp_path, "*")
        assert len(list(tmp_path.glob(".thing.*.partial"))) == 1, "what the living writer has so far is still there"
    check_folder(tmp_path / "thing", "thing")


def test_a_link_in_the_place_of_a_lock_is_not_followed(tmp_path):
    """Whoever locks writes into the lock, and would write over what the link leads to."""
    (tmp_path / "precious").write_text("of somebody")
    (tmp_path / ".thing.lock").symlink_to(tmp_path / "precious")
    with pytest.raises(StorageError), new_folder(tmp_path / "thing", "thing"):
        pass
    assert (tmp_path / "precious").read_text() == "of somebody"


def test_a_process_does_not_hold_what_the_one_holds_that_it_was_forked_from(tmp_path, monkeypatch):
    """It has the memory of the other, and a number of its own."""
    with holding(tmp_path / "thing"):
        number = os.getpid() + 1
        monkeypatch.setattr(os, "getpid", lambda: number)
        with holding_if_free(tmp_path / "thing") as free:
            assert not free
        monkeypatch.undo()
        with holding_if_free(tmp_path / "thing") as free:
            assert free, "one may ask again for what one holds"


def test_a_lock_goes_with_its_holder_however_it_ends(tmp_path):
    with another_writer(tmp_path / "thing") as writer:
        writer.kill()
        writer.wait()
        make_folder(tmp_path / "thing", b"mine")
    assert [item.name for item in tmp_path.iterdir()] == ["thing"]


def test_whoever_holds_a_place_may_write_there_again_and_other_threads_may_not(tmp_path):
    with holding(tmp_path / "thing"):
        make_folder(tmp_path / "thing", b"mine")
        with ThreadPoolExecutor(1) as threads, pytest.raises(UsageError, match="another process"):
            threads.submit(make_folder, tmp_path / "thing", b"theirs", True).result()
    assert (tmp_path / "thing" / "a.txt").read_bytes() == b"mine"


def test_a_lock_whose_writer_said_nothing_is_respected(tmp_path):
    with holding(tmp_path / "thing"):
        (tmp_path / ".thing.lock").write_bytes(b"not json")
        said = in_a_process(
            "from carp.errors import UsageError\nfrom carp.storage import holding\n"
            "try:\n    holding(Path(sys.argv[1])).__enter__()\nexcept UsageError as error: print(error)",
            tmp_path / "thing",
        )
    assert "another process is writing here (it has not said who it is)" in said


def test_a_folder_set_aside_by_a_process_that_died_comes_back(tmp_path):
    make_folder(tmp_path / "thing", b"old")
    dead = dead_process()
    (tmp_path / "thing").rename(tmp_path / f".thing.{dead}.replaced")
    (tmp_path / f".thing.{dead}.partial").mkdir()
    with pytest.raises(UsageError, match="already exists"):
        make_folder(tmp_path / "thing", b"new")
    check_folder(tmp_path / "thing", "thing")
    assert [item.name for item in tmp_path.iterdir()] == ["thing"]


def run_to_its_death(script, folder):
    """A script that kills its own process at work on a folder."""
    killed = subprocess.run([sys.executable, "-c", script, str(folder)], check=False)
    assert killed.returncode == -signal.SIGKILL


def test_a_process_killed_between_the_two_renames_hides_nothing_from_a_reader(tmp_path):
    make_folder(tmp_path / "thing[1]", b"old")  # brackets are a pattern to those who look for names
    script = (
        "import os, pathlib, signal, sys\n"
        "from carp.storage import new_folder, write_bytes\n"
        "import carp.storage.new_folders as folders\n"
        "folders.exchanged = lambda one, other: False  # a system that cannot do it in one step\n"
        "rename = pathlib.Path.rename\n"
        "def rename_and_die(path, target):\n"
        "    rename(path, target)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "pathlib.Path.rename = rename_and_die\n"
        "with new_folder(sys.argv[1], 'thing', overwrite=True) as partial:\n"
        "    write_bytes(partial / 'a.txt', b'new')\n"
    )
    run_to_its_death(script, tmp_path / "thing[1]")
    assert not (tmp_path / "thing[1]").exists()
    check_folder(tmp_path / "thing[1]", "thing")
    assert (tmp_path / "thing[1]" / "a.txt").read_bytes() == b"old"


def test_a_reader_removes_nothing_and_takes_nothing_from_the_living(tmp_path):
    dead = "0123456789abcdef"
    make_folder(tmp_path / "thing", b"old")
    (tmp_path / f".thing.{dead}.partial").mkdir()
    (tmp_path / f".thing.{dead}.replaced").mkdir()
    check_folder(tmp_path / "thing", "thing")
    assert len(list(tmp_path.iterdir())) == 3
    (tmp_path / f".thing.{dead}.replaced").rmdir()
    with another_writer(tmp_path / "thing"):
        (tmp_path / "thing").rename(tmp_path / f".thing.{dead}.replaced")
        with pytest.raises(StorageError, match="there is no thing here"):
            check_folder(tmp_path / "thing", "thing")
        (tmp_path / f".thing.{dead}.replaced").rename(tmp_path / "thing")


def test_a_reader_of_a_folder_that_is_there_keeps_no_writer_out(tmp_path, monkeypatch):
    """Whoever holds a place for a moment has others told that somebody writes there."""
    make_folder(tmp_path / "thing", b"content")
    (tmp_path / f".thing.{'0' * 16}.replaced").mkdir()
    monkeypatch.setattr(leftovers, "holding_if_free", lambda path: pytest.fail("the place was locked"))
    check_folder(tmp_path / "thing", "thing")


@pytest.mark.parametrize("there", [True, False])
def test_what_a_living_writer_has_set_aside_is_left_to_it(tmp_path, there):
    """Before the new folder stands in its place, and after, where the two cannot be exchanged in one step."""
    aside = tmp_path / f".thing.{'0' * 16}.replaced"
    aside.mkdir()
    if there:
        (tmp_path / "thing").mkdir()
    with holding(tmp_path / "thing"), ThreadPoolExecutor(1) as other:
        other.submit(sweep, tmp_path, "*").result()
    assert aside.exists()
    assert (tmp_path / "thing").exists() == there


def test_what_took_the_place_meanwhile_is_not_replaced_by_what_was_set_aside(tmp_path, monkeypatch):
    """Another process fills the place after a reader has found it empty, and before the reader holds it."""
    aside = tmp_path / f".thing.{'0' * 16}.replaced"
    aside.mkdir()
    held = leftovers.holding_if_free

    @contextlib.contextmanager
    def then_filled(path):
        (tmp_path / "thing").mkdir()
        with held(path) as free:
            yield free

    monkeypatch.setattr(leftovers, "holding_if_free", then_filled)
    taken = tmp_path / "thing"
    leftovers.bring_back(taken)
    assert taken.exists()
    assert aside.exists()


def test_a_reader_who_may_not_rename_is_told_that_nothing_is_there(tmp_path, monkeypatch):
    make_folder(tmp_path / "thing", b"old")
    (tmp_path / "thing").rename(tmp_path / f".thing.{dead_process()}.replaced")
    FullDisk(monkeypatch, 0, error=errno.EROFS)
    with pytest.raises(StorageError, match="there is no thing here"):
        check_folder(tmp_path / "thing", "thing")


def test_a_folder_may_be_checked_without_its_contents(tmp_path):
    make_folder(tmp_path / "thing", b"content")
    (tmp_path / "thing" / "a.txt").write_bytes(b"altered")
    assert check_folder(tmp_path / "thing", "thing", contents=False)["kind"] == "thing"
    with pytest.raises(DamagedError, match="differs from what was saved"):
        check_folder(tmp_path / "thing", "thing")


def test_a_file_is_no_folder(tmp_path):
    write_bytes(tmp_path / "thing", b"content")
    with pytest.raises(StorageError, match="there is no thing here"):
        check_folder(tmp_path / "thing", "thing")


@pytest.mark.parametrize("there", [True, False])
def test_a_folder_set_aside_comes_back_under_its_own_name_alone(tmp_path, there):
    make_folder(tmp_path / "thing.v2", b"second")
    (tmp_path / "thing.v2").rename(tmp_path / f".thing.v2.{dead_process()}.replaced")
    if there:
        make_folder(tmp_path / "thing", b"first")
        check_folder(tmp_path / "thing", "thing")
    else:
        with pytest.raises(StorageError, match="there is no thing here"):
            check_folder(tmp_path / "thing", "thing")
    sweep(tmp_path, "thing")
    assert (tmp_path / "thing").exists() == there
    assert (tmp_path / "thing.v2" / "a.txt").read_bytes() == b"second"


def test_a_folder_set_aside_goes_where_the_new_one_took_its_place(tmp_path):
    make_folder(tmp_path / "thing", b"new")
    leftover = tmp_path / f".thing.{dead_process()}.replaced"
    leftover.mkdir()
    (leftover / "a.txt").write_bytes(b"old")
    sweep(tmp_path, "thing")
    assert [item.name for item in tmp_path.iterdir()] == ["thing"]
    assert (tmp_path / "thing" / "a.txt").read_bytes() == b"new"


def test_a_process_killed_while_filling_leaves_the_old_folder(tmp_path):
    make_folder(tmp_path / "thing", b"old")
    script = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from carp.storage import new_folder, write_bytes\n"
        "with new_folder(Path(sys.argv[1]), 'thing', overwrite=True) as partial:\n"
        "    write_bytes(partial / 'a.txt', b'new')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    run_to_its_death(script, tmp_path / "thing")
    assert (tmp_path / "thing" / "a.txt").read_bytes() == b"old"
    check_folder(tmp_path / "thing", "thing")
    assert len(list(tmp_path.iterdir())) == 3, "the old folder, half a new one, and a lock that nobody holds"
    make_folder(tmp_path / "thing", b"newer", overwrite=True)
    assert [item.name for item in tmp_path.iterdir()] == ["thing"]


# ---- manifests


@pytest.fixture
def folder(tmp_path):
    make_folder(tmp_path / "thing", b"content")
    return tmp_path / "thing"


def change(folder, edit):
    manifest = json.loads((folder / MANIFEST).read_bytes())
    edit(manifest)
    (folder / MANIFEST).write_text(json.dumps(manifest))


def test_an_unaltered_folder_passes_and_is_described(folder):
    manifest = check_folder(folder, "thing")
    assert set(manifest["files"]) == {"a.txt", "deep/b.txt"}
    assert manifest["files"]["a.txt"]["bytes"] == len(b"content")


def test_a_missing_file_is_refused(folder):
    (folder / "deep" / "b.txt").unlink()
    with pytest.raises(DamagedError, match="missing"):
        check_folder(folder, "thing")


@pytest.mark.parametrize("content", [b"contenT", b"", b"content ", b"tnetnoc"])
def test_an_altered_file_is_refused(folder, content):
    (folder / "a.txt").write_bytes(content)
    with pytest.raises(DamagedError, match="damaged") as caught:
        check_folder(folder, "thing")
    assert str(folder / "a.txt") in str(caught.value)


def test_a_file_of_another_size_is_refused_without_reading_it(folder):
    (folder / "a.txt").write_bytes(b"longer content")
    with pytest.raises(DamagedError, match="damaged"):
        check_folder(folder, "thing", contents=False)


OUTSIDE = [
    "../secret",
    "/etc/hostname",
    "deep/../../secret",
    "..",
    ".",
    "",
    "absent.txt",
    "a.txt/x",
    "x" * 5000,
    "a\0b",
]


@pytest.mark.parametrize("name", OUTSIDE, ids=lambda name: repr(name[:20]))
def test_a_manifest_that_names_something_outside_or_absent_is_refused(folder, name):
    secret = folder.parent / "secret"
    secret.write_bytes(b"content")
    known = check_folder(folder, "thing")["files"]["a.txt"]
    change(folder, lambda manifest: manifest["files"].update({name: known}))
    with pytest.raises(DamagedError):
        check_folder(folder, "thing")


@pytest.mark.parametrize(
    "edit",
    [
        lambda manifest: manifest.update(version=2),
        lambda manifest: manifest.update(version=None),
        lambda manifest: manifest.pop("version"),
        lambda manifest: manifest.update(kind="other"),
        lambda manifest: manifest.pop("kind"),
        lambda manifest: manifest.update(files=[]),
        lambda manifest: manifest.pop("files"),
        lambda manifest: manifest["files"].update({"a.txt": None}),
        lambda manifest: manifest["files"].update({"a.txt": "sum"}),
        lambda manifest: manifest["files"]["a.txt"].pop("sha256"),
        lambda manifest: manifest["files"]["a.txt"].pop("bytes"),
        lambda manifest: manifest["files"]["a.txt"].update(sha256="0" * 64),
    ],
)
def test_a_manifest_of_another_kind_version_or_form_is_refused(folder, edit):
    change(folder, edit)
    with pytest.raises(CarpError) as caught:
        check_folder(folder, "thing")
    assert caught.value.fix


def test_what_is_no_folder_of_ours_is_refused(folder, tmp_path):
    with pytest.raises(UsageError, match="this is a thing, not a model"):
        check_folder(folder, "model")
    with pytest.raises(StorageError, match="there is no thing here"):
        check_folder(tmp_path / "nowhere", "thing")
    (folder / MANIFEST).unlink()
    with pytest.raises(DamagedError, match=r"manifest\.json is missing"):
        check_folder(folder, "thing")


@pytest.mark.parametrize(
    ("descr", "shape", "fortran"),
    [("|O", (2,), False), ([("a", "<i4"), ("b", "<i4")], (2,), False), ("<i8", (1, 2), False), ("<i8", (2,), True)],
    ids=["pointers", "fields", "two dimensions", "the order of Fortran"],
)
def test_only_a_plain_column_is_read_as_one(tmp_path, descr, shape, fortran):
    """Each of them fills its file, so that nothing but the header tells."""
    with (tmp_path / "column.npy").open("wb") as file:
        facts = {"descr": descr, "fortran_order": fortran, "shape": shape}
        np.lib.format.write_array_header_1_0(file, facts)
        file.write(bytes(16))
    for mmap in (True, False):
        with (tmp_path / "column.npy").open("rb") as file, pytest.raises(ValueError, match="it is not a plain column"):
            array_files.plain_column(file, mmap=mmap)


@pytest.mark.parametrize("mmap", [True, False], ids=["mapped", "read"])
def test_a_column_is_left_on_the_disk_where_that_is_asked_for(tmp_path, mmap):
    with new_folder(tmp_path / "thing", "thing") as partial:
        np.save(partial / "column.npy", np.arange(1000))
    with opened_folder(tmp_path / "thing", "thing") as opened:
        column = opened.column("column.npy", mmap=mmap)
    np.testing.assert_array_equal(column, np.arange(1000))
    assert isinstance(column, np.memmap) == mmap


@pytest.mark.parametrize("mmap", [True, False], ids=["mapped", "read"])
@pytest.mark.parametrize("name", ["column.npy", "arrays.safetensors"])
def test_no_number_of_a_damaged_file_is_given_out(tmp_path, monkeypatch, name, mmap):
    """Whoever opens a file is refused at once, and does not depend on somebody who checks the whole folder later."""
    monkeypatch.setattr(block_sums, "LARGE", 1)
    numbers = np.arange(1000)
    with new_folder(tmp_path / "thing", "thing") as partial:
        np.save(partial / "column.npy", numbers)
        save_arrays(partial / "arrays.safetensors", {"numbers": numbers})
    with (tmp_path / "thing" / name).open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\x01")
    with opened_folder(tmp_path / "thing", "thing") as opened, pytest.raises(DamagedError, match="differs from what"):
        opened.column(name, mmap=mmap) if name.endswith(".npy") else opened.arrays(name, mmap=mmap)
