"""Whatever the bytes are: no crash, nothing lost, bounded memory, and an error that says how to fix it."""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import re
import subprocess
import sys
import tracemalloc
import zlib
from collections import Counter
from pathlib import Path

import msgspec
import polars as pl
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import damaged_records
from carp.errors import InputError
from carp.reviews.sources import line_reading
from carp.reviews.sources.formats import iterate_reviews, read_reviews
from carp.reviews.sources.ledger import Rejection, Review
from carp.reviews.sources.pair_files import read_pairs
from carp.reviews.sources.recognition import detect_format
from carp.reviews.sources.request import SourceRequest

GOOD = {"user": "a", "item": "b", "rating": 4, "text": "fine"}
GOOD_LINE = json.dumps(GOOD).encode()
GOOD_BLOCK = b"beer/beerId: 1\nreview/overall: 13/20\nreview/profileName: a\nreview/text: fine\n"


def line(**changes):
    return json.dumps({**GOOD, **changes}).encode()


def without(field):
    return json.dumps({key: value for key, value in GOOD.items() if key != field}).encode()


BAD_LINES = [
    (without("user"), "user is missing"),
    (without("item"), "item is missing"),
    (without("rating"), "rating is missing"),
    (without("text"), "text is missing"),
    (line(user=None), "user is missing"),
    (line(text=None), "text is missing"),
    (line(rating=None), "rating is missing"),
    (line(user=""), "user is empty"),
    (line(item=" \t"), "item is empty"),
    (line(user="x" * 1001), "user is longer than 1,000 characters"),
    (line(user=["a"]), "user is neither text nor a number"),
    (line(item={"id": 1}), "item is neither text nor a number"),
    (line(user=True), "user is neither text nor a number"),
    (line(text=3), "text is not a string"),
    (line(text=["a"]), "text is not a string"),
    (line(text="x" * 200_001), "text is longer than 200,000 characters"),
    (line(rating=""), "rating is missing"),
    (line(rating="five"), "rating is not a number"),
    (line(rating="nan"), "rating is not a number"),
    (line(rating="-inf"), "rating is not a number"),
    (line(rating="4,567"), "rating is not a number"),
    (line(rating="8/10"), "rating is not out of 5"),
    (line(rating="80 %"), "rating is not out of 5"),
    (line(rating="0_4"), "rating is not a number"),
    (line(rating=True), "rating is not a number"),
    (line(rating=[5]), "rating is not a number"),
    (line(rating=10**400), "rating is not a number"),
    (line(rating=0), "rating lies outside 1 to 5"),
    (line(rating=5.01), "rating lies outside 1 to 5"),
    (line(rating="6"), "rating lies outside 1 to 5"),
    (GOOD_LINE.replace(b"4", b"NaN"), "not valid JSON"),
    (GOOD_LINE.replace(b"4", b"1e999"), "a number is too large"),
    (GOOD_LINE[:-1], "not valid JSON"),
    (GOOD_LINE + b"}", "not valid JSON"),
    (GOOD_LINE + b" " + GOOD_LINE, "not valid JSON"),
    (b"not json at all", "not valid JSON"),
    (GOOD_LINE.replace(b'"', b"'"), "not valid JSON but a Python dict"),
    (b"[1, 2]", "not a JSON object"),
    (b"null", "not a JSON object"),
    (b'"text"', "not a JSON object"),
    (b"7", "not a JSON object"),
    (b'{"text": ' + b"[" * 50_000 + b"]" * 50_000 + b"}", "JSON is nested too deeply"),
    (GOOD_LINE.replace(b"fine", b"f\xffne"), "not UTF-8"),
    (GOOD_LINE.replace(b"fine", b"f\xc3"), "not UTF-8"),
    (GOOD_LINE.replace(b"fine", b"f\0ne"), "contains zero bytes"),
    (GOOD_LINE.replace(b"fine", b"\\ud800"), "not valid JSON"),
    (b'{"text": "' + b"x" * (4 << 20) + b'"}', "line is longer than 4 MiB"),
]

