"""A sealed folder at an address is changed: fetched, changed here, and brought back in the place of what it was.

The changed files are first put beside the others, under a name that no reader takes. Only when all of them are there
is the manifest taken away, the files are moved to their places, and the manifest comes last. Who reads meanwhile gets
the folder as it was, as it is, or is told that there is no whole one.
"""

from __future__ import annotations

import contextlib
import filecmp
import secrets
from pathlib import Path
from typing import Any, NamedTuple

from carp.errors import CarpError, StorageError
from carp.reviews.sources.addresses import in_short
from carp.scale.remote_folders import files_at, put, remove, store_of
from carp.storage import MANIFEST, SIGNATURE

SEALS = (MANIFEST, SIGNATURE)
COMING = ".coming"  # ends the name of what is on its way; it begins with a dot


class HalfThereError(StorageError):
    """What lies at an address is neither as it was nor as it was to be, and without its manifest."""


class _Change(NamedTuple):
    """What is other in a folder than it was before."""

    local: Path
    before: Path
    put: list[str]  # the manifest last
    removed: list[str]

    @classmethod
    def of(cls, local: Path, before: Path) -> _Change:
        new, old = _names(local), _names(before)
        same = [name for name in new if name in old and filecmp.cmp(local / name, before / name, shallow=False)]
        other = sorted(set(new) - set(same), key=lambda name: (name == MANIFEST, name))
        return cls(local, before, other, sorted(set(old) - set(new)))


def _names(folder: Path) -> list[str]:
    return [one.relative_to(folder).as_posix() for one in folder.rglob("*") if one.is_file()]


def change_there(local: Path, address: str, before: Path) -> bool:
    """Bring a changed folder to the address that it was fetched from; False where nothing of it is other than before.

    Args:
        local: The folder as it is to be.
        address: Where it was fetched from.
        before: The folder as it was fetched. Where another one is there by now, nothing is changed.
    """
    change = _Change.of(local, before)
    if not change.put and not change.removed:
        return False
    with store_of(address) as (system, path):
        coming = f"{path}/.{secrets.token_hex(8)}{COMING}"
        try:
            _refuse_other(system, path, before, address)
            for name in change.put:
                put(system, local / name, f"{coming}/{name}")
            _refuse_other(system, path, before, address)  # that took its time
            _exchange(system, path, coming, change)
        except CarpError:
            raise
        except Exception as error:
            what = f"the change could not be brought here ({in_short(error)}); nothing was changed"
            fix = "check your credentials and the space there, and run the command again"
            raise StorageError(what, where=address, fix=fix) from None
        finally:
            with contextlib.suppress(Exception):  # stores of objects have no folders
                system.rm(coming, recursive=True)
    return True


def _refuse_other(system: Any, path: str, before: Path, address: str) -> None:
    """Refuse to replace what is not what was fetched: somebody else has written there."""
    for name in SEALS:
        there = system.cat_file(f"{path}/{name}") if system.exists(f"{path}/{name}") else None
        if there != ((before / name).read_bytes() if (before / name).is_file() else None):
            what = "somebody else has changed it since it was fetched; nothing was changed"
            raise StorageError(what, where=address, fix="run the command again, on what is there now")


def _exchange(system: Any, path: str, coming: str, change: _Change) -> None:
    """Put what is there in the place of what was, the manifest last; or everything as it was."""
    gone = [one for name, one in files_at(system, path).items() if name in change.removed]
    left = [one for one in system.find(path) if f"{COMING}/" in one and coming not in one]  # by writers that died
    try:
        remove(system, [f"{path}/{MANIFEST}"])
        remove(system, [*gone, *left])
        for name in change.put:
            system.mv(f"{coming}/{name}", f"{path}/{name}")
        if MANIFEST not in change.put:
            put(system, change.before / MANIFEST, f"{path}/{MANIFEST}")
    except BaseException as error:
        try:
            _put_back(system, path, change)
        except Exception as again:
            what = f"it is not whole there any more: a change broke off ({in_short(error)}), and so did undoing it "
            raise HalfThereError(f"{what}({in_short(again)})") from None
        raise


def _put_back(system: Any, path: str, change: _Change) -> None:
    remove(system, [f"{path}/{MANIFEST}"])
    for name in [*change.put, *change.removed]:
        if not (change.before / name).is_file():
            remove(system, [f"{path}/{name}"])
        elif name != MANIFEST:
            put(system, change.before / name, f"{path}/{name}")
    put(system, change.before / MANIFEST, f"{path}/{MANIFEST}")
