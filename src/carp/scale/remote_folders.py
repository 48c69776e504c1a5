"""Files and folders at addresses such as s3://bucket/key, by fsspec: brought here to be read, and brought there whole.

A folder's manifest goes last and is taken away first. So whatever lies at an address without one is not whole, and is
refused like a folder on the disk without one.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from carp.errors import CarpError, StorageError, UsageError
from carp.storage import MANIFEST

PROBE = ".carp-may-write"


@contextlib.contextmanager
def _store(address: str) -> Iterator[tuple[Any, str]]:
    """The store and the path in it. Whatever goes wrong there is said in one sentence."""
    try:
        from fsspec.core import url_to_fs

        system, path = url_to_fs(address)
        yield system, path.rstrip("/")
    except CarpError:
        raise
    except ImportError as error:
        needed = getattr(error, "name", None) or str(error).splitlines()[0]
        what = f"this kind of address needs a package ({needed})"
        raise StorageError(what, where=address, fix="install it with pip") from None
    except FileNotFoundError:
        raise StorageError("there is no such bucket or folder", where=address, fix="check the address") from None
    except Exception as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
        fix = "check the address, the network and your credentials"
        what = f"the address cannot be used ({type(error).__name__}: {first})"
        raise StorageError(what, where=address, fix=fix) from None


def check_address(address: str, overwrite: bool) -> None:
    """Refuse an address where something is already, or where nothing may be written, before any work."""
    with _store(address) as (system, path):
        if not overwrite and system.exists(path):
            raise UsageError("this already exists", where=address, fix="choose another --out, or add --overwrite")
        _make_room(system, path)
        probe = f"{path.rsplit('/', 1)[0]}/{PROBE}"
        system.pipe_file(probe, b"")
        system.rm_file(probe)


def bring_there(local: Path, address: str) -> None:
    """Put a file or a folder at an address, in the place of what is there."""
    with _store(address) as (system, path):
        if local.is_file():
            _put(system, local, path)
            return
        files = {str(one.relative_to(local)): one for one in sorted(local.rglob("*")) if one.is_file()}
        manifest = files.pop(MANIFEST)
        before = set(system.find(path)) if system.exists(path) else set()
        _remove(system, [one for one in before if one.endswith(f"/{MANIFEST}")])
        there = [f"{path}/{name}" for name in files]
        try:
            for name, one in files.items():
                _put(system, one, f"{path}/{name}")
            _remove(system, [one for one in before if _plain(one) not in {_plain(t) for t in there}])
            _put(system, manifest, f"{path}/{MANIFEST}")
        except BaseException:
            with contextlib.suppress(Exception):  # without its manifest it is not taken for whole anyway
                _remove(system, there)
            raise


def bring_here(address: str, folder: Path) -> Path:
    """A copy of a folder at an address, in a folder of this machine."""
    with _store(address) as (system, path):
        found = system.find(path)
        if not any(one.endswith(f"/{MANIFEST}") for one in found):
            what = "there is no whole folder here: its manifest is missing"
            raise StorageError(what, where=address, fix="check the address, or make it again")
        for one in found:
            to = folder / _plain(one)[len(_plain(path)) + 1 :]
            if ".." in to.parts:
                raise StorageError("a name leads out of the folder", where=one, fix="make it again")
            to.parent.mkdir(parents=True, exist_ok=True)
            system.get_file(one, str(to))
    return folder


def _plain(path: str) -> str:
    return path.lstrip("/")


def _remove(system: Any, paths: list[str]) -> None:
    for path in paths:
        if system.exists(path):
            system.rm_file(path)


def _make_room(system: Any, path: str) -> None:
    """Make the folders above a path. A bucket is never made: a name that was mistyped would become one of its own."""
    if path.startswith("/"):
        system.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
    elif not system.exists(path.split("/", 1)[0]):  # a store of objects has no folders below its buckets
        raise FileNotFoundError(path)


def _put(system: Any, local: Path, path: str) -> None:
    _make_room(system, path)
    system.put_file(str(local), path)
    if int(system.info(path)["size"]) != local.stat().st_size:
        raise OSError(f"{os.path.basename(path)} is not there as a whole")  # noqa: PTH119
