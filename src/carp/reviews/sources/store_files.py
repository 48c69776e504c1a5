"""Files in stores such as s3://bucket, found by an address, a folder or a pattern, and copied to this machine.

What is found is what would be found on a disk: names that begin with a dot or an underscore are left out, and a folder
of nothing but Parquet files is one table. No name that is given out holds a password.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from carp.errors import InputError
from carp.reviews.sources.addresses import address_errors
from carp.reviews.sources.unpacking import CHUNK, PARQUET
from carp.shown_addresses import shown_address
from carp.storage import disk_errors

PATTERN = re.compile(r"[*?\[]")


class StoreFiles(NamedTuple):
    """A file in a store, or the files of a folder there that are one table."""

    name: str  # as it may be shown and kept
    size: int  # in bytes, as far as it is known
    system: Any
    paths: tuple[str, ...]
    folder: str | None = None  # that has them all, if they are one table

    def copy_to(self, place: Path) -> None:
        """Copy the file to a new place of this machine, or the files into a new folder there."""
        with address_errors(self.name):
            for path in self.paths:
                to = place if self.folder is None else place / _below(path, self.folder)
                with disk_errors(to):
                    to.parent.mkdir(parents=True, exist_ok=True)
                with self.system.open(path, "rb") as remote, disk_errors(to), to.open("wb") as file:
                    while chunk := _next_of(remote, self.name):
                        file.write(chunk)


def _next_of(remote: Any, name: str) -> bytes:
    """The next bytes of a file in a store. What fails there is no fault of the disk that they are written to."""
    with address_errors(name):
        return bytes(remote.read(CHUNK))


def find_in_store(address: str) -> list[StoreFiles]:
    """The files and tables that an address stands for: of a file, a folder, or a pattern of them."""
    with address_errors(address):
        from fsspec.core import url_to_fs

        system, path = url_to_fs(address)
        if not PATTERN.search(path):
            found = _at(system, path, address.rstrip("/"))
        else:
            fixed = path[: PATTERN.search(path).start()].rpartition("/")[0]  # type: ignore[union-attr]  # it was found
            asked_for = [part for part in path.split("/") if is_hidden(part)]
            matching = (one for one in sorted(system.glob(path)) if _is_data(_below(one, fixed), asked_for))
            above = _above(address, path)
            listed = [
                one
                for place in matching
                for one in _at(system, place, system.unstrip_protocol(place) if above is None else above + place)
            ]
            found = list({one.paths: one for one in listed}.values())
        if not found:
            raise InputError("there is no file", where=shown_address(address), fix="check the address")
        return found


def is_hidden(name: str) -> bool:
    """Whether a file or folder of this name is no data."""
    return name.startswith((".", "_"))


def _at(system: Any, path: str, address: str) -> list[StoreFiles]:
    """What is at a path: a file, or the files in a folder and its folders."""
    if not system.isdir(path):
        return [StoreFiles(shown_address(address), _size(system.info(path)), system, (path,))]
    sizes = {one: _size(info) for one, info in system.find(path, detail=True).items() if _is_data(_below(one, path))}
    paths = sorted(sizes)
    if paths and all(system.cat_file(one, start=0, end=len(PARQUET)).startswith(PARQUET) for one in paths):
        return [StoreFiles(shown_address(address), sum(sizes.values()), system, tuple(paths), path)]
    return [StoreFiles(shown_address(f"{address}/{_below(one, path)}"), sizes[one], system, (one,)) for one in paths]


def _size(info: Any) -> int:
    return int(info.get("size") or 0)


def _above(address: str, path: str) -> str | None:
    """What an address has before the path in its store; None where it is written otherwise."""
    return address[: len(address) - len(path)] if address.endswith(path) and "::" not in address else None


def _below(path: str, folder: str) -> str:
    """The name of a file below a folder. Pages of the web may lead elsewhere: then its last part."""
    path, folder = path.strip("/"), folder.strip("/")
    return path[len(folder) :].lstrip("/") if path.startswith(f"{folder}/") or not folder else path.rpartition("/")[2]


def _is_data(name: str, asked_for: Sequence[str] = ()) -> bool:
    """Whether no part of a name is hidden, but for those that a pattern asks for."""
    return not any(is_hidden(part) and not any(fnmatchcase(part, one) for one in asked_for) for part in name.split("/"))
