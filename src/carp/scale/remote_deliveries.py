"""What a command has made is brought to an address, in the place of what may be replaced there and of nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from carp.errors import StorageError, UsageError
from carp.reviews.sources.addresses import in_short
from carp.scale.remote_exchanges import BEFORE, SEALS, HalfThereError, is_there, let_go, move_in, put_beside
from carp.scale.remote_folders import (
    Listed,
    content_of,
    everything_at,
    make_room,
    put,
    store_of,
    unfinished,
    waiting_at,
)
from carp.storage import MANIFEST

PROBE = ".carp-may-write"
ELSEWHERE = "choose another --out"


def check_address(address: str, kind: str | None, overwrite: bool) -> None:
    """Refuse an address where something is that may not be replaced, or where nothing may be written, before any work.

    Args:
        address: Where the result is to be.
        kind: Of the sealed folder that is made; None: a file is made.
        overwrite: Whether one of the same kind may be replaced.
    """
    with store_of(address) as (system, path):
        _refuse_what_is_there(system, path, address, kind, overwrite)
        make_room(system, path)
        probe = f"{path.rsplit('/', 1)[0]}/{PROBE}"
        system.pipe_file(probe, b"")
        system.rm_file(probe)


def bring_there(local: Path, address: str, kind: str | None, overwrite: bool) -> None:
    """Put a file or a folder at an address, in the place of what is there, which is looked at once more before."""
    if not local.is_file() and not (local / MANIFEST).is_file():
        what = "the command ended without making what was to be brought here"
        raise StorageError(what, where=address, fix="run it again with --out PATH, to see what it makes")
    with store_of(address) as (system, path):
        _refuse_what_is_there(system, path, address, kind, overwrite)
        if local.is_file():
            put(system, local, path)
            return
        before = _manifest_before(system, path)
        names = [one.relative_to(local).as_posix() for one in local.rglob("*") if one.is_file()]
        waiting = put_beside(system, path, local, names, before)
        try:
            _refuse_what_is_there(system, path, address, kind, overwrite)  # that took its time
        except BaseException:
            let_go(system, waiting)
            raise
        _move_in(system, path, waiting, local)


def _move_in(system: Any, path: str, waiting: str, local: Path) -> None:
    try:
        move_in(system, path, waiting)
    except BaseException as error:
        if not is_there(system, path, local):
            what = f"it is not whole there: the last step of bringing it broke off ({in_short(error)})"
            raise HalfThereError(what, fix="run the command again, with --overwrite") from None


def _manifest_before(system: Any, path: str) -> bytes | None:
    """The manifest of what is replaced; of an exchange that nobody finished, what its manifests list together."""
    manifest = content_of(system, f"{path}/{MANIFEST}")
    if manifest is not None or not (listed := _listed_by_the_unfinished(system, path)):
        return manifest
    return json.dumps({"kind": listed[0].kind, "files": {name: {} for one in listed for name in one.files}}).encode()


def _listed_by_the_unfinished(system: Any, path: str) -> list[Listed]:
    found = [content_of(system, f"{one}/{name}") for one in unfinished(system, path) for name in (MANIFEST, BEFORE)]
    return [one for one in map(Listed.of, found) if one is not None]


def _refuse_what_is_there(system: Any, path: str, address: str, kind: str | None, overwrite: bool) -> None:
    """Refuse what may not be replaced: all that was not asked for, and all that is not of carp's own making."""
    if not path:
        raise UsageError("this address names no bucket or folder", where=address, fix="write it as s3://bucket/key")
    system.invalidate_cache()  # somebody else may have written there since it was last asked
    if not system.exists(path):
        return
    if kind is None:
        if system.isdir(path):
            raise UsageError("this is a folder", where=address, fix="give the address of a file with --out")
        _refuse_unasked(address, overwrite)
        return
    if not system.isdir(path):
        _refuse_unasked(address, overwrite)
        raise UsageError(f"this is a file, and a {kind} would replace it", where=address, fix=ELSEWHERE)
    _refuse_other_folders(system, path, address, kind, overwrite)


def _refuse_unasked(address: str, overwrite: bool, what: str = "this already exists") -> None:
    if not overwrite:
        raise UsageError(what, where=address, fix=f"{ELSEWHERE}, or add --overwrite")


def _refuse_other_folders(system: Any, path: str, address: str, kind: str, overwrite: bool) -> None:
    on_their_way = {one for files in waiting_at(system, path).values() for one in files}
    there = {name for name, one in everything_at(system, path).items() if one not in on_their_way}
    if not there:
        return  # an empty folder, or a delivery that ended before it changed anything
    manifest = content_of(system, f"{path}/{MANIFEST}")
    of_one = Listed.of(manifest)
    listed = _listed_by_the_unfinished(system, path) if manifest is None else [of_one] if of_one else []
    strange = sorted(there.difference(SEALS, *(one.files for one in listed)))
    example = (strange or sorted(there))[0]
    if "/" not in path.strip("/") and (strange or not listed):
        what = f"this is a whole bucket, and it holds other things, such as {example}"
        raise UsageError(what, where=address, fix=f"give a place in it: {address.rstrip('/')}/{kind}")
    if not listed:
        what = f"what is here was not made by carp, or was never whole ({example}), and it is not overwritten"
        fix = f"{ELSEWHERE}; remove what is here yourself where you know it to be a {kind} that is not whole"
        raise UsageError(what, where=address, fix=fix)
    what = "a command ended in the last step of writing here" if manifest is None else "this already exists"
    _refuse_unasked(address, overwrite, what)
    if listed[0].kind != kind:
        raise UsageError(f"this is a {listed[0].kind}, and a {kind} would replace it", where=address, fix=ELSEWHERE)
