"""Files and folders at addresses such as s3://bucket/key, by fsspec: what lies there, and bringing it here to be read.

Whatever lies at an address without a manifest is not whole, and is refused like a folder on the disk without one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from carp.errors import StorageError
from carp.reviews.sources.addresses import address_errors
from carp.storage import MANIFEST, disk_errors

COMING = ".coming"  # ends the name of what is on its way; it begins with a dot
ON_ITS_WAY = re.compile(rf"\.[0-9a-f]{{16}}{re.escape(COMING)}")
TRIES = 3  # of bringing a folder here that is replaced meanwhile


@contextlib.contextmanager
def store_of(address: str) -> Iterator[tuple[Any, str]]:
    """The store and the path in it, as it is now. Whatever goes wrong there is said in one sentence."""
    with address_errors(address, kind=StorageError, may="used", what="bucket or folder"):
        from fsspec.core import url_to_fs

        system, path = url_to_fs(address)
        system.invalidate_cache()
        yield system, path.rstrip("/")


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


@contextlib.contextmanager
def folder_for_copies(shared: Path | None = None) -> Iterator[Path]:
    """A folder that goes in the end: in a shared one under a hidden name, or where temporary files are."""
    prefix = "carp-" if shared is None else ".carp-in-"
    # A service that ends waits for no fetch, which may still write here.
    with TemporaryDirectory(prefix=prefix, dir=shared, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


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
    if (found := content_of(system, f"{path}/{MANIFEST}")) is not None:
        return found
    what, fix = "there is no whole folder here: its manifest is missing", "check the address, or make it again"
    if unfinished(system, path):
        what = f"{what}, since a command that writes here is at its last step, or ended in the middle of it"
        fix = "try again in a moment; if it stays so, run that command again: it finishes what it began"
    raise StorageError(what, where=address, fix=fix)


def content_of(system: Any, path: str) -> bytes | None:
    """The content of a small file that may be there."""
    try:
        return bytes(system.cat_file(path))
    except FileNotFoundError:
        return None


class Listed(NamedTuple):
    """What a manifest says of its folder."""

    kind: str
    files: dict[str, dict[str, Any]]

    @classmethod
    def of(cls, manifest: bytes | None) -> Listed | None:
        """None where this is no manifest of carp's: other programs have files of that name too."""
        try:
            read = json.loads(manifest or b"")
            kind, files = read["kind"], read["files"]
        except (ValueError, TypeError, KeyError):
            return None
        right = isinstance(kind, str) and isinstance(files, dict)
        return cls(kind, files) if right and all(isinstance(facts, dict) for facts in files.values()) else None


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
    return {name: one for name, one in everything_at(system, path).items() if not name.startswith(".")}


def everything_at(system: Any, path: str) -> dict[str, str]:
    """The same, with the names that begin with a dot."""
    found = {_plain(one)[len(_plain(path)) + 1 :]: one for one in system.find(path)}
    return {name: one for name, one in found.items() if name}  # a store may list the folder itself


def waiting_at(system: Any, path: str) -> dict[str, list[str]]:
    """What writers, living or dead, have put beside the files of a folder, by the hidden folder in it."""
    found: dict[str, list[str]] = {}
    for name, one in everything_at(system, path).items():
        hidden, _, inside = name.partition("/")
        if inside and ON_ITS_WAY.fullmatch(hidden):
            found.setdefault(f"{path}/{hidden}", []).append(one)
    return found


def unfinished(system: Any, path: str) -> list[str]:
    """The hidden folders with all that is to come: their manifests were put there last."""
    return sorted(one for one in waiting_at(system, path) if system.exists(f"{one}/{MANIFEST}"))


def _plain(path: str) -> str:
    return path.lstrip("/")


def remove(system: Any, paths: list[str]) -> None:
    """Remove the files that are there."""
    for path in paths:
        if system.exists(path):
            system.rm_file(path)


def make_room(system: Any, path: str) -> None:
    """Make the folders above a path. A bucket is never made: a name that was mistyped would become one of its own."""
    if path.startswith("/"):
        system.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
    elif not system.exists(path.split("/", 1)[0]):  # a store of objects has no folders below its buckets
        raise FileNotFoundError(path)


def put(system: Any, local: Path, path: str) -> None:
    """Put a file there, and look whether it has arrived."""
    make_room(system, path)
    system.put_file(str(local), path)
    if int(system.info(path)["size"]) != local.stat().st_size:
        raise OSError(f"{os.path.basename(path)} is not there as a whole")  # noqa: PTH119
