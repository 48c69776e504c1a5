"""A sealed folder at an address is changed: fetched, changed here, and brought back in the place of what it was.

Who reads meanwhile gets the folder as it was, as it is, or is told that there is no whole one.
"""

from __future__ import annotations

import filecmp
from pathlib import Path
from typing import Any, NamedTuple

from carp.errors import CarpError, StorageError
from carp.reviews.sources.addresses import in_short
from carp.scale.ending_signals import undisturbed
from carp.scale.remote_exchanges import AGAIN, HalfThereError, is_there, let_go, move_in, put_beside
from carp.scale.remote_folders import put, remove, store_of
from carp.storage import MANIFEST


class _Change(NamedTuple):
    """What is other in a folder than it was before."""

    local: Path
    before: Path
    put: list[str]  # with the manifest, also where it is the same
    removed: list[str]

    @classmethod
    def of(cls, local: Path, before: Path) -> _Change | None:
        """None where nothing is."""
        new, old = _names(local), _names(before)
        same = [name for name in new if name in old and filecmp.cmp(local / name, before / name, shallow=False)]
        other, removed = set(new) - set(same), sorted(set(old) - set(new))
        return cls(local, before, sorted(other | {MANIFEST}), removed) if other or removed else None


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
    if change is None:
        return False
    with store_of(address) as (system, path):
        waiting = None
        try:
            _refuse_other(system, path, before, address)
            waiting = put_beside(system, path, local, change.put, (before / MANIFEST).read_bytes())
            _refuse_other(system, path, before, address)  # that took its time
            _exchange(system, path, waiting, change)
        except HalfThereError:
            raise  # what waits is what finishes it
        except BaseException as error:
            if waiting is not None:
                let_go(system, waiting)
            if isinstance(error, CarpError) or not isinstance(error, Exception):
                raise
            what = f"the change could not be brought here ({in_short(error)}); nothing was changed"
            fix = "check your credentials and the space there, and run the command again"
            raise StorageError(what, where=address, fix=fix) from None
    return True


def _refuse_other(system: Any, path: str, before: Path, address: str) -> None:
    """Refuse to replace what is not what was fetched: somebody else has written there."""
    if not is_there(system, path, before):
        what = "somebody else has changed it since it was fetched; nothing was changed"
        raise StorageError(what, where=address, fix="run the command again, on what is there now")


def _exchange(system: Any, path: str, waiting: str, change: _Change) -> None:
    """Put what waits in the place of what was; or everything as it was."""
    try:
        move_in(system, path, waiting)
    except BaseException as error:
        with undisturbed():
            try:
                if is_there(system, path, change.local):
                    return  # it was the end of it that broke off, or another writer has finished it
                _put_back(system, path, change)
            except Exception as again:
                what = f"it is not whole there any more: a change broke off ({in_short(error)}), and so did undoing it "
                raise HalfThereError(f"{what}({in_short(again)})", fix=AGAIN) from None
        raise


def _put_back(system: Any, path: str, change: _Change) -> None:
    remove(system, [f"{path}/{MANIFEST}"])
    for name in [*change.put, *change.removed]:
        if not (change.before / name).is_file():
            remove(system, [f"{path}/{name}"])
        elif name != MANIFEST:
            put(system, change.before / name, f"{path}/{name}")
    put(system, change.before / MANIFEST, f"{path}/{MANIFEST}")