BAD_ROWS = [
    (b"a,b,4", "number of fields differs from the header"),
    (b"a,b,4,fine,more", "number of fields differs from the header"),
    (b",b,4,fine", "user is empty"),
    (b"a,,4,fine", "item is empty"),
    (b"a,b,,fine", "rating is missing"),
    (b"a,b,x,fine", "rating is not a number"),
    (b"a,b,9,fine", "rating lies outside 1 to 5"),
    (b"a,b,4,f\xffne", "not UTF-8"),
    (b'a,b,4,"f\n\xffne"', "not UTF-8"),
    (b"a,b,4,f\0ne", "contains zero bytes"),
    (b'a,b,4,"fine" or not', "not valid CSV"),
    (b"a,b,4,fi\rne", "not valid CSV"),
    (b'a,b,4,"never closed', "quote is never closed"),
    (b"a,b,4," + b"x" * 200_001, "text is longer than 200,000 characters"),
    (b"a,b,4," + b"x" * (4 << 20), "line is longer than 4 MiB"),
]

BAD_BLOCKS = [
    (GOOD_BLOCK.replace(b"review/text: fine\n", b""), "text is missing"),
    (GOOD_BLOCK.replace(b"beer/beerId: 1\n", b""), "item is missing"),
    (GOOD_BLOCK.replace(b"profileName: a", b"profileName: "), "user is empty"),
    (GOOD_BLOCK.replace(b"review/overall: 13/20\n", b""), "rating is missing"),
    (GOOD_BLOCK.replace(b"13/20", b"/20"), "rating is missing"),
    (GOOD_BLOCK.replace(b"13/20", b"good"), "rating is not a number"),
    (GOOD_BLOCK.replace(b"13/20", b"13/x"), "rating is not a number"),
    (GOOD_BLOCK.replace(b"13/20", b"4/5"), "rating is not out of 20"),
    (GOOD_BLOCK.replace(b"13/20", b"21/20"), "rating lies outside 0 to 20"),
    (GOOD_BLOCK.replace(b"13/20", b"-1/20"), "rating lies outside 0 to 20"),
    (GOOD_BLOCK + GOOD_BLOCK, "item appears twice in the block"),
    (b"hello\n" + GOOD_BLOCK, "line is not of the form key: value"),
    (GOOD_BLOCK.replace(b"fine", b"f\xfcr"), "not UTF-8"),
    (GOOD_BLOCK.replace(b"fine", b"f\0"), "contains zero bytes"),
    (GOOD_BLOCK.replace(b"fine", b"x" * 200_001), "text is longer than 200,000 characters"),
    (GOOD_BLOCK.replace(b"fine", b"x" * (4 << 20)), "line is longer than 4 MiB"),
]


def bare(records):
    """The records without the values that caused rejections."""
    return [msgspec.structs.replace(one, value=None) if isinstance(one, Rejection) else one for one in records]


def short(value):
    return value if isinstance(value, str) else repr(value[:40])


@pytest.mark.parametrize(("bad", "reason"), BAD_LINES, ids=short)
def test_a_bad_line_is_rejected_with_its_number_and_reason(tmp_path, bad, reason):
    path = tmp_path / "r.jsonl"
    path.write_bytes(b"\n".join([GOOD_LINE, b"", bad, GOOD_LINE]))
    good = Review("a", "b", 4.0, "fine")
    expected = [good, Rejection(str(path), 3, reason), good]
    assert bare(iterate_reviews(path, SourceRequest(rating_range=(1, 5)))) == expected


@pytest.mark.parametrize(("bad", "reason"), BAD_ROWS, ids=short)
def test_a_bad_row_is_rejected_with_its_number_and_reason(tmp_path, bad, reason):
    path = tmp_path / "r.csv"
    path.write_bytes(b"\n".join([b"user,item,rating,text", b'a,b,4,"fi\nne"', bad, b"a,b,4,fine", b"c,d,5,fine"]))
    first, rejection, *rest = iterate_reviews(path, SourceRequest(rating_range=(1, 5)))
    assert first == Review("a", "b", 4.0, "fi\nne")
    assert bare([rejection]) == [Rejection(str(path), 4, reason)]
    assert rest == [Review("a", "b", 4.0, "fine"), Review("c", "d", 5.0, "fine")]


