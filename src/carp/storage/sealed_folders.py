"""Sealed folders, read so that what was checked is what is used.

All files are opened once, before anything is read, and each is checked and read by that one opening. Whoever replaces
the folder meanwhile puts another one in its place; the opened files stay those of one folder.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import BufferedReader
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carp.errors import CarpError, DamagedError, StorageError, UsageError
from carp.storage import block_sums
from carp.storage.array_files import PLACE, arrays_of, header_end, mapped_arrays, place_in, plain_column
from carp.storage.block_sums import DIFFERS, BlockSums, BytesCheckedOnUse, CheckedBlocks, in_threads
from carp.storage.leftovers import bring_back
from carp.storage.signatures import KEY_FILE, MANIFEST, SIGNATURE, check_signature
from carp.storage.written_files import json_of

FORMAT_VERSION = 1
MOST_FILES, MOST_MANIFEST = 1000, 1 << 20
TRIES = 1000  # of opening a folder that is replaced again and again


class _Gone(Exception):
    """Something is missing that was there a moment ago, or never was."""


@dataclass
class SealedFolder:
    """A folder whose files are open; each is checked against the manifest before its content is given out."""

    path: Path
    kind: str
    manifest: dict[str, Any]
    manifest_bytes: bytes  # as they were read
    others: frozenset[str]  # names of what lies in the folder and is not in the manifest
    _files: dict[str, BufferedReader] = field(default_factory=dict)
    _checked: set[str] = field(default_factory=set)

    @property
    def sum(self) -> str:
        """The sha256 sum of the manifest, which holds the sums of everything else."""
        return hashlib.sha256(self.manifest_bytes).hexdigest()

    @property
    def again(self) -> str:
        return f"make the {self.kind} again, or restore it from a copy"

    def __contains__(self, name: str) -> bool:
        return name in self._files

    def names(self) -> list[str]:
        return list(self._files)

    def read(self, name: str) -> bytes:
        """The whole content of a file."""
        file = self._files[name]
        file.seek(0)
        content = file.read()
        self._compare(name, hashlib.sha256(content).hexdigest(), len(content))
        return content

    def json(self, name: str) -> Any:
        return json_of(self.read(name), self.path / name)

    def arrays(self, name: str, *, mmap: bool = False) -> dict[str, NDArray[Any]]:
        """The arrays of a file. A large file is left on the disk if that is allowed, and mapped by this opening."""
        if not mmap or not self._is_large(name):
            return arrays_of(self.read(name), self.path / name)
        if name not in self._checked:
            self._check(name)
        return mapped_arrays(self._files[name], self.path / name)

    def arrays_but(self, name: str, later: str) -> tuple[dict[str, NDArray[Any]], BytesCheckedOnUse | None]:
        """The arrays of a file as `arrays` maps them, but for one of plain bytes, which is checked on use.

        Nothing of that one is read yet: each of its blocks is checked when it is first asked for. Where the file is
        small or has no sums of blocks, it is checked now and among the others.
        """
        blocks = self._blocks(name) if self._is_large(name) else None
        if blocks is None:
            return self.arrays(name, mmap=True), None
        # The header says where the arrays lie. How long it is stands before it, in a block that is checked in any case.
        blocks.check(0, max(PLACE, min(header_end(self._files[name]), blocks.size)))
        arrays = mapped_arrays(self._files[name], self.path / name)
        if later not in arrays or arrays[later].dtype != np.uint8 or arrays[later].ndim != 1:
            blocks.check(0, blocks.size)
            return arrays, None
        left = BytesCheckedOnUse(arrays[later], blocks, place_in(arrays.pop(later)))
        blocks.check(0, left.begin)
        blocks.check(left.begin + len(left.content), blocks.size)
        self._checked.add(name)
        return arrays, left

    def check_large(self) -> None:
        """Check the large files that have no sums of blocks, all at the same time: each is summed by one core alone."""
        facts = self.manifest["files"]
        in_threads(self._check, [name for name in self._files if self._is_large(name) and "blocks" not in facts[name]])

    def column(self, name: str, *, mmap: bool) -> NDArray[Any]:
        """A column that `np.save` wrote, left on the disk if that is asked for."""
        file = self._files[name]
        self._check(name)
        try:
            return plain_column(file, mmap=mmap)
        except Exception as error:  # numpy reads the header with a parser of Python, which fails in many ways
            raise DamagedError(f"cannot be read ({error})", where=str(self.path / name), fix=self.again) from error

    def check_all(self) -> None:
        """Check the files that nobody has read or will check on use."""
        for name in self._files:
            if name not in self._checked:
                self._check(name)

    def _is_large(self, name: str) -> bool:
        return os.fstat(self._files[name].fileno()).st_size >= block_sums.LARGE

    def _check(self, name: str) -> None:
        file, blocks = self._files[name], self._blocks(name)
        if blocks is not None:
            blocks.check(0, blocks.size)
            self._checked.add(name)
            return
        file.seek(0)
        self._compare(name, hashlib.file_digest(file, "sha256").hexdigest(), file.tell())

    def _blocks(self, name: str) -> CheckedBlocks | None:
        """The blocks of a file; None where there are no sums of them."""
        facts = self.manifest["files"][name]
        sums = BlockSums.of(facts)
        if sums is None:
            return None
        return CheckedBlocks(self._files[name], facts["bytes"], sums, lambda what: self._refusal(name, what))

    def _compare(self, name: str, found: str, size: int) -> None:
        facts = self.manifest["files"][name]
        if (size, found) != (facts.get("bytes"), facts.get("sha256")):
            raise self._refusal(name)
        self._checked.add(name)

    def _refusal(self, name: str, what: str = DIFFERS) -> DamagedError:
        return DamagedError(what, where=str(self.path / name), fix=self.again)

    def close(self) -> None:
        for file in self._files.values():
            file.close()


@contextlib.contextmanager
def opened_folder(
    path: Path | str, kind: str, key_file: Path | None = None, *, unsigned: bool = False
) -> Iterator[SealedFolder]:
    """Open a sealed folder with all its files.

    With a key, here or in $CARP_KEY_FILE, it must be signed with it, unless it may be `unsigned`.
    """
    folder = _opened(Path(path), kind, None if unsigned else key_file or _own_key())
    try:
        yield folder
    finally:
        folder.close()


def _own_key() -> Path | None:
    return Path(os.environ[KEY_FILE]) if os.environ.get(KEY_FILE) else None


def _opened(path: Path, kind: str, key_file: Path | None) -> SealedFolder:
    for _ in range(TRIES):
        bring_back(path)
        try:
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        except (FileNotFoundError, NotADirectoryError):
            fix = f"check the path of the {kind}"
            raise StorageError(f"there is no {kind} here", where=str(path), fix=fix) from None
        except OSError as error:
            raise StorageError(f"cannot be opened ({error.strerror})", where=str(path), fix="check it") from error
        try:
            return _from_handle(handle, path, kind, key_file)
        except CarpError:
            if _is_still(path, handle):  # else it was replaced while it was being read
                raise
        finally:
            os.close(handle)
    raise StorageError("it is replaced faster than it can be read", where=str(path), fix="try again later")


def _is_still(path: Path, handle: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(handle))
    except FileNotFoundError:
        return False


def _from_handle(handle: int, path: Path, kind: str, key_file: Path | None) -> SealedFolder:
    again = f"make the {kind} again, or restore it from a copy"
    try:
        content = _small_file(handle, MANIFEST)
    except _Gone:
        what = f"this folder is no carp {kind}: {MANIFEST} is missing"
        raise DamagedError(what, where=str(path), fix=again) from None
    if key_file is not None:
        signature = None
        with contextlib.suppress(_Gone):
            signature = _small_file(handle, SIGNATURE)
        check_signature(content, signature, key_file, path)
    manifest = json_of(content, path / MANIFEST)
    _check_manifest(manifest, path, kind, again)
    others = frozenset(os.listdir(handle)) - manifest["files"].keys()
    folder = SealedFolder(path, kind, manifest, content, others)
    try:
        for name, facts in folder.manifest["files"].items():
            _open_file(folder, handle, name, facts)
    except BaseException:
        folder.close()
        raise
    return folder


def _small_file(handle: int, name: str) -> bytes:
    try:
        with _open_in(handle, name) as file:
            return file.read(MOST_MANIFEST)
    except OSError as error:
        raise _Gone from error


def _check_manifest(manifest: Any, path: Path, kind: str, again: str) -> None:
    files = manifest.get("files") if isinstance(manifest, dict) else None
    if not isinstance(files, dict) or len(files) > MOST_FILES:
        raise DamagedError("the manifest is damaged", where=str(path / MANIFEST), fix=again)
    if manifest.get("kind") != kind:
        raise UsageError(f"this is a {manifest.get('kind')}, not a {kind}", where=str(path), fix=f"give a {kind}")
    if manifest.get("version") != FORMAT_VERSION:
        what = f"it was made by another version (format {manifest.get('version')}, this reads {FORMAT_VERSION})"
        raise DamagedError(what, where=str(path), fix=again)


def _open_file(folder: SealedFolder, handle: int, name: str, facts: Any) -> None:
    place, file_fix = PurePosixPath(name), folder.again
    outside = place.is_absolute() or ".." in place.parts or "\0" in name or len(name) > 200 or str(place) != name
    outside = outside or not place.parts
    if outside or not isinstance(facts, dict):
        raise DamagedError("the manifest is damaged", where=str(folder.path / MANIFEST), fix=file_fix)
    where = str(folder.path / name)
    try:
        file = _open_in(handle, name)
    except OSError as error:
        what = "a file of the folder is missing"
        if error.errno == errno.ELOOP:
            what = "a link stands where a file of the folder should be"
        elif error.errno not in (errno.ENOENT, errno.ENOTDIR):
            what = f"a file of the folder cannot be read ({error.strerror})"
        raise DamagedError(what, where=where, fix=file_fix) from None
    folder._files[name] = file
    found = os.fstat(file.fileno())
    if not stat.S_ISREG(found.st_mode):
        raise DamagedError("a file of the folder is missing", where=where, fix=file_fix)
    if found.st_size != facts.get("bytes"):
        raise folder._refusal(name)
    try:
        BlockSums.of(facts)
    except ValueError:
        raise DamagedError("the manifest is damaged", where=str(folder.path / MANIFEST), fix=file_fix) from None


def _open_in(handle: int, name: str) -> BufferedReader:
    """Open a file inside an opened folder, through no link."""
    *folders, last = PurePosixPath(name).parts
    opened = os.dup(handle)
    try:
        for inner in folders:
            outer, opened = opened, os.open(inner, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=opened)
            os.close(outer)
        # A pipe in the place of a file must not keep us waiting.
        return open(os.open(last, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=opened), "rb")  # noqa: PTH123
    finally:
        os.close(opened)
