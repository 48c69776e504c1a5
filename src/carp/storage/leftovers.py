"""What is on its way to a place stands beside it under its own name; what dead writers left there is found again."""

from __future__ import annotations

import contextlib
import fcntl
import glob
import re
import secrets
import shutil
from pathlib import Path

from carp.storage.folder_locks import holding_if_free, real_place

OWNER = re.compile("[0-9a-f]{16}|[0-9]+")  # digits alone are process numbers, which older versions wrote


def beside(path: Path, kind: str) -> Path:
    """A name of its own for what is on its way to a place: `.NAME.OWNER.KIND`."""
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}.{kind}")


def leftovers(parent: Path, pattern: str, kind: str) -> list[Path]:
    """What is beside the places whose names match a pattern, of living writers and of dead ones."""
    found = parent.glob(f".{pattern}.*.{kind}")
    return [one for one in found if OWNER.fullmatch(one.name.split(".")[-2])]


def sweep_files(parent: Path, pattern: str) -> None:
    """Remove the unfinished files of dead writers."""
    for leftover in leftovers(parent, pattern, "partial"):
        if leftover.is_symlink():
            continue  # no writer makes one, and it would be followed
        with contextlib.suppress(OSError), leftover.open("rb+") as file:  # a folder cannot be opened so
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # refused while the writer lives
            leftover.unlink(missing_ok=True)


def sweep(parent: Path, pattern: str) -> None:
    """Remove what dead writers left unfinished beside files or folders whose names match a pattern.

    An old folder that was set aside comes back if nothing took its place.
    """
    for leftover in leftovers(parent, pattern, "replaced"):
        with holding_if_free(place_of(leftover)) as free:
            if free and place_of(leftover).exists():
                _remove(leftover)
            elif free:
                leftover.rename(place_of(leftover))
    for leftover in leftovers(parent, pattern, "partial"):
        if leftover.is_dir() or leftover.is_symlink():
            with holding_if_free(place_of(leftover)) as free:
                if free:
                    _remove(leftover)
    sweep_files(parent, pattern)


def _remove(leftover: Path) -> None:
    """Remove a folder, or a link: older versions set aside a link to a folder in place of the folder."""
    if leftover.is_symlink():
        with contextlib.suppress(OSError):
            leftover.unlink(missing_ok=True)
    else:
        shutil.rmtree(leftover, ignore_errors=True)


def bring_back(path: Path) -> None:
    """Give a folder its place again if a process died after setting it aside and before replacing it.

    Readers do this too, so nothing is removed here; where it may not be renamed, it stays as it is.
    """
    path = real_place(path).absolute()  # a link that leads nowhere just now is not what is missing
    if not path.exists():
        for leftover in leftovers(path.parent, glob.escape(path.name), "replaced"):
            with holding_if_free(path) as free, contextlib.suppress(OSError):
                if free and place_of(leftover) == path and not path.exists():
                    leftover.rename(path)


def place_of(leftover: Path) -> Path:
    """Where something was on its way to."""
    return leftover.with_name(leftover.name.rsplit(".", 2)[0].removeprefix("."))
