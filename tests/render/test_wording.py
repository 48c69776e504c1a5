"""Texts are cut at their marks and made harmless without losing a character."""

from __future__ import annotations

import re
from itertools import groupby, pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from carp.explain.explanation import Mark
from carp.render.wording import neutral, phrases_of, split_by_marks

MARKS = st.lists(
    st.builds(
        Mark,
        st.integers(-10, 60),
        st.integers(-10, 60),
        st.sampled_from(["own", "shared", "positive", "negative"]),
    ),
    max_size=8,
)


@given(st.text(max_size=40), MARKS)
def test_marks_cut_a_text_without_losing_a_character(text, marks):
    fragments = split_by_marks(text, marks)
    assert "".join(fragment for fragment, _ in fragments) == text
    assert all(fragment for fragment, _ in fragments)
    kinds = [kinds for fragment, kinds in fragments for _ in fragment]
    assert kinds == [{mark.kind for mark in marks if mark.start <= place < mark.end} for place in range(len(text))]


def test_touching_marks_of_one_kind_read_as_one_phrase():
    assert split_by_marks("ab", [Mark(0, 1, "own"), Mark(1, 2, "own"), Mark(1, 1, "shared")]) == [
        ("ab", frozenset({"own"}))
    ]


@given(st.text("ab. \n\u2003", max_size=40), MARKS)
@example("a  a", [Mark(0, 1, "own"), Mark(2, 4, "own")])
def test_phrases_keep_every_character_and_neither_begin_nor_end_in_a_space(text, marks):
    phrases = phrases_of(text, marks)
    assert "".join(words for words, _ in phrases) == text
    assert all(one != other for (_, one), (_, other) in pairwise(phrases))
    covering = [{mark.kind for mark in marks if mark.start <= place < mark.end} for place in range(len(text))]
    shown = [kinds for words, kinds in phrases for _ in words]
    for character, kinds, marked_with in zip(text, shown, covering, strict=True):
        expected = marked_with - {"own"} if "shared" in marked_with else marked_with
        assert kinds <= expected if character.isspace() else kinds == expected
    for kind in ("own", "shared", "positive", "negative"):
        stretches = groupby(phrases, key=lambda phrase: kind in phrase[1])
        joined = ["".join(words for words, _ in group) for inside, group in stretches if inside]
        assert joined == [words.strip() for words in joined]


@given(st.text(st.characters(exclude_categories=()), max_size=30))
def test_neutral_text_keeps_its_length_and_can_be_written(text):
    shown = neutral(text)
    assert len(shown) == len(text)
    assert shown.encode("utf-8").decode("utf-8") == shown
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", shown)
