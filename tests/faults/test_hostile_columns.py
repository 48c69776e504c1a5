"""Columns that cannot be, each refused by the check that is meant for it and not by chance by a later one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import carp
from carp.persist.bundle_checks import check_records, check_words, checked_dates, late_texts, review_runs
from carp.reviews.corpora.column_checks import ColumnFault, check_strings
from carp.reviews.corpora.corpus_checks import check_corpus
from carp.reviews.corpora.item_texts import ItemText, ItemTexts
from carp.reviews.corpora.records import LATEST, NO_TIME
from carp.reviews.corpora.string_column import StringColumn
from carp.storage import BytesCheckedOnUse
from made_up_reviews import shop_reviews

KINDS = {"user": np.int32, "item": np.int32, "rating": np.float32, "part": np.int8}


@pytest.fixture(scope="module")
def corpus():
    return carp.build_corpus(shop_reviews(), min_reviews=1)


# ---- strings


def test_records_without_anybody_or_anything_are_refused():
    nobody = StringColumn.from_strings([])
    columns = {name: np.zeros(0, kind) for name, kind in KINDS.items()}
    strings = dict.fromkeys(("users", "items", "texts"), nobody)
    with pytest.raises(ColumnFault, match="there are no users or no items"):
        check_records(strings, columns, 5)


@pytest.mark.parametrize("part", ["data", "offsets"])
def test_strings_in_a_table_are_no_column(part):
    column = StringColumn.from_strings(["drum", "reed"])
    with pytest.raises(ColumnFault, match="names is not a plain column"):
        check_strings("names", replace(column, **{part: getattr(column, part)[None]}))


def test_strings_without_offsets_are_refused():
    column = StringColumn(np.zeros(0, np.uint8), np.zeros(0, np.int64))
    with pytest.raises(ColumnFault, match="the offsets of names are missing"):
        check_strings("names", column)


@pytest.mark.parametrize("words", [[], ["reed", "drum", "reed"]])
def test_words_that_are_none_or_come_twice_are_no_vocabulary(words):
    check_words(["drum", "reed"])
    with pytest.raises(ColumnFault, match="the vocabulary is empty or has a word twice"):
        check_words(words)


# ---- texts that are checked on use

TEXTS = ["drum", "", "Röhre"]
LATE = {
    "offsets that do not span the texts": ("texts_offsets", lambda a: a - a[-1] + 3, "do not span"),
    "offsets that fall": ("texts_offsets", lambda a: a[[0, 2, 1, 3]] + [0, 1, 0, 0], "the offsets of texts fall"),
    "an offset too many": ("texts_offsets", lambda a: np.append(a, a[-1]), "the offsets of texts has"),
    "characters of another kind": ("texts_characters", lambda a: a.astype(np.int64), "texts_characters holds int64"),
    "characters of one text less": ("texts_characters", lambda a: a[:-1], "texts_characters has"),
    "fewer characters than none": (
        "texts_characters",
        lambda a: a - np.array([0, 1, 0], np.int32),
        "more than the texts can have",
    ),
    "more characters than bytes": (
        "texts_characters",
        lambda a: a + np.array([0, 1, 0], np.int32),
        "more than the texts can have",
    ),
}


@pytest.mark.parametrize(("name", "edit", "reason"), LATE.values(), ids=LATE)
def test_what_tells_where_late_texts_lie_is_checked_before_they_are_read(name, edit, reason):
    texts = StringColumn.from_strings(TEXTS)
    columns = {"user": np.zeros(len(TEXTS), np.int32), "texts_offsets": texts.offsets}
    columns["texts_characters"] = np.array([len(text) for text in TEXTS], np.int32)
    content = BytesCheckedOnUse(texts.data, None, 0)  # nothing is read yet, and so no block is summed
    assert len(late_texts(content, columns, "here")) == len(TEXTS)
    columns[name] = edit(columns[name])
    with pytest.raises(ColumnFault, match=reason):
        late_texts(content, columns, "here")


# ---- dates


@pytest.mark.parametrize(
    ("time", "reason"),
    [
        (np.zeros(3, np.int32), "time holds int32"),
        (np.zeros(2, np.int64), "time has 2"),
        (np.array([0, NO_TIME - 1, 0]), "an entry of time"),
        (np.array([0, LATEST + 1, 0]), "an entry of time"),
    ],
)
def test_dates_that_are_none_are_refused(time, reason):
    assert checked_dates({"time": np.array([NO_TIME, 0, LATEST])}, 3).tolist() == [NO_TIME, 0, LATEST]
    with pytest.raises(ColumnFault, match=reason):
        checked_dates({"time": time}, 3)


# ---- documents


def test_what_holds_of_a_review_is_looked_up_once_and_not_for_each_of_its_words():
    places, reviews = review_runs(np.array([7, 7, 7, 4, 4], np.int32), np.array([0, 2, 5]), 0)
    assert places.tolist() == [0, 2, 3]
    assert reviews.tolist() == [7, 7, 4]


# ---- corpora


@pytest.mark.parametrize(("name", "value"), [("split", -1), ("split", 3), ("copy_group", -2), ("copy_group", 10**6)])
def test_an_entry_out_of_range_is_refused(corpus, name, value):
    kind = {"split": np.int8, "copy_group": np.int32}[name]
    column = np.zeros(len(corpus), kind)
    check_corpus(replace(corpus, **{name: column}))
    column[3] = value
    with pytest.raises(ColumnFault, match=f"an entry of {name}"):
        check_corpus(replace(corpus, **{name: column}))


def test_titles_of_more_things_than_there_are_are_refused(corpus):
    titles = ItemTexts.of([ItemText("Tube 12AX7")] * len(corpus.items))
    check_corpus(replace(corpus, item_texts=titles))
    with pytest.raises(ColumnFault, match="item_titles"):
        check_corpus(replace(corpus, item_texts=ItemTexts.of([ItemText("Tube 12AX7")] * (len(corpus.items) + 1))))
