"""Reading files in little memory: lines, stretches of lines, CSV rows and blocks, each with its line number.

Lines longer than MAX_LINE are not kept. So reading needs a few tens of megabytes, whatever the file contains.
"""

from __future__ import annotations

import csv
from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from carp.reviews.sources.unpacking import Place, reading_faults, unpacked
from carp.reviews.split_parts import OnProgress

MAX_BYTES = 64 << 30
MAX_LINE = 4 << 20
MAX_ROW = 1 << 20  # characters in a CSV row; a longer row has an unclosed quote
STRETCH = 4 << 20  # bytes of lines that are worth sending to another process
RESYNCHRONISATIONS = 20  # rows of this length that may be read again before what was read once must pay for it
MAX_BLOCK_LINES = 60_000  # each takes some memory, however short it is
HEAD_LINES, HEAD_SIZE = 200, 1 << 20  # what is looked at to recognise a file

LINE_TOO_LONG = "line is longer than 4 MiB"
NOT_UTF8 = "not UTF-8"
QUOTE_OPEN = "quote is never closed"
QUOTE_OPEN_HERE = "quote is not closed on its line, after many that are never closed"
BLOCK_TOO_LONG = f"block is longer than 4 MiB or {MAX_BLOCK_LINES:,} lines"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"

Line = tuple[int, bytes | None]  # its number from 1, and its content without the line end; None if longer than MAX_LINE


def _whole_lines(chunks: Iterable[bytes]) -> Iterator[bytes | None]:
    held: list[bytes] = []
    size = 0
    for chunk in chunks:
        first, *others = chunk.split(b"\n")
        size += len(first)
        if size <= MAX_LINE:
            held.append(first)
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


def read_lines(path: Place, *, max_bytes: int = MAX_BYTES, progress: OnProgress | None = None) -> Iterator[Line]:
    """The lines of a file. A byte order mark at the start is skipped."""
    number = 0
    with reading_faults(path, lambda: number):
        for number, line in enumerate(_whole_lines(unpacked(path, max_bytes, progress)), start=1):
            yield number, None if line is None else _content(number, line)


def _content(number: int, line: bytes) -> bytes:
    line = line.removesuffix(b"\r")
    return line.removeprefix(BYTE_ORDER_MARK) if number == 1 else line


class Stretch(NamedTuple):
    """Some consecutive lines of a file, not yet separated."""

    first: int  # the number of its first line
    content: bytes
    too_long: tuple[int, ...]  # the numbers of lines longer than MAX_LINE, which are empty here

    def lines(self) -> Iterator[Line]:
        for number, line in enumerate(self.content.split(b"\n"), start=self.first):
            yield number, None if number in self.too_long else _content(number, line)


class _LineCollector:
    """Collects whole lines from pieces of a file. An incomplete last line waits for the next piece."""

    def __init__(self) -> None:
        self.next_line = 1  # the number of the incomplete line
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

    def _take(self, pieces: list[bytes]) -> None:
        self._ready += pieces
        self.size += sum(map(len, pieces))

    def finish(self) -> None:
        """Take the last line, which may have no line end."""
        if self._waiting_size:
            self.add(b"\n")

    def stretch(self) -> Stretch:
        found = Stretch(self._first, b"".join(self._ready), tuple(self._too_long))
        self._begin()
        return found


def read_stretches(path: Place, *, max_bytes: int = MAX_BYTES, progress: OnProgress | None = None) -> Iterator[Stretch]:
    """The lines of `read_lines`, a few megabytes at a time, to be separated by other processes."""
    collector = _LineCollector()
    with reading_faults(path, lambda: collector.next_line - 1):
        for piece in unpacked(path, max_bytes, progress):
            collector.add(piece)
            if collector.size >= STRETCH:
                yield collector.stretch()
    collector.finish()
    if collector.size:
        yield collector.stretch()


def head_lines(path: Place, *, max_bytes: int = MAX_BYTES) -> list[bytes]:
    """The first lines that are not blank, to recognise the format.

    Lines that are too long are left out. Only of an array in one line the beginning is taken.
    """
    head: list[bytes] = []
    size = HEAD_SIZE
    for _, line in read_lines(path, max_bytes=max_bytes):
        if line is None and not head:
            head = _begun_array(path, max_bytes)
            if head:
                break
        if line and not line.isspace():
            head.append(line)
            size -= len(line)
        if len(head) >= HEAD_LINES or size <= 0:
            break
    return head


