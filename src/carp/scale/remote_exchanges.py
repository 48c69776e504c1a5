"""How a folder at an address is replaced: everything is put beside it first, and then takes its place in steps.

The new files wait in a hidden folder that no reader takes. Only when all of them are there, their manifest last, is the
old manifest taken away; they are copied to their places, and the manifest comes last. Until then the hidden folder
keeps all of them, and every step may be taken twice: whoever finds an exchange that nobody finished can finish it.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from carp.errors import StorageError
from carp.reviews.sources.addresses import in_short
from carp.scale.remote_folders import (
    COMING,
    Listed,
    content_of,
    everything_at,
    files_at,
    make_room,
    put,
    remove,
    store_of,
    unfinished,
    waiting_at,
)
from carp.storage import MANIFEST, SIGNATURE

SEALS = (MANIFEST, SIGNATURE)
BEFORE = ".before"  # in the hidden folder: the manifest of what is replaced, whose files are the ones that may go
AGAIN = "run the command again: it finishes what it began"


class HalfThereError(StorageError):
    """What lies at an address is neither as it was nor as it was to be, and without its manifest."""


def put_beside(system: Any, path: str, local: Path, names: Iterable[str], before: bytes | None) -> str:
    """Put files of a folder of this machine beside what is at a path, the manifest last; where they wait."""
    waiting = f"{path}/.{secrets.token_hex(8)}{COMING}"
    try:
        if before is not None:
            make_room(system, f"{waiting}/{BEFORE}")
            system.pipe_file(f"{waiting}/{BEFORE}", before)
        for name in sorted(names, key=lambda name: (name == MANIFEST, name)):
            put(system, local / name, f"{waiting}/{name}")
    except BaseException:
        let_go(system, waiting)
        raise
    return waiting


def move_in(system: Any, path: str, waiting: str) -> None:
    """Put what waits in the place of what was. Files that no manifest lists are nobody's to remove, and stay."""
    coming = files_at(system, waiting)
    there, gone = everything_at(system, path), _names_to_go(system, waiting, coming)
    others = waiting_at(system, path)  # by writers that died; one that lives finds another manifest, and gives up
    remove(system, [one for other, files in others.items() if other != waiting for one in files])
    remove(system, [f"{path}/{MANIFEST}"])
    remove(system, [there[name] for name in gone if name in there])
    for name in sorted(coming, key=lambda name: (name == MANIFEST, name)):
        _copy(system, coming[name], f"{path}/{name}")
    let_go(system, waiting)


def _names_to_go(system: Any, waiting: str, coming: Iterable[str]) -> set[str]:
    manifest, before = (content_of(system, f"{waiting}/{name}") for name in (MANIFEST, BEFORE))
    new, old = Listed.of(manifest), Listed.of(before)
    gone = set(old.files) - set(new.files) if old and new else set()
    return (gone if manifest == before else gone | {SIGNATURE}) - set(coming)  # it is of one manifest alone


def _copy(system: Any, one: str, other: str) -> None:
    make_room(system, other)
    try:
        system.cp_file(one, other)
    except NotImplementedError:  # a store that cannot copy by itself
        with system.open(one, "rb") as source, system.open(other, "wb") as target:
            shutil.copyfileobj(source, target)


def let_go(system: Any, waiting: str) -> None:
    """Remove a hidden folder; what is left of one is removed by the next writer."""
    with contextlib.suppress(Exception):  # stores of objects have no folders
        system.rm(waiting, recursive=True)


def is_there(system: Any, path: str, local: Path) -> bool:
    """Whether the folder at a path has the seals of one of this machine: everything has come."""
    return all(
        content_of(system, f"{path}/{name}") == ((local / name).read_bytes() if (local / name).is_file() else None)
        for name in SEALS
    )


def finish_there(address: str, tell: Callable[[], None]) -> bool:
    """Finish an exchange at an address that its command did not finish, after telling so; whether there was one.

    Only who is about to write there may do this: a reader would get in the way of a writer that is still at it. Two who
    finish the same one do the same.
    """
    with store_of(address) as (system, path):
        if system.exists(f"{path}/{MANIFEST}"):
            return False
        for waiting in unfinished(system, path):
            if _is_whole(system, path, waiting):
                tell()
                try:
                    move_in(system, path, waiting)
                except Exception as error:
                    what = f"a change here was not finished, and could not be finished now ({in_short(error)})"
                    fix = f"check that you may write there, then {AGAIN}"
                    raise StorageError(what, where=address, fix=fix) from None
                return True
    return False


def _is_whole(system: Any, path: str, waiting: str) -> bool:
    """Whether each file of the new manifest is there, waiting or in its place, with its size and sum."""
    listed = Listed.of(content_of(system, f"{waiting}/{MANIFEST}"))
    coming, there = files_at(system, waiting), files_at(system, path)
    places = {name: coming.get(name, there.get(name)) for name in listed.files} if listed else {}
    return listed is not None and all(
        place is not None and _facts(system, place) == tuple(map(listed.files[name].get, ("bytes", "sha256")))
        for name, place in places.items()
    )


def _facts(system: Any, path: str) -> tuple[int, str]:
    with system.open(path, "rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
        return int(system.info(path)["size"]), found
