"""DAML against its equations written out, and what its two attentions hear."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from carp.models.batch import Batch, Sizes
from carp.models.daml import NEAREST, Daml, mutual_attention

SETTINGS = {"dimension": 7, "filters": 4, "latent_size": 3, "factors": 2, "hidden_size": 5, "dropout": 0.0}


@pytest.fixture
def model(every_weight_random):
    return every_weight_random(Daml, SETTINGS, Sizes(users=4, items=5, words=30)).eval()


@pytest.fixture
def batch():
    return Batch(
        users=torch.tensor([0, -1, 2]),
        items=torch.tensor([4, 1, 0]),
        user_words=torch.tensor([[3, 9, 14, 4, 1, 22], [7, 2, 0, 0, 0, 0], [5, 6, 7, 8, 0, 0]]),
        user_reviews=torch.tensor([[0, 0, 0, 5, 5, 8], [2, 2, -1, -1, -1, -1], [4, 4, 4, 4, -1, -1]]),
        item_words=torch.tensor([[8, 3, 19, 6], [11, 12, 13, 0], [0, 0, 0, 0]]),
        item_reviews=torch.tensor([[1, 1, 3, 3], [6, 6, 6, -1], [-1, -1, -1, -1]]),
    )


def around(vectors, reviews, place, window):
    """The vectors in the window of a place, zeros where the review ends."""
    places = range(place - window // 2, place - window // 2 + window)
    nothing = np.zeros_like(vectors[0])
    return [vectors[at] if 0 <= at < len(vectors) and reviews[at] == reviews[place] else nothing for at in places]


def convolved(vectors, reviews, weight, bias):
    return [
        bias + sum(x @ slice_ for x, slice_ in zip(around(vectors, reviews, at, len(weight)), weight, strict=True))
        for at in range(len(vectors))
    ]


def slow_features(v, side, words, reviews):
    x = [v["embedding.weight"][word] for word in words]
    score = convolved(x, reviews, v["local_score.weight"], v["local_score.bias"])
    attended = [one / (1 + np.exp(-float(s[0]))) for one, s in zip(x, score, strict=True)]
    weight, bias = v[f"{side}_reader.filters.weight"], v[f"{side}_reader.filters.bias"]
    return [np.maximum(one, 0) for one in convolved(attended, reviews, weight, bias)]


def slow_text(v, side, features, mutual, reviews):
    weighed = [g * one for g, one in zip(mutual, features, strict=True)]
    pooled = [sum(around(weighed, reviews, at, 3)) for at in range(len(weighed))]
    hidden = np.zeros(SETTINGS["filters"])
    for at in range(len(pooled)):
        joined = np.concatenate(around(pooled, reviews, at, 3))
        weight, bias = v[f"{side}_reader.abstracting.weight"], v[f"{side}_reader.abstracting.bias"]
        hidden = hidden + np.maximum(weight @ joined + bias, 0) / len(pooled)
    return np.maximum(v[f"{side}_reader.dense.weight"] @ hidden + v[f"{side}_reader.dense.bias"], 0)


def slow_rating(model, batch, row):
    v = {name: tensor.detach().numpy() for name, tensor in model.named_parameters()}
    documents = {}
    for side in ("user", "item"):
        words = getattr(batch, f"{side}_words")[row].tolist()
        reviews = getattr(batch, f"{side}_reviews")[row].tolist()
        length = sum(word > 0 for word in words)
        documents[side] = words[:length], reviews[:length]
    u, i = (slow_features(v, side, *documents[side]) for side in ("user", "item"))
    near = [[1 / (1 + np.sqrt(np.square(a - b).sum() + NEAREST)) for b in i] for a in u]
    of_user = [np.mean(row) if row else 0.0 for row in near]
    of_item = [np.mean([row[place] for row in near]) for place in range(len(i))]
    texts = (
        slow_text(v, "user", u, of_user, documents["user"][1]),
        slow_text(v, "item", i, of_item, documents["item"][1]),
    )
    user, item = int(batch.users[row]), int(batch.items[row])
    known = float(user >= 0)
    z = np.concatenate([texts[0] + known * v["user_factors"][user], texts[1] + v["item_factors"][item]])
    met = sum(z[a] * v["factors"][a] * z[b] * v["factors"][b] for a in range(len(z)) for b in range(a))
    hidden = np.maximum(v["hidden.weight"] @ met + v["hidden.bias"], 0)
    biases = v["mean"] + known * v["user_bias"][user] + v["item_bias"][item]
    return biases + v["linear"] @ z + v["output"] @ hidden


def test_it_computes_its_equations(model, batch):
    found = model(batch).rating.detach().numpy()
    np.testing.assert_allclose(found, [slow_rating(model, batch, row) for row in range(3)], rtol=1e-9)


def test_a_place_is_heard_more_the_nearer_it_is_to_the_other_text(model, batch):
    user = model.read(model.user_reader, batch.user_words[:1], batch.user_reviews[:1])
    far = user._replace(features=user.features + 10.0)
    near = user._replace(features=torch.cat([user.features[:, :1], far.features[:, 1:]], 1))
    heard = mutual_attention(near, user)[0][0]
    assert int(heard.argmax()) == 0
    assert bool((mutual_attention(far, user)[0] < mutual_attention(user, user)[0]).all())


def test_nothing_is_near_an_empty_text(model, batch):
    read = [model.read(model.user_reader, w, r) for w, r in ((batch.user_words, batch.user_reviews),) * 2]
    silent = read[1]._replace(there=torch.zeros_like(read[1].there))
    of_user, of_item = mutual_attention(read[0], silent)
    assert not bool(of_user.any())
    assert not bool(of_item.any())


def test_gradients_exist_where_both_texts_are_the_same(model, batch):
    same = replace(batch, item_words=batch.user_words, item_reviews=batch.user_reviews)
    model.item_reader.load_state_dict(model.user_reader.state_dict())
    model(same).rating.sum().backward()
    assert all(torch.isfinite(one.grad).all() for one in model.parameters() if one.grad is not None)
    assert model.local_score.weight.grad.abs().sum() > 0
