"""A training pair's baseline is that of a fit without its rating, to the last digits where that is affordable."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from carp.models import leave_one_out
from carp.models.batch import Pairs, Sizes
from carp.models.layers import TunedBiases
from carp.models.leave_one_out import Crossings, exact_leverages, leverages_by_messages


def made_up(seed, count=60, users=12, items=9, *, repeated=True):
    """Pairs of which some are rated twice; person 0 has one review alone, and the last person and thing have none."""
    rng = np.random.default_rng(seed)
    drawn = rng.choice((users - 2) * (items - 1), count, replace=repeated)
    user, item = np.r_[0, 1 + drawn // (items - 1)], np.r_[2, drawn % (items - 1)]
    ratings = rng.integers(1, 6, len(user)).astype(np.float32)
    return Pairs(user.astype(np.int64), item.astype(np.int64), ratings, np.arange(len(user))), Sizes(users, items, 1)


def one_item():
    rng = np.random.default_rng(0)
    pairs = Pairs(np.arange(7), np.zeros(7, np.int64), rng.integers(1, 6, 7).astype(np.float32), np.arange(7))
    return pairs, Sizes(7, 1, 1)


def tree():
    """No two ways lead from a person to a thing."""
    user, item = np.array([0, 0, 1, 1, 2, 3, 3, 3]), np.array([0, 1, 1, 2, 2, 3, 4, 4])
    ratings = np.array([5, 3, 4, 1, 2, 5, 3, 2], np.float32)
    return Pairs(user, item, ratings, np.arange(8)), Sizes(4, 5, 1)


CORPORA = {
    "repeated pairs": made_up(0),
    "more people than things": made_up(1, 40, 20, 5, repeated=False),
    "more things than people": made_up(2, 40, 5, 20, repeated=False),
    "one thing": one_item(),
    "no loops": tree(),
}


def fitted(train, sizes, shrinkage):
    """Biases of the given strengths, in double precision."""
    biases = TunedBiases(sizes).double()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("carp.models.layers.SHRINKAGES", (shrinkage,))
        biases.fit(train, dataclasses.replace(train, records=train.records + len(train)), 5)
    biases.leave_out(train)
    return biases


def refitted(train, sizes, shrinkage, gone):
    """The whole system solved again without one rating, and its prediction for that pair."""
    kept = np.arange(len(train)) != gone
    users, items, ratings = train.users[kept], train.items[kept], train.ratings[kept].astype(np.float64)
    rows = np.zeros((len(users), sizes.users + sizes.items))
    rows[np.arange(len(users)), users] = 1
    rows[np.arange(len(users)), sizes.users + items] = 1
    normal = rows.T @ rows + shrinkage * np.eye(rows.shape[1])
    solution = np.linalg.solve(normal, rows.T @ (ratings - ratings.mean()))
    return ratings.mean() + solution[train.users[gone]] + solution[sizes.users + train.items[gone]]


@pytest.mark.parametrize("shrinkage", [0.5, 7.0])
@pytest.mark.parametrize("corpus", CORPORA)
def test_a_training_pair_is_rated_by_biases_refitted_without_it(corpus, shrinkage):
    train, sizes = CORPORA[corpus]
    biases = fitted(train, sizes, shrinkage)
    found = biases(*(torch.from_numpy(x) for x in (train.users, train.items, train.ratings.astype(np.float64))))
    expected = [refitted(train, sizes, shrinkage, gone) for gone in range(len(train))]
    np.testing.assert_allclose(found, expected, atol=1e-9, rtol=0)


def crossings(train, sizes, shrinkage=2.0):
    key, times = np.unique(train.users * sizes.items + train.items, return_counts=True)
    user, item = np.divmod(key, sizes.items)
    weights = [
        np.bincount(of, minlength=n) + shrinkage for of, n in ((train.users, sizes.users), (train.items, sizes.items))
    ]
    return Crossings(user, item, times.astype(np.float64), *weights)


@pytest.mark.parametrize("corpus", CORPORA)
def test_users_in_blocks_and_the_other_side_eliminated_give_the_same_leverages(corpus, monkeypatch):
    met = crossings(*CORPORA[corpus])
    whole = exact_leverages(met)
    np.testing.assert_allclose(exact_leverages(met.turned()), whole, atol=1e-12)
    monkeypatch.setattr(leave_one_out, "BLOCK", 3)
    np.testing.assert_allclose(exact_leverages(met), whole, atol=1e-12)


def test_messages_are_exact_where_there_are_no_loops_and_close_elsewhere():
    np.testing.assert_allclose(
        leverages_by_messages(crossings(*tree())), exact_leverages(crossings(*tree())), atol=1e-12
    )
    rng = np.random.default_rng(3)
    sparse = crossings(*made_up(4, 2000, 400, 300))
    exact, near = exact_leverages(sparse), leverages_by_messages(sparse)
    assert np.abs(near - exact).mean() < 0.005 * exact.mean()
    shuffled = rng.permutation(exact)
    assert np.abs(shuffled - exact).mean() > 0.05 * exact.mean()  # leverages differ: being close says something


def test_past_what_is_affordable_the_messages_are_used(monkeypatch):
    met = crossings(*made_up(0))
    exact, near = exact_leverages(met), leverages_by_messages(met)
    assert np.abs(exact - near).max() > 1e-4
    np.testing.assert_allclose(leave_one_out.leverages(met), exact, atol=1e-12)
    for limit, value in (("MOST_SIDE", 8), ("MOST_PAIRS", 20)):
        with monkeypatch.context() as patch:
            patch.setattr(leave_one_out, limit, value)
            np.testing.assert_array_equal(leave_one_out.leverages(met), near)


def test_a_state_saved_without_leverages_loads_and_holds_the_other_side_fixed():
    train, sizes = made_up(0)
    biases = fitted(train, sizes, 7.0)
    saved = {name: tensor for name, tensor in biases.state_dict().items() if name not in ("pairs", "growth")}
    loaded = TunedBiases(sizes).double()
    loaded.load_state_dict(saved)
    users, items, own = (torch.from_numpy(x) for x in (train.users, train.items, train.ratings.astype(np.float64)))
    assert torch.equal(loaded(users, items), biases(users, items))
    rest, user, item = own - loaded.mean, loaded.user[users], loaded.item[items]
    for_user, for_item = loaded.user_weight[users], loaded.item_weight[items]
    without = (for_user * user - (rest - item)) / (for_user - 1), (for_item * item - (rest - user)) / (for_item - 1)
    torch.testing.assert_close(loaded(users, items, own), loaded.mean + without[0] + without[1])


def test_a_state_comes_back_whole_and_one_that_does_not_fit_together_is_refused():
    train, sizes = made_up(0)
    biases = fitted(train, sizes, 7.0)
    loaded = TunedBiases(sizes).double()
    loaded.load_state_dict(biases.state_dict())
    given = [torch.from_numpy(x) for x in (train.users, train.items, train.ratings.astype(np.float64))]
    assert torch.equal(loaded(*given), biases(*given))
    broken = biases.state_dict() | {"growth": biases.growth[:-1]}
    with pytest.raises(ValueError, match="two numbers for each"):
        TunedBiases(sizes).double().load_state_dict(broken)
