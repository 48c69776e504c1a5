"""JSON that is not one object a line: an array of objects, or objects spread over several lines.

Each object becomes a line with the number of the line it begins on, so that everything after works as for JSON lines.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from carp.reviews.sources.line_reading import BYTE_ORDER_MARK, MAX_BYTES, MAX_LINE, Line, read_lines
from carp.reviews.sources.unpacking import Place, reading_faults, unpacked
from carp.reviews.split_parts import OnProgress

PASSED = 8 << 10  # characters after which what was read is dropped: an error counts the lines before it
_BETWEEN = re.compile(r"[\s,\[\]]*")
_decode = json.JSONDecoder().raw_decode


def is_spread(head: list[bytes]) -> bool:
    """Whether the first lines are an array of objects, or an object that goes on over several lines."""
    first = head[0].strip() if head else b""
    if first.startswith(b"["):
        rest = first[1:].lstrip() or (head[1].strip() if len(head) > 1 else b"")
        return rest.startswith((b"{", b"]")) or not rest
    return first.startswith(b"{") and not first.endswith(b"}") and len(head) > 1


def json_lines_of(
    path: Place, head: list[bytes], *, max_bytes: int = MAX_BYTES, progress: OnProgress | None = None
) -> Iterator[Line]:
    """The objects of a file, each as one line, however the file writes them."""
    if not is_spread(head):
        return read_lines(path, max_bytes=max_bytes, progress=progress)
    return _values(path, max_bytes, progress)


def _values(path: Place, max_bytes: int, progress: OnProgress | None) -> Iterator[Line]:
    cutter = _Cutter()
    with reading_faults(path, lambda: cutter.line - 1):
        for chunk in unpacked(path, max_bytes, progress):
            cutter.add(chunk)
            yield from cutter.values(last=False)
    yield from cutter.values(last=True)


class _Cutter:
    """Cuts a stream of JSON into values. What is no JSON goes up to the next object, and is one value as well."""

    def __init__(self) -> None:
        self.line = 1  # of the first character that waits
        self._bytes = b""  # the last ones, if they are not yet a whole character
        self._text = ""
        self._begun = False

    def add(self, chunk: bytes) -> None:
        if not self._begun:
            chunk, self._begun = chunk.removeprefix(BYTE_ORDER_MARK), True
        content = self._bytes + chunk
        whole = content.rfind(b"\n") + 1 or len(content) - len(content) % 4  # a line end is never inside a character
        try:
            self._text += content[:whole].decode()
            self._bytes = content[whole:]
        except UnicodeDecodeError:
            self._text += content.decode("utf-8", "surrogateescape")
            self._bytes = b""

    def values(self, *, last: bool) -> Iterator[Line]:
        if last:
            self._text += self._bytes.decode("utf-8", "surrogateescape")
        place = 0
        while True:
            begin = _BETWEEN.match(self._text, place).end()  # type: ignore[union-attr]
            self.line += self._text.count("\n", place, begin)
            place = begin
            end = self._end(begin, last=last)
            if end is None:
                break
            value = self._text[begin:end]
            place = end
            yield self.line, _one_line(value)
            self.line += value.count("\n")
            if place > PASSED:
                self._text, place = self._text[place:], 0
        self._text = self._text[place:]

    def _end(self, begin: int, *, last: bool) -> int | None:
        """Where the value at this place ends; None if more is to be read first."""
        if begin == len(self._text):
            return None
        try:
            return _decode(self._text, begin)[1]
        except (json.JSONDecodeError, RecursionError) as error:
            waits = isinstance(error, json.JSONDecodeError) and _may_go_on(error, self._text)
            if waits and not last and len(self._text) - begin <= MAX_LINE:
                return None
        return _next_object(self._text, begin + 1)


def _next_object(text: str, place: int) -> int:
    """Where the next object may begin: after a line end, a comma, a bracket or another object; else the end.

    Written by hand, because an expression would look through long stretches of white space again and again.
    """
    at = text.find("{", place)
    while at >= 0:
        begin = at
        while begin >= place and text[begin - 1].isspace():
            begin -= 1
        if text[begin - 1] in "},[" or "\n" in text[begin:at]:
            return max(begin, place)
        at = text.find("{", at + 1)
    return len(text)


def _may_go_on(error: json.JSONDecodeError, text: str) -> bool:
    """Whether this may be JSON that is not yet there to its end."""
    return error.msg.startswith("Unterminated string") or error.pos > len(text) - 16


def _one_line(value: str) -> bytes | None:
    """The value without line ends, which JSON has only between values; None if it is too long."""
    content = value.replace("\n", " ").replace("\r", " ").encode("utf-8", "surrogateescape")
    return content if len(content) <= MAX_LINE else None
