"""Where reviews can lie: files, folders, patterns, zip archives, standard input, and addresses of object stores.

Whatever it is, reading wants a file on this machine. What comes from elsewhere is copied into a temporary folder first,
one file or one table at a time, and keeps the name that the user knows.
"""

from __future__ import annotations

import glob
import os
import shutil
import sys
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, NamedTuple

from carp.errors import CarpError, InputError, let_missing_memory_through
from carp.reviews.sources.addresses import is_address
from carp.reviews.sources.encodings import detected_encoding
from carp.reviews.sources.sheets import WORKBOOK
from carp.reviews.sources.store_files import PATTERN, StoreFiles, find_in_store, is_hidden
from carp.reviews.sources.unpacking import (
    BOMB_FLOOR,
    BOMB_RATIO,
    CHUNK,
    PARQUET,
    ZIP,
    SourceFile,
    check_file,
    first_bytes,
)
from carp.storage import disk_errors, shown_path

STANDARD_INPUT = "-"


class Location(NamedTuple):
    """One file, folder or address that reviews are to be read from. Nothing of it has been opened yet."""

    place: str  # as it may be shown and kept
    size: int = 0  # in bytes, as far as it is known
    dataset: bool = False  # a folder of Parquet files that is one table
    stored: StoreFiles | None = None  # if it is not on this machine


@dataclass(frozen=True)
class Reading:
    """How files are to be opened: an encoding if it is known, the limit of unpacking, and a folder for copies."""

    folder: Path
    max_bytes: int
    encoding: str | None = None
    keeps: bool = False  # copies stay in the folder until it is removed

    def copy(self) -> Path:
        """A name for the next copy."""
        return self.folder / f"copy-{len(list(self.folder.iterdir()))}"


def locate(places: Sequence[str | os.PathLike[str]]) -> list[Location]:
    """The files that some paths, folders, patterns and addresses stand for, in order."""
    return [found for place in places for found in _located(os.fspath(place))]


def _located(place: str) -> list[Location]:
    if place == STANDARD_INPUT:
        return [Location(place)]
    if is_address(place):
        return [Location(one.name, one.size, one.folder is not None, one) for one in find_in_store(place)]
    if Path(place).is_dir():
        return _in_folder(Path(place))
    if PATTERN.search(place) and not Path(place).exists():
        found = [Path(one) for one in sorted(glob.glob(place, recursive=True))]  # noqa: PTH207
        if not found:
            fix = "check the pattern and put it in quotes"
            raise InputError("no file matches the pattern", where=shown_path(place), fix=fix)
        return [one for path in found for one in (_in_folder(path) if path.is_dir() else [_on_disk(path)])]
    return [_on_disk(Path(place))]


def _on_disk(path: Path) -> Location:
    return Location(str(path), check_file(path).stat().st_size)


def _in_folder(folder: Path) -> list[Location]:
    """All files in a folder and its folders. Names that begin with a dot or an underscore are not data."""
    found = sorted(_inside(folder))
    if not found:
        fix = "give a folder with files of reviews"
        raise InputError("the folder has no files", where=shown_path(folder), fix=fix)
    if all(first_bytes(path).startswith(PARQUET) for path in found):
        _refuse_strange_names(folder, found)
        return [Location(str(folder), sum(path.stat().st_size for path in found), dataset=True)]
    return [_on_disk(path) for path in found]


def _inside(folder: Path) -> Iterator[Path]:
    """What is read of a folder. Where one below cannot be looked into, it is refused: reviews would be missing."""

    def refuse(error: OSError) -> None:
        what, fix = f"the folder cannot be read ({error.strerror})", "check its permissions"
        raise InputError(what, where=shown_path(error.filename), fix=fix) from error

    for place, folders, files in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not is_hidden(name)]
        for inner in (Path(place, name) for name in folders):
            if inner.is_symlink():
                what, fix = "this link leads to a folder, and is not followed", "leave it out, or give that folder too"
                raise InputError(what, where=shown_path(inner), fix=fix)
        for name in files:
            if not is_hidden(name):
                yield check_file(Path(place, name)).path


def _refuse_strange_names(folder: Path, parts: list[Path]) -> None:
    """The library that reads a table of several files asks for their names in UTF-8."""
    for part in parts:
        if not _is_utf8(part.relative_to(folder)):
            fix = "rename the file or its folder, or give the files one by one"
            what = "the name of this part of the table is not in UTF-8"
            raise InputError(what, where=shown_path(part), fix=fix)


def _is_utf8(path: Path) -> bool:
    return shown_path(path) == str(path)


