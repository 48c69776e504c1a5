"""CMLE: each level's loss against a slow twin in float64, and reviews that are read in training alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from carp.models.batch import Batch, Pairs, Sizes, TrainingData
from carp.models.cmle import Cmle, CmleConfig
from carp.models.mf import Mf
from carp.reviews.documents import Documents

SIZES = Sizes(users=4, items=3, words=9)
TEXTS = [[1, 2, 3, 4, 5, 2], [], [7], [6, 8]]


def sigmoid(value):
    return 1 / (1 + np.exp(-value))


def model_of(**settings):
    torch.manual_seed(0)
    model = Cmle(CmleConfig(**{"latent_size": 3, "dimension": 5, "window": 2, "noise_words": 7, **settings}), SIZES)
    torch.nn.init.normal_(model.output.weight)
    with torch.no_grad():
        model.output.weight[0] = 0
    model.biases.shrinkage.fill_(2.0)
    model.biases.user_weight.fill_(5.0)
    model.biases.item_weight.fill_(5.0)
    return model.double()


def batch_of(texts=TEXTS):
    width = max(1, *map(len, texts))
    words = torch.tensor([[*text, *[0] * (width - len(text))] for text in texts], dtype=torch.int32)
    count = len(texts)
    nothing = torch.zeros(count, 1, dtype=torch.int32)
    return Batch(
        users=torch.arange(count) % 4,
        items=torch.arange(count) % 3,
        user_words=nothing,
        user_reviews=nothing - 1,
        item_words=nothing,
        item_reviews=nothing - 1,
        ratings=torch.tensor([5.0, 3.0, 1.0, 4.0][:count], dtype=torch.float64),
        target_words=words,
        training=True,
    )


def slow_contexts(model, texts):
    """h of every word of every review, by the equation of the docstring."""
    e = model.embedding.weight.detach().numpy()
    found = []
    for text in texts:
        for place in range(len(text)):
            others = [e[word] for other, word in enumerate(text) if other != place]
            review = np.mean(others, 0) if others else np.zeros(e.shape[1])
            near = range(max(0, place - model.config.window), min(len(text), place + model.config.window + 1))
            neighbours = [e[text[other]] for other in near if other != place]
            found.append((np.sum(neighbours, 0) + review) / (len(neighbours) + 1))
    return np.array(found)


def slow_word_loss(model, texts, noise):
    o = model.output.weight.detach().numpy()
    losses = []
    for word, h in zip([word for text in texts for word in text], slow_contexts(model, texts), strict=True):
        heard = np.log(sigmoid(o[word] @ h))
        refused = [np.log(sigmoid(-o[drawn] @ h)) if drawn != word else 0.0 for drawn in noise]
        losses.append(-heard - model.config.noise_weight * np.mean(refused))
    return np.mean(losses)


def slow_projection_loss(model, batch, texts):
    state = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    losses = []
    for row, text in enumerate(texts):
        if text:
            review = np.mean([state["embedding.weight"][word] for word in text], 0)
            user = state["user_factors"][int(batch.users[row])] - review @ state["user_projection"]
            item = state["item_factors"][int(batch.items[row])] - review @ state["item_projection"]
            losses.append(user @ user + item @ item)
    return np.mean(losses)


@pytest.mark.parametrize("window", [1, 2, 5])
def test_the_loss_is_the_sum_of_three_levels(monkeypatch, window):
    model = model_of(window=window, word_weight=0.7, projection_weight=0.3)
    noise = torch.tensor([2, 2, 9, 1, 4, 7, 3])
    monkeypatch.setattr(model, "draw_noise", lambda device: noise)
    batch = batch_of()
    prediction = model(batch)
    ratings = float(Mf.loss(model, batch, prediction).detach())
    expected = ratings + 0.7 * slow_word_loss(model, TEXTS, noise.tolist())
    expected += 0.3 * slow_projection_loss(model, batch, TEXTS)
    assert float(model.loss(batch, prediction).detach()) == pytest.approx(expected, rel=1e-10)


def test_words_of_another_review_are_no_neighbours():
    model = model_of(window=4)
    assert model.neighbours(torch.tensor([0, 0, 1, 2, 2, 2])).sort(1).values[:, :3].tolist() == [
        [1, 6, 6],
        [0, 6, 6],
        [6, 6, 6],
        [4, 5, 6],
        [3, 5, 6],
        [3, 4, 6],
    ]


def test_a_word_does_not_tell_its_own_prediction(monkeypatch):
    """Its embedding may be anything where it stands once."""
    model = model_of()
    contexts = []
    monkeypatch.setattr(model, "word_losses", lambda words, context, noise: contexts.append(context) or context.sum())
    for _ in range(2):
        batch = batch_of([[1, 2, 3, 4]])
        model.loss(batch, model(batch))
        with torch.no_grad():
            model.embedding.weight[3] += 1
    moved = (contexts[0] - contexts[1]).detach().abs().amax(1)
    assert moved[2] < 1e-12
    assert (moved[[0, 1, 3]] > 0.1).all()


def test_padding_and_company_change_nothing():
    """Each review's word contexts are the same alone, without padding, as among others."""
    model = model_of()

    def contexts(texts):
        words = torch.tensor([word for text in texts for word in text])
        row = torch.tensor([row for row, text in enumerate(texts) for _ in text])
        vectors = model.embedding(words)
        totals = vectors.new_zeros(len(texts), 5).index_add(0, row, vectors)
        return model.context(vectors, row, totals, torch.tensor([len(text) for text in texts]))

    alone = torch.cat([contexts([text]) for text in TEXTS if text])
    torch.testing.assert_close(contexts(TEXTS), alone)


