"""Bounded reading of plain, gzip and zstd files: lines, CSV rows and blocks, each with its line number.

How a file is packed is told by its first bytes, never by its name. No line is held beyond MAX_LINE, nothing
is unpacked beyond a limit, and whatever the bytes are, the memory needed stays within a few tens of megabytes.
"""

from __future__ import annotations

import csv
import gzip
import os
import stat
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

from carp.errors import InputError

MAX_BYTES = 64 << 30
MAX_LINE = 4 << 20
MAX_ROW = 1 << 20  # characters in one CSV row; more means a quote that nobody closed
CHUNK = 256 << 10
ZSTD_PIECE = 1 << 10  # unpacks to 32 MiB at worst: the library has no limit on the output of one call
ZSTD_WINDOW = 128 << 20
BOMB_RATIO = 500  # text shrinks to a third, seldom to a twentieth
BOMB_FLOOR = 16 << 20
RESYNCHRONISATIONS = 20

LINE_TOO_LONG = "line is longer than 4 MiB"
NOT_UTF8 = "not UTF-8"
QUOTE_OPEN = "quote is never closed"

GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
OTHER_PACKINGS = {
    b"PK\x03\x04": ("a zip archive", "unzip"),
    b"BZh": ("a bzip2 file", "bunzip2"),
    b"\xfd7zXZ\x00": ("an xz file", "unxz"),
    b"7z\xbc\xaf\x27\x1c": ("a 7z archive", "7z x"),
}
PROBE = max(len(magic) for magic in [GZIP, ZSTD, *OTHER_PACKINGS])

Progress = Callable[[int, int], None]  # bytes of the file read so far, bytes in all
Line = tuple[int, bytes | None]  # its number from 1, and its content without the end; None: longer than MAX_LINE


class _Broken(Exception):
    """The packed content ends or goes wrong in the middle."""


class _Bomb(Exception):
    """The packed content unpacks to more than it may."""


