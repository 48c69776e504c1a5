"""Preparing on all cores in little memory makes the same corpus, to the last byte, as building it in memory."""

from __future__ import annotations

import dataclasses
import gzip
import json
import random
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars
import pytest
import zstandard

import yelp_shaped
from carp.cli import entry
from carp.errors import InputError
from carp.reviews.corpora import record_reading, string_column, word_columns
from carp.reviews.corpora.corpus import Corpus, build_corpus
from carp.reviews.corpora.dataset_statistics import dataset_statistics
from carp.reviews.corpora.growing_columns import ColumnFile, ColumnInMemory
from carp.reviews.corpora.preparation import SMALL, prepare_corpus, workers_for
from carp.reviews.corpora.string_column import stretch
from carp.reviews.corpora.word_columns import count_documents
from carp.reviews.sources import line_reading, unpacking
from carp.reviews.sources.formats import read_reviews
from carp.reviews.sources.request import SourceRequest

TEXTS = ["It's LIGHT &amp; loud", "ça va, ’tis “fine”", "", "!!!", "plain words and more words", "Ωmega don’t 42 4x4"]


def rows_of(count, *, spoiled=True):
    chance = random.Random(count)
    for number in range(count):
        mixed = " ".join(chance.choices(TEXTS, k=chance.randint(0, 4)))
        row = {
            "user": f"u{int(count / 8 * chance.random() ** 2)}",
            "item": f"i{int(count / 10 * chance.random() ** 2)}",
            "rating": chance.randint(1, 5),
            "text": chance.choice([mixed, TEXTS[4], *5 * [f"{mixed} n{number}"]]),
            "time": chance.choice([None, 1393545600, "2014-02-28"]),
        }
        if spoiled and chance.random() < 0.1:
            row[chance.choice(["user", "rating", "text"])] = chance.choice([None, [], "9" * 1500])
        yield row


def json_lines(count):
    return b"\n".join(json.dumps(row, ensure_ascii=False).encode() for row in rows_of(count))


def beer_blocks(count):
    keys = {"user": "review/profileName", "item": "beer/beerId", "rating": "review/overall", "text": "review/text"}
    for row in rows_of(count, spoiled=False):
        lines = [f"{key}: {row[role]}" + ("/20" if role == "rating" else "") for role, key in keys.items()]
        yield "\n".join(lines).encode()


def write_source(kind, folder):
    path = folder / f"reviews-{kind}"
    if kind == "jsonl":
        path.write_bytes(json_lines(900))
    elif kind == "windows":
        content = b"\xef\xbb\xbf" + json_lines(900).replace(b"\n", b"\r\n\r\n") + b"\r\n"
        path.write_bytes(content)
    elif kind == "gzip":
        path.write_bytes(gzip.compress(json_lines(900) + b"\n"))
    elif kind == "zstd":
        path.write_bytes(zstandard.ZstdCompressor().compress(json_lines(900)))
    elif kind == "csv":
        polars.DataFrame(list(rows_of(900, spoiled=False)), schema_overrides={"time": polars.String}).write_csv(path)
    elif kind == "parquet":
        rows = [{**row, "time": 7} for row in rows_of(900, spoiled=False)]
        polars.DataFrame(rows).write_parquet(path)
    else:
        path.write_bytes(b"\n\n".join(beer_blocks(900)))
    return path


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def in_one_place(sources, out, **options):
    reviews = read_reviews(sources, **{name: value for name, value in options.items() if name != "min_reviews"})
    corpus = build_corpus(reviews, min_reviews=options.get("min_reviews", 5))
    statistics = dataset_statistics(corpus)
    corpus.save(out, ledger=reviews.ledger)
    return corpus, statistics


@pytest.fixture
def tiny_pieces(monkeypatch):
    """So that small inputs go the way of large ones."""
    monkeypatch.setattr(unpacking, "CHUNK", 3_000)
    monkeypatch.setattr(line_reading, "STRETCH", 10_000)
    monkeypatch.setattr(record_reading, "STRETCH", 10_000)
    monkeypatch.setattr(word_columns, "STAMPS", 50)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("kind", ["jsonl", "windows", "gzip", "zstd", "csv", "parquet", "beer"])
