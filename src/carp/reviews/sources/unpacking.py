"""The content of plain, gzip and zstd files, in UTF-8.

The packing is recognised by the first bytes of a file, not by its name. Unpacking stops at a limit.
"""

from __future__ import annotations

import codecs
import gzip
import os
import stat
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from carp.errors import InputError, let_missing_memory_through
from carp.reviews.split_parts import OnProgress
from carp.storage import shown_path

CHUNK = 256 << 10
ZSTD_PIECE = 1 << 10  # unpacks to at most 32 MiB; the library itself does not limit the output of a call
ZSTD_WINDOW = 128 << 20
BOMB_RATIO = 50  # texts are packed to a third of their size, rarely to a twentieth; one line again and again, to less
BOMB_FLOOR = 16 << 20
PACKED_SHARE = 0.3

GZIP, ZSTD, PARQUET, ZIP = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PAR1", b"PK\x03\x04"
OTHER_PACKINGS = {
    b"BZh": ("a bzip2 file", "bunzip2"),
    b"\xfd7zXZ\x00": ("an xz file", "unxz"),
    b"7z\xbc\xaf\x27\x1c": ("a 7z archive", "7z x"),
}
PROBE = max(len(magic) for magic in [GZIP, ZSTD, *OTHER_PACKINGS])


@dataclass(frozen=True)
class SourceFile:
    """A file on this machine, and what it is called when something is said about it."""

    path: Path
    shown: str = ""  # if it is a copy: the name of the original
    encoding: str | None = None  # if it is not UTF-8
    dataset: bool = False  # a folder of Parquet files that is one table
    packed: int = 0  # if it comes out of an archive: the bytes that it takes there

    def __str__(self) -> str:
        return self.shown or shown_path(self.path)

    def open(self) -> BinaryIO:
        return self.path.open("rb")

    def stat(self) -> os.stat_result:
        return self.path.stat()


Place = str | os.PathLike[str] | SourceFile


def as_file(place: Place) -> SourceFile:
    return place if isinstance(place, SourceFile) else SourceFile(Path(place))


def may_unpack_to(file: SourceFile, size: int, *, ratio: int = BOMB_RATIO, floor: int = BOMB_FLOOR) -> int:
    """The most bytes that a file of this size may unpack to.

    What is packed twice counts from the archive on, each file of it as it is: many small ones would be much together.
    """
    return ratio * file.packed if file.packed else max(floor, ratio * size)


class _Broken(Exception):
    """The packed content is damaged or incomplete."""


class _Bomb(Exception):
    """The packed content is too large when unpacked."""


@contextmanager
def _refusals(path: Place) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        let_missing_memory_through(error)
        raise InputError(
            f"the file cannot be read ({error.strerror or error})", where=str(path), fix="check its permissions"
        ) from error


@contextmanager
def reading_faults(path: Place, lines: Callable[[], int]) -> Iterator[None]:
    """Turn what stops the reading of a file into an InputError that says how many complete lines were read."""
    try:
        with _refusals(path):
            yield
    except _Broken as fault:
        raise InputError(
            f"the compressed file {fault} after {lines():,} complete lines",
            where=str(path),
            fix="copy or download it again; `gzip -t` and `zstd -t` check a file",
        ) from fault.__cause__
    except _Bomb as fault:
        raise InputError(
            f"the compressed file {fault} (stopped after {lines():,} lines)",
            where=str(path),
            fix="if you trust it, unpack it first and give the plain file",
        ) from None


def check_file(path: Place) -> SourceFile:
    """The file, if it can be read."""
    place = as_file(path)
    with _refusals(place):
        try:
            facts = place.stat()
        except (FileNotFoundError, NotADirectoryError, ValueError):
            raise InputError("there is no such file", where=str(place), fix="check the path") from None
    if stat.S_ISDIR(facts.st_mode):
        raise InputError("this is a folder", where=str(place), fix="give a file")
    if not stat.S_ISREG(facts.st_mode):
        raise InputError("this is a pipe or a device", where=str(place), fix="save its content to a file first")
    if facts.st_size == 0:
        raise InputError("the file is empty", where=str(place), fix="give a file with reviews")
    return place