def opened(location: Location, how: Reading) -> Iterator[SourceFile]:
    """The files at a location, ready to be read one after the other. A copy is removed when the next is asked for."""
    for file in _local_files(location, how):
        encoding = how.encoding
        if encoding is None and not file.dataset and not first_bytes(file).startswith((PARQUET, ZIP)):
            encoding = detected_encoding(file)
        yield replace(file, encoding=encoding)
        if file.shown and not how.keeps:
            _remove(file)


def _remove(copy: SourceFile) -> None:
    if copy.dataset and not copy.path.is_symlink():
        shutil.rmtree(copy.path)
    else:
        copy.path.unlink(missing_ok=True)


def _local_files(location: Location, how: Reading) -> Iterator[SourceFile]:
    if location.dataset and location.stored is None:
        yield _with_a_name(SourceFile(Path(location.place), dataset=True), how)
        return
    file = _local(location, how)
    if file.dataset:
        yield file
        return
    yield from _unzipped(file, how) if first_bytes(file).startswith(ZIP) else [file]


def _local(location: Location, how: Reading) -> SourceFile:
    copy = how.copy()
    if location.place == STANDARD_INPUT:
        _copy(sys.stdin.buffer, copy)
        return check_file(SourceFile(copy, "standard input"))
    if location.stored is not None:
        location.stored.copy_to(copy)
        file = SourceFile(copy, location.place, dataset=location.dataset)
        return file if file.dataset else check_file(file)
    return _with_a_name(check_file(location.place), how)


def _with_a_name(file: SourceFile, how: Reading) -> SourceFile:
    """The file, by a link where its own name is not in UTF-8: not every library that reads files takes such names."""
    if _is_utf8(file.path):
        return file
    link = how.copy()
    link.symlink_to(file.path.absolute())
    return replace(file, path=link, shown=str(file))


def _copy(source: IO[bytes], to: Path) -> None:
    _write(_pieces(source), to)


def _pieces(source: IO[bytes]) -> Iterator[bytes]:
    while piece := source.read(CHUNK):
        yield piece


def _write(pieces: Iterable[bytes], to: Path) -> None:
    """Write a copy. What goes wrong in making the pieces is no fault of the disk."""
    with disk_errors(to):
        file = to.open("wb", buffering=0)  # nothing is left to be written when it is closed
    with file:
        for piece in pieces:
            rest = memoryview(piece)
            while rest:
                with disk_errors(to):
                    rest = rest[file.write(rest) :]


def _unzipped(file: SourceFile, how: Reading) -> Iterator[SourceFile]:
    """The file itself if it is a workbook of Excel, otherwise the files in the archive."""
    try:
        with zipfile.ZipFile(file.path) as archive:
            if WORKBOOK in archive.namelist():
                yield file
                return
            found = [one for one in archive.infolist() if not one.is_dir() and _is_data(one.filename)]
            if not found:
                raise InputError("the zip archive has no files", where=str(file), fix="give one with reviews")
            size = file.stat().st_size
            if sum(one.compress_size for one in found) > size:
                raise zipfile.BadZipFile("its files lie over each other")
            left = min(how.max_bytes, max(BOMB_FLOOR, BOMB_RATIO * size))  # that all of them may unpack to
            for member in found:
                to = SourceFile(how.copy(), f"{file}/{member.filename}", packed=member.compress_size)
                left -= _extract(archive, member, to, left)
                yield check_file(to)
    except CarpError:
        raise
    except Exception as error:  # each way of packing has errors of its own
        let_missing_memory_through(error)
        fix = "check it with `unzip -t`, or unpack it and give the files inside"
        raise InputError(f"the zip archive cannot be read ({str(error)[:200]})", where=str(file), fix=fix) from None


def _is_data(name: str) -> bool:
    return not any(is_hidden(part) for part in Path(name).parts)


def _extract(archive: zipfile.ZipFile, member: zipfile.ZipInfo, to: SourceFile, most: int) -> int:
    """Copy a member out, and stop at what no archive of texts holds; the bytes that it has."""
    size = 0

    def bounded(pieces: Iterator[bytes]) -> Iterator[bytes]:
        nonlocal size
        for piece in pieces:
            size += len(piece)
            if size > most:
                raise InputError(
                    f"the archive unpacks to more than {BOMB_RATIO} times its size, as no text does",
                    where=str(to),
                    fix="if you trust it, unpack it first and give the plain files",
                )
            yield piece

    with archive.open(member) as source:
        _write(bounded(_pieces(source)), to.path)
    return size
