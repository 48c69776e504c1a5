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


def slow_word_losses(model, texts, noise, vectors):
    """L_w of every review, by the equation of the docstring."""
    e, o = model.embedding.weight.detach().numpy(), model.output.weight.detach().numpy()
    losses = []
    for text, vector in zip(texts, vectors, strict=True):
        losses.append(0.0)
        for place, word in enumerate(text):
            near = range(max(0, place - model.config.window), min(len(text), place + model.config.window + 1))
            neighbours = [e[text[other]] for other in near if other != place]
            h = (np.sum(neighbours, 0) + vector) / (len(neighbours) + 1)
            refused = [np.log(sigmoid(-o[drawn] @ h)) if drawn != word else 0.0 for drawn in noise]
            losses[-1] -= np.log(sigmoid(o[word] @ h)) + model.config.noise_weight * np.mean(refused)
    return np.array(losses)


def slow_projection_losses(model, batch, vectors):
    state = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    losses = []
    for row, vector in enumerate(vectors):
        user = state["user_factors"][int(batch.users[row])] - vector @ state["user_projection"]
        item = state["item_factors"][int(batch.items[row])] - vector @ state["item_projection"]
        losses.append(user @ user + item @ item)
    return np.array(losses)


def slow_means(model, texts):
    e = model.embedding.weight.detach().numpy()
    return np.array([e[text].mean(0) if text else np.zeros(e.shape[1]) for text in texts])


def slow_factor_sizes(model, batch):
    p, q = (factors.detach().numpy() for factors in model.factors(batch))
    return (p**2).sum(1) + (q**2).sum(1)


def tables_of(model):
    return model.user_factors, model.item_factors


def vectors_of(model, batch):
    p, q = model.factors(batch)
    return model.review_vectors(model.read(batch.target_words), p.detach(), q.detach()).detach()


@pytest.fixture
def noise(monkeypatch):
    """Words that are drawn in every model of the test."""
    drawn = torch.tensor([2, 2, 9, 1, 4, 7, 3])
    monkeypatch.setattr(Cmle, "draw_noise", lambda self, device: drawn)
    return drawn


@pytest.mark.parametrize("vectors", ["free", "mean"])
@pytest.mark.parametrize("window", [1, 5])
def test_the_loss_is_the_sum_of_three_levels(noise, window, vectors):
    model = model_of(window=window, word_weight=0.7, projection_weight=0.8, penalty=0.3, vectors=vectors)
    batch = batch_of()
    prediction = model(batch)
    reviews = vectors_of(model, batch).numpy()
    held = 0.8 * slow_projection_losses(model, batch, reviews) + 0.2 * slow_factor_sizes(model, batch)
    expected = model.rating_losses(batch, prediction).detach().numpy() + 0.3 * held
    expected = np.mean(expected + 0.7 * slow_word_losses(model, TEXTS, noise.tolist(), reviews))
    assert float(model.loss(batch, prediction).detach()) == pytest.approx(expected, rel=1e-10)


def test_the_mean_of_a_reviews_words_can_stand_for_it():
    model = model_of(vectors="mean")
    np.testing.assert_allclose(vectors_of(model, batch_of()), slow_means(model, TEXTS), rtol=1e-12)


def test_free_vectors_go_down_both_levels_from_the_mean_of_the_words(noise):
    """By numbers: what each step goes down, and that the slope it follows is the slope of the slow form."""
    batch = batch_of()

    def height(model, vectors):
        words = slow_word_losses(model, TEXTS, noise.tolist(), vectors)
        return 0.7 * words + 0.3 * slow_projection_losses(model, batch, vectors)

    settings = {"word_weight": 0.7, "penalty": 0.3}
    heights = [height(model_of(**settings), slow_means(model_of(), TEXTS))]
    for steps in (1, 2, 5, 200):
        model = model_of(vector_steps=steps, **settings)
        heights.append(height(model, vectors_of(model, batch).numpy()))
    written = np.array([bool(text) for text in TEXTS])
    assert (np.diff(heights, axis=0)[:, written] < 0).all()
    np.testing.assert_array_equal(vectors_of(model, batch)[~written], 0)
    text, means = model.read(batch.target_words), slow_means(model, TEXTS)
    found = model.slopes(text, torch.from_numpy(means), *model.factors(batch)).detach().numpy()
    for place in range(means.shape[1]):
        apart = np.zeros_like(means)
        apart[:, place] = 1e-5
        slope = (height(model, means + apart) - height(model, means - apart)) / 2e-5
        np.testing.assert_allclose(found[written, place], slope[written], rtol=1e-6, atol=1e-8)


def test_without_projections_it_is_matrix_factorisation():
    model = model_of(projection_weight=0.0)
    batch = batch_of()
    assert torch.equal(model.loss(batch, model(batch)), Mf.loss(model, batch, model(batch)))


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


def test_padding_and_company_change_nothing(noise):
    """Each review's vector and word losses are the same alone, without padding, as among others."""
    model = model_of()

    def found(rows):
        one = batch_of(TEXTS).part(rows, 1.0)
        longest = max(1, *(len(text) for text in TEXTS[rows]), 0)
        one = replace(one, target_words=one.target_words[:, :longest])
        vectors = vectors_of(model, one)
        return vectors, model.word_losses(model.read(one.target_words), vectors)

    alone = [found(slice(row, row + 1)) for row in range(len(TEXTS))]
    for whole, single in zip(found(slice(0, len(TEXTS))), zip(*alone, strict=True), strict=True):
        torch.testing.assert_close(whole, torch.cat(single))


@pytest.mark.parametrize("texts", [[[], []], [[3], []], [[3]]])
def test_reviews_of_no_or_one_word_have_finite_gradients(texts):
    model = model_of()
    batch = batch_of(texts)
    loss = model.loss(batch, model(batch))
    loss.backward()
    assert torch.isfinite(loss)
    assert all(p.grad is None or torch.isfinite(p.grad).all() for p in model.parameters())


def test_factors_are_drawn_to_what_was_written_and_not_to_zero():
    """Held to reviews alone, factors that lie on their projections stay; held to zero they vanish."""
    batch, sizes = batch_of([[1, 2, 3, 4]]), {}
    for weight in (1.0, 0.0):
        model = model_of(projection_weight=weight, penalty=1.0, vectors="mean")
        review = vectors_of(model, batch)
        with torch.no_grad():
            model.user_factors[0] = review[0] @ model.user_projection
            model.item_factors[0] = review[0] @ model.item_projection
        optimizer = torch.optim.SGD(tables_of(model), lr=0.1)
        for _ in range(30):
            optimizer.zero_grad()
            (model.loss(batch, model(batch)) - model.rating_losses(batch, model(batch)).mean()).backward()
            optimizer.step()
        sizes[weight] = float(slow_factor_sizes(model, batch)[0])
    assert sizes[0.0] < 0.01 * sizes[1.0]


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
