"""Reasons are made of the sentences that pull most, and do not say the same again."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from carp.explain.capsule_judgement import UnitReason, reasons_of_sentiment
from carp.explain.influence import SentenceInfluence
from carp.explain.question import Detail
from carp.explain.selection import Reason, choose_reasons, likeness
from carp.models.carp import NEGATIVE, POSITIVE


def choose(user, item, together=None, alike=None, **options):
    user, item = np.array(user, dtype=float), np.array(item, dtype=float)
    together = np.zeros((len(user), len(item))) if together is None else np.array(together, dtype=float)
    alike = alike or (np.eye(len(user)), np.eye(len(item)))
    return choose_reasons(user, item, together, alike, **{"reasons": 1, **options})


# ---- likeness


def test_sentences_are_alike_by_the_words_they_share_and_rare_words_say_more():
    words = np.array([1, 2, 1, 3, 1, 2, 1, 4, 5, 6], np.int32)
    sentence = np.array([0, 0, 1, 1, 2, 2, 3, 3, 4, 4])
    alike = likeness(words, sentence)
    np.testing.assert_allclose(alike, alike.T)
    np.testing.assert_allclose(np.diag(alike), 1)
    assert alike[0, 2] == pytest.approx(1)
    assert 0 < alike[0, 1] < 0.5, "only the word that nearly all have"
    assert alike[0, 4] == 0


def test_a_document_without_words_has_no_sentences_to_compare():
    assert likeness(np.zeros(0, np.int32), np.zeros(0, np.int64)).shape == (0, 0)


# ---- one reason


def test_the_sentences_that_pull_most_are_shown():
    assert choose([0.1, 0.9, 0.2], [0.8, 0.2]) == [Reason((1,), (0,))]


def test_two_sentences_that_meet_come_before_two_that_pull_a_little_more_each():
    together = [[0, 0, 0], [0, 0.5, 0], [0, 0, 0]]
    assert choose([1.0, 0.9, 0.1], [1.0, 0.9, 0.1], together, sentences=1) == [Reason((1,), (1,))]


def test_a_sentence_meets_in_the_name_of_those_that_say_the_same():
    """Sentence 1 meets nothing itself, but what sentence 2 says as well does."""
    alike = np.array([[1, 0, 0], [0, 1, 0.8], [0, 0.8, 1]])
    together = [[0], [0], [0.5]]
    assert choose([1.0, 0.9, -1.5], [1.0], together, (alike, np.eye(1)), sentences=1) == [Reason((1,), (0,))]
    alone = choose([1.0, 0.9, -1.5], [1.0], together, (np.eye(3), np.eye(1)), sentences=1)
    assert alone == [Reason((0,), (0,))]


@pytest.mark.parametrize(("second", "shown"), [(0.32, (0,)), (0.34, (0, 2))])
def test_a_second_sentence_stands_beside_the_first_where_it_is_worth_a_third_of_it(second, shown):
    assert choose([1.0, 0.1, second], [1.0])[0].user == shown


def test_no_more_sentences_are_shown_than_asked_for():
    assert choose([1, 1, 1, 1], [1, 1, 1], sentences=3) == [Reason((0, 1, 2), (0, 1, 2))]
    assert choose([1, 1], [1], sentences=0) == [Reason((), ())]


def test_a_sentence_that_pulls_the_other_way_is_shown_only_where_there_is_no_better():
    assert choose([-0.2, -0.1], [0.5, -0.4]) == [Reason((1,), (0,))]


def test_the_second_sentence_is_not_the_first_in_other_words():
    alike = np.array([[1, 0.9, 0], [0.9, 1, 0], [0, 0, 1]])
    assert choose([1.0, 0.95, 0.6], [1.0], alike=(alike, np.eye(1))) == [Reason((0, 2), (0,))]


@pytest.mark.parametrize(("user", "item"), [([], [0.2, 0.9]), ([0.2, 0.9], []), ([], [])])
def test_a_side_without_sentences_leaves_the_other_its_own(user, item):
    (found,) = choose(user, item)
    assert found == Reason((1,) if user else (), (1,) if item else ())


# ---- several


def test_each_reason_has_sentences_of_its_own():
    found = choose([5, 4, 3, 2, 1], [1, 2, 3, 4, 5], reasons=3, sentences=1)
    assert found == [Reason((0,), (4,)), Reason((1,), (3,)), Reason((2,), (2,))]


def test_what_a_former_reason_said_is_not_said_again():
    alike = np.array([[1, 1, 0], [1, 1, 0], [0, 0, 1]], dtype=float)
    found = choose([1.0, 0.9, 0.3], [1, 1, 1], alike=(alike, np.eye(3)), reasons=2, sentences=1)
    assert [reason.user for reason in found] == [(0,), (2,)]


def test_where_all_was_said_it_starts_again():
    found = choose([1.0], [0.9, 1.0], reasons=3, sentences=1)
    assert [reason.user for reason in found] == [(0,), (0,), (0,)]
    assert [reason.item for reason in found] == [(1,), (0,), (1,)]


@given(st.integers(0, 9), st.integers(0, 9), st.integers(1, 4), st.integers(1, 3), st.integers(0, 99))
def test_reasons_are_as_many_as_asked_for_and_never_silent_where_something_was_written(s, t, reasons, sentences, seed):
    rng = np.random.default_rng(seed)
    alike = tuple(likeness(rng.integers(0, 5, 3 * n).astype(np.int32), np.repeat(np.arange(n), 3)) for n in (s, t))
    found = choose(rng.normal(size=s), rng.normal(size=t), rng.normal(size=(s, t)), alike,
                   reasons=reasons, sentences=sentences)  # fmt: skip
    assert len(found) == reasons
    for reason in found:
        for shown, there in ((reason.user, s), (reason.item, t)):
            assert bool(shown) == bool(there)
            assert len(shown) <= sentences
            assert len(set(shown)) == len(shown)
            assert all(0 <= place < there for place in shown)


# ---- logic units


def make_pulls():
    """Sentence 0 of both sides pulls up through unit (0, 1), sentence 1 through unit (1, 0), and 2 pulls down."""
    user, item = np.zeros((3, 2, 2)), np.zeros((3, 2, 2))
    for side in (user, item):
        side[0, 0, 1], side[1, 1, 0], side[2, 0, 0] = 1.0, 1.5, -2.0
    return SentenceInfluence(user, item, np.zeros((3, 3)))


def test_units_come_by_their_coupling_and_show_what_pulls_through_them():
    alike = np.eye(3), np.eye(3)
    coupling = np.array([[0.1, 0.5], [0.3, 0.1]])
    found = reasons_of_sentiment(make_pulls(), alike, coupling, POSITIVE, 2, Detail(sentences=1))
    assert found == [UnitReason(POSITIVE, 0, 1, Reason((0,), (0,))), UnitReason(POSITIVE, 1, 0, Reason((1,), (1,)))]


def test_the_negative_sentiment_shows_what_pulls_down():
    alike = np.eye(3), np.eye(3)
    found = reasons_of_sentiment(make_pulls(), alike, np.full((2, 2), 0.25), NEGATIVE, 1, Detail(sentences=2))
    assert found == [UnitReason(NEGATIVE, 0, 0, Reason((2,), (2,)))]


def test_no_more_units_than_there_are():
    alike = np.eye(3), np.eye(3)
    found = reasons_of_sentiment(make_pulls(), alike, np.full((2, 2), 0.25), POSITIVE, 9, Detail(sentences=1))
    assert [(unit.viewpoint, unit.aspect) for unit in found] == [(0, 0), (0, 1), (1, 0), (1, 1)]