def test_the_folder_equals_that_of_one_process_byte_for_byte(tmp_path, tiny_pieces, kind, workers):
    source = write_source(kind, tmp_path)
    corpus, statistics = in_one_place(source, tmp_path / "expected")
    prepared = prepare_corpus([source], tmp_path / "found", SourceRequest(), workers=workers)
    assert contents(tmp_path / "found") == contents(tmp_path / "expected")
    assert prepared.statistics == statistics
    assert prepared.facts == corpus.facts
    assert prepared.fingerprint == corpus.fingerprint
    assert all(prepared.facts["dropped"].values()), "the input has to have something to drop"


def test_several_sources_and_their_own_splits_stay_in_order(tmp_path, tiny_pieces):
    sources = []
    for name in ("first", "second"):
        sources.append(tmp_path / name)
        rows = [row | {"split": ["train", "dev", "test"][place % 3]} for place, row in enumerate(rows_of(700))]
        sources[-1].write_text("\n".join(json.dumps(row | {"user": f"{row['user']}{name}"}) for row in rows))
    in_one_place(sources, tmp_path / "expected", min_reviews=2)
    prepare_corpus(sources, tmp_path / "found", SourceRequest(), min_reviews=2, workers=2)
    assert contents(tmp_path / "found") == contents(tmp_path / "expected")
    assert "split.npy" in contents(tmp_path / "found")


def test_real_reviews_make_the_same_corpus(tmp_path, real_data):
    source = real_data / "reviews_Musical_Instruments_5.json.gz"
    in_one_place(source, tmp_path / "expected")
    prepare_corpus([source], tmp_path / "found", SourceRequest(), workers=2)
    assert contents(tmp_path / "found") == contents(tmp_path / "expected")


@pytest.mark.parametrize(
    ("rows", "options", "words"),
    [
        ([("a", "x", 4, "fine"), ("b", "y", 4, "fine")], {}, "no review is left"),
        ([("a", "x", 4, "!"), ("b", "y", 4, "?")], {"min_reviews": 1}, "no review has a word"),
        ([("a", "x", 4, "fine"), ("a", "y", 4, "fine")], {"min_reviews": 1}, "the same user, 'a'"),
        ([("a", "x", 4, "the"), ("b", "y", 4, "the")], {"min_reviews": 1}, "no word is left for the vocabulary"),
        ([("a", "x", 40, "fine"), ("b", "y", 4, "fine")], {}, "the ratings run from 4 to 40"),
        ([("", "x", 4, "fine")], {}, "none of the 1 records can be used"),
    ],
)
def test_reviews_that_make_no_corpus_are_refused_in_the_same_words(tmp_path, rows, options, words):
    source = tmp_path / "reviews.jsonl"
    names = ("user", "item", "rating", "text")
    source.write_text("\n".join(json.dumps(dict(zip(names, row, strict=True))) for row in rows))
    with pytest.raises(InputError, match=words) as expected:
        in_one_place(source, tmp_path / "expected", **options)
    with pytest.raises(InputError, match=words) as found:
        prepare_corpus([source], tmp_path / "new" / "found", SourceRequest(), **options)
    assert (found.value.what, found.value.fix) == (expected.value.what, expected.value.fix)
    assert str(source) in found.value.where
    assert [path.name for path in tmp_path.iterdir()] == ["reviews.jsonl"]


def test_progress_of_both_phases_reaches_the_end(tmp_path, tiny_pieces):
    source = write_source("jsonl", tmp_path)
    reading, cutting_up = [], []
    prepare_corpus(
        [source],
        tmp_path / "corpus",
        SourceRequest(),
        reading=lambda *step: reading.append(step),
        cutting=lambda *step: cutting_up.append(step),
    )
    assert reading[-1] == (source.stat().st_size, source.stat().st_size)
    assert len(cutting_up) > 1
    assert cutting_up[-1][0] == cutting_up[-1][1]


