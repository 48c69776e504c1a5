"""Bytes that a fuzzer could make, in every kind of file that carp reads: read, or refused in words; never lost.

`make torture PARTS=fuzz` lets a real fuzzer look for them; what it found stands here.
"""

from __future__ import annotations

import base64
import gzip
import io
import random
import re
import subprocess
import zipfile

import polars
import pytest

import fuzz_targets
import fuzzing
from carp.errors import InputError
from carp.reviews.sources.formats import read_reviews
from carp.reviews.sources.item_files import read_items

TRIES = 40  # of each target
ROW = fuzz_targets.ROW


@pytest.mark.parametrize("name", fuzz_targets.TARGETS)
def test_what_is_good_is_read_and_what_is_changed_is_read_or_refused(name):
    target, rng = fuzz_targets.TARGETS[name], random.Random(name)
    seeds = target.seeds()
    assert {fuzz_targets.try_one(target, seed) for seed in seeds[:1]} == {"read"}
    ends = [fuzz_targets.try_one(target, fuzzing.changed(rng.choice(seeds), rng)) for _ in range(TRIES)]
    assert len(ends) == TRIES
    assert "refused" in ends, "the changes are too mild to mean anything"


FOUND = [
    (  # a damaged member of a zip archive
        "zip",
        "UEsDBBQAAAAIAAxfcF12RgtgTQAAAE8AAAABAAAAYQXBwQmAMAwF0LvQHULOv9IWwdSjGWIcHJpDG0G3971nSIe6NPTqahdcXodrkzBVM+wx"
        "YwFvTjqI+VQTZpDf8tGoesyMkvIaU46phOkHUEsBAhQDFAAAAAgADF9wXXZGC2BNAAAATwAAAAEAAAAAAAAAAAAAAIABAAAAAGFQSwUGAAAA"
        "AAEAAQAvAAAAbAAAAAAA",
    ),
    (  # a header of numpy in which a string is never closed
        "columns",
        base64.b64encode(b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order".ljust(128, b"\0")).decode(),
    ),
]


@pytest.mark.parametrize(("name", "content"), FOUND)
def test_what_the_fuzzer_found_is_refused_in_words(name, content):
    assert fuzz_targets.try_one(fuzz_targets.TARGETS[name], base64.b64decode(content)) == "refused"


def test_an_input_that_raises_is_told_with_what_it_raised():
    ended = subprocess.CompletedProcess(["python"], 77, "=== Uncaught Python exception: ===\nKeyError: 'a'\n", "#9 x")
    (fault,) = fuzzing.faults_of("csv", ended, [b"bad"])
    assert base64.b64encode(b"bad").decode() in fault
    assert "KeyError" in fault
    assert fuzzing.faults_of("csv", subprocess.CompletedProcess(["python"], 0, "", ""), []) == []


def test_the_fuzzer_is_guided_by_what_it_reaches():
    pytest.importorskip("atheris")
    found = fuzzing.run("csv", 60)
    assert found["faults"] == []
    assert found["tried"] == 60
    assert found["counts"]["csv: branches"] > 100
    assert found["counts"]["csv: inputs kept"] > 3


# ---- time: each of these would take hours if it took the square of its length


@pytest.mark.parametrize(
    ("filling", "times"), [(b"\n", 1_500_000), (b" ", 1_500_000), (b"[{", 60_000), (b",{", 60_000)]
)
def test_damage_in_a_json_array_does_not_take_forever(tmp_path, filling, times):
    path = tmp_path / "r.json"
    path.write_bytes(b'[{"user": "a" b' + filling * times)
    with pytest.raises(InputError, match=r"recognised|none of the|no records"):
        read_reviews(path)


def test_an_object_after_damage_and_many_empty_lines_is_read(tmp_path):
    path = tmp_path / "r.json"
    good = b'{"user": "a", "item": "b", "rating": 4, "text": "fine"}'
    path.write_bytes(b"[\n" + good + b",\n{broken" + b"\n" * 20_000 + good + b"\n]")
    reviews = read_reviews(path)
    assert (reviews.ledger.accepted, reviews.ledger.rejected) == (2, 1)
    assert [one.line for one in reviews.ledger.rejections] == [3]


@pytest.mark.parametrize("read", [read_reviews, read_items])
def test_a_header_of_very_many_columns_does_not_take_forever(tmp_path, read):
    path = tmp_path / "r.csv"
    path.write_bytes(b"item,title" + b",x" * 400_000 + b"\n")
    with pytest.raises(InputError):
        read(path)


# ---- what unpacks to more than it may

LINE = fuzz_targets.lines(ROW)


def refused(path, match):
    with pytest.raises(InputError, match=match) as caught:
        read_reviews(path)
    assert caught.value.fix


def test_many_small_files_in_an_archive_are_bounded_together(tmp_path):
    path = tmp_path / "r.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(8):  # each of them could be there alone
            archive.writestr(f"{number}.jsonl", LINE * (4_000_000 // len(LINE)))
    refused(path, "unpacks to more than 50 times its size")


def test_files_of_an_archive_that_lie_over_each_other_are_refused(tmp_path):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.jsonl", LINE * 2000)
        for number in range(20):
            again = zipfile.ZipInfo(f"{number}.jsonl")
            first = archive.infolist()[0]
            for name in ("header_offset", "CRC", "compress_size", "file_size", "compress_type"):
                setattr(again, name, getattr(first, name))
            archive.filelist.append(again)
            archive.NameToInfo[again.filename] = again
    (tmp_path / "r.zip").write_bytes(packed.getvalue())
    refused(tmp_path / "r.zip", "zip archive cannot be read")


def test_what_is_packed_twice_counts_from_the_archive_on(tmp_path):
    inner = gzip.compress(LINE * (3_000_000 // len(LINE)), mtime=0)
    path = tmp_path / "r.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("r.jsonl.gz", inner)
    assert 50 * len(inner) < 3_000_000 < 16 << 20
    refused(path, "unpacks to more than 50 times its size")


def test_a_table_of_parquet_that_repeats_itself_is_stopped(tmp_path):
    path = tmp_path / "r.parquet"
    polars.DataFrame([ROW]).sample(400_000, with_replacement=True).write_parquet(path)
    assert path.stat().st_size < 50_000
    refused(path, "unpacks to more than 50 times its size")


# ---- workbooks


def workbook_with(change, name="xl/worksheets/sheet1.xml", rows=(ROW, ROW)):
    good, out = zipfile.ZipFile(io.BytesIO(fuzz_targets.workbook(*rows))), io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for one in good.namelist():
            archive.writestr(one, change(good.read(one)) if one == name else good.read(one))
    return out.getvalue()


def test_a_workbook_that_is_wrong_about_its_size_loses_no_rows(tmp_path):
    path = tmp_path / "r.xlsx"
    path.write_bytes(workbook_with(lambda sheet: sheet.replace(b'ref="A1:E3"', b'ref="A1:E2"')))
    assert len(read_reviews(path)) == 2


def test_a_row_that_says_it_is_far_away_keeps_nobody_waiting(tmp_path):
    path = tmp_path / "r.xlsx"
    path.write_bytes(workbook_with(lambda sheet: sheet.replace(b'<row r="3"', b'<row r="900000000000"')))
    refused(path, "beyond the last one of Excel")


@pytest.mark.parametrize("number", [b"2", b"1", b"700"])
def test_rows_of_a_workbook_that_do_not_rise_are_not_left_out_without_a_word(tmp_path, number):
    path = tmp_path / "r.xlsx"
    change = workbook_with(lambda sheet: sheet.replace(b'<row r="3"', b"<row r='" + number + b"'"), rows=(ROW,) * 3)
    path.write_bytes(change)
    refused(path, "the rows of a sheet are not in their order")


def test_rows_of_a_workbook_need_no_numbers(tmp_path):
    path = tmp_path / "r.xlsx"
    path.write_bytes(workbook_with(lambda sheet: re.sub(rb'<row r="[0-9]+"', b"<row", sheet)))
    assert len(read_reviews(path)) == 2


def test_entities_of_a_workbook_do_not_multiply(tmp_path):
    lol = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
    head = f'<?xml version="1.0"?><!DOCTYPE w [<!ENTITY l0 "{"lol" * 10}">{lol}]>'.encode()
    path = tmp_path / "r.xlsx"
    path.write_bytes(workbook_with(lambda sheet: head + sheet.replace(b"<t>user</t>", b"<t>&l9;</t>")))
    refused(path, "workbook cannot be read")
