"""Probabilistic matrix factorisation: its prediction and its objective."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from carp.models.batch import Batch, Pairs, Sizes
from carp.models.pmf import Pmf, PmfConfig

NOTHING = torch.zeros(0, 0, dtype=torch.int32)


def started(levels=5, **settings):
    sizes = Sizes(users=5, items=4, words=2, levels=levels)
    rng = np.random.default_rng(0)
    cells = rng.choice(20, 13, replace=False)
    pairs = Pairs(cells // 4, cells % 4, rng.integers(1, levels + 1, 13).astype(np.float32), np.arange(13))
    torch.manual_seed(1)
    model = Pmf(PmfConfig(latent_size=3, spread=1.0, **settings), sizes)
    return model, pairs


def batch_of(pairs, chosen=slice(None)):
    users, items, ratings = (torch.from_numpy(a[chosen]) for a in (pairs.users, pairs.items, pairs.ratings))
    return Batch(users, items, NOTHING, NOTHING, NOTHING, NOTHING, ratings, training=True)


@pytest.mark.parametrize("levels", [5, 10])
def test_ratings_are_a_sigmoid_stretched_over_the_scale(levels):
    model, pairs = started(levels)
    found = model(batch_of(pairs)).rating.tolist()
    u, v = model.user_factors.detach().double().numpy(), model.item_factors.detach().double().numpy()
    for rating, user, item in zip(found, pairs.users, pairs.items, strict=True):
        expected = 1 + (levels - 1) / (1 + math.exp(-float(u[user] @ v[item])))
        assert rating == pytest.approx(expected, abs=1e-5)
    assert min(found) > 1
    assert max(found) < levels


def test_the_losses_of_an_epoch_add_up_to_the_objective():
    model, pairs = started(user_penalty=0.2, item_penalty=0.05)
    found = sum(
        float(model.loss(batch, model(batch)).detach()) * len(batch)
        for batch in (batch_of(pairs, slice(0, 6)), batch_of(pairs, slice(6, None)))
    )
    u, v = model.user_factors.detach().double().numpy(), model.item_factors.detach().double().numpy()
    expected = 0.0
    for user, item, rating in zip(pairs.users, pairs.items, pairs.ratings, strict=True):
        expected += ((rating - 1) / 4 - 1 / (1 + math.exp(-float(u[user] @ v[item])))) ** 2 / 2
        expected += (0.2 * np.square(u[user]).sum() + 0.05 * np.square(v[item]).sum()) / 2
    assert found == pytest.approx(expected, rel=1e-5)


def test_one_penalty_serves_both_sides_unless_a_side_has_its_own():
    def loss(**settings):
        model, pairs = started(**settings)
        return float(model.loss(batch_of(pairs), model(batch_of(pairs))).detach())

    assert loss(penalty=0.2) == loss(user_penalty=0.2, item_penalty=0.2)
    assert (
        loss(penalty=0.2, item_penalty=0.0) == loss(penalty=0.3, user_penalty=0.2, item_penalty=0.0) < loss(penalty=0.2)
    )


def test_neither_biases_nor_a_mean_are_learned():
    model, _ = started()
    assert {name for name, _ in model.named_parameters()} == {"user_factors", "item_factors"}


def test_somebody_unknown_gets_the_middle_of_the_scale():
    model, _ = started()
    nobody = torch.tensor([-1, 0, -1])
    found = model(Batch(nobody, torch.tensor([-1, -1, 0]), NOTHING, NOTHING, NOTHING, NOTHING)).rating
    assert found.tolist() == [3, 3, 3]
