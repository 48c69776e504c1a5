"""Whole folders, written so that nothing is ever half there: filled beside their place, sealed, put there at once."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import glob
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

from carp.errors import StorageError, UsageError
from carp.storage.block_sums import facts_of
from carp.storage.folder_locks import holding, real_place
from carp.storage.leftovers import beside, bring_back, sweep
from carp.storage.mount_points import refuse_mount_point
from carp.storage.sealed_folders import FORMAT_VERSION, MANIFEST
from carp.storage.signatures import KEY_FILE, SIGNATURE, write_signature
from carp.storage.written_files import disk_errors, json_bytes, sync_folder, write_bytes

SEALING_THREADS = 4
AT_CWD, EXCHANGE = -100, 2  # of Linux' renameat2
NO_EXCHANGE = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)


@contextlib.contextmanager
def new_folder(path: Path | str, kind: str, *, overwrite: bool = False) -> Iterator[Path]:
    """Fill a temporary folder; it takes its place, with a manifest, only when everything has been written.

    Nobody else may write at this place meanwhile. Where the path is a link, the place is what it leads to now, and the
    link stays as it is.
    """
    given = Path(path).absolute()
    with disk_errors(given):
        bring_back(given)  # what was set aside may have been a link
        path = real_place(given)
        path.parent.mkdir(parents=True, exist_ok=True)
        with holding(path, given):
            sweep(path.parent, glob.escape(path.name))
            refuse_existing(path, overwrite, shown=given)
            partial = beside(path, "partial")
            partial.mkdir()
            try:
                yield partial
                seal(partial, kind)
                put_in_place(partial, path)
            except StorageError as error:  # nobody knows the name of what is on its way, and it is gone
                if error.where is not None and Path(error.where).is_relative_to(partial):
                    error.where = str(given)
                raise
            finally:
                shutil.rmtree(partial, ignore_errors=True)  # unfinished, or what was there before


@contextlib.contextmanager
def sole_writer(path: Path, shown: Path | None = None) -> Iterator[Path]:
    """Be the only one who writes at a place, whose parents are made where they are missing.

    It is given back as the place behind all links: to that one alone is it safe to write, since a link may be made to
    lead elsewhere meanwhile. `shown` is what messages call it.
    """
    place, shown = real_place(path), shown or path
    with contextlib.ExitStack() as stack:
        with disk_errors(shown):
            place.absolute().parent.mkdir(parents=True, exist_ok=True)
            stack.enter_context(holding(place, shown))
        yield place


def put_in_place(partial: Path, path: Path) -> None:
    """Put a finished folder in its place. What was there before stands in the finished one's place, to be removed."""
    refuse_mount_point(path)
    if not path.exists():
        partial.rename(path)
    elif not exchanged(partial, path):
        aside = beside(path, "replaced")
        path.rename(aside)
        try:
            partial.rename(path)
        except BaseException:
            aside.rename(path)
            raise
        aside.rename(partial)
    sync_folder(path.parent)


def exchanged(one: Path, other: Path) -> bool:
    """Whether two folders could be exchanged in one step, with no moment in which either is missing."""
    exchange = _exchange()
    if exchange is None:
        return False
    if exchange(AT_CWD, os.fsencode(one), AT_CWD, os.fsencode(other), EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in NO_EXCHANGE:  # the system or the file system cannot do it
        return False
    raise OSError(number, os.strerror(number), str(other))


@cache
def _exchange() -> Any:
    try:
        function = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):
        return None
    function.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]
    return function


def refuse_existing(
    path: Path,
    overwrite: bool,
    other: str = "choose another folder",
    hint: str = "give overwrite=True",
    *,
    shown: Path | None = None,
) -> None:
    """An output that exists is never touched unless asked for; `other` and `hint` say how, where it is not Python.

    `shown` is what messages call it.
    """
    where = str(shown or path)
    if path.exists() and not overwrite:
        raise UsageError("this already exists", where=where, fix=f"{other}, or {hint}")
    if path.exists() and any(path.iterdir()) and not (path / MANIFEST).exists():
        raise UsageError("this folder was not made by carp and is not overwritten", where=where, fix=other)


def seal(folder: Path, kind: str) -> None:
    """Write the manifest: every file with its size and sums. Where $CARP_KEY_FILE names a key, sign it."""
    (folder / SIGNATURE).unlink(missing_ok=True)
    files = sorted(item for item in folder.rglob("*") if item.is_file() and item.name != MANIFEST)
    # The disk and the sums of large files take their time, and neither keeps the other waiting in threads.
    with ThreadPoolExecutor(SEALING_THREADS) as threads:
        facts = list(threads.map(_sealed, files))
    for inner in sorted({file.parent for file in files} - {folder}):
        sync_folder(inner)
    listed = {file.relative_to(folder).as_posix(): fact for file, fact in zip(files, facts, strict=True)}
    manifest = json_bytes({"kind": kind, "version": FORMAT_VERSION, "files": listed})
    write_bytes(folder / MANIFEST, manifest)
    if key := os.environ.get(KEY_FILE):
        write_signature(folder, manifest, Path(key))


def _sealed(file: Path) -> dict[str, Any]:
    with file.open("rb") as handle:
        os.fsync(handle.fileno())
    return facts_of(file)
