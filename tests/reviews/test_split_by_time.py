"""Splits by time: the latest reviews are held out, of each person or of all; what has no date is for training."""

from __future__ import annotations

from datetime import UTC, date, datetime
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from carp.errors import InputError, UsageError
from carp.reviews.split import split_corpus
from carp.reviews.split_by_time import TimeRule
from carp.reviews.split_parts import TEST, TRAIN, VALID
from carp.user_input import as_split


def corpus_of(user, time):
    return SimpleNamespace(user=np.array(user, np.int32), time=np.array(time, np.int64), split=None, copy_group=None)


def day(text):
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


def test_the_latest_fifth_of_each_person_is_test_and_the_latest_of_the_rest_validation():
    user = [0] * 5 + [1] * 10
    time = [5, 1, 4, 2, 3, *range(10, 20)]
    split = split_corpus(corpus_of(user, time), own=TimeRule())
    assert split.test.tolist() == [0, 13, 14]  # one of five, two of ten
    assert split.valid.tolist() == [12]  # a tenth of twelve: of each one's latest that is left, the later
    assert split.origin == "by time, the latest fifth of each person's reviews"


def test_all_since_a_day_are_test_and_the_latest_before_it_validation():
    time = [day(f"2013-01-{n:02d}") for n in range(1, 21)]
    split = split_corpus(corpus_of([0, 1] * 10, time), own=as_split("time:2013-01-11"))
    assert split.test.tolist() == list(range(10, 20))
    assert split.valid.tolist() == [9]
    assert split.origin == "by time, all reviews since 2013-01-11"


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(-1, 6)), min_size=1, max_size=60))
def test_nobody_loses_all_to_test_and_no_tested_review_is_earlier_than_a_trained_one(records):
    user, time = (np.array(column) for column in zip(*records, strict=True))
    if (time < 0).all():
        return
    part, _ = TimeRule().parts(user.astype(np.int32), time.astype(np.int64))
    assert (part[time < 0] == TRAIN).all()
    for person in set(user.tolist()):
        own = (user == person) & (time >= 0)
        held, kept = time[own & (part == TEST)], time[own & (part != TEST)]
        assert not len(held) or (len(kept) and held.min() >= kept.max())
        assert len(held) <= max(1, round(0.2 * own.sum()))
        tried = time[own & (part == VALID)]
        left = time[own & (part == TRAIN)]
        assert not len(tried) or not len(left) or tried.min() >= left.max()


def test_of_one_day_the_reviews_further_down_the_file_are_later():
    part, _ = TimeRule().parts(np.zeros(5, np.int32), np.full(5, 7))
    assert part.tolist() == [TRAIN, TRAIN, TRAIN, TRAIN, TEST]


def test_reviews_without_a_date_are_for_training_and_are_counted():
    split = split_corpus(corpus_of([0] * 20, [-1, -1, *range(18)]), own=TimeRule())
    assert split.part[:2].tolist() == [TRAIN, TRAIN]
    assert split.origin.endswith("; 2 without a date are for training")


@pytest.mark.parametrize("time", [[-1] * 10, []])
def test_a_corpus_without_dates_is_refused_in_plain_words(time):
    with pytest.raises(InputError, match=r"no review has a date, so none is the latest.*--column time=NAME"):
        split_corpus(corpus_of([0] * 10, time), own=TimeRule())


def test_a_day_outside_the_dates_is_refused_with_the_days_that_can_be_given():
    corpus = corpus_of([0] * 10, [day("2012-05-01") + 86400 * n for n in range(10)])
    with pytest.raises(InputError, match=r"no review is from 2013-01-01 or later.*up to 2012-05-10"):
        split_corpus(corpus, own=TimeRule(date(2013, 1, 1)))
    with pytest.raises(InputError, match=r"all reviews are from 2012-05-01 or later.*after 2012-05-01"):
        split_corpus(corpus, own=TimeRule(date(2012, 5, 1)))


@pytest.mark.parametrize("text", ["time:", "time:yesterday", "time:2013-13-01", "time:2013"])
def test_what_is_no_day_is_refused(text):
    with pytest.raises(UsageError, match=r"is not a day.*time:2013-01-31"):
        as_split(text)
