"""ConvMF: the network and the objective against a slow twin in Python loops over float64 numbers."""

from __future__ import annotations

from dataclasses import replace
from math import tanh

import numpy as np
import pytest
import torch

from carp.models.batch import Batch, Sizes
from carp.models.convmf import WINDOWS, ConvMf
from carp.models.mf import Mf

SIZES = Sizes(users=3, items=3, words=9)
TINY = {"dimension": 4, "filters": 2, "hidden_size": 3, "latent_size": 2}
DOCUMENTS = [[[1, 2, 3], [4, 5]], [], [[6], [7, 8, 9, 1, 2, 3]]]


@pytest.fixture
def model(every_weight_random):
    made = every_weight_random(ConvMf, {**TINY, "network_penalty": 0.01, "penalty": 0.3}, SIZES).eval()
    made.biases.user_weight.fill_(5.0)
    made.biases.item_weight.fill_(5.0)
    return made


@pytest.fixture
def batch(document):
    words, reviews = (torch.cat(side) for side in zip(*(document(*one) for one in DOCUMENTS), strict=True))
    ids = torch.tensor([0, 1, 2]), torch.tensor([1, 0, 2])
    nothing = torch.zeros_like(words), torch.full_like(reviews, -1)
    ratings = torch.tensor([5.0, 3.0, 1.0], dtype=torch.float64)
    return Batch(*ids, *nothing, words, reviews, ratings, training=True)


def slow_pooled(convolution, window, table, reviews):
    """The largest of tanh(W ∗ D + b) over all places of a document, or zero."""
    kernel, bias = convolution.weight.tolist(), convolution.bias.tolist()
    found = [[] for _ in bias]
    for review in reviews:
        for middle in range(len(review)):
            for j, constant in enumerate(bias):
                z = constant
                for step in range(window):
                    place = middle + step - window // 2
                    if 0 <= place < len(review):
                        z += sum(x * kernel[step][d][j] for d, x in enumerate(table[review[place]]))
                found[j].append(tanh(z))
    return [max(values) if values else 0.0 for values in found]


def slow_layer(layer, values):
    rows, constants = layer.weight.tolist(), layer.bias.tolist()
    return [
        tanh(b + sum(w * x for w, x in zip(row, values, strict=True))) for row, b in zip(rows, constants, strict=True)
    ]


def slow_text_factors(model, reviews):
    table = model.embedding.weight.tolist()
    pooled = []
    for window, convolution in zip(WINDOWS, model.convolutions, strict=True):
        pooled += slow_pooled(convolution, window, table, reviews)
    return slow_layer(model.output, slow_layer(model.hidden, pooled))


def test_the_network_is_the_papers(model, batch):
    found = model.text_factors(batch.item_words, batch.item_reviews)
    np.testing.assert_allclose(found.tolist(), [slow_text_factors(model, one) for one in DOCUMENTS], rtol=1e-10)


def test_the_objective_holds_items_to_their_texts_and_people_to_zero(model, batch):
    prediction = model(batch)
    expected = model.rating_losses(batch, prediction).mean().item()
    for user, item, document in zip(batch.users, batch.items, DOCUMENTS, strict=True):
        u, v = model.user_factors[user].tolist(), model.item_factors[item].tolist()
        apart = [a - b for a, b in zip(v, slow_text_factors(model, document), strict=True)]
        expected += 0.3 * sum(x * x for x in u + apart) / len(DOCUMENTS)
    layers = (*model.convolutions, model.hidden, model.output)
    expected += 0.01 * sum(w * w for layer in layers for one in layer.parameters() for w in one.flatten().tolist())
    assert model.loss(batch, prediction).item() == pytest.approx(expected, rel=1e-10)


def test_items_go_to_their_texts_where_ratings_say_nothing(model, batch):
    optimizer = torch.optim.SGD([model.item_factors], lr=1.0)
    for _ in range(100):
        optimizer.zero_grad()
        (model.loss(batch, model(batch)) - model.rating_losses(batch, model(batch)).mean()).backward()
        optimizer.step()
    torch.testing.assert_close(
        model.item_factors[batch.items], model.text_factors(batch.item_words, batch.item_reviews), atol=1e-4, rtol=0
    )


def test_predicting_reads_no_document(model, batch):
    silent = replace(batch, item_words=torch.zeros_like(batch.item_words))
    assert torch.equal(model(batch).rating, model(silent).rating)
    assert torch.equal(model(batch).rating, Mf.forward(model, batch).rating)
