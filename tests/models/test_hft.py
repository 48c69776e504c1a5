"""HFT: the words' likelihood against a slow twin in float64, and topics that follow the factors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from carp.models.batch import Batch, Sizes
from carp.models.hft import Hft
from carp.models.mf import Mf

SIZES = Sizes(users=4, items=3, words=9)
TEXTS = [[1, 2, 3, 4, 5, 2], [], [9], [6, 8]]


@pytest.fixture
def made(every_weight_random):
    def of(**settings):
        model = every_weight_random(Hft, {"latent_size": 3, **settings}, SIZES)
        model.biases.user_weight.fill_(5.0)
        model.biases.item_weight.fill_(5.0)
        return model

    return of


@pytest.fixture
def batch(document):
    rows = [document(text) for text in TEXTS]
    words, reviews = (torch.cat(side) for side in zip(*rows, strict=True))
    users, items = torch.tensor([0, 1, 2, -1]), torch.tensor([2, 1, 0, 1])
    ratings = torch.tensor([5.0, 3.0, 1.0, 4.0], dtype=torch.float64)
    nothing = torch.zeros_like(words), torch.full_like(reviews, -1)
    return Batch(users, items, *nothing, *nothing, ratings, target_words=words, training=True)


def slow_likelihood(model, factors, text):
    """log Π_w Σ_k θ_k φ_{k,w}, word by word."""
    kappa, psi = float(model.peakiness.detach()), model.word_scores.detach().numpy()[1:].T
    whole = sum(np.exp(kappa * factor) for factor in factors)
    found = 0.0
    for word in text:
        chance = 0.0
        for factor, scores in zip(factors, psi, strict=True):
            chance += np.exp(kappa * factor) / whole * np.exp(scores[word - 1]) / np.exp(scores).sum()
        found += np.log(chance)
    return found


@pytest.mark.parametrize("side", ["item", "user"])
def test_the_loss_is_ratings_and_the_likelihood_of_words_under_the_factors_topics(made, batch, side):
    model = made(topics_of=side, text_weight=0.3)
    table = {"item": model.item_factors, "user": model.user_factors}[side].detach().numpy()
    ids = {"item": batch.items, "user": batch.users}[side].tolist()
    factors = [table[one] if one >= 0 else np.zeros(3) for one in ids]
    words = [slow_likelihood(model, own, text) for own, text in zip(factors, TEXTS, strict=True)]
    prediction = model(batch)
    ratings = float(Mf.loss(model, batch, prediction).detach())
    assert float(model.loss(batch, prediction).detach()) == pytest.approx(ratings - 0.3 * np.mean(words), rel=1e-10)


def test_words_of_a_topic_raise_its_factor_and_no_other(made, batch):
    """One topic has words 1 to 5 for itself; what is written of item 2 is made of them."""
    model = made(penalty=0.0, text_weight=1.0)
    with torch.no_grad():
        model.peakiness.fill_(1.0)
        model.word_scores.fill_(0.0)
        model.word_scores[1:6, 1] = 5.0
        model.item_factors.zero_()
    prediction = model(batch)
    (-model.log_likelihoods(batch, batch.target_words).mean()).backward()
    slope = model.item_factors.grad[2]
    assert slope[1] < 0  # down the loss is up the factor
    assert (slope[[0, 2]] > 0).all()
    assert prediction.rating.isfinite().all()


def test_a_review_without_words_says_nothing_of_anybody(made, batch):
    model = made()
    silent = replace(batch, target_words=torch.zeros_like(batch.target_words))
    assert torch.equal(model.loss(silent, model(silent)), Mf.loss(model, silent, model(silent)))
    assert float(model.log_likelihoods(batch, batch.target_words)[1].detach()) == 0.0


def test_topics_start_at_the_counts_of_words(small_pairs):
    from carp.models.base import make_config
    from carp.reviews.documents import Documents

    data = small_pairs.data()
    words = np.array([1, 1, 1, 3], np.int32)
    ends = np.minimum(np.arange(len(data.train) + 1), 4)
    reviews = Documents(words, np.arange(4, dtype=np.int32), np.zeros_like(words), ends)
    model = Hft(make_config(Hft, {"latent_size": 2, "topic_noise": 0.0}), data.sizes)
    model.start(replace(data, reviews=reviews))
    shares = model.word_scores.detach().exp()[1:, 0]
    np.testing.assert_allclose(shares[:4], [4, 1, 2, 1], rtol=1e-6)


def test_predicting_reads_no_review(made, batch):
    model = made()
    assert torch.equal(model(batch).rating, model(replace(batch, target_words=None)).rating)
    torch.testing.assert_close(model(batch).rating, Mf.forward(model, batch).rating)