@contextmanager
def _refusals(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(
            f"the file cannot be read ({error.strerror or error})", where=str(path), mend="check its permissions"
        ) from error


def check_file(path: str | os.PathLike[str]) -> Path:
    """The path, if a file that can be read stands there."""
    place = Path(path)
    with _refusals(place):
        try:
            facts = place.stat()
        except (FileNotFoundError, NotADirectoryError, ValueError):
            raise InputError("there is no such file", where=str(place), mend="check the path") from None
    if stat.S_ISDIR(facts.st_mode):
        raise InputError("this is a folder", where=str(place), mend="give the files in it one by one")
    if not stat.S_ISREG(facts.st_mode):
        raise InputError("this is a pipe or a device", where=str(place), mend="save its content to a file first")
    if facts.st_size == 0:
        raise InputError("the file is empty", where=str(place), mend="give a file with reviews")
    return place


def first_bytes(path: Path) -> bytes:
    with _refusals(path), path.open("rb") as file:
        return file.read(PROBE)


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


def _packing(path: Path) -> tuple[str, Callable[[BinaryIO], Iterator[bytes]]]:
    head = first_bytes(path)
    for magic, (kind, command) in OTHER_PACKINGS.items():
        if head.startswith(magic):
            raise InputError(
                f"this is {kind}; plain, gzip and zstd files can be read",
                where=str(path),
                mend=f"unpack it first with {command}",
            )
    if head.startswith(GZIP):
        return "gzip", _gzip_chunks
    return ("zstd", _zstd_chunks) if head.startswith(ZSTD) else ("plain", _plain_chunks)


def _guarded(path: Path, max_bytes: int, progress: Progress | None) -> Iterator[bytes]:
    kind, unpack = _packing(path)
    unpacked = 0
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        for chunk in unpack(file):
            unpacked += len(chunk)
            if kind != "plain":
                if unpacked > max_bytes:
                    raise _Bomb(f"unpacks to more than {max_bytes:,} bytes")
                if unpacked > BOMB_FLOOR and unpacked > BOMB_RATIO * size:
                    raise _Bomb(f"unpacks to more than {BOMB_RATIO} times its size, as no text does")
            if progress is not None:
                progress(min(file.tell(), size), size)
            yield chunk


def _whole_lines(chunks: Iterable[bytes]) -> Iterator[bytes | None]:
    held: list[bytes] = []
    size = 0
    for chunk in chunks:
        first, *others = chunk.split(b"\n")
        size += len(first)
        if size <= MAX_LINE:
            held.append(first)
        else:
            held.clear()
        if not others:
            continue
        yield b"".join(held) if size <= MAX_LINE else None
        last = others.pop()
        yield from others
        held, size = [last], len(last)
    if size > MAX_LINE:
        yield None
    elif size:
        yield b"".join(held)


def read_lines(path: Path, *, max_bytes: int = MAX_BYTES, progress: Progress | None = None) -> Iterator[Line]:
    """The lines of a file; a byte order mark at the start is passed over."""
    number = 0
    try:
        with _refusals(path):
            for number, line in enumerate(_whole_lines(_guarded(path, max_bytes, progress)), start=1):
                if line is not None:
                    line = line.removesuffix(b"\r")
                    if number == 1:
                        line = line.removeprefix(b"\xef\xbb\xbf")
                yield number, line
    except _Broken as fault:
        raise InputError(
            f"the compressed file {fault} after {number:,} complete lines",
            where=str(path),
            mend="copy or download it again; `gzip -t` and `zstd -t` check a file",
        ) from fault.__cause__
    except _Bomb as fault:
        raise InputError(
            f"the compressed file {fault} (stopped after {number:,} lines)",
            where=str(path),
            mend="if you trust it, unpack it first and give the plain file",
        ) from None


def head_lines(path: Path, *, lines: int = 200, size: int = 1 << 20, max_bytes: int = MAX_BYTES) -> list[bytes]:
    """The first lines that are not blank, for looking at what a file is; lines too long to hold are left out."""
    head: list[bytes] = []
    for _, line in read_lines(path, max_bytes=max_bytes):
        if line and not line.isspace():
            head.append(line)
            size -= len(line)
        if len(head) >= lines or size <= 0:
            break
    return head


class Row(NamedTuple):
    """One CSV row, or why there is none."""

    line: int
    fields: list[str]
    fault: str | None = None


class _RowTooLong(Exception):
    pass


class _LineFeed:
    """Hands lines to the csv reader, and takes them back when they turn out to belong to no row."""

    def __init__(self, lines: Iterator[Line]) -> None:
        self.lines = lines
        self.waiting: deque[Line] = deque()
        self.taken: list[Line] = []
        self.size = 0

    def __iter__(self) -> _LineFeed:
        return self

    def __next__(self) -> str:
        line = self.waiting.popleft() if self.waiting else next(self.lines)
        self.taken.append(line)
        text = (line[1] or b"").decode("utf-8", "surrogateescape") + "\n"
        self.size += len(text)
        # A single long line is a long row and no runaway quote.
        if self.size > MAX_ROW and len(self.taken) > 1:
            raise _RowTooLong
        return text

    def begin(self) -> None:
        self.taken, self.size = [], 0

    def give_back(self) -> None:
        """Keep only the first line of the row as read."""
        self.waiting.extendleft(reversed(self.taken[1:]))


def line_fault(line: bytes) -> str | None:
    """What makes the bytes of a line no text."""
    if b"\0" in line:
        return "contains zero bytes"
    if not line.isascii():
        try:
            line.decode()
        except UnicodeDecodeError:
            return NOT_UTF8
    return None


def _lines_fault(lines: list[Line]) -> str | None:
    return next((fault for _, line in lines if (fault := LINE_TOO_LONG if line is None else line_fault(line))), None)


def read_rows(lines: Iterator[Line], delimiter: str) -> Iterator[Row]:
    """CSV rows, fields with line ends inside quotes included. An unclosed quote costs its own line only."""
    csv.field_size_limit(max(csv.field_size_limit(), MAX_LINE))  # lines are bounded already
    feed = _LineFeed(lines)
    reader = csv.reader(feed, delimiter=delimiter, strict=True)
    runaways = 0
    while True:
        feed.begin()
        fields: list[str] = []
        fault = None
        try:
            fields = next(reader)
        except StopIteration:
            return
        except (csv.Error, _RowTooLong) as error:
            fault = QUOTE_OPEN if len(feed.taken) > 1 or "unexpected end" in str(error) else "not valid CSV"
            runaways += isinstance(error, _RowTooLong)
            # Each runaway is read again line by line; hostile files would make that endless.
            if runaways <= RESYNCHRONISATIONS:
                feed.give_back()
                del feed.taken[1:]
        fault = _lines_fault(feed.taken) or fault
        if fields or fault:
            yield Row(feed.taken[0][0], fields, fault)


def read_blocks(lines: Iterator[Line]) -> Iterator[list[Line]]:
    """Runs of lines between blank ones. A run without an end is cut, so that it cannot fill the memory."""
    block: list[Line] = []
    size = 0
    for number, line in lines:
        if line is not None and (not line or line.isspace()):
            if block:
                yield block
            block, size = [], 0
        elif size <= MAX_LINE:
            block.append((number, line))
            size += len(line or b"") + 64  # and what an empty line costs
    if block:
        yield block