@pytest.mark.parametrize(("bad", "reason"), BAD_BLOCKS, ids=short)
def test_a_bad_block_is_rejected_with_its_line_and_reason(tmp_path, bad, reason):
    path = tmp_path / "beer.txt"
    path.write_bytes(b"\n\n".join([GOOD_BLOCK, bad, GOOD_BLOCK]))
    good = Review("a", "1", 13.0, "fine")
    assert bare(iterate_reviews(path)) == [good, Rejection(str(path), 7, reason), good]


def test_an_id_of_thousands_of_digits_is_rejected(tmp_path):
    path = tmp_path / "r.jsonl"
    path.write_bytes(GOOD_LINE + b"\n" + GOOD_LINE.replace(b'"a"', b"9" * 6000))
    assert [type(record) for record in iterate_reviews(path)] == [Review, Rejection]


def test_an_unclosed_quote_costs_one_line_even_when_nothing_ever_closes_it(tmp_path):
    path = tmp_path / "r.csv"
    rows = [b"a,b,4,%d" % number for number in range(150_000)]
    rows[10] = b'a,b,4,"open'
    path.write_bytes(b"\n".join([b"user,item,rating,text", *rows]))
    reviews = read_reviews(path)
    assert len(reviews) == 149_999
    assert bare(reviews.ledger.rejections) == [Rejection(str(path), 12, "quote is never closed")]


def test_quotes_that_open_on_every_line_do_not_take_forever(tmp_path):
    path = tmp_path / "r.csv"
    path.write_bytes(b"user,item,rating,text\na,b,4,fine\n" + b'a",b,"\n' * 300_000)
    records = Counter(type(record) for record in iterate_reviews(path))
    assert records[Review] == 1
    assert line_reading.RESYNCHRONISATIONS < records[Rejection] <= 300_000


# Generated faults ----------------------------------------------------------------------------------------------------

SEEDS = {
    "jsonl": (GOOD_LINE, b"\n"),
    "amazon": (b'{"reviewerID": "a", "asin": "b", "overall": 5.0, "reviewText": "x", "unixReviewTime": 1}', b"\n"),
    "amazon2023": (b'{"user_id": "a", "parent_asin": "b", "rating": 5, "text": "x", "timestamp": 1000}', b"\n"),
    "yelp": (b'{"user_id": "a", "business_id": "b", "stars": 5, "text": "x", "date": "2017-01-02 03:04:05"}', b"\n"),
    "csv": (b'a,b,4,"a ""fine"" one",2017-01-02', b"\n"),
    "beer": (GOOD_BLOCK, b"\n\n"),
}
RECORDS = 1500  # damaged ones of each format
QUICKLY = settings(
    max_examples=int(os.environ.get("CARP_EXAMPLES", "300")),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.mark.parametrize("format", damaged_records.FORMATS)
def test_thousands_of_damaged_records_are_each_accepted_or_rejected(format):
    seed = random.randrange(10**6)
    report = damaged_records.run(format, RECORDS, seed)
    assert report["faults"] == [], f"python benchmarks/damaged_records.py --formats {format} --seed {seed}"
    assert report["tried"] == RECORDS


@QUICKLY
@given(content=st.binary(max_size=400) | st.text(max_size=200).map(str.encode))
def test_arbitrary_bytes_are_read_or_refused_politely(tmp_path, content):
    path = tmp_path / "r"
    path.write_bytes(content)
    refusals = []
    for format in ("auto", *SEEDS, "parquet"):
        try:
            records = list(iterate_reviews(path, SourceRequest(format=format)))
        except InputError as error:
            refusals.append(error)
        else:
            assert all(type(record) in (Review, Rejection) for record in records)
    assert all(refusal.fix and refusal.where == str(path) for refusal in refusals)


@QUICKLY
@given(
    value=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=5,
    )
)
def test_any_value_in_any_field_is_accepted_or_rejected(tmp_path, value):
    path = tmp_path / "r"
    fields = (*GOOD, "time", "split")
    rows = [{**GOOD, "time": 1, "split": "train", field: value} for field in fields]
    path.write_bytes(b"\n".join([line(split="test"), *(json.dumps(row).encode() for row in rows)]))
    assert len(list(iterate_reviews(path))) == 1 + len(fields)


# Files that are useless as a whole -----------------------------------------------------------------------------------


def refused(path, match, **options):
    with pytest.raises(InputError) as caught:
        read_reviews(path, **options)
    said = f"{caught.value.what} {caught.value.fix}"  # without the path, which has words of its own
    assert re.search(match, said), said
    assert caught.value.where
    assert caught.value.fix


