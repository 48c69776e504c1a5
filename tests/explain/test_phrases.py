"""What an explanation shows of a text sits exactly on the words the model attended to."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from carp.explain.explanation import Mark, Sentence, Side
from carp.explain.phrases import matching_marks, merged, phrase_book, phrase_weights, weightiest_sides
from carp.reviews.readable import ReadableDocument, WrittenReview
from carp.reviews.text.sentences import sentences
from carp.reviews.text.tokens import tokenise

FIRST = "Warm tone, really. The knobs feel cheap and loose! Shipping was fast."
SECOND = "Ünder load it hums… but the tone stays warm."


def sides_of(doc, attention, *, shown_sentences=2, **book):
    return weightiest_sides(phrase_book(doc, attention, **book), shown_sentences=shown_sentences)


def document(*texts, seen=None):
    """A document of whole texts; `seen` are the words the model knows (all of them if not given)."""
    columns = []
    for number, text in enumerate(texts):
        for word, start, end in zip(*tokenise(text), strict=True):
            if seen is None or word in seen:
                columns.append((len(columns) + 1, number, start, end))
    words, review, starts, ends = np.array(columns, dtype=np.int64).reshape(-1, 4).T
    sources = {n: WrittenReview(text, f"user {n}", f"item {n}", float(n + 1)) for n, text in enumerate(texts)}
    return ReadableDocument(words.astype(np.int32), review.astype(np.int32), starts, ends, sources)


def word_at(doc, place):
    return doc.sources[int(doc.review[place])].text[doc.starts[place] : doc.ends[place]]


def place_of(doc, word, nth=0):
    return [place for place in range(len(doc.words)) if word_at(doc, place) == word][nth]


def attention_on(doc, *viewpoints):
    """One column for each viewpoint, from {word: weight}; a key may be (word, nth)."""
    attention = np.zeros((len(doc.words), len(viewpoints)))
    for x, weights in enumerate(viewpoints):
        for key, weight in weights.items():
            word, nth = key if isinstance(key, tuple) else (key, 0)
            attention[place_of(doc, word, nth), x] = weight
    return attention


def marked(sentence):
    return [(sentence.text[mark.start : mark.end], mark.kind) for mark in sentence.marks]


# ---- phrases


@given(
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 2)), min_size=1, max_size=15),
    st.sampled_from([1, 3, 5, 7]),
)
def test_a_phrase_weighs_what_its_words_do(words, window):
    attention = np.array([[weight] for weight, _ in words])
    sentence = np.sort(np.array([number for _, number in words]))
    found = phrase_weights(attention, sentence, window)
    for centre in range(len(words)):
        reach = range(max(0, centre - window // 2), min(len(words), centre + window // 2 + 1))
        expected = sum(attention[j, 0] for j in reach if sentence[j] == sentence[centre])
        assert found[centre, 0] == pytest.approx(expected, abs=1e-12)


def test_phrase_weights_leave_the_attention_as_it_was():
    attention = np.ones((4, 2))
    phrase_weights(attention, np.zeros(4, np.int32), 3)
    assert (attention == 1).all()


def test_phrases_are_the_words_of_the_window_as_written():
    doc = document(FIRST)
    (side,) = sides_of(doc, attention_on(doc, {"knobs": 1.0}), top_phrases=3)
    assert set(side.phrases) == {"The knobs", "The knobs feel", "knobs feel cheap"}
    assert all(phrase in FIRST for phrase in side.phrases)


def test_the_best_phrases_come_first_and_five_are_named():
    doc = document(FIRST)
    weights = {"Warm": 0.05, "tone": 0.1, "feel": 0.3, "cheap": 0.4, "loose": 0.05}
    (side,) = sides_of(doc, attention_on(doc, weights))
    assert len(side.phrases) == 5
    assert side.phrases[:2] == ("knobs feel cheap", "feel cheap and")
    assert side.index == 1


def test_a_share_of_the_words_with_attention_gives_as_many_phrases_centred_on_them():
    doc = document(FIRST)
    weights = {"Warm": 0.1, "feel": 0.4, "loose": 0.3, "Shipping": 0.2}
    (side,) = sides_of(doc, attention_on(doc, weights), top_share=0.5)
    assert side.phrases == ("knobs feel cheap", "and loose")
    (side,) = sides_of(doc, attention_on(doc, weights), top_share=0.01)
    assert side.phrases == ("knobs feel cheap",), "one at least"
    (side,) = sides_of(doc, attention_on(doc, weights), top_share=1.0, top_phrases=3)
    assert len(side.phrases) == 3
    (side,) = sides_of(doc, attention_on(doc, {}), top_share=0.5)
    assert (side.phrases, side.sentences) == ((), ())


def test_words_the_model_does_not_see_stand_inside_a_phrase_and_not_at_its_ends():
    doc = document(FIRST, seen={"knobs", "cheap", "loose"})
    (side,) = sides_of(doc, attention_on(doc, {"cheap": 1.0}), top_phrases=1)
    assert side.phrases == ("knobs feel cheap",)


def test_phrases_end_where_their_sentence_ends():
    doc = document(FIRST)
    (side,) = sides_of(doc, attention_on(doc, {"really": 1.0}), top_phrases=1)
    assert side.phrases == ("Warm tone, really",)
    (side,) = sides_of(doc, attention_on(doc, {"really": 1.0}))
    assert side.phrases == ("Warm tone, really", "tone, really")


def test_a_sentence_is_not_shown_for_a_word_that_stands_before_it():
    """The window around `The` reaches back to `really`, but a phrase is words of one sentence."""
    doc = document(FIRST)
    (side,) = sides_of(doc, attention_on(doc, {"really": 1.0}))
    assert [sentence.text for sentence in side.sentences] == ["Warm tone, really."]


def test_phrases_do_not_reach_into_another_review():
    doc = document("It hums", "Warm tone")
    (side,) = sides_of(doc, attention_on(doc, {"hums": 1.0}))
    assert set(side.phrases) == {"It hums"}


def test_a_window_of_one_shows_single_words():
    doc = document(FIRST)
    (side,) = sides_of(doc, attention_on(doc, {"cheap": 0.6, "fast": 0.4}), window=1)
    assert side.phrases == ("cheap", "fast")


# ---- sentences and marks


def test_marks_sit_exactly_on_the_words():
    doc = document(FIRST)
    (side,) = sides_of(doc, attention_on(doc, {"cheap": 1.0}), window=1)
    (sentence,) = side.sentences
    assert sentence.text == "The knobs feel cheap and loose!"
    assert marked(sentence) == [("cheap", "own")]
    assert sentence.marks[0].weight == pytest.approx(1.0)
    assert (sentence.user, sentence.item, sentence.rating) == ("user 0", "item 0", 1.0)


def test_marks_sit_on_the_words_where_characters_are_many_bytes_wide():
    doc = document(FIRST, SECOND)
    (side,) = sides_of(doc, attention_on(doc, {"Ünder": 0.3, "warm": 0.7}), window=1, shown_sentences=3)
    found = [word for sentence in side.sentences for word, _ in marked(sentence)]
    assert sorted(found) == sorted(["Ünder", "warm"])
    assert side.sentences[0].user == "user 1"


def test_phrases_that_overlap_are_marked_as_one():
    doc = document(FIRST)
    (side,) = sides_of(doc, attention_on(doc, {"cheap": 1.0}), window=3)
    (sentence,) = side.sentences
    assert marked(sentence) == [("knobs feel cheap and loose", "own")]


def test_phrases_of_several_viewpoints_are_shared():
    doc = document(FIRST)
    attention = attention_on(doc, {"cheap": 0.6, "loose": 0.4}, {"cheap": 0.5, "knobs": 0.5})
    first, second = sides_of(doc, attention, window=1)
    assert (first.index, second.index) == (1, 2)
    assert marked(first.sentences[0]) == [("cheap", "shared"), ("loose", "own")]
    assert marked(second.sentences[0]) == [("knobs", "own"), ("cheap", "shared")]


def test_only_the_top_phrases_count_as_shared():
    doc = document(FIRST)
    attention = attention_on(doc, {"cheap": 0.9, "fast": 0.1}, {"fast": 0.6, "cheap": 0.4})
    first, second = sides_of(doc, attention, window=1, top_phrases=1)
    assert marked(first.sentences[0]) == [("cheap", "own")]
    assert marked(second.sentences[0]) == [("fast", "own")]


@pytest.mark.parametrize(
    ("second_weight", "shown"),
    [(0.49, ["The knobs feel cheap and loose!"]), (0.5, ["The knobs feel cheap and loose!", "Shipping was fast."])],
)
def test_a_second_sentence_is_shown_where_it_weighs_half_of_the_first(second_weight, shown):
    doc = document(FIRST)
    (side,) = sides_of(doc, attention_on(doc, {"cheap": 1.0, "fast": second_weight}), window=1)
    assert [sentence.text for sentence in side.sentences] == shown


def test_no_more_sentences_are_shown_than_asked_for():
    doc = document(FIRST)
    attention = attention_on(doc, {"tone": 1.0, "cheap": 1.0, "fast": 1.0})
    for number in (1, 2, 3):
        (side,) = sides_of(doc, attention, window=1, shown_sentences=number)
        assert len(side.sentences) == number
    assert [s.text for s in side.sentences] == [
        "Warm tone, really.",
        "The knobs feel cheap and loose!",
        "Shipping was fast.",
    ]


def test_a_sentence_weighs_what_its_phrases_do_together():
    """Two middling phrases in one sentence outweigh the best single one."""
    doc = document(FIRST)
    (side,) = sides_of(doc, attention_on(doc, {"fast": 0.4, "knobs": 0.3, "loose": 0.3}), window=1)
    assert side.sentences[0].text == "The knobs feel cheap and loose!"


def test_words_without_attention_are_never_shown():
    doc = document(FIRST)
    (side,) = sides_of(doc, np.zeros((len(doc.words), 1)))
    assert side == Side(1, (), ())


def test_an_empty_document_has_sides_without_sentences():
    empty = document()
    assert sides_of(empty, np.zeros((0, 3))) == [Side(1, (), ()), Side(2, (), ()), Side(3, (), ())]


@given(st.data())
def test_whatever_is_marked_was_written_and_lies_inside_its_sentence(data):
    texts = data.draw(
        st.lists(
            st.sampled_from([FIRST, SECOND, "ok", "No. Never! U.S. made, e.g. “fine” …", "a\n\nb c"]),
            min_size=1,
            max_size=3,
        )
    )
    doc = document(*texts)
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    attention = rng.dirichlet(np.full(len(doc.words), 0.3), 2).T
    window = data.draw(st.sampled_from([1, 3, 5]))
    for side in sides_of(doc, attention, window=window, shown_sentences=3):
        for sentence in side.sentences:
            text = texts[int(sentence.user.split()[1])]
            assert sentence.text in {text[start:end] for start, end in sentences(text)}
            assert sentence.marks
            edges = [set(edge) for edge in tokenise(sentence.text)[1:]]
            for mark in sentence.marks:
                assert mark.start in edges[0], "a mark begins where a word begins"
                assert mark.end in edges[1], "and ends where one ends"


# ---- marks


def test_marks_of_one_kind_that_touch_become_one_and_kinds_stay_apart():
    marks = [Mark(5, 9, "own", 0.2), Mark(0, 5, "own", 0.4), Mark(3, 6, "shared", 0.1), Mark(12, 14, "own", 0.1)]
    assert merged(marks) == (Mark(0, 9, "own", 0.4), Mark(3, 6, "shared", 0.1), Mark(12, 14, "own", 0.1))
    assert merged([]) == ()


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 6), st.sampled_from(["own", "shared"]))))
def test_merging_keeps_exactly_the_characters_that_were_marked(stretches):
    marks = [Mark(start, start + size, kind) for start, size, kind in stretches]
    joined = merged(marks)
    for kind in ("own", "shared"):
        before = {c for mark in marks if mark.kind == kind for c in range(mark.start, mark.end)}
        after = [c for mark in joined if mark.kind == kind for c in range(mark.start, mark.end)]
        assert sorted(after) == sorted(before), "each character once"
    assert list(joined) == sorted(joined, key=lambda mark: (mark.start, mark.end))


def side_with(text, *words):
    marks = tuple(Mark(text.index(word), text.index(word) + len(word), "own") for word in words)
    return Side(1, (Sentence(text, marks, None, None, None),), ())


def test_the_target_review_is_marked_where_it_says_what_the_marked_phrases_say():
    sides = {"positive": [side_with("the tone is warm", "tone", "warm")], "negative": [side_with("it hums", "hums")]}
    text = "Such a WARM tone! It hums a bit, the tone does."
    found = matching_marks(text, sides, frozenset())
    assert [(text[m.start : m.end], m.kind) for m in found] == [
        ("WARM tone", "positive"),
        ("hums", "negative"),
        ("tone", "positive"),
    ]


def test_ignored_words_and_unmarked_words_never_match():
    sides = {"positive": [side_with("the tone is warm", "the tone")], "negative": []}
    text = "the warm tone"
    found = matching_marks(text, sides, frozenset({"the"}))
    assert [text[m.start : m.end] for m in found] == ["tone"]


def test_a_text_that_says_nothing_of_it_has_no_marks():
    assert (
        matching_marks("Fast shipping.", {"positive": [side_with("warm", "warm")], "negative": []}, frozenset()) == ()
    )
    assert matching_marks("", {"positive": [], "negative": []}, frozenset()) == ()


# ---- sentences that were chosen elsewhere


def test_any_sentence_can_be_shown_and_has_its_own_best_phrase_marked_where_it_has_no_top_one():
    doc = document(FIRST, SECOND)
    attention = attention_on(doc, {"cheap": 0.5, "fast": 0.1, "Shipping": 0.05})
    book = phrase_book(doc, attention, window=1, top_phrases=1)
    side = book.side(0, [(0, 2), (0, 1)])
    assert [sentence.text for sentence in side.sentences] == ["Shipping was fast.", "The knobs feel cheap and loose!"]
    assert [marked(sentence) for sentence in side.sentences] == [[("fast", "own")], [("cheap", "own")]]
    assert side.phrases == ("cheap",)


def test_sentences_are_numbered_in_the_order_of_the_document():
    doc = document(FIRST, "Fast shipping.", seen={"warm", "tone", "shipping"})
    assert doc.sentences == [(0, 0), (0, 2), (1, 0)]
    assert doc.sentence_numbers.tolist() == [0, 0, 1, 2]
    assert [doc.sentences[number] for number in doc.sentence_numbers] == doc.sentence
