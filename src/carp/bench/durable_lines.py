"""JSON lines added to a file so that each is there whole or not at all, whatever moment a process dies in."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from carp.errors import StorageError
from carp.storage import disk_errors, sync_folder


def append_line(path: Path, value: Any) -> None:
    """Add one line; it is on the disk when this returns. Several processes may add to one file."""
    data = (json.dumps(value, ensure_ascii=False, allow_nan=False) + "\n").encode()
    with disk_errors(path), _opened_alone(path) as handle:
        end = _end_of_whole_lines(handle)
        os.ftruncate(handle, end)  # what a dying process left of its line goes
        if os.write(handle, data) != len(data):
            os.ftruncate(handle, end)
            raise StorageError("there is no space left on the disk", where=str(path), fix="free some space")
        os.fsync(handle)
        if end == 0:
            sync_folder(path.parent)


def whole_lines(path: Path) -> list[bytes]:
    """The lines of a file; what a dying process left of a last one is not among them."""
    if not path.exists():
        return []
    *whole, _ = path.read_bytes().split(b"\n")
    return whole


@contextlib.contextmanager
def _opened_alone(path: Path) -> Iterator[int]:
    """The file, made where there is none, while no other process adds to it."""
    handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield handle
    finally:
        os.close(handle)


def _end_of_whole_lines(handle: int) -> int:
    size = os.fstat(handle).st_size
    if size == 0 or os.pread(handle, 1, size - 1) == b"\n":
        return size
    return os.pread(handle, size, 0).rfind(b"\n") + 1
