"""Bounded reading of files: lines, runs of lines, CSV rows and blocks, each with its line number.

No line is held beyond MAX_LINE, and whatever the bytes are, the memory needed stays within a few tens of megabytes.
"""

from __future__ import annotations

import csv
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from carp.reviews.sources.unpacking import reading_faults, unpacked
from carp.reviews.split_parts import OnProgress

MAX_BYTES = 64 << 30
MAX_LINE = 4 << 20
MAX_ROW = 1 << 20  # characters in one CSV row; more means a quote that nobody closed
STRETCH = 4 << 20  # bytes of lines that are worth the way to another process
RESYNCHRONISATIONS = 20

LINE_TOO_LONG = "line is longer than 4 MiB"
NOT_UTF8 = "not UTF-8"
QUOTE_OPEN = "quote is never closed"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"

Line = tuple[int, bytes | None]  # its number from 1, and its content without the end; None: longer than MAX_LINE


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


def read_lines(path: Path, *, max_bytes: int = MAX_BYTES, progress: OnProgress | None = None) -> Iterator[Line]:
    """The lines of a file; a byte order mark at the start is passed over."""
    number = 0
    with reading_faults(path, lambda: number):
        for number, line in enumerate(_whole_lines(unpacked(path, max_bytes, progress)), start=1):
            yield number, None if line is None else _content(number, line)


def _content(number: int, line: bytes) -> bytes:
    line = line.removesuffix(b"\r")
    return line.removeprefix(BYTE_ORDER_MARK) if number == 1 else line


class Stretch(NamedTuple):
    """Whole lines of a file, still in one piece."""

    first: int  # the number of its first line
    content: bytes
    too_long: tuple[int, ...]  # the numbers of lines that were longer than MAX_LINE and stand here empty

    def lines(self) -> Iterator[Line]:
        for number, line in enumerate(self.content.split(b"\n"), start=self.first):
            yield number, None if number in self.too_long else _content(number, line)


class _Stretcher:
    """Cuts content at ends of lines; what follows the last of them waits for its own."""

    def __init__(self) -> None:
        self.next_line = 1  # the number of the line that is waiting
        self._waiting: list[bytes] = []
        self._waiting_size = 0
        self._begin()

    def _begin(self) -> None:
        self._first = self.next_line
        self._ready: list[bytes] = []
        self.size = 0
        self._too_long: list[int] = []

    def add(self, piece: bytes) -> None:
        end, cut = piece.find(b"\n"), piece.rfind(b"\n") + 1
        if not cut:
            self._wait(piece)
            return
        self._waiting_size += end
        if self._waiting_size > MAX_LINE:
            self._too_long.append(self.next_line)
            self._take([piece[end:cut]])
        else:
            self._take([*self._waiting, piece[:cut]])
        self.next_line += piece.count(b"\n")
        self._waiting, self._waiting_size = [], 0
        self._wait(piece[cut:])

    def _wait(self, piece: bytes) -> None:
        self._waiting_size += len(piece)
        if self._waiting_size <= MAX_LINE:
            self._waiting.append(piece)
        else:
            self._waiting.clear()

    def _take(self, pieces: list[bytes]) -> None:
        self._ready += pieces
        self.size += sum(map(len, pieces))

    def finish(self) -> None:
        """The last line needs no end."""
        if self._waiting_size:
            self.add(b"\n")

    def stretch(self) -> Stretch:
        found = Stretch(self._first, b"".join(self._ready), tuple(self._too_long))
        self._begin()
        return found


def read_stretches(path: Path, *, max_bytes: int = MAX_BYTES, progress: OnProgress | None = None) -> Iterator[Stretch]:
    """The same lines as `read_lines`, some megabytes at a time, for others to take apart."""
    stretcher = _Stretcher()
    with reading_faults(path, lambda: stretcher.next_line - 1):
        for piece in unpacked(path, max_bytes, progress):
            stretcher.add(piece)
            if stretcher.size >= STRETCH:
                yield stretcher.stretch()
    stretcher.finish()
    if stretcher.size:
        yield stretcher.stretch()


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


class CsvRow(NamedTuple):
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


def read_rows(lines: Iterator[Line], delimiter: str) -> Iterator[CsvRow]:
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
            yield CsvRow(feed.taken[0][0], fields, fault)


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