def test_places_without_a_file_are_named(tmp_path):
    refused(tmp_path / "none", "no such file")
    refused(tmp_path / "a" / "b\0c", "no such file")
    refused(tmp_path, "folder")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    refused(pipe, "this is a pipe or a device")
    with pytest.raises(InputError, match="this is a folder"):
        detect_format(tmp_path)


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"", "file is empty"),
        (b"\n \n\n", "no content"),
        (gzip.compress(b"", mtime=0), "no content"),
        (zstandard.ZstdCompressor().compress(b"\n"), "no content"),
        (b'[{"user": "a"}, {"user": "b"}]', "recognised as item or rating or text; the columns are user"),
        (b'[\n{"user": "a"}\n]', "recognised as item or rating or text"),
        (b'{\n  "user": "a"\n}', "recognised as item or rating or text"),
        (b"[]", "there are no records"),
        ("user,item".encode("utf-16"), "recognised as rating or text; the columns are user, item"),
        ("user".encode("utf-16")[:-1], "not in the encoding utf-16"),
        (b"Dear reader,\nthis is a letter.\n", "begins with 'Dear reader,'.*amazon, amazon2023, yelp"),
        (bytes(range(256)) * 8, "not recognised"),
        (b"\0" * 5000, "not recognised"),
        (b"PK\x03\x04" + bytes(100), "zip archive"),
        (b"BZh91AY" + bytes(100), "bzip2"),
        (b"user,item,rating,text\n", "no records"),
        (b"user,item,stars,words\na,b,5,c\n", "recognised as text; the columns are user, item, stars, words"),
        (b'{"user": "a", "item": "b", "rating": 5}\n', "recognised as text"),
        (GOOD_LINE.replace(b'"', b"'"), "none of the 1 records.*Python dict"),
        (line(user=None) + b"\n" + line(text=None), "line 1: user is missing; line 2: text is missing"),
        (b"PAR1" + bytes(50), "table cannot be read"),
        (b"PAR1", "table cannot be read"),
        (b"\x1f\x8b\x99" + bytes(50), "damaged after 0 complete lines"),
        (b"\x1f\x8b", "breaks off after 0"),
        (b"\x28\xb5\x2f\xfd" + b"\xff" * 50, "damaged after 0"),
    ],
    ids=short,
)
def test_useless_files_are_refused_with_the_remedy(tmp_path, content, match):
    path = tmp_path / "reviews.json"
    path.write_bytes(content)
    refused(path, match)


def test_a_tar_archive_in_gzip_is_recognised(tmp_path):
    import tarfile

    path = tmp_path / "yelp.tgz"
    with tarfile.open(path, "w:gz") as packed:
        member = tarfile.TarInfo("review.json")
        member.size = len(GOOD_LINE)
        packed.addfile(member, io.BytesIO(GOOD_LINE))
    refused(path, "tar archive")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_one_may_not_read_is_refused(tmp_path):
    path = tmp_path / "secret"
    path.write_bytes(GOOD_LINE)
    path.chmod(0)
    refused(path, "cannot be read")


FARTHEST = {
    "Date": (2**31 - 1, -(2**31), 2_932_897, -719_529),
    "Duration": (2**62, -(2**62), 10**18),
    "Datetime": (2**62, -(2**62), 253_402_300_800_000, 253_402_300_800_000_000, -62_135_596_800_001),
}


def beyond_python():
    """Columns of three values of which the first is beyond what Python can hold, by what they are."""
    dates = [(pl.Date, value) for value in FARTHEST["Date"]]
    spans = [(pl.Duration(unit), value) for unit in ("ms", "us", "ns") for value in FARTHEST["Duration"]]
    zones = (None, "UTC", "America/New_York")
    points = [(pl.Datetime(u, zone), at) for u in ("ms", "us", "ns") for zone in zones for at in FARTHEST["Datetime"]]
    for kind, value in [*dates, *spans, *points]:
        yield f"{kind} {value}", pl.Series([value, 0, 1]).cast(pl.Int32 if kind == pl.Date else pl.Int64).cast(kind)
    far = pl.Series([2**62, 0, 1]).cast(pl.Datetime("us"))
    yield "list", far.reshape((3, 1)).arr.to_list()
    yield "array", far.reshape((3, 1))
    yield "list of structs", far.to_frame("at").to_struct("s").reshape((3, 1)).arr.to_list()
    yield "struct", far.to_frame("at").to_struct("s")
    yield "decimal", pl.Series(["9" * 38, "1", "2"]).cast(pl.Decimal(38, 0))
    yield "binary", pl.Series([b"\xff\x00", b"4", b""])
    yield "nothing", pl.Series([None, None, None])
    yield "category", pl.Series(["a", "b", "a"]).cast(pl.Categorical)
    yield "whole", pl.Series([2**64 - 1, 0, 1], dtype=pl.UInt64)