def _begun_array(path: Place, max_bytes: int) -> list[bytes]:
    """The beginning of a file that is one array, or nothing."""
    with reading_faults(path, lambda: 0):
        for number, piece in enumerate(unpacked(path, max_bytes, None)):
            begun = (piece if number else piece.removeprefix(BYTE_ORDER_MARK)).lstrip()
            if begun:
                return [begun[:HEAD_SIZE]] if begun.startswith(b"[") else []
    return []


class CsvRow(NamedTuple):
    """One CSV row, or why it cannot be read."""

    line: int
    fields: list[str]
    fault: str | None = None


class _RowTooLong(Exception):
    pass


class _LineFeed:
    """Gives lines to the csv reader, and takes back those that turn out not to belong to the row.

    Each unclosed quote makes us read lines again, and a hostile file must not make that endless. So lines are given
    back as long as what was read again is not much more than what was read once; otherwise rows end with their line.
    """

    def __init__(self, lines: Iterator[Line]) -> None:
        self.lines = lines
        self.waiting: deque[Line] = deque()
        self.taken: list[Line] = []
        self.size = self.first = 0  # characters of the row, and of its first line
        self.spare = RESYNCHRONISATIONS * MAX_ROW  # characters that may still be read again

    @property
    def one_line_each(self) -> bool:
        return self.spare <= 0

    def __iter__(self) -> _LineFeed:
        return self

    def __next__(self) -> str:
        if self.taken and self.one_line_each:
            raise _RowTooLong
        line = self.waiting.popleft() if self.waiting else next(self.lines)
        self.taken.append(line)
        text = (line[1] or b"").decode("utf-8", "surrogateescape") + "\n"
        self.size += len(text)
        self.first = self.first or self.size
        # One long line is a long row, not an unclosed quote.
        if self.size > MAX_ROW and len(self.taken) > 1:
            raise _RowTooLong
        return text

    def begin(self) -> None:
        self.spare += self.size
        self.taken, self.size, self.first = [], 0, 0

    def give_back(self) -> None:
        """Take back all lines of the row but the first."""
        self.waiting.extendleft(reversed(self.taken[1:]))
        del self.taken[1:]
        self.spare -= self.size - self.first
        self.size = self.first


def line_fault(line: bytes) -> str | None:
    """Why the bytes of a line are not text, or None."""
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
    """CSV rows. Quoted fields may contain line ends. An unclosed quote spoils only its own line."""
    csv.field_size_limit(max(csv.field_size_limit(), MAX_LINE))  # lines are limited already
    feed = _LineFeed(lines)
    reader = csv.reader(feed, delimiter=delimiter, strict=True)
    while True:
        feed.begin()
        fields: list[str] = []
        fault = None
        try:
            fields = next(reader)
        except StopIteration:
            return
        except _RowTooLong:
            fault = QUOTE_OPEN_HERE if feed.one_line_each else QUOTE_OPEN
            feed.give_back()
        except csv.Error as error:
            fault = QUOTE_OPEN if len(feed.taken) > 1 or "unexpected end" in str(error) else "not valid CSV"
            feed.give_back()
        fault = _lines_fault(feed.taken) or fault
        if fields or fault:
            yield CsvRow(feed.taken[0][0], fields, fault)


class LineBlock(NamedTuple):
    """Lines between blank lines."""

    lines: list[Line]
    cut: bool = False  # it had more lines, which were left out so that it cannot fill the memory


def read_blocks(lines: Iterator[Line]) -> Iterator[LineBlock]:
    block: list[Line] = []
    size, cut = 0, False
    for number, line in lines:
        if line is not None and (not line or line.isspace()):
            if block:
                yield LineBlock(block, cut)
            block, size, cut = [], 0, False
        elif size <= MAX_LINE and len(block) < MAX_BLOCK_LINES:
            block.append((number, line))
            size += len(line or b"")
        else:
            cut = True
    if block:
        yield LineBlock(block, cut)
