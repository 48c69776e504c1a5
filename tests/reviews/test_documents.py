"""Documents as rectangles, with a review left out, against the same in plain Python."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from carp.models import predict
from carp.models.predict import encode_documents
from carp.reviews.documents import Documents, make_documents, padded


@st.composite
def written(draw):
    """Records with owners and words, as a list of (owner, words)."""
    owners = draw(st.integers(1, 5))
    record = st.tuples(st.integers(0, owners - 1), st.lists(st.integers(1, 9), max_size=5))
    return owners, draw(st.lists(record, max_size=8)), draw(st.integers(1, 8))


def columns(records) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    words = [word for _, text in records for word in text]
    review = [number for number, (_, text) in enumerate(records) for _ in text]
    characters = [span_of(place) for _, text in records for place in range(len(text))]
    return (
        np.array(words, dtype=np.int32),
        np.array(review, dtype=np.int32),
        np.array(characters, dtype=np.int32).reshape(-1, 2),
    )


def span_of(place):
    """Words of two letters with a space between them."""
    return [3 * place, 3 * place + 2]


def documents_of(owners, records, max_words):
    owner_of_record = np.array([owner for owner, _ in records], dtype=np.int32)
    return make_documents(*columns(records), owner_of_record, owners, max_words=max_words)


def slow_documents(owners, records, max_words):
    """For each owner its first words, as (word, review, characters)."""
    documents = [[] for _ in range(owners)]
    for number, (owner, text) in enumerate(records):
        documents[owner] += [(word, number, span_of(place)) for place, word in enumerate(text)]
    return [document[:max_words] for document in documents]


@given(written())
def test_documents_are_each_owners_first_words_in_order(made):
    documents, expected = documents_of(*made), slow_documents(*made)
    assert len(documents) == len(expected)
    assert documents.lengths().tolist() == [len(document) for document in expected]
    flat = [word for document in expected for word in document]
    found = zip(documents.words.tolist(), documents.review.tolist(), documents.characters.tolist(), strict=True)
    assert list(found) == flat
    assert max(documents.lengths(), default=0) <= made[2]


@given(written(), st.data())
def test_padded_rectangles_leave_out_what_they_should(made, data):
    owners, records, _ = made
    documents, expected = documents_of(*made), slow_documents(*made)
    asked = data.draw(st.lists(st.integers(0, owners - 1), max_size=6))
    gone = data.draw(st.lists(st.integers(-1, len(records)), min_size=len(asked), max_size=len(asked)))
    chosen = np.array(asked, dtype=np.int64)
    for leave_out in (None, np.array(gone, dtype=np.int64)):
        rows = [
            [(word, review) for word, review, _ in expected[owner] if leave_out is None or review != gone[n]]
            for n, owner in enumerate(asked)
        ]
        width = max([1, *map(len, rows)])
        words, reviews = padded(documents, chosen, leave_out)
        assert words.shape == reviews.shape == (len(asked), width)
        assert words.dtype == reviews.dtype == np.int32
        for n, row in enumerate(rows):
            missing = width - len(row)
            assert words[n].tolist() == [word for word, _ in row] + [0] * missing
            assert reviews[n].tolist() == [review for _, review in row] + [-1] * missing


def test_leaving_a_review_out_only_shortens_a_document():
    """The words beyond the cut do not move up: what a document holds does not depend on who asks."""
    documents = documents_of(1, [(0, [1, 2]), (0, [3, 4]), (0, [5, 6])], 4)
    words, _ = padded(documents, np.array([0]), np.array([0]))
    assert words.tolist() == [[3, 4]]


def test_documents_without_any_word_are_one_column_of_padding():
    documents = documents_of(2, [(0, []), (1, [])], 5)
    words, reviews = padded(documents, np.array([0, 1, 0]))
    assert words.tolist() == [[0]] * 3
    assert reviews.tolist() == [[-1]] * 3


# ---- encoding many


def random_documents(seed, owners, longest):
    rng = np.random.default_rng(seed)
    records = [(owner, rng.integers(1, 20, rng.integers(0, longest + 1)).tolist()) for owner in range(owners)]
    return documents_of(owners, records, longest)


def word_sum(words, reviews):
    """An encoding that shows which words it was given, in which order, and how wide the block was not."""
    order = torch.arange(1, words.shape[1] + 1)
    return torch.stack([(words * order).sum(1), (words > 0).sum(1), (reviews + 1).amax(1)], -1).double()


@pytest.mark.parametrize("block", [1, 7, 64, 100_000])
@pytest.mark.parametrize("owners", [1, 2, 50])
def test_encoding_all_documents_is_encoding_each(monkeypatch, block, owners):
    monkeypatch.setattr(predict, "BLOCK_WORDS", block)
    documents = random_documents(3, owners, 12)
    found = encode_documents(word_sum, documents, torch.device("cpu"))
    for owner in range(owners):
        alone = word_sum(*(torch.from_numpy(array) for array in padded(documents, np.array([owner]))))
        assert found[owner].tolist() == alone[0].tolist()


def test_blocks_stay_within_the_words_they_may_hold(monkeypatch):
    monkeypatch.setattr(predict, "BLOCK_WORDS", 40)
    sizes = []

    def measure(words, reviews):
        sizes.append(words.shape)
        return word_sum(words, reviews)

    documents = random_documents(4, 60, 30)
    encode_documents(measure, documents, torch.device("cpu"))
    assert sum(rows for rows, _ in sizes) == 60
    assert all(rows == 1 or rows * width <= 40 for rows, width in sizes)


def test_the_arrays_of_documents_make_them_again():
    documents = random_documents(5, 6, 9)
    again = Documents(**documents.arrays())
    for name, array in documents.arrays().items():
        assert getattr(again, name) is array
