"""Single files, written so that nothing is ever half there: beside their place, flushed to the disk, and renamed."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import glob
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from carp.errors import DamagedError, StorageError
from carp.storage.folder_locks import names
from carp.storage.leftovers import beside, sweep_files

AGAIN = "run the same command again, a training with --resume"


@contextlib.contextmanager
def disk_errors(where: Path) -> Iterator[None]:
    """Turn the disk's refusals into errors that say what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            what, fix = (
                "there is no space left on the disk",
                f"free some space and {AGAIN}",
            )
        elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            what, fix = "writing is not allowed here", "choose a folder you may write to"
        elif error.errno == errno.ENOMEM:
            raise MemoryError(error.strerror) from error
        elif error.errno in (errno.ENOTDIR, errno.EEXIST):
            what, fix = "a file stands where a folder is needed", "choose another place"
        else:
            what, fix = (
                f"the disk refused ({error.strerror or error})",
                f"check the disk and {AGAIN}",
            )
        raise StorageError(what, where=str(where), fix=fix) from error


def sync_folder(folder: Path) -> None:
    """Make a rename inside the folder survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """Replace a file as a whole: readers see the old content or the new, never a mixture."""
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        sweep_files(path.parent, glob.escape(path.name))
        partial, file = _begun_beside(path)
        try:
            with file:
                yield file
                file.flush()
                os.fsync(file.fileno())
                partial.replace(path)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)


def _begun_beside(path: Path) -> tuple[Path, BinaryIO]:
    """A new file beside another, locked as long as it is open: so whoever sweeps sees that its writer lives."""
    while True:
        partial = beside(path, "partial")
        file = partial.open("xb")
        with contextlib.suppress(OSError):  # not every file system has locks
            fcntl.flock(file, fcntl.LOCK_EX)
        if names(partial, file.fileno()):
            return partial, file
        file.close()  # it was swept between being made and being locked


def write_bytes(path: Path, data: bytes) -> None:
    with new_file(path) as file:
        file.write(data)


def write_json(path: Path, value: Any) -> None:
    write_bytes(path, json_bytes(value))


def json_bytes(value: Any) -> bytes:
    return json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def read_json(path: Path) -> Any:
    try:
        return json_of(path.read_bytes(), path)
    except OSError as error:
        raise DamagedError(f"cannot be read ({error})", where=str(path), fix="make it again") from error


def json_of(content: bytes, where: Path) -> Any:
    """What a JSON file says; only what `write_json` could have written."""
    try:
        value = json.loads(content, parse_constant=_refuse_constant, object_pairs_hook=_with_each_name_once)
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()  # half a surrogate pair, or 1e999
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"cannot be read ({error})", where=str(where), fix="make it again") from error
    return value


def _with_each_name_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object as it was written: of a name that stands twice, readers would take one value or the other."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name stands twice in an object")
    return found


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number")


def append_json_line(path: Path, value: Any) -> None:
    """Add one line to a log, in a single write so that a killed process leaves whole lines."""
    line = json.dumps(value, ensure_ascii=False, allow_nan=False) + "\n"
    with disk_errors(path):
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            if os.write(handle, line.encode()) != len(line.encode()):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(handle)
        finally:
            os.close(handle)


def shown_path(path: str | os.PathLike[str]) -> str:
    r"""A path as it is written in messages and files of ours: names on a disk are bytes, and need not be UTF-8.

    >>> shown_path(os.fsdecode(b"caf\xe9.csv"))
    'caf\\xe9.csv'
    """
    try:
        name = os.fsencode(path)
    except UnicodeEncodeError:  # half a surrogate pair, which no file has in its name
        name = os.fspath(path).encode("utf-8", "backslashreplace")
    return name.decode("utf-8", "backslashreplace")


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def folder_size(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def readable_size(size: float) -> str:
    """
    >>> readable_size(25_300_000)
    '25.3 MB'
    """
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            return f"{size:.0f} bytes" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1000
    raise AssertionError("unreachable")