@pytest.mark.parametrize("texts", [[[], []], [[3], []], [[3]]])
def test_reviews_of_no_or_one_word_have_finite_gradients(texts):
    model = model_of()
    batch = batch_of(texts)
    loss = model.loss(batch, model(batch))
    loss.backward()
    assert torch.isfinite(loss)
    assert all(p.grad is None or torch.isfinite(p.grad).all() for p in model.parameters())


def test_projections_pull_factors_towards_the_review():
    model = model_of(projection_weight=1.0, word_weight=0.0)
    batch = batch_of()
    for projection in (model.user_projection, model.item_projection):
        projection.requires_grad_(False)
    before = slow_projection_loss(model, batch, TEXTS)
    optimizer = torch.optim.SGD([model.user_factors, model.item_factors], lr=0.1)
    for _ in range(20):
        optimizer.zero_grad()
        (model.loss(batch, model(batch)) - Mf.loss(model, batch, model(batch))).backward()
        optimizer.step()
    assert slow_projection_loss(model, batch, TEXTS) < 0.2 * before


def data_of(texts):
    words = np.array([word for text in texts for word in text], np.int32)
    lengths = [len(text) for text in texts]
    review = np.repeat(np.arange(len(texts)), lengths).astype(np.int32)
    reviews = Documents(words, review, np.zeros_like(words), np.concatenate([[0], np.cumsum(lengths)]))
    nothing = np.zeros(0, np.int32)
    count = len(texts)
    pairs = Pairs(np.arange(count) % 4, np.arange(count) % 3, np.full(count, 4, np.float32), np.arange(count))
    empty = Documents(nothing, nothing, nothing, np.zeros(5, np.int64))
    return TrainingData(pairs, pairs, empty, empty, SIZES, reviews=reviews)


def test_noise_follows_word_counts_to_three_quarters():
    model = model_of(noise_words=200_000)
    model.start(data_of([[1] * 16, [5], [9]]))
    torch.manual_seed(0)
    drawn = np.bincount(model.draw_noise(torch.device("cpu")), minlength=10) / 200_000
    np.testing.assert_allclose(drawn, np.array([0, 8, 0, 0, 0, 1, 0, 0, 0, 1]) / 10, atol=0.005)
    assert (drawn[[0, 2, 3, 4, 6, 7, 8]] == 0).all()


def test_a_corpus_without_any_word_can_be_trained_on():
    model = model_of()
    data = data_of([[], [], [], []])
    model.float().start(data)
    loss = model.train_epoch(
        data.training_batches(2, 0, 1, model.needs), torch.optim.RMSprop(model.parameters(), lr=0.01)
    )
    assert np.isfinite(loss)


def test_predicting_reads_no_review():
    model = model_of()
    batch = batch_of()
    assert torch.equal(model(batch).rating, model(replace(batch, target_words=None)).rating)
    with torch.no_grad():
        rating = model(batch).rating.clone()
        model.embedding.weight.normal_()
    assert torch.equal(model(batch).rating, rating)
