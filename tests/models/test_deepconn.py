"""DeepCoNN against a slow twin in Python loops over float64 numbers, written from the paper's equations."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from carp.models.base import make_config
from carp.models.batch import Batch, Pairs, Sizes, TrainingData
from carp.models.deepconn import DeepConn
from carp.models.layers import max_over_words
from carp.reviews.documents import Documents

SIZES = Sizes(users=3, items=3, words=9)
TINY = {"dimension": 4, "filters": 3, "latent_size": 2, "factors": 2}


@pytest.fixture
def made(every_weight_random):
    return lambda seed=0, **settings: every_weight_random(DeepConn, {**TINY, **settings}, SIZES, seed)


@pytest.fixture
def batch_of(document):
    one = torch.zeros(1, dtype=torch.long)
    return lambda user, item: Batch(one, one, *document(*user), *document(*item))


def slow_vector(network, table, reviews):
    """relu(W max relu(V ∗ K + b) + g), word by word."""
    kernel, bias = network.convolution.weight.tolist(), network.convolution.bias.tolist()
    pooled = [0.0] * len(bias)
    for review in reviews:
        for middle in range(len(review)):
            for j in range(len(bias)):
                z = bias[j]
                for step in (-1, 0, 1):
                    if 0 <= middle + step < len(review):
                        x = table[review[middle + step]]
                        z += sum(x[d] * kernel[step + 1][d][j] for d in range(len(x)))
                pooled[j] = max(pooled[j], z)
    rows, constants = network.dense.weight.tolist(), network.dense.bias.tolist()
    return [
        max(0.0, g + sum(w * o for w, o in zip(row, pooled, strict=True)))
        for row, g in zip(rows, constants, strict=True)
    ]


def slow_machine(machine, z):
    weights, factors = machine.weight.tolist(), machine.factors.tolist()
    rating = machine.mean.item() + sum(w * x for w, x in zip(weights, z, strict=True))
    for m in range(len(z)):
        for n in range(m + 1, len(z)):
            rating += sum(a * b for a, b in zip(factors[m], factors[n], strict=True)) * z[m] * z[n]
    return rating


def test_the_rating_is_the_papers(made, batch_of):
    texts = [([[1, 2, 3], [4, 5]], [[6], [7, 8, 9, 1]]), ([], [[2, 2]]), ([[3]], [])]
    for seed in range(5):
        model = made(seed).eval()
        table = model.embedding.weight.tolist()
        for user, item in texts:
            z = slow_vector(model.user_side, table, user) + slow_vector(model.item_side, table, item)
            found = model(batch_of(user, item)).rating
            np.testing.assert_allclose(found.tolist(), [slow_machine(model.machine, z)], rtol=1e-10)


def test_padding_never_wins_the_maximum(made, document):
    """With a large bias and filters that only take away, the padding's feature would be the largest."""
    model = made().eval()
    with torch.no_grad():
        model.user_side.convolution.bias.fill_(50.0)
        words, reviews = document([1, 2, 3])
        wide = model.encode_users(words, reviews)
        tight = model.encode_users(words[:, :3], reviews[:, :3])
        words, reviews = document()
        empty = model.encode_users(words, reviews)
    torch.testing.assert_close(wide, tight, rtol=0, atol=0)
    torch.testing.assert_close(empty[0], torch.relu(model.user_side.dense.bias))


def test_the_maximum_over_negative_features_is_one_of_them():
    features = -1 - torch.rand(4, 6, 3)
    there = torch.arange(6) < torch.tensor([[6], [3], [1], [0]])
    found = max_over_words(features, there)
    for row, length in enumerate((6, 3, 1)):
        assert torch.equal(found[row], features[row, :length].max(0).values)
    assert torch.equal(found[3], torch.zeros(3))


def test_dropout_is_for_training_alone(made, batch_of):
    torch.manual_seed(0)
    model = made(latent_size=40)
    batch = batch_of([[1, 2, 3]], [[4, 5]])
    assert not torch.equal(model(batch).rating, model(batch).rating)
    model.eval()
    assert torch.equal(model(batch).rating, model(batch).rating)


def test_it_starts_at_the_mean_rating_of_training():
    model = DeepConn(make_config(DeepConn, TINY), SIZES)
    ids = np.arange(3)
    pairs = Pairs(ids, ids, np.array([1, 5, 4], np.float32), ids)
    nothing = np.zeros(0, np.int32)
    documents = Documents(nothing, nothing, nothing, np.zeros(4, np.int64))
    model.start(TrainingData(pairs, pairs, documents, documents, SIZES))
    assert model.machine.mean.item() == np.float32(10 / 3)