def first_bytes(path: Place) -> bytes:
    with _refusals(path), as_file(path).open() as file:
        return file.read(PROBE)


def packed_share(path: Place) -> float:
    """The size of a file divided by the size of its content, guessed from its packing."""
    return PACKED_SHARE if first_bytes(path).startswith((GZIP, ZSTD, PARQUET, ZIP)) else 1.0


def _gzip_chunks(file: BinaryIO) -> Iterator[bytes]:
    try:
        with gzip.GzipFile(fileobj=file) as unpacked:
            while chunk := unpacked.read1(CHUNK):
                yield chunk
    except EOFError as error:
        raise _Broken("breaks off") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise _Broken("is damaged") from error


def _zstd_chunks(file: BinaryIO) -> Iterator[bytes]:
    import zstandard

    unpacker = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW)
    frame = None
    while piece := file.read(ZSTD_PIECE):
        while piece:
            frame = frame or unpacker.decompressobj()
            try:
                unpacked = frame.decompress(piece)
            except zstandard.ZstdError as error:
                raise _Broken("is damaged") from error
            for start in range(0, len(unpacked), CHUNK):
                yield unpacked[start : start + CHUNK]
            piece = frame.unused_data if frame.eof else b""
            frame = None if frame.eof else frame
    if frame is not None:
        raise _Broken("breaks off")


def _plain_chunks(file: BinaryIO) -> Iterator[bytes]:
    while chunk := file.read(CHUNK):
        yield chunk


def _packing(path: SourceFile) -> tuple[str, Callable[[BinaryIO], Iterator[bytes]]]:
    head = first_bytes(path)
    for magic, (kind, command) in OTHER_PACKINGS.items():
        if head.startswith(magic):
            raise InputError(
                f"this is {kind}; plain, gzip, zstd and zip files can be read",
                where=str(path),
                fix=f"unpack it first with {command}",
            )
    if head.startswith(GZIP):
        return "gzip", _gzip_chunks
    return ("zstd", _zstd_chunks) if head.startswith(ZSTD) else ("plain", _plain_chunks)


def unpacked(path: Place, max_bytes: int, progress: OnProgress | None) -> Iterator[bytes]:
    """The content in pieces of at most CHUNK bytes, or a little more if it has to be converted to UTF-8."""
    file = as_file(path)
    chunks = _limited(file, max_bytes, progress)
    return chunks if file.encoding in (None, "utf-8") else _in_utf8(chunks, str(file.encoding), file)


def _in_utf8(chunks: Iterator[bytes], encoding: str, file: SourceFile) -> Iterator[bytes]:
    """What cannot be decoded stays as it is, so that its line is refused as not being UTF-8."""
    decoder = codecs.getincrementaldecoder(encoding)(errors="surrogateescape")
    try:
        for chunk in chunks:
            yield decoder.decode(chunk).encode("utf-8", "surrogateescape")
        yield decoder.decode(b"", final=True).encode("utf-8", "surrogateescape")
    except UnicodeError as error:
        fix = "say in which encoding it is with --encoding NAME"
        raise InputError(f"the file is not in the encoding {encoding} ({error})", where=str(file), fix=fix) from None


def _limited(path: SourceFile, max_bytes: int, progress: OnProgress | None) -> Iterator[bytes]:
    kind, unpack = _packing(path)
    size_so_far = 0
    with path.open() as file:
        size = os.fstat(file.fileno()).st_size
        most = may_unpack_to(path, size)
        for chunk in unpack(file):
            size_so_far += len(chunk)
            if kind != "plain":
                if size_so_far > max_bytes:
                    raise _Bomb(f"unpacks to more than {max_bytes:,} bytes")
                if size_so_far > most:
                    raise _Bomb(f"unpacks to more than {BOMB_RATIO} times its size, as no text does")
            if progress is not None:
                progress(min(file.tell(), size), size)
            yield chunk
        if os.fstat(file.fileno()).st_size < size:
            what, fix = "the file was cut off while it was read", "read it again when nobody writes to it any more"
            raise InputError(what, where=str(path), fix=fix)