@pytest.mark.parametrize("role", ["user", "rating", "text", "time", "name"])
def test_values_of_a_parquet_file_that_python_cannot_hold_cost_their_records_alone(tmp_path, role):
    rows = pl.DataFrame([GOOD] * 3)
    good = rows.with_columns(pl.Series("user", ["a", "b", "c"]))
    for name, column in beyond_python():
        without = pl.lit(None).cast(column.dtype)
        tables = [good.with_columns(values.alias(role)) for values in (column, without)]
        pl.concat(tables).write_parquet(tmp_path / "r")
        records = list(iterate_reviews(tmp_path / "r"))
        assert len(records) == 6, name
        if role in ("time", "name"):
            assert [getattr(record, "user", None) for record in records] == ["a", "b", "c"] * 2, name


def test_a_table_of_types_that_no_reader_knows_is_refused_in_words(tmp_path, monkeypatch):
    pl.DataFrame([GOOD]).write_parquet(tmp_path / "r")

    def fails(frame, **options):
        raise ValueError("precision must be between 1 and 38")

    monkeypatch.setattr(pl.DataFrame, "iter_rows", fails)
    with pytest.raises(InputError, match=r"cannot be read \(precision must be"):
        read_reviews(tmp_path / "r")


def test_dates_within_the_calendar_stay(tmp_path):
    days = pl.Series("time", ["2014-02-28", "9999-12-30", "0001-01-02"]).str.to_date()
    pl.DataFrame([GOOD] * 3).with_columns(days).write_parquet(tmp_path / "r")
    assert read_reviews(tmp_path / "r").times[0] == 1393545600
    pairs = pl.DataFrame({"user": ["a"] * 3, "item": ["b"] * 3, "day": days})
    pairs.write_parquet(tmp_path / "pairs")
    assert [row[0] for row in read_pairs(tmp_path / "pairs").extras] == ["2014-02-28", "9999-12-30", "0001-01-02"]


def test_a_damaged_parquet_file_is_refused_at_every_cut(tmp_path):
    out = io.BytesIO()
    pl.DataFrame([GOOD] * 50).write_parquet(out)
    whole = out.getvalue()
    path = tmp_path / "r.parquet"
    for cut in range(5, len(whole), max(1, len(whole) // 25)):
        path.write_bytes(whole[:cut])
        refused(path, "table cannot be read")


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.ZstdCompressor().compress], ids=["gzip", "zstd"])
def test_a_truncated_file_says_after_how_many_lines_it_broke(tmp_path, pack):
    chance = random.Random(7)
    rows = [line(text=f"{chance.getrandbits(200):x}") for _ in range(400)]
    whole = pack(b"\n".join(rows) + b"\n")
    path = tmp_path / "r.gz"
    counts = []
    for cut in sorted({*range(4, 30, 5), *(chance.randrange(30, len(whole)) for _ in range(60)), len(whole) - 1}):
        path.write_bytes(whole[:cut])
        with pytest.raises(InputError, match="breaks off after") as caught:
            read_reviews(path)
        counts.append(int(caught.value.what.split("after ")[1].split()[0].replace(",", "")))
    assert counts == sorted(counts)
    assert counts[0] == 0
    assert counts[-1] <= 400


def test_flipped_bits_in_gzip_never_change_what_is_read(tmp_path):
    chance = random.Random(11)
    texts = [f"{chance.getrandbits(200):x}" for _ in range(20)]
    whole = gzip.compress(b"\n".join(line(text=text) for text in texts), mtime=0)
    path = tmp_path / "r.gz"
    noticed = 0
    for place in range(10, len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :])
        try:
            assert read_reviews(path).texts == texts
        except InputError:
            noticed += 1
    assert noticed > 0.98 * (len(whole) - 10)  # a few bits pad or choose among equals


