"""Files and folders at addresses such as s3://bucket/key, by fsspec: brought here to be read, and brought there whole.

A folder's manifest goes last and is taken away first. So whatever lies at an address without one is not whole, and is
refused like a folder on the disk without one.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from carp.errors import StorageError, UsageError
from carp.reviews.sources.addresses import address_errors
from carp.storage import MANIFEST, disk_errors

PROBE = ".carp-may-write"
TRIES = 3  # of bringing a folder here that is replaced meanwhile


@contextlib.contextmanager
def store_of(address: str) -> Iterator[tuple[Any, str]]:
    """The store and the path in it, as it is now. Whatever goes wrong there is said in one sentence."""
    with address_errors(address, kind=StorageError, may="used", what="bucket or folder"):
        from fsspec.core import url_to_fs

        system, path = url_to_fs(address)
        system.invalidate_cache()
        yield system, path.rstrip("/")


def check_address(address: str, overwrite: bool) -> None:
    """Refuse an address where something is already, or where nothing may be written, before any work."""
    with store_of(address) as (system, path):
        if not overwrite and system.exists(path):
            raise UsageError("this already exists", where=address, fix="choose another --out, or add --overwrite")
        _make_room(system, path)
        probe = f"{path.rsplit('/', 1)[0]}/{PROBE}"
        system.pipe_file(probe, b"")
        system.rm_file(probe)


def bring_there(local: Path, address: str) -> None:
    """Put a file or a folder at an address, in the place of what is there."""
    with store_of(address) as (system, path):
        if local.is_file():
            put(system, local, path)
            return
        files = {str(one.relative_to(local)): one for one in sorted(local.rglob("*")) if one.is_file()}
        manifest = files.pop(MANIFEST)
        before = set(system.find(path)) if system.exists(path) else set()
        remove(system, [one for one in before if one.endswith(f"/{MANIFEST}")])
        there = [f"{path}/{name}" for name in files]
        try:
            for name, one in files.items():
                put(system, one, f"{path}/{name}")
            remove(system, [one for one in before if _plain(one) not in {_plain(t) for t in there}])
            put(system, manifest, f"{path}/{MANIFEST}")
        except BaseException:
            with contextlib.suppress(Exception):  # without its manifest it is not taken for whole anyway
                remove(system, there)
            raise


def bring_here(address: str, folder: Path) -> Path:
    """A copy of a sealed folder at an address, as a new folder of this machine: of one state of it, and no mixture."""
    with store_of(address) as (system, path):
        for _ in range(TRIES):
            before = _manifest(system, path, address)
            with contextlib.suppress(FileNotFoundError):  # it is being replaced
                _copy_here(system, path, folder)
                if manifest_of(folder) == before == _manifest(system, path, address):
                    return folder
            shutil.rmtree(folder, ignore_errors=True)
    raise StorageError("it is replaced while it is fetched, again and again", where=address, fix="try again later")


def bring_any_here(address: str, folder: Path) -> Path:
    """A copy of whatever lies at an address, a file or a folder, at a new place of this machine."""
    with store_of(address) as (system, path):
        if system.isdir(path):
            _copy_here(system, path, folder)
        else:
            with disk_errors(folder):
                folder.parent.mkdir(parents=True, exist_ok=True)
            system.get_file(path, str(folder))
    return folder


def sum_there(address: str) -> str:
    """The sha256 sum of the manifest of a folder at an address."""
    with store_of(address) as (system, path):
        return hashlib.sha256(_manifest(system, path, address)).hexdigest()


def manifest_of(folder: Path) -> bytes | None:
    """The manifest of a folder of this machine, as it is written."""
    return (folder / MANIFEST).read_bytes() if (folder / MANIFEST).is_file() else None


def _manifest(system: Any, path: str, address: str) -> bytes:
    try:
        return bytes(system.cat_file(f"{path}/{MANIFEST}"))
    except FileNotFoundError:
        what = "there is no whole folder here: its manifest is missing"
        raise StorageError(what, where=address, fix="check the address, or make it again") from None


def _copy_here(system: Any, path: str, folder: Path) -> None:
    for name, one in files_at(system, path).items():
        to = folder / name
        if ".." in to.parts:
            raise StorageError("a name leads out of the folder", where=one, fix="make it again")
        with disk_errors(to.parent):
            to.parent.mkdir(parents=True, exist_ok=True)
        system.get_file(one, str(to))


def files_at(system: Any, path: str) -> dict[str, str]:
    """Where each file of a folder lies, by its name in it. Names that begin with a dot are of what is on its way."""
    found = {_plain(one)[len(_plain(path)) + 1 :]: one for one in system.find(path)}
    return {name: one for name, one in found.items() if not name.startswith(".")}


def _plain(path: str) -> str:
    return path.lstrip("/")


def remove(system: Any, paths: list[str]) -> None:
    """Remove the files that are there."""
    for path in paths:
        if system.exists(path):
            system.rm_file(path)


def _make_room(system: Any, path: str) -> None:
    """Make the folders above a path. A bucket is never made: a name that was mistyped would become one of its own."""
    if path.startswith("/"):
        system.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
    elif not system.exists(path.split("/", 1)[0]):  # a store of objects has no folders below its buckets
        raise FileNotFoundError(path)


def put(system: Any, local: Path, path: str) -> None:
    """Put a file there, and look whether it has arrived."""
    _make_room(system, path)
    system.put_file(str(local), path)
    if int(system.info(path)["size"]) != local.stat().st_size:
        raise OSError(f"{os.path.basename(path)} is not there as a whole")  # noqa: PTH119
