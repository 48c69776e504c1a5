"""Tables and workbooks that hold far more than their size, or other rows than it seems."""

from __future__ import annotations

import io
import itertools
import re
import tracemalloc
import zipfile

import polars
import pytest

import fuzz_targets
from carp.errors import InputError
from carp.reviews.sources.formats import iterate_reviews, read_reviews
from carp.reviews.sources.frames import AT_ONCE_BYTES, polars_rows
from carp.reviews.sources.item_files import read_items
from carp.reviews.sources.pair_files import MANY_PAIRS, read_pairs
from carp.reviews.sources.row_sizes import VALUE_BYTES, row_bytes
from carp.reviews.sources.unpacking import BOMB_FLOOR

ROW = fuzz_targets.ROW
REVIEW = {"user": "a", "item": "b", "rating": 4, "text": "fine"}
READERS = (read_reviews, read_items, read_pairs)
TOO_MUCH = "unpacks to more than 50 times its size"


def refused(read, path, words):
    with pytest.raises(InputError, match=words) as caught:
        read(path)
    assert caught.value.fix


def zipped(path, name, content):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
    return path


def repeated(path, times, **values):
    """A table of one row again and again."""
    one = polars.DataFrame([{**REVIEW, **values}])
    polars.concat([one] * times, rechunk=True).write_parquet(path)
    return path


# ---- archives in archives


@pytest.mark.parametrize("read", READERS)
def test_what_only_begins_like_an_archive_is_refused_in_words(tmp_path, read):
    refused(read, zipped(tmp_path / "r.zip", "inner", b"PK\x03\x04 and nothing more"), r"archive is damaged.*unzip -t")


@pytest.mark.parametrize("read", READERS)
def test_an_archive_in_an_archive_is_named_as_such(tmp_path, read):
    inner = zipped(tmp_path / "inner.zip", "r.csv", "user,item,rating,text\na,b,4,fine\n").read_bytes()
    refused(read, zipped(tmp_path / "r.zip", "inner.zip", inner), "zip archive inside an archive.*unpack the outer")


# ---- tables of Parquet


@pytest.mark.parametrize(
    "value",
    ["x" * 300_000, b"x" * 300_000, ["x" * 300_000], [{"words": ["x"] * 300, "more": [b"x" * 300_000]}]],
    ids=["text", "bytes", "list", "nested"],
)
@pytest.mark.parametrize("role", ["text", "user"])
def test_a_value_that_a_table_repeats_is_counted_before_it_is_made(tmp_path, role, value):
    path = repeated(tmp_path / "r.parquet", 200, **{role: value})
    tracemalloc.start()
    refused(read_reviews, path, TOO_MUCH)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < BOMB_FLOOR


def test_large_rows_become_objects_a_few_at_a_time():
    table = polars.DataFrame([REVIEW]).with_columns(text=polars.lit("x" * 10**6))
    rows = polars_rows(polars.concat([table] * 200).lazy(), "frame")
    tracemalloc.start()
    assert sum(len(text) for *_, text in rows) == 200 * 10**6
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 * AT_ONCE_BYTES


def test_texts_that_are_too_long_are_rejected_one_by_one_as_long_as_the_table_is_small(tmp_path):
    path = repeated(tmp_path / "r.parquet", 20, text="x" * 300_000)
    reasons = [getattr(one, "reason", None) for one in iterate_reviews(path)]
    assert reasons == ["text is longer than 200,000 characters"] * 20