# Memory --------------------------------------------------------------------------------------------------------------

# The kernel's own peak for this process image: getrusage would report the parent's where that was larger.
MEASURE = """
import json, re, sys
from pathlib import Path
from carp.errors import InputError
from carp.reviews.sources.formats import read_reviews
import polars, zstandard

def megabytes(entry):
    return int(re.search(entry + r":\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) // 1024

before = megabytes("VmRSS")
for asked in sys.argv[1:]:
    format, _, path = asked.partition(":")
    try:
        said = str(read_reviews(path, format=format).ledger.counts)
    except InputError as error:
        said = str(error)
    print(json.dumps([asked, said, megabytes("VmHWM") - before]))
"""


def read_apart(*asked):
    """What reading each says, and the megabytes taken at the height so far, in one process of their own."""
    if not Path("/proc/self/status").exists():
        pytest.skip("this system does not tell a process its own peak")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", MEASURE, *asked]
    run = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600, check=True)
    return [json.loads(line) for line in run.stdout.splitlines()]


def gzip_bomb(path, filling, megabytes):
    packer = zlib.compressobj(9, wbits=31)
    with path.open("wb") as file:
        for _ in range(megabytes):
            file.write(packer.compress(filling * (10**6 // len(filling))))
        file.write(packer.flush())


def zstd_bomb(path, megabytes):
    packer = zstandard.ZstdCompressor().compressobj()
    with path.open("wb") as file:
        for _ in range(megabytes):
            file.write(packer.compress(bytes(10**6)))
        file.write(packer.flush())


def test_bombs_are_stopped_in_little_memory(tmp_path):
    """The same line again and again could be kept each time, so the ledger refuses none; its packing gives it away."""
    fillings = {"zeros": (b"\0", 200), "quotes": (b'"', 200), "lines": (b"\n", 25), "same": (GOOD_LINE + b"\n", 300)}
    for name, (filling, megabytes) in fillings.items():
        gzip_bomb(tmp_path / name, filling, megabytes)
    zstd_bomb(tmp_path / "zstd", 400)
    formats = ("auto:zeros", "jsonl:zeros", "beer:zeros", "csv:quotes", "auto:lines", "jsonl:same", "auto:zstd")
    bombs = [f"{format}:{tmp_path / name}" for format, name in (one.split(":") for one in formats)]
    found = read_apart(*bombs)
    assert [asked for asked, _, _ in found] == bombs
    for asked, said, megabytes in found:
        assert "unpacks to more than 50 times its size" in said, asked
        assert megabytes < 256, asked


def test_a_file_that_unpacks_beyond_the_limit_is_stopped(tmp_path):
    path = tmp_path / "r.gz"
    path.write_bytes(gzip.compress(b"\n".join([GOOD_LINE] * 1000)))
    refused(path, "more than 10,000 bytes", max_bytes=10_000)
    assert len(read_reviews(path, max_bytes=10**6)) == 1000


@pytest.mark.parametrize("packed", [False, True])
def test_a_line_of_ten_megabytes_is_passed_over_in_little_memory(tmp_path, packed):
    path = tmp_path / "r"
    chance = random.Random(3)
    content = GOOD_LINE + b'\n{"text": "' + chance.randbytes(5 << 20).hex().encode() + b'"}\n' + GOOD_LINE
    path.write_bytes(gzip.compress(content, 1) if packed else content)
    del content
    tracemalloc.start()
    records = list(iterate_reviews(path))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    good = Review("a", "b", 4.0, "fine")
    assert records == [good, Rejection(str(path), 2, line_reading.LINE_TOO_LONG), good]
    assert peak < 3 * line_reading.MAX_LINE


def test_detecting_looks_past_a_broken_beginning(tmp_path):
    path = tmp_path / "r"
    path.write_bytes(b"{broken\n" + SEEDS["yelp"][0])
    assert detect_format(path) == "yelp"
    path.write_bytes(b"{broken\n{worse\n")
    assert detect_format(path) == "jsonl"
