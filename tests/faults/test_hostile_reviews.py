"""Files of reviews that are made to lose records without a word, or to cost far more than their size."""

from __future__ import annotations

import json
import random
import re

import pytest

from carp.reviews.sources import json_values, line_reading, markup
from carp.reviews.sources.formats import iterate_reviews, read_reviews
from carp.reviews.sources.ledger import MAX_TEXT, Rejection, Review
from carp.reviews.sources.line_reading import read_rows
from carp.reviews.sources.markup import without_hidden, without_markup

HEADER = b"user,item,rating,text\n"


@pytest.fixture
def short_rows(monkeypatch):
    """Let small files reach the limit of a row, and of the looking ahead for the end of a quote."""
    monkeypatch.setattr(line_reading, "MAX_ROW", 1000)


# ---- CSV


def test_every_row_behind_many_quotes_that_are_never_closed_is_kept(tmp_path, short_rows):
    path = tmp_path / "r.csv"
    open_quotes, between = 60, 80
    good = b"".join(b"u%d,i%d,4,fine\n" % (n, n) for n in range(between))
    assert len(good) > line_reading.MAX_ROW
    path.write_bytes(HEADER + (b'a,b,4,"open\n' + good) * open_quotes)
    ledger = read_reviews(path).ledger
    assert ledger.read == ledger.accepted + ledger.rejected == open_quotes * (1 + between)
    assert ledger.counts == {line_reading.QUOTE_OPEN: open_quotes}


@pytest.mark.parametrize("end", [b"", b'"x\n', b"plain\n" * 1000], ids=["the end", "an error", "no end"])
def test_quotes_without_an_end_are_not_looked_through_again_and_again(monkeypatch, end):
    """Whatever shows that a quote has no end: the file ends, something wrong follows, or the row grows too long."""
    monkeypatch.setattr(line_reading, "MAX_ROW", 4000)
    content = (b'a",b,"\n' * 500 + end) * 20
    lines = list(enumerate(content.splitlines(), start=1))
    monkeypatch.setattr(line_reading._LineFeed, "__next__", counting(line_reading._LineFeed.__next__, seen := []))
    rows = list(read_rows(iter(lines), ","))
    assert [row.line for row in rows] == [number for number, _ in lines]
    assert sum(seen) < 3 * len(content) + 2 * line_reading.RESYNCHRONISATIONS * line_reading.MAX_ROW


def counting(method, seen):
    """The method, with the length of what it returns in a list."""

    def counted(self):
        found = method(self)
        seen.append(len(found))
        return found

    return counted


def test_texts_over_several_lines_are_whole_again_behind_many_open_quotes(tmp_path, short_rows):
    path = tmp_path / "r.csv"
    many = 4 * line_reading.RESYNCHRONISATIONS
    plain = b"u,i,4,fine\n" * line_reading.MAX_ROW
    path.write_bytes(HEADER + b'a,b,4,"open\n' * many + plain + b'u,i,4,"two\nlines"\n')
    records = list(iterate_reviews(path))
    assert records[-1] == Review("u", "i", 4.0, "two\nlines")
    assert len(records) == many + line_reading.MAX_ROW + 1


# ---- JSON

GOOD = b'{"user": "u", "item": "i", "rating": 4, "text": "fine"}'
NUMBERS = b"1," * 2_000
NESTED = {  # each holds objects in objects, of which none can be used, and the end of each is found late
    "broken": (b"[\n", b'{"a":[\n' * 200 + NUMBERS + b"x" + b"\n" * 50),
    "broken in a wrapper": (b"{\n", b'{"a":[\n' * 200 + NUMBERS + b"x" + b"\n" * 50),
    "without an end": (b"", b'{"a":[\n' * 200 + NUMBERS),
    "too deep": (b"", b'{"a":\n' * 4_000),
}


@pytest.fixture
def decoded(monkeypatch):
    """How many characters each try to decode a value came on."""
    found, decode = [], json_values._decode

    def counted(text, place):
        try:
            value = decode(text, place)
            found.append(value[1] - place)
            return value
        except json.JSONDecodeError as error:
            found.append(error.pos - place)
            raise
        except RecursionError:
            found.append(len('{"a":\n') * 300)  # fewer levels than Python allows
            raise

    monkeypatch.setattr(json_values, "_decode", counted)
    return found