def test_small_inputs_start_no_process(tmp_path):
    small, packed, large = tmp_path / "small", tmp_path / "packed.gz", tmp_path / "large"
    small.write_bytes(b"{}\n")
    packed.write_bytes(gzip.compress(b"{}")[:10] + bytes(SMALL // 2))
    with large.open("wb") as file:
        file.truncate(SMALL + 1)
    assert workers_for([small, tmp_path / "none"]) == 1
    assert workers_for([small, large]) == workers_for([packed])


# ---- the parts


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
def test_stretches_hold_the_same_lines_as_reading_line_by_line(tmp_path, monkeypatch, line_end):
    monkeypatch.setattr(line_reading, "STRETCH", 300)
    monkeypatch.setattr(line_reading, "MAX_LINE", 2000)
    monkeypatch.setattr(unpacking, "CHUNK", 97)
    chance = random.Random(5)
    lines = [bytes(chance.choices(b"ab\r ", k=chance.choice([0, 3, 40, 1999, 2000, 2001, 5000]))) for _ in range(200)]
    for number, content in enumerate([line_end.join(lines), line_end.join(lines) + line_end, lines[0], b"\n\n"]):
        path = tmp_path / f"{number}"
        path.write_bytes(b"\xef\xbb\xbf" + content)
        expected = [line for line in line_reading.read_lines(path) if line[1] != b""]
        stretches = list(line_reading.read_stretches(path))
        found = [line for stretch_ in stretches for line in stretch_.lines() if line[1] != b""]
        assert found == expected
        assert all(len(stretch_.content) < 300 + 2 * 2001 for stretch_ in stretches)


def test_a_column_that_grows_is_what_numpy_saves(tmp_path):
    for values in (np.arange(10, dtype=np.int32), np.zeros(0, np.uint8), np.arange(100_000, dtype=np.int64)):
        in_file, in_memory = ColumnFile(tmp_path / "grown.npy", values.dtype), ColumnInMemory(values.dtype)
        for column in (in_file, in_memory):
            for piece in np.array_split(values, 3):
                column.append(piece)
            grown = column.finish()
            assert grown.dtype == values.dtype
            assert grown.tolist() == values.tolist()
        np.save(tmp_path / "saved.npy", values)
        assert (tmp_path / "grown.npy").read_bytes() == (tmp_path / "saved.npy").read_bytes()


@pytest.mark.parametrize("stamps", [1, 7, 1 << 20])
def test_documents_are_counted_as_one_by_one(monkeypatch, stamps):
    monkeypatch.setattr(word_columns, "STAMPS", stamps)
    chance = np.random.default_rng(3)
    offsets = np.concatenate([[0], np.cumsum(chance.integers(0, 6, 40))])
    tokens = chance.integers(0, 5, offsets[-1]).astype(np.int32)
    expected = np.zeros(6, np.int64)
    for first, last in pairwise(offsets):
        expected[np.unique(tokens[first:last])] += 1
    assert count_documents(tokens, offsets, words=6).tolist() == expected.tolist()


def test_the_fingerprint_is_the_same_from_memory_and_from_files(tmp_path, monkeypatch):
    monkeypatch.setattr(string_column, "ENTRIES_AT_ONCE", 1000)
    source = write_source("jsonl", tmp_path)
    corpus, _ = in_one_place(source, tmp_path / "corpus")
    loaded = Corpus.load(tmp_path / "corpus")
    assert dataclasses.replace(loaded).fingerprint == corpus.fingerprint, "computed again, not read from corpus.json"


def test_a_stretch_of_a_column_in_a_file_equals_one_in_memory(tmp_path):
    path = tmp_path / "column.npy"
    np.save(path, np.arange(50, dtype=np.int32))
    lying = np.load(path, mmap_mode="r")
    for first, last in ((0, 50), (7, 9), (3, 3), (49, 50)):
        found = stretch(lying, first, last)
        assert found.tolist() == list(range(first, last))
        assert not isinstance(found, np.memmap)
    assert stretch(lying[10:], 5, 7).tolist() == [15, 16], "a slice is read from where it begins"


def test_statistics_are_the_same_from_a_corpus_on_the_disk(tmp_path, monkeypatch):
    source = write_source("jsonl", tmp_path)
    _, expected = in_one_place(source, tmp_path / "corpus")
    monkeypatch.setattr("carp.reviews.corpora.dataset_statistics.TOKENS_AT_ONCE", 5)
    assert dataset_statistics(Corpus.load(Path(tmp_path / "corpus"))) == expected


def dated(days):
    kinds = ["light", "loud", "heavy", "sturdy"]
    return [
        {
            "user": f"u{number % 3}",
            "item": f"i{number // 3}",
            "rating": 4,
            "text": f"{kinds[number % 4]} words {'abcdefghijklmnopqrstuvwxyz'[number] * 3}",
            "time": day,
        }
        for number, day in enumerate(days)
    ]


def test_reviews_of_other_days_are_left_out_before_anything_else(tmp_path, capsys):
    days = [
        "2015-12-31",
        "2016-01-01",
        "2017-12-31 23:59:59",
        "2018-01-01",
        None,
        "2016-06-01",
        "2017-01-01",
        "2016-02-02",
    ]
    (tmp_path / "reviews.jsonl").write_text("\n".join(map(json.dumps, dated(days))))
    words = ["prepare", str(tmp_path / "reviews.jsonl"), "--out", str(tmp_path / "corpus"), "--min-reviews", "1"]
    assert entry.main([*words, "--since", "2016-01-01", "--until", "2017-12-31"]) == 0
    told = capsys.readouterr()
    assert "3 reviews of other days or without a date were left out" in told.err
    corpus = Corpus.load(tmp_path / "corpus")
    assert "".join(text[-1] for text in corpus.texts) == "bcfgh"
    assert corpus.facts["days"] == ["2016-01-01", "2017-12-31"]
    lost = sum(corpus.facts["dropped"].values())
    assert corpus.facts["read"] == corpus.facts["rejected"] + lost + len(corpus.rating)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--since", "soon"], "'soon' is not a day"),
        (["--since", "2017-01-02", "--until", "2017-01-01"], "the last day is before the first"),
        (["--since", "2020-01-01"], "no review of 4 is of the days asked for (4 have a date)"),
    ],
)
def test_days_that_make_no_sense_are_refused(tmp_path, capsys, options, said):
    (tmp_path / "reviews.jsonl").write_text("\n".join(map(json.dumps, dated(["2016-01-01"] * 4))))
    words = ["prepare", str(tmp_path / "reviews.jsonl"), "--out", str(tmp_path / "corpus"), "--min-reviews", "1"]
    assert entry.main([*words, *options]) in (1, 2)
    assert said in capsys.readouterr().err
    assert not (tmp_path / "corpus").exists()


def test_made_up_reviews_have_the_shape_of_yelp16_17(tmp_path):
    yelp_shaped.write_reviews(tmp_path / "reviews.json", 3_000, seed=1)
    yelp_shaped.write_reviews(tmp_path / "again.json", 3_000, seed=1)
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "reviews.json").read_bytes()
    rows = [json.loads(line) for line in (tmp_path / "reviews.json").read_text().splitlines()]
    recent = [row for row in rows if row["date"] >= "2016"]
    assert (len(rows), len(recent)) == (3_300, 3_000)
    liked = sum(row["stars"] > 3 for row in recent)
    assert liked / (len(recent) - liked) == pytest.approx(3.29, abs=0.5)
    assert len(recent) / len({row["user_id"] for row in recent}) == pytest.approx(7.28, abs=0.05)
    assert len(recent) / len({row["business_id"] for row in recent}) == pytest.approx(12.14, abs=0.1)
