"""What pairs teach in C is what autograd of the plain model says."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from carp.kernels.cpu import pair_gradients
from carp.kernels.cpu.pair_gradients import SIDES, learn_pairs
from carp.models.batch import Batch, Sizes
from carp.models.carp import Carp, CarpConfig

USERS, ITEMS = 15, 12


@pytest.fixture(scope="module", autouse=True)
def one_thread(single_thread):
    """Tiny models: see `single_thread`."""


def taught_by_autograd(model, batch, sides):
    viewpoints, aspects = (side.clone().requires_grad_() for side in sides)
    model.zero_grad(set_to_none=True)
    loss = model.loss(batch, model.score(batch.users, batch.items, viewpoints, aspects, batch.ratings))
    loss.backward()
    return float(loss.detach()), (viewpoints.grad, aspects.grad)


def parameters_after(model):
    return {name: p for name, p in model.named_parameters() if not name.startswith(SIDES)}


def model_of(seed=0, **settings):
    """A model whose every weight matters: none starts at zero."""
    torch.manual_seed(seed)
    model = Carp(CarpConfig(**{"dimension": 5, "filters": 6, **settings}), Sizes(USERS, ITEMS, 30)).double()
    with torch.no_grad():
        for parameter in parameters_after(model).values():
            parameter += 0.1 * torch.randn_like(parameter)
        model.biases.user_weight.fill_(7.0)
        model.biases.item_weight.fill_(5.0)
        model.biases.mean.fill_(3.5)
    return model.train()


def batch_of(count, dtype=torch.float64, seed=0):
    rng = np.random.default_rng(seed)
    none = torch.empty(0, dtype=torch.int32)
    users, items = (torch.from_numpy(rng.integers(0, n, count)) for n in (USERS, ITEMS))
    ratings = torch.from_numpy(rng.integers(1, 6, count)).to(dtype)
    return Batch(users, items, none, none, none, none, ratings, training=True)


def sides_of(model, count, seed=0, scale=1.0):
    rng = torch.Generator().manual_seed(seed)
    shape = count, model.config.viewpoints, model.vote_weight.shape[2] // 2
    sides = [torch.randn(*shape, generator=rng, dtype=torch.float64) * scale for _ in range(2)]
    sides[0][0] = 0  # of empty documents
    sides[1][0] = 0
    return tuple(sides)


def check(settings, count, seed=0, scale=1.0, tolerance=1e-4):
    exact, model = model_of(seed, **settings), model_of(seed, **settings).float()
    sides = sides_of(exact, count, seed, scale)
    loss, grads = taught_by_autograd(exact, batch_of(count, seed=seed), sides)
    found = learn_pairs(model, batch_of(count, torch.float32, seed), tuple(side.float() for side in sides))
    assert found is not None
    assert found[0] == pytest.approx(loss, rel=1e-5, abs=1e-6)
    for ours, true in zip(found[1], grads, strict=True):
        assert_close(ours, true, tolerance)
    wanted, got = parameters_after(exact), parameters_after(model)
    for name, parameter in wanted.items():
        if parameter.grad is None:
            assert got[name].grad is None, name
        else:
            assert_close(got[name].grad, parameter.grad, tolerance, name)


def assert_close(ours, true, tolerance, name="side"):
    assert ours.shape == true.shape
    assert ours.is_contiguous()
    assert float((ours.double() - true).abs().max()) <= tolerance * max(float(true.abs().max()), 1e-3), name


FORMS = [
    {},
    {"variant": "calibrated"},
    {"biases": "tuned", "routing": "agreement"},
    {"logic_unit": "product first", "highway": "reversed", "capsule_bias": True},
    {"capsule_bias": True, "routing": "agreement", "routing_iterations": 4},
    {"hinge": "squared", "opposite_weight": 0.3, "mutual_exclusion": False, "routing_iterations": 1},
    {"projection": "per viewpoint", "filters": 11, "routing_iterations": 2},
]


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("settings", FORMS, ids=str)
@pytest.mark.parametrize("count", [1, 16, 50, 101])
def test_gradients_are_those_of_the_plain_model(settings, count):
    check({"latent_size": 25, "viewpoints": 5, **settings}, count)


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("seed", range(30))
def test_gradients_are_exact_for_any_shape(seed):
    rng = np.random.default_rng(seed)
    settings = {
        "viewpoints": int(rng.integers(1, 7)),
        "latent_size": int(rng.integers(1, 45)),
        "routing": rng.choice(["bi-agreement", "agreement"]),
        "routing_iterations": int(rng.integers(1, 5)),
        "capsule_bias": bool(rng.integers(2)),
        "highway": rng.choice(["paper", "reversed"]),
    }
    check(settings, int(rng.integers(1, 70)), seed)


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("scale", [0.0, 1e-4, 5.0])
def test_gradients_bear_tiny_and_large_sides(scale):
    check({"latent_size": 25, "viewpoints": 5}, 40, scale=scale, tolerance=1e-3)


@pytest.mark.usefixtures("compiled")
def test_pieces_and_threads_change_no_bit(monkeypatch):
    model = model_of(latent_size=25, viewpoints=5).float()
    batch, sides = batch_of(101, torch.float32), tuple(side.float() for side in sides_of(model, 101))

    def learned():
        loss, grads = learn_pairs(model, batch, sides)
        return [torch.tensor(loss), *grads, *(p.grad.clone() for p in parameters_after(model).values())]

    alone = learned()
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        together = learned()
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(a, b) for a, b in zip(alone, together, strict=True))
    monkeypatch.setattr(pair_gradients, "PIECE", 32)
    for ours, other in zip(learned(), alone, strict=True):
        torch.testing.assert_close(ours, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "settings", [{"routing_epsilon": 1e-9}, {"routing_gradient": "last"}, {"dropout_on": "weights"}], ids=str
)
def test_what_is_not_covered_is_left_to_autograd(settings):
    model = model_of(latent_size=4, viewpoints=2, **settings).float()
    batch, sides = batch_of(5, torch.float32), tuple(side.float() for side in sides_of(model, 5))
    assert learn_pairs(model, batch, sides) is None
    assert learn_pairs(model.double(), batch, sides) is None


@pytest.mark.usefixtures("no_compiler")
def test_without_a_compiler_autograd_is_asked():
    model = model_of(latent_size=4, viewpoints=2).float()
    assert learn_pairs(model, batch_of(5, torch.float32), sides_of(model.float(), 5)) is None
