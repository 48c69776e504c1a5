"""Measures of lists against figures computed by hand."""

from __future__ import annotations

from itertools import combinations
from math import isnan, log2

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from carp.evaluate.list_measures import coverage, hits, likeness, ndcg, recall

LISTS = np.array([[4, 2, 0], [1, 0, 3], [5, -1, -1]])
LIKED = np.array([0, 0, 1, 1, 1]), np.array([2, 5, 1, 3, 4])  # people, and what they liked


def test_hits_are_the_places_of_the_persons_own_liked_things():
    found = hits(LISTS, *LIKED)
    assert found.tolist() == [[False, True, False], [True, False, True], [False, False, False]]
    assert not hits(np.array([[-1]]), np.array([0]), np.array([0])).any(), "an empty place hits nothing"


def test_ndcg_is_the_gain_over_that_of_the_best_possible_list():
    first = (1 / log2(3)) / (1 + 1 / log2(3))  # the second of three places; two could have been there
    second = (1 + 1 / log2(4)) / (1 + 1 / log2(3) + 1 / log2(4))
    assert ndcg(hits(LISTS, *LIKED), np.array([2, 3, 0])) == pytest.approx((first + second) / 2)


def test_a_list_of_nothing_but_liked_things_has_an_ndcg_of_one_however_many_more_are_liked():
    assert ndcg(np.ones((2, 3), bool), np.array([3, 9])) == pytest.approx(1)


def test_recall_is_the_share_of_what_was_liked():
    assert recall(hits(LISTS, *LIKED), np.array([2, 3, 0])) == pytest.approx((1 / 2 + 2 / 3) / 2)


def test_nobody_who_liked_anything_gives_no_number():
    assert isnan(ndcg(np.zeros((2, 3), bool), np.zeros(2, np.int64)))
    assert isnan(recall(np.zeros((2, 3), bool), np.zeros(2, np.int64)))


def test_coverage_counts_each_thing_once_and_no_empty_place():
    assert coverage(LISTS, 12) == 6 / 12


@given(st.integers(2, 6), st.integers(1, 4), st.randoms(use_true_random=False))
def test_likeness_is_the_mean_share_of_common_things_over_all_pairs_of_people(people, places, random):
    lists = np.array([random.sample(range(6), places) for _ in range(people)])
    shares = [len(set(a) & set(b)) / places for a, b in combinations(lists.tolist(), 2)]
    assert likeness(lists) == pytest.approx(np.mean(shares))
