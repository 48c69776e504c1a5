"""JSON that is not one object a line: an array of objects, or objects spread over several lines.

Each object becomes a line with the number of the line it begins on, so that everything after works as for JSON lines.
What else an array holds becomes one line for each of its elements, which is then refused alone. A value that is too
long to be kept is passed by piece by piece.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator

import msgspec

from carp.reviews.sources.line_reading import HEAD_LINES, HEAD_SIZE, MAX_BYTES, MAX_LINE, Line, read_lines
from carp.reviews.sources.unpacking import Place, reading_faults, unpacked
from carp.reviews.split_parts import OnProgress

READ_AGAIN = 4 * MAX_LINE  # characters that may be decoded again before what was passed must pay for it
DEEP_SHARE = 16  # of the text, that a value nested too deeply is taken to cost
DEEP_STEP = 64  # of its levels to go down at once
PASSED = 8 << 10  # characters after which what was read is dropped: an error counts the lines before it
_IN_ARRAY, _OUTSIDE = re.compile(r"[\s,]*"), re.compile(r"[\s,\]]*")
_IN_STRING, _NESTED, _PLAIN = re.compile(r'["\\\n]'), re.compile(r'["\[\]{}]'), re.compile(r'["\[\]{},]')
_decode = json.JSONDecoder(parse_int=float).raw_decode  # Python's own numbers may have no more than 4,300 digits


def is_spread(head: list[bytes]) -> bool:
    """Whether the first lines are an array, or an object that goes on over several lines."""
    first = head[0].strip() if head else b""
    if first.startswith(b"["):
        rest = first[1:].lstrip() or (head[1].strip() if len(head) > 1 else b"")
        return rest.startswith((b"{", b"]")) or not rest or len(head) == 1 or not _is_whole(first)
    return first.startswith(b"{") and not first.endswith(b"}") and len(head) > 1


def _is_whole(line: bytes) -> bool:
    try:
        msgspec.json.decode(line)
    except (ValueError, RecursionError):
        return False
    return True


def json_lines_of(
    path: Place, head: list[bytes], *, max_bytes: int = MAX_BYTES, progress: OnProgress | None = None
) -> Iterator[Line]:
    """The objects of a file, each as one line, however the file writes them."""
    if not is_spread(head):
        return read_lines(path, max_bytes=max_bytes, progress=progress)
    return _values(path, max_bytes, progress)


def first_values(path: Place, *, max_bytes: int = MAX_BYTES) -> list[bytes]:
    """The first values of an array, or of objects over several lines, each as one line, to recognise what they are."""
    found: list[bytes] = []
    size = 0
    for _, line in _values(path, max_bytes, None):
        if line is not None:
            found.append(line)
            size += len(line)
        if len(found) >= HEAD_LINES or size >= HEAD_SIZE:
            break
    return found


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
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._text = ""
        self._begun = False
        self._in_array = False
        self._enough = 0  # characters with which it is worth looking again for the end of the value that waits
        self._spare = READ_AGAIN  # inside a value that cannot be used others may begin; a hostile file has one in each
        self._given_up: _ElementEnd | _NextObject | None = None  # what looks for the end of a value that is not kept

    def add(self, chunk: bytes) -> None:
        text = self._decoder.decode(chunk)
        if text and not self._begun:
            text, self._begun = text.removeprefix("\ufeff"), True
        self._text += text

    def values(self, *, last: bool) -> Iterator[Line]:
        if last:
            self._text += self._decoder.decode(b"", final=True)
        elif len(self._text) < self._enough:
            return
        place = self._pass_by()
        while (place := self._between(place)) < len(self._text):
            end = self._end(place, last=last)
            if end is None:
                break
            value = self._text[place:end]
            yield self.line, _one_line(value)
            self.line += value.count("\n")
            self._spare += end - place
            place = end
            if place > PASSED:
                self._text, place = self._text[place:], 0
        self._text = self._text[place:]
        self._enough = min(2 * len(self._text), MAX_LINE + 1)

    def _pass_by(self) -> int:
        """Where a value ends that was given up before."""
        if self._given_up is None:
            return 0
        end = self._given_up.find(self._text, 0)
        if end is not None:
            self._given_up = None
        else:
            end = len(self._text)
        self.line += self._text.count("\n", 0, end)
        return end

    def _between(self, place: int) -> int:
        """Where the next value begins. The brackets of an array are no part of its values."""
        begin = place
        while True:
            begin = (_IN_ARRAY if self._in_array else _OUTSIDE).match(self._text, begin).end()  # type: ignore[union-attr]
            if self._text[begin : begin + 1] != ("]" if self._in_array else "["):
                break
            self._in_array = not self._in_array
            begin += 1
        self.line += self._text.count("\n", place, begin)
        return begin

    def _end(self, begin: int, *, last: bool) -> int | None:
        """Where the value at this place ends; None if more is to be read first."""
        has_room = not last and len(self._text) - begin <= MAX_LINE
        try:
            end = _decode(self._text, begin)[1]
        except RecursionError:
            self._spare -= (len(self._text) - begin) // DEEP_SHARE  # nobody says how far it came
            return self._give_up(begin, self._inside(begin, _steps_down(self._text, begin)))
        except json.JSONDecodeError as error:
            broken = not _may_go_on(error, self._text)
            if has_room and not broken:
                return None
            self._spare -= error.pos - begin
            return self._give_up(begin, self._inside(begin, error.pos), broken=broken)
        # A number at the end may have more digits.
        return None if has_room and end == len(self._text) and self._text[end - 1] not in '"]}' else end

    def _inside(self, begin: int, farther: int) -> int:
        """Where to look for objects in a value that cannot be used: all over it, as long as that costs not too much."""
        return begin + 1 if self._spare >= 0 else max(begin + 1, farther)

    def _give_up(self, begin: int, behind: int, *, broken: bool = False) -> int:
        """Where a value ends that cannot be used. If it goes on, what comes of it later is passed by."""
        search: _ElementEnd | _NextObject
        # Outside an array, an object that is too long may be one that holds all the others.
        if self._in_array and not broken:
            search = _ElementEnd()
        else:
            begin = _white_begin(self._text, begin + 1, behind)
            search = _NextObject(self._text[begin - 1])
        end = search.find(self._text, begin)
        if end is None:
            end, self._given_up = len(self._text), search
        return end


class _ElementEnd:
    """Looks for the end of an element of an array: the comma or the bracket behind it."""

    def __init__(self) -> None:
        self._depth = 0
        self._quoted = self._escaped = False
        self._instead: _NextObject | None = None

    def find(self, text: str, place: int) -> int | None:
        """Where it is in this piece of the text; None if it is in a later one."""
        if self._instead is not None:
            return self._instead.find(text, place)
        if self._escaped and text:
            self._escaped, place = False, place + 1
        while found := (_IN_STRING if self._quoted else _NESTED if self._depth else _PLAIN).search(text, place):
            at, place = found.start(), found.end()
            mark = found[0]
            if mark == "\n":  # the quote was never closed: no string of JSON goes over a line end
                self._instead = _NextObject(mark)
                return self._instead.find(text, place)
            if mark == "\\":
                self._escaped, place = place == len(text), place + 1
            elif mark == '"':
                self._quoted = not self._quoted
            elif mark in "[{":
                self._depth += 1
            elif not self._depth:
                return at
            else:
                self._depth -= 1
        return None


class _NextObject:
    """Looks for the place where the next object may begin: after a line end, a comma, a bracket or another object."""

    def __init__(self, before: str) -> None:
        self._before = before  # the last character that is no white space, or a line end if there is one behind it

    def find(self, text: str, place: int) -> int | None:
        """Where it is in this piece of the text; None if it is in a later one."""
        at = text.find("{", place)
        while at >= 0:
            begin = _white_begin(text, place, at)
            previous = text[begin - 1] if begin > place else self._before
            if previous in "},[\n" or "\n" in text[begin:at]:
                return begin
            at = text.find("{", at + 1)
        begin = _white_begin(text, place, len(text))
        if "\n" in text[begin:]:
            self._before = "\n"
        elif begin > place:
            self._before = text[begin - 1]
        return None


def _steps_down(text: str, place: int) -> int:
    """A place some levels further down in a value that is nested too deeply."""
    for _ in range(DEEP_STEP):
        place = text.find("{", place) + 1 or len(text)
    return place


def _white_begin(text: str, place: int, end: int) -> int:
    """Where the white space begins that ends there, not before the place.

    Written by hand, because an expression would look through long stretches of white space again and again.
    """
    while end > place and text[end - 1].isspace():
        end -= 1
    return end


def _may_go_on(error: json.JSONDecodeError, text: str) -> bool:
    """Whether this may be JSON that is not yet there to its end."""
    return error.msg.startswith("Unterminated string") or error.pos > len(text) - 16


def _one_line(value: str) -> bytes | None:
    """The value without line ends, which JSON has only between values; None if it is too long."""
    content = value.replace("\n", " ").replace("\r", " ").encode("utf-8", "surrogateescape")
    return content if len(content) <= MAX_LINE else None
