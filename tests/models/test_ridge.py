"""Ridge regression: its features one by one, its solution against a dense solver, and what it leaves out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from carp.models.batch import Pairs, Sizes, TrainingData
from carp.models.ridge import Ridge, RidgeConfig, conjugate_gradients
from carp.models.tfidf import NO_BIGRAM, Occurrences
from carp.reviews.documents import make_documents
from slow_tfidf import rows_of

USERS, ITEMS, WORDS = 7, 5, 9


def some_data(seed=0, target_reviews="leave out"):
    """Reviews of up to eight words; one in six has none, and documents are cut at 14 words."""
    rng = np.random.default_rng(seed)
    cells = rng.permutation(USERS * ITEMS)
    users, items = cells // ITEMS, cells % ITEMS
    ratings = rng.integers(1, 6, len(cells)).astype(np.float32)
    train = np.arange(24)
    lengths = rng.integers(0, 9, 24) * (rng.random(24) > 1 / 6)
    review = np.repeat(train, lengths).astype(np.int32)
    words = rng.integers(1, WORDS + 1, len(review)).astype(np.int32)
    place = np.zeros_like(review)

    def pairs(records):
        return Pairs(users[records], items[records], ratings[records], records)

    return TrainingData(
        pairs(train),
        pairs(np.arange(24, 35)),
        make_documents(words, review, place, users[:24], USERS, max_words=14),
        make_documents(words, review, place, items[:24], ITEMS, max_words=14),
        Sizes(USERS, ITEMS, WORDS, max_words=14),
        target_reviews,
    )


def fitted(data, **settings):
    model = Ridge(RidgeConfig(**{"bigrams": 30, "min_bigram_reviews": 1, **settings}), data.sizes)
    model.start(data)
    return model


def design(model, data, pairs, leave_out):
    """A constant, the baseline, and the text of both sides, written out."""
    bigrams = [code for code in model.bigrams.tolist() if code != NO_BIGRAM]
    terms = len(model.user_text.idf)
    own = torch.from_numpy(pairs.ratings) if leave_out else None
    baseline = model.biases(torch.from_numpy(pairs.users), torch.from_numpy(pairs.items), own).double().numpy()
    rows = []
    for u, i, record, known in zip(pairs.users, pairs.items, pairs.records, baseline, strict=True):
        gone = record if leave_out and data.target_reviews == "leave out" else None
        user, item = (
            rows_of(documents, [owner], [gone], bigrams, terms, 1.0, known_words=WORDS)[0][0]
            for documents, owner in ((data.user_documents, u), (data.item_documents, i))
        )
        rows.append(np.concatenate([[1.0, known], user, item]))
    return np.array(rows)


def slow_solution(matrix, ratings, penalty):
    free = np.diag([0.0, 0.0] + [penalty] * (matrix.shape[1] - 2))
    return np.linalg.solve(matrix.T @ matrix + free, matrix.T @ ratings)


@pytest.mark.parametrize("target_reviews", ["leave out", "keep"])
@pytest.mark.parametrize("penalty", [0.3, 4.0])
def test_weights_are_those_of_the_written_out_regression(target_reviews, penalty):
    data = some_data(target_reviews=target_reviews)
    model = fitted(data, penalty=penalty)
    expected = slow_solution(design(model, data, data.train, True), data.train.ratings.astype(float), penalty)
    found = torch.cat([model.coefficients, model.user_text.weight, model.item_text.weight])
    np.testing.assert_allclose(found.double(), expected, atol=2e-4)


@pytest.mark.parametrize("training", [True, False])
def test_predictions_are_the_row_times_the_weights(training):
    data = some_data()
    model = fitted(data, penalty=1.0)
    pairs = data.train if training else data.valid
    weights = torch.cat([model.coefficients, model.user_text.weight, model.item_text.weight]).double().numpy()
    found = model(data.batch(pairs, np.arange(len(pairs)), training=training)).rating
    np.testing.assert_allclose(found, design(model, data, pairs, training) @ weights, atol=1e-5)


def test_the_penalty_is_the_best_on_validation():
    data = some_data(seed=3)
    chosen = fitted(data)

    def error(model):
        batch = data.batch(data.valid, np.arange(len(data.valid)))
        return float((model(batch).rating.clamp(1, 5) - batch.ratings).square().mean())

    assert float(chosen.penalty) > 0
    for penalty in (1.0, 15.0, 250.0, 1000.0):
        assert error(chosen) <= error(fitted(data, penalty=penalty)) + 1e-6


def test_bigrams_are_of_one_review_and_one_document():
    words = np.array([1, 2, 3, 1, 2, 1, 2], np.int32)
    review = np.array([0, 0, 0, 1, 1, 2, 2], np.int32)
    owner = np.array([0, 0, 1], np.int32)
    documents = make_documents(words, review, np.zeros_like(words), owner, 2)
    assert Occurrences.of(documents).frequent_bigrams(3, 10, 1).tolist() == [1 * 4 + 2, 2 * 4 + 3]
    assert Occurrences.of(documents).frequent_bigrams(3, 10, 3).tolist() == [1 * 4 + 2]
    assert Occurrences.of(documents).frequent_bigrams(3, 1, 1).tolist() == [1 * 4 + 2]


def test_a_document_without_words_has_no_text_part():
    data = some_data()
    model = fitted(data, penalty=1.0)
    words = torch.tensor([[0, 0, 0], [1, 2, 0]], dtype=torch.int32)
    reviews = torch.tensor([[-1, -1, -1], [4, 4, -1]], dtype=torch.int32)
    found = model.encode_users(words, reviews)
    assert float(found[0]) == 0
    assert float(found[1]) == float(model.encode_users(words[1:, :2], reviews[1:, :2]))


def test_corpora_without_any_word_give_the_biases_a_straight_line():
    data = some_data()
    empty = make_documents(*(np.zeros(0, np.int32),) * 3, np.zeros(24, np.int32), USERS)
    silent = replace(data, user_documents=empty, item_documents=replace(empty, offsets=np.zeros(ITEMS + 1, np.int64)))
    model = fitted(silent)
    assert float(model.user_text.weight.abs().max()) == 0
    assert torch.isfinite(model.coefficients).all()


def test_conjugate_gradients_solve_the_system():
    rng = torch.Generator().manual_seed(0)
    half, target, start = (torch.randn(size, generator=rng, dtype=torch.float64) for size in ((12, 12), 12, 12))
    matrix = half @ half.T + torch.eye(12, dtype=torch.float64)
    found = conjugate_gradients(lambda x: matrix @ x, target, start, tolerance=1e-12)
    assert torch.allclose(found, torch.linalg.solve(matrix, target), atol=1e-9)
