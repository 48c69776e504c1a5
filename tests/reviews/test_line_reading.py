"""Lines of a file in stretches, as they are sent to other processes: the same lines as one by one."""

from __future__ import annotations

import random

import pytest

from carp.reviews.sources import line_reading
from carp.reviews.sources.line_reading import read_lines, read_stretches

LONGEST, STRETCH = 20, 50
PLACES = {
    "ends with a line": b"one\ntwo\n\nfour\n",
    "ends in a line": b"one\ntwo\nthree",
    "with a mark and both line ends": b"\xef\xbb\xbfone\r\ntwo\nthree\r\n",
    "one line": b"one",
    "an empty line": b"\n",
    "the longest line": b"x" * LONGEST + b"\nshort\n",
    "a line that is too long first": b"x" * 70 + b"\nshort\n",
    "a line that is too long last": b"short\n" + b"x" * 70,
    "a line that is too long, and one in a stretch of its own": b"x" * 70 + b"\n" + b"y" * 12 + b"\n" * 60 + b"z\n",
    "lines that are too long one after another": b"\n".join([b"x" * 21, b"y" * 90, b"ok", b"z" * 22, b""]),
}


@pytest.fixture
def pieces(monkeypatch):
    """Let files come in pieces, none longer than the longest line, with limits that small files reach."""
    monkeypatch.setattr(line_reading, "MAX_LINE", LONGEST)
    monkeypatch.setattr(line_reading, "STRETCH", STRETCH)

    def come(content, size):
        cut = [content[at : at + size] for at in range(0, len(content), size)]
        monkeypatch.setattr(line_reading, "unpacked", lambda *given: iter(cut))

    return come


def expected(content):
    """Line by line, without a thought for memory."""
    *whole, rest = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    lines = [*whole, rest] if rest else whole
    first = 3 * content.startswith(b"\xef\xbb\xbf")  # the mark counts as a part of its line
    long = [len(line) + (first if number == 0 else 0) > LONGEST for number, line in enumerate(lines)]
    return [
        (number, None if too_long else line.removesuffix(b"\r"))
        for number, (line, too_long) in enumerate(zip(lines, long, strict=True), start=1)
    ]


def in_stretches():
    """The lines of all stretches. What follows a stretch's last line end is no line."""
    return [line for stretch in read_stretches("file") for line in list(stretch.lines())[:-1]]


@pytest.mark.parametrize("size", [1, 3, 7, LONGEST])
@pytest.mark.parametrize("content", PLACES.values(), ids=PLACES)
def test_lines_come_whole_wherever_the_pieces_of_a_file_end(pieces, content, size):
    pieces(content, size)
    assert list(read_lines("file")) == expected(content)
    pieces(content, size)
    assert in_stretches() == expected(content)


def test_lines_drawn_at_random_come_whole(pieces):
    for seed in range(300):
        chance = random.Random(seed)
        content = bytes(chance.choices(b"ab\r\n", weights=(8, 4, 1, chance.choice((1, 3))), k=chance.randrange(300)))
        size = chance.randrange(1, LONGEST + 1)
        pieces(content, size)
        assert list(read_lines("file")) == expected(content), seed
        pieces(content, size)
        assert in_stretches() == expected(content), seed


def test_a_stretch_is_sent_as_soon_as_it_is_long_enough(pieces):
    pieces(b"0123456789\n" * 20, 11)
    sizes = [len(stretch.content) for stretch in read_stretches("file")]
    assert sizes == [55, 55, 55, 55]
