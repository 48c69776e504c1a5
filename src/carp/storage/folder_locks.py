"""Locks on the places of folders: one process at a time writes there, and the next is told who does.

The kernel releases such a lock when its holder ends, however it ends, and process numbers play no part: they mean
nothing between containers. The lock is a small file beside the folder; its holder removes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from carp.errors import UsageError

_HELD: set[tuple[str, int, int]] = set()


class _Busy(Exception):
    """Somebody else has the lock; what they wrote into it."""


def real_place(path: Path) -> Path:
    """Where something lies behind all links that lead to it; the path as it was given, where none does."""
    real = os.path.realpath(path)
    return path if real == str(path.absolute()) else Path(real)


@contextlib.contextmanager
def holding(path: Path, shown: Path | None = None) -> Iterator[None]:
    """Be the only one who writes at this place; whoever comes second is told who holds it.

    A thread that holds the place already may ask again. `shown` is what messages call the place.
    """
    try:
        with _held(path):
            yield
    except _Busy as busy:
        what, fix = f"another process is writing here ({busy})", "wait until it has ended, or choose another place"
        raise UsageError(what, where=str(shown or path), fix=fix) from None


@contextlib.contextmanager
def holding_if_free(path: Path) -> Iterator[bool]:
    """Whether nobody else writes at this place, who is then kept out meanwhile."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(_held(path))
        except (_Busy, OSError):  # somebody writes, or locking is not allowed here
            yield False
            return
        yield True


@contextlib.contextmanager
def holding_in_turn(path: Path) -> Iterator[None]:
    """Be the only one who writes at this place, after all who were there before."""
    with _held(path, wait=True):
        yield


@contextlib.contextmanager
def _held(path: Path, *, wait: bool = False) -> Iterator[None]:
    place = real_place(path).absolute()  # by whatever name it is called, it is one place
    file = place.parent / f".{place.name}.lock"
    mine = (str(file), os.getpid(), threading.get_ident())  # a forked child does not hold what its parent does
    if mine in _HELD:
        yield
        return
    handle = _locked(file, wait)
    _HELD.add(mine)
    try:
        yield
    finally:
        _HELD.discard(mine)
        with contextlib.suppress(OSError):
            file.unlink(missing_ok=True)  # before the lock goes: whoever waits for this file looks whether it is there
        os.close(handle)


def _locked(file: Path, wait: bool) -> int:
    while True:
        handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            if names(file, handle):
                _sign(handle)
                return handle
        except BlockingIOError:
            holder = _who(handle)
            os.close(handle)
            raise _Busy(holder) from None
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)  # its holder removed the file between our opening it and our locking it


def names(path: Path, handle: int) -> bool:
    """Whether a path still leads to the file that was opened."""
    try:
        return os.path.samestat(path.lstat(), os.fstat(handle))
    except FileNotFoundError:
        return False


def _sign(handle: int) -> None:
    command = " ".join([Path(sys.argv[0]).name, *sys.argv[1:2]]) if sys.argv else "python"
    who = {"process": os.getpid(), "machine": socket.gethostname(), "command": command[:80], "since": time.time()}
    with contextlib.suppress(OSError):  # on a full disk the lock holds all the same
        os.ftruncate(handle, 0)
        os.pwrite(handle, json.dumps(who).encode(), 0)


def _who(handle: int) -> str:
    try:
        who = json.loads(os.pread(handle, 1000, 0))
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(who["since"]))
        return f"{who['command']}, process {who['process']} on {who['machine']}, since {since}"
    except (OSError, ValueError, TypeError, KeyError, OverflowError):
        return "it has not said who it is"
