"""The form that speed is measured against is the same model; and the fast path learns what the plain one learns."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from carp.models.carp import Carp, CarpConfig
from carp.reviews.corpora.corpus import build_corpus
from carp.reviews.shop.made_up_shop import make_shop
from carp.reviews.sources.formats import read_reviews
from carp.reviews.split import random_split
from carp.reviews.text.vocabulary import TextSettings
from carp.training.fitted_corpus import fit_corpus
from carp.training.loop import TrainingSettings, train
from straightforward import Straightforward, to_width, with_blanks

CPU = torch.device("cpu")
SMALL = {"dimension": 20, "filters": 10, "latent_size": 6, "viewpoints": 3}


@pytest.fixture(scope="module", autouse=True)
def one_thread(single_thread):
    """Tiny models: see `single_thread`."""


@pytest.fixture(scope="module")
def data():
    corpus = build_corpus(read_reviews(make_shop(people=60, things=25, seed=3).frame()))
    split = random_split(corpus.user, corpus.item, seed=0)
    return fit_corpus(corpus, split, TextSettings(max_words=40)).training_data()  # enough to learn from


def test_the_straightforward_form_gives_the_models_ratings_and_loss(data):
    torch.manual_seed(0)
    model = Carp(CarpConfig(**SMALL, bias_spread=0.2), data.sizes).double().eval()
    plain = Straightforward(model).eval()
    batch = data.batch(data.train, np.arange(40), training=True)
    words = [
        torch.from_numpy(with_blanks(words.numpy(), reviews.numpy()))
        for words, reviews in ((batch.user_words, batch.user_reviews), (batch.item_words, batch.item_reviews))
    ]
    with torch.no_grad():
        expected = model(batch)
        rating, lengths = plain(batch.users, batch.items, *words)
        torch.testing.assert_close(rating, expected.rating, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(lengths, expected.tensors["lengths"], rtol=1e-9, atol=1e-9)
        ratings = batch.ratings.double()
        torch.testing.assert_close(plain.loss(ratings, rating, lengths), model.loss(batch, expected))


def test_windows_that_cross_reviews_are_the_plain_conv1d(data):
    torch.manual_seed(0)
    model = Carp(CarpConfig(**SMALL, across_reviews=True), data.sizes).double().eval()
    batch = data.batch(data.train, np.arange(40), training=True)
    plain = Straightforward(model).eval()
    words = [to_width(words.numpy(), data.sizes.max_words) for words in (batch.user_words, batch.item_words)]
    with torch.no_grad():
        torch.testing.assert_close(plain(batch.users, batch.items, *words)[0], model(batch).rating)


@pytest.mark.parametrize("variant", [{}, {"hinge": "squared", "biases": "leave-one-out", "dropout": 0.3}], ids=str)
def test_training_reaches_the_plain_validation_error(data, variant, monkeypatch):
    """Dropout is drawn differently, so the two agree as two seeds of one path do."""
    reached = {"fast": [], "plain": []}
    for path, errors in reached.items():
        if path == "plain":
            monkeypatch.setattr("carp.training.loop.trainer_for", lambda *_: None)
        for seed in range(2):
            torch.manual_seed(seed)
            model = Carp(CarpConfig(**{**SMALL, **variant}), data.sizes)
            settings = TrainingSettings(epochs=3, learning_rate=0.01, batch_size=50)
            errors.append(train(model, data, settings, seed=seed, device=CPU).best_error)
    fast, plain = np.array(reached["fast"]), np.array(reached["plain"])
    variance = float(np.var(data.valid.ratings))
    assert fast.max() < 0.9 * variance  # both have learned something
    assert abs(fast.mean() - plain.mean()) < 0.05 * plain.mean()


def test_without_dropout_training_goes_through_the_plain_errors(data, monkeypatch):
    histories = []
    for path in ("fast", "plain"):
        if path == "plain":
            monkeypatch.setattr("carp.training.loop.trainer_for", lambda *_: None)
        torch.manual_seed(0)
        model = Carp(CarpConfig(**SMALL, dropout=0.0), data.sizes)
        settings = TrainingSettings(epochs=2, learning_rate=0.005, batch_size=50)
        histories.append([r["valid_mse"] for r in train(model, data, settings, device=CPU).history])
    assert histories[0] == pytest.approx(histories[1], rel=2e-3)