@pytest.mark.parametrize(("begin", "damage"), NESTED.values(), ids=NESTED)
def test_damage_inside_nested_objects_is_not_read_again_in_each_of_them(tmp_path, monkeypatch, decoded, begin, damage):
    monkeypatch.setattr(json_values, "READ_AGAIN", 20_000)
    path = tmp_path / "r.json"
    path.write_bytes(begin + damage)
    lines = list(json_values.json_lines_of(path, [b"["]))
    assert sum(decoded) < 20_000 + 6 * len(begin + damage)
    numbers = [number for number, _ in lines]
    assert numbers == sorted(set(numbers))  # each value begins on a line of its own here


@pytest.mark.parametrize(("spare", "rejected"), [(0, 3), (20_000, 7), (10**9, 101)])
def test_objects_behind_damage_are_found_however_little_may_be_read_again(tmp_path, monkeypatch, spare, rejected):
    monkeypatch.setattr(json_values, "READ_AGAIN", spare)
    path = tmp_path / "r.json"
    broken = b'{"a":[\n' * 50 + NUMBERS + b"x"
    path.write_bytes(b"[" + b",\n".join([GOOD, broken, GOOD, b'{"user": 1,, ', GOOD, broken, GOOD, GOOD]) + b"\n]")
    ledger = read_reviews(path).ledger
    assert (ledger.accepted, ledger.rejected) == (5, rejected)
    assert ledger.read == 5 + rejected


# ---- markup

HIDDEN = re.compile(r"<!--.*?-->|<(script|style)\b[^<>]*>.*?</\1\s*>", re.IGNORECASE | re.DOTALL)  # says it shortly
MARKS = (
    *("<!--", "-->", "--", "->", "<", "!", "-", ">", "<!-->", "<!--->", "<script", "<script>", "<SCRIPT >"),
    *("</script>", "</script\n >", "</ script>", "<style>", "<style a='b'>", "</STYLE>", "</style", "</style\u00a0>"),
    *("<scripts>", "<\u017fcript>", "</\u017fcript>", "<\u017ftyle>", "script", "style", "\n", " ", "x", "\u0130"),
)


def test_what_is_hidden_in_a_text_is_what_the_short_expression_says():
    chance, changed = random.Random(5), 0
    for _ in range(20_000):
        text = "".join(chance.choices(MARKS, k=chance.randrange(1, 25)))
        without = HIDDEN.sub("", text)
        assert without_hidden(text) == without, text
        changed += without != text
    assert changed > 5_000


class Counted:
    """An expression that counts the characters it comes over."""

    def __init__(self, expression):
        self.expression, self.characters = expression, 0

    def search(self, text, place=0):
        found = self.expression.search(text, place)
        self.characters += (found.end() if found else len(text)) - place
        return found

    def finditer(self, text, place=0):
        self.characters += len(text) - place
        return self.expression.finditer(text, place)


@pytest.mark.parametrize("begin", ["<!--", "<script>", "<style>", "<script></style>", "<script></script ", "<!---->"])
def test_markup_that_is_never_closed_is_not_looked_through_again_and_again(monkeypatch, begin):
    """Looking for each end from its beginning on took half a minute."""
    counted = [Counted(getattr(markup, name)) for name in ("_HIDDEN_BEGIN", "_HIDDEN_END")]
    monkeypatch.setattr(markup, "_HIDDEN_BEGIN", counted[0])
    monkeypatch.setattr(markup, "_HIDDEN_END", counted[1])
    text = begin * (MAX_TEXT // len(begin))
    assert (without_markup(text) == text) == (begin != "<!---->")
    assert sum(one.characters for one in counted) <= 2 * len(text)


# ---- blocks of lines


@pytest.mark.parametrize("filling", [b"more\n" * 60_000, (b"x" * 1000 + b"\n") * 4_200], ids=["lines", "bytes"])
def test_a_block_that_is_cut_is_rejected_and_not_read_without_its_end(tmp_path, filling):
    path = tmp_path / "beer.txt"
    block = b"beer/beerId: 1\nreview/overall: 13/20\nreview/profileName: a\nreview/text: fine\n"
    path.write_bytes(block + b"\n" + block + b"beer/notes: some\n" + filling + b"review/text: again\n\n" + block)
    good = Review("a", "1", 13.0, "fine")
    assert list(iterate_reviews(path)) == [good, Rejection(str(path), 6, line_reading.BLOCK_TOO_LONG), good]
