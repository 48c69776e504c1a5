"""D-Attn against a slow twin in Python loops over float64 numbers, written from the equations of its docstring."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from carp.models.batch import Batch, Sizes
from carp.models.dattn import DAttn, WindowSum

SIZES = Sizes(users=3, items=3, words=9)
TINY = {"dimension": 4, "filters": 3, "hidden": 5, "latent_size": 2, "dropout": 0.0}


@pytest.fixture
def made(every_weight_random):
    return lambda seed=0: every_weight_random(DAttn, TINY, SIZES, seed)


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def dot(left, right):
    return sum(a * b for a, b in zip(left, right, strict=True))


def slow_window(made, vectors, middle):
    """bias + Σ over the window, of the vectors [n][d] of one review; nothing beyond its ends."""
    weight, found = made.weight.tolist(), made.bias.tolist()
    for step in range(len(weight)):
        place = middle + step - len(weight) // 2
        if 0 <= place < len(vectors):
            for j in range(len(found)):
                found[j] += dot(vectors[place], [row[j] for row in weight[step]])
    return found


def slow_vector(side, table, reviews):
    words = [word for review in reviews for word in review]
    mean = [sum(table[w][d] for w in words) / len(words) for d in range(4)] if words else [0.0] * 4
    of_document = dot(mean, side.document_score.tolist())
    best = [[-math.inf] * 3 for _ in range(4)]
    for review in reviews:
        x = [table[word] for word in review]
        places = range(len(x))
        s_l = [sigmoid(slow_window(side.local_score, x, i)[0]) for i in places]
        s_g = [sigmoid(slow_window(side.global_score, x, i)[0] + of_document) for i in places]
        for n, filters in enumerate([side.local_filters, *side.global_filters]):
            weighted = [[(s_l if n == 0 else s_g)[i] * value for value in x[i]] for i in places]
            for i in places:
                z = [math.tanh(value) for value in slow_window(filters, weighted, i)]
                best[n] = [max(a, b) for a, b in zip(best[n], z, strict=True)]
    pooled = [value for each in best for value in each] if words else [0.0] * 12
    hidden = [
        max(0.0, dot(row, pooled) + b)
        for row, b in zip(side.hidden.weight.tolist(), side.hidden.bias.tolist(), strict=True)
    ]
    return [dot(row, hidden) + b for row, b in zip(side.dense.weight.tolist(), side.dense.bias.tolist(), strict=True)]


@pytest.mark.parametrize("seed", range(3))
def test_the_rating_is_the_papers(made, document, seed):
    model = made(seed).eval()
    table = model.embedding.weight.tolist()
    one = torch.zeros(1, dtype=torch.long)
    for user, item in [([[1, 2, 3, 4, 5], [6, 7]], [[8], [9, 1, 2]]), ([], [[2, 2]]), ([[3]], [])]:
        expected = model.mean.item() + dot(
            slow_vector(model.user_side, table, user), slow_vector(model.item_side, table, item)
        )
        found = model(Batch(one, one, *document(*user), *document(*item))).rating
        np.testing.assert_allclose(found.tolist(), [expected], rtol=1e-10)


@pytest.mark.parametrize("window", [1, 2, 3, 4, 5])
def test_a_weighted_convolution_is_torchs_over_weighted_words(window):
    torch.manual_seed(window)
    filters = WindowSum(4, 3, window).double()
    torch.nn.init.normal_(filters.bias)
    rows = torch.randn(6, 4, dtype=torch.float64)
    slots, attention = torch.randint(0, 6, (2, 7)), torch.rand(2, 7, dtype=torch.float64)
    weighted = F.pad(rows[slots] * attention[..., None], (0, 0, window // 2, window - 1 - window // 2))
    expected = F.conv1d(weighted.mT, filters.weight.permute(2, 1, 0), filters.bias).mT
    torch.testing.assert_close(filters(rows, slots, torch.zeros_like(slots), attention), expected)


def test_padding_changes_nothing(made, document):
    model = made().eval()
    with torch.no_grad():
        model.user_side.global_score.bias.fill_(3.0)
        for filters in [model.user_side.local_filters, *model.user_side.global_filters]:
            filters.bias.fill_(2.0)
        words, reviews = document([1, 2, 3], [4])
        wide = model.encode_users(words, reviews)
        tight = model.encode_users(words[:, :4], reviews[:, :4])
    torch.testing.assert_close(wide, tight, rtol=1e-12, atol=1e-12)


def test_the_padding_word_is_never_moved(made, document):
    model = made()
    words, reviews = document([1, 2, 3])
    model.encode_users(words, reviews).sum().backward()
    gradient = model.embedding.weight.grad
    assert torch.equal(gradient[0], torch.zeros(4, dtype=torch.float64))
    assert (gradient[1:4] != 0).any(1).all()


def test_the_global_attention_knows_the_whole_document_and_the_local_its_window(made):
    model = made().eval()
    side, table = model.user_side, model.embedding.weight

    def attention(last):
        words = torch.tensor([[1, 2, 3, 4, 5, last]])
        distinct, slots = torch.unique(words, return_inverse=True)
        return side.attend(table[distinct], slots, torch.zeros_like(words), words > 0)

    (local, whole), (local_changed, whole_changed) = attention(6), attention(7)
    assert torch.equal(local[0, :3], local_changed[0, :3])
    assert (local[0, 3:] != local_changed[0, 3:]).all()
    assert (whole != whole_changed).all()