KINDS = {
    "text": (["ab", None, "é"], None, [2, 0, 2]),
    "bytes": ([b"xyz", None, b""], None, [3, 0, 0]),
    "category": (["ab", None, "é"], polars.Categorical, [2, 0, 2]),
    "number": ([1, None, 3], None, [0, 0, 0]),
    "nothing": ([None] * 3, None, [0, 0, 0]),
    "list": ([["a", None, "bcd"], None, []], None, [4 + 3 * VALUE_BYTES, 0, 0]),
    "array": ([["a", "b"], None, ["c", None]], polars.Array(polars.String, 2), [2 + 2 * VALUE_BYTES, 0, 17]),
    "numbers": ([[1, 2, 3], None, []], None, [3 * VALUE_BYTES, 0, 0]),
    "nested": ([[["a"], ["bc", None]], None, [[]]], None, [3 + 5 * VALUE_BYTES, 0, VALUE_BYTES]),
}


@pytest.mark.parametrize(("values", "kind", "content"), KINDS.values(), ids=KINDS)
def test_rows_are_counted_with_all_that_they_hold(values, kind, content):
    batch = polars.DataFrame({"a": polars.Series(values, dtype=kind), "b": [1, 2, 3]})
    assert row_bytes(batch).to_list() == [2 * VALUE_BYTES + one for one in content]
    inside = batch.select(polars.struct("a", "b").alias("s"), polars.lit("xy").alias("t"))
    assert row_bytes(inside).to_list() == [4 * VALUE_BYTES + 2 + one for one in content]
    assert row_bytes(batch.clear()).to_list() == []


def test_a_table_of_all_things_for_many_people_is_read_though_it_is_packed_to_next_to_nothing(tmp_path):
    path, ids = tmp_path / "pairs.parquet", [f"{number:0100d}" for number in range(300)]
    pairs = list(itertools.product(ids, ids))
    polars.DataFrame(pairs, schema=["user", "item"], orient="row").write_parquet(path)
    assert 200 * len(pairs) > max(BOMB_FLOOR, 50 * path.stat().st_size)
    assert read_pairs(path).pairs == pairs


def test_pairs_without_end_are_stopped(tmp_path):
    path = tmp_path / "pairs.parquet"
    rows = MANY_PAIRS // 10_000
    polars.DataFrame([{"user": "a", "item": "b", "note": "x" * 10_000}]).select(
        polars.all().repeat_by(rows).explode()
    ).write_parquet(path)
    refused(read_pairs, path, TOO_MUCH)


# ---- tables and workbooks in an archive count from the archive on


@pytest.mark.parametrize("read", READERS)
def test_a_table_in_an_archive_counts_from_the_archive_on(tmp_path, read):
    inner = tmp_path / "r.parquet"
    polars.DataFrame([ROW] * 20_000).with_columns(title=polars.col("text")).write_parquet(
        inner, compression="uncompressed"
    )
    path = zipped(tmp_path / "r.zip", "r.parquet", inner.read_bytes() + b"")
    refused(read, path, TOO_MUCH)


@pytest.mark.parametrize("read", READERS)
def test_a_workbook_in_an_archive_counts_from_the_archive_on(tmp_path, read):
    padded = io.BytesIO(fuzz_targets.workbook(ROW))
    with zipfile.ZipFile(padded, "a", zipfile.ZIP_DEFLATED) as book:
        book.writestr("xl/media/picture", bytes(12_000_000))
    path = zipped(tmp_path / "r.zip", "r.xlsx", padded.getvalue())
    refused(read, path, "the workbook unpacks to more than 200 times its size")


# ---- workbooks


def test_rows_that_do_not_rise_are_found_wherever_the_workbook_keeps_its_sheet(tmp_path):
    path, moved = tmp_path / "r.xlsx", "xl/sheets/sheet1.xml"
    good = zipfile.ZipFile(io.BytesIO(fuzz_targets.workbook(*[ROW] * 3)))
    with zipfile.ZipFile(path, "w") as out:
        for name in good.namelist():
            content = good.read(name)
            if name == "xl/worksheets/sheet1.xml":
                name, content = moved, re.sub(rb'<row r="3"', b'<row r="2"', content)
            out.writestr(name, content.replace(b"xl/worksheets/sheet1.xml", moved.encode()))
    refused(read_reviews, path, "the rows of a sheet are not in their order")
