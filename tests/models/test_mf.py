"""Biased matrix factorisation: its equation, its objective, and where it starts."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from carp.models.batch import Batch, Pairs, Sizes, TrainingData
from carp.models.layers import take_rows
from carp.models.mf import Mf, MfConfig
from carp.reviews.documents import Documents

SIZES = Sizes(users=6, items=5, words=3)
NOTHING = torch.zeros(0, 0, dtype=torch.int32)


def some_pairs(seed, count=18):
    rng = np.random.default_rng(seed)
    cells = rng.choice(SIZES.users * SIZES.items, count, replace=False)
    ratings = rng.integers(1, 6, count).astype(np.float32)
    return Pairs(cells // SIZES.items, cells % SIZES.items, ratings, np.arange(count))


def silent(owners):
    none = np.zeros(0, np.int32)
    return Documents(none, none, none, np.zeros(owners + 1, np.int64))


def some_data():
    return TrainingData(some_pairs(0), some_pairs(1), silent(SIZES.users), silent(SIZES.items), SIZES)


def batch_of(pairs):
    users, items = torch.from_numpy(pairs.users), torch.from_numpy(pairs.items)
    return Batch(users, items, NOTHING, NOTHING, NOTHING, NOTHING, torch.from_numpy(pairs.ratings), training=True)


def started(**settings):
    torch.manual_seed(3)
    model = Mf(MfConfig(latent_size=4, **settings), SIZES)
    data = some_data()
    model.start(data)
    return model, data


def test_the_rating_is_mean_biases_and_the_product_of_factors():
    model, data = started()
    found = model(batch_of(data.train)).rating.detach()
    mean, bu, bi, p, q = (
        tensor.detach().double().numpy()
        for tensor in (model.biases.mean, model.user_bias, model.item_bias, model.user_factors, model.item_factors)
    )
    for n, (u, i) in enumerate(zip(data.train.users, data.train.items, strict=True)):
        expected = mean + bu[u] + bi[i] + sum(p[u, k] * q[i, k] for k in range(4))
        assert float(found[n]) == pytest.approx(expected, abs=1e-5)


def parameters(model):
    tensors = (model.user_bias, model.item_bias, model.user_factors, model.item_factors)
    return float(model.biases.mean), *(tensor.detach().double().numpy() for tensor in tensors)


@torch.no_grad()
def loss_of_an_epoch(model, data):
    batches = map(batch_of, (half(data.train, 0), half(data.train, 1)))
    return sum(float(model.loss(batch, model(batch))) * len(batch) for batch in batches)


def test_the_losses_of_an_epoch_add_up_to_the_objective():
    model, data = started(penalty=0.7)
    with torch.no_grad():
        model.user_bias.add_(0.3)
    mean, bu, bi, p, q = parameters(model)
    expected = 0.0
    for u, i, r in zip(data.train.users, data.train.items, data.train.ratings, strict=True):
        expected += (r - mean - bu[u] - bi[i] - p[u] @ q[i]) ** 2 + 0.7 * (p[u] @ p[u] + q[i] @ q[i])
    user_shrinkage, item_shrinkage = model.biases.shrinkage.tolist()
    rated = np.unique(data.train.users), np.unique(data.train.items)
    expected += user_shrinkage * np.square(bu[rated[0]]).sum() + item_shrinkage * np.square(bi[rated[1]]).sum()
    assert loss_of_an_epoch(model, data) == pytest.approx(expected, rel=1e-5)


def test_learned_biases_start_at_zero_and_are_held_once_a_rating():
    model, data = started(biases="learned", penalty=0.7, bias_penalty=0.2)
    assert float(model.biases.mean) == pytest.approx(data.train.ratings.mean(), abs=1e-6)
    assert not model.user_bias.any()
    assert not model.item_bias.any()
    with torch.no_grad():
        model.user_bias.normal_()
        model.item_bias.normal_()
    mean, bu, bi, p, q = parameters(model)
    expected = 0.0
    for u, i, r in zip(data.train.users, data.train.items, data.train.ratings, strict=True):
        expected += (r - mean - bu[u] - bi[i] - p[u] @ q[i]) ** 2
        expected += 0.7 * (p[u] @ p[u] + q[i] @ q[i]) + 0.2 * (bu[u] ** 2 + bi[i] ** 2)
    assert loss_of_an_epoch(model, data) == pytest.approx(expected, rel=1e-5)


def test_a_step_on_one_rating_is_the_textbook_update_of_learned_biases_and_factors():
    """b += γ (e − λ_b b), p += γ (e q − λ p), in float64 numpy."""
    model, data = started(biases="learned", penalty=0.7, bias_penalty=0.2)
    model.double()
    with torch.no_grad():
        model.user_bias.normal_()
        model.item_bias.normal_()
    u, i, r = int(data.train.users[0]), int(data.train.items[0]), float(data.train.ratings[0])
    tables = (model.user_bias, model.item_bias, model.user_factors, model.item_factors)
    bu, bi, p, q = (table.detach().numpy()[row].copy() for table, row in zip(tables, (u, i, u, i), strict=True))
    error = r - (float(model.biases.mean) + bu + bi + p @ q)
    rate = 0.05
    optimizer = torch.optim.SGD(model.parameters(), lr=rate / 2)  # a square's slope has a factor of two
    batch = batch_of(data.train)
    one = Batch(batch.users[:1], batch.items[:1], NOTHING, NOTHING, NOTHING, NOTHING, batch.ratings[:1], training=True)
    model.loss(one, model(one)).backward()
    optimizer.step()
    found = (model.user_bias[u], model.item_bias[i], model.user_factors[u], model.item_factors[i])
    slopes = (error - 0.2 * bu, error - 0.2 * bi, error * q - 0.7 * p, error * p - 0.7 * q)
    for after, before, slope in zip(found, (bu, bi, p, q), slopes, strict=True):
        np.testing.assert_allclose(after.detach().numpy(), before + rate * slope, rtol=1e-6)


def half(pairs, which):
    chosen = np.arange(len(pairs)) % 2 == which
    return Pairs(pairs.users[chosen], pairs.items[chosen], pairs.ratings[chosen], pairs.records[chosen])


def test_without_factors_the_start_is_the_tuned_biases_and_already_the_best():
    """The biases' share of the objective is the one `bias` minimises: at its solution nothing pulls."""
    model, data = started()
    with torch.no_grad():
        model.user_factors.zero_()
        model.item_factors.zero_()
    batch = batch_of(data.train)
    prediction = model(batch)
    torch.testing.assert_close(prediction.rating, model.biases(batch.users, batch.items))
    model.loss(batch, prediction).backward()
    for gradient in (model.user_bias.grad, model.item_bias.grad):
        assert float(gradient.abs().max()) < 1e-4


@pytest.mark.parametrize("latent_size", [5, 200])
def test_fresh_products_spread_alike_whatever_the_latent_size(latent_size):
    torch.manual_seed(0)
    model = Mf(MfConfig(latent_size=latent_size, spread=0.1), Sizes(users=300, items=300, words=1))
    products = (model.user_factors @ model.item_factors.T).detach()
    assert float(products.std()) == pytest.approx(0.1, rel=0.15)


def test_somebody_unknown_has_neither_bias_nor_factors():
    model, _ = started()
    unknown = torch.tensor([-1, -1, 2])
    found = model(Batch(unknown, torch.tensor([-1, 1, -1]), NOTHING, NOTHING, NOTHING, NOTHING)).rating
    mean = model.biases.mean
    torch.testing.assert_close(found, torch.stack([mean, mean + model.item_bias[1], mean + model.user_bias[2]]))


def test_rows_of_nobody_are_zero_and_take_no_gradient():
    table = torch.ones(3, 2, requires_grad=True)
    rows = take_rows(table, torch.tensor([2, -1, 2]))
    assert rows.tolist() == [[1, 1], [0, 0], [1, 1]]
    rows.sum().backward()
    assert table.grad.tolist() == [[0, 0], [0, 0], [2, 2]]
