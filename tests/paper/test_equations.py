"""Every equation of the paper, and every option beside it, against the slow twin in tests/twins."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.func import functional_call

from carp.models.base import make_config
from carp.models.batch import Sizes
from carp.models.carp import RELEASED, Carp, CarpConfig
from carp.models.layers import squash
from carp.settings import FitSettings, sort_settings
from carp.training.loop import TrainingSettings

CLOSE = {"rtol": 1e-8, "atol": 1e-8}
LENGTHS = [(5, 3), (1, 2), (2, 1), (4, 8), (3, 3)]
EMPTY = [(0, 3), (2, 0), (0, 0), (1, 1)]

# At least one entry for each option that the forward pass or the loss shows; the twin knows them all.
FORWARD_OPTIONS: list[dict[str, Any]] = [
    {"dimension": 6},
    {"window": 1},
    {"window": 5},
    {"filters": 5},
    {"latent_size": 2},
    {"viewpoints": 1},
    {"viewpoints": 3},
    {"viewpoints": 4},
    {"routing": "agreement"},
    {"routing_iterations": 1},
    {"routing_iterations": 2},
    {"routing_iterations": 5},
    {"across_reviews": True},
    {"projection": "per viewpoint"},
    {"attention": "routed"},
    {"attention_scale": 3.0},
    {"padding_attends": True},
    {"padding_attends": True, "across_reviews": True},
    {"logic_unit": "product first"},
    {"logic_unit": "appended"},
    {"capsule_bias": True},
    {"routing_epsilon": 1e-2},
    {"highway": "reversed"},
    {"biases": "leave-one-out"},
    {"variant": "released"},
    {"variant": "calibrated"},
]
LOSS_OPTIONS: list[dict[str, Any]] = [
    {"liked_above": 4.0},
    {"margin": 0.3},
    {"rating_weight": 0.1},
    {"mutual_exclusion": False},
    {"hinge": "squared"},
    {"opposite_weight": 0.8},
]
TESTED_BY_NAME = {  # below, each in a test of its own
    "dropout",
    "dropout_on",
    "routing_gradient",
    "bias_spread",
    "embedding_start",
    "filter_spread",
    "filter_bias",
}


def named(settings):
    return " ".join(f"{name}={value}" for name, value in settings.items())


def assert_same_forward(twin, model, batch):
    """A length is √(‖o‖² + 1e-12), so that its gradient exists at zero: only lengths near zero show it."""
    slow, fast = twin.SlowCarp(model), model(batch)
    m = model.config.viewpoints
    for row in range(len(batch)):
        expected = slow.pair(batch, row)
        close = CLOSE if min(expected.lengths) > 1e-3 else {"rtol": 1e-6, "atol": 1e-5}
        coupling = fast.tensors["coupling"][row].detach().reshape(2, m * m)
        np.testing.assert_allclose(coupling, expected.coupling, **CLOSE)
        np.testing.assert_allclose(fast.tensors["capsules"][row].detach(), expected.capsules, **CLOSE)
        np.testing.assert_allclose(fast.tensors["lengths"][row].detach(), expected.lengths, **close)
        np.testing.assert_allclose(fast.tensors["degrees"][row].detach(), expected.degrees, **CLOSE)
        np.testing.assert_allclose(fast.rating[row].item(), expected.rating, **close)


def assert_same_loss(twin, model, batch):
    slow = twin.SlowCarp(model)
    shortest = min(min(slow.pair(batch, row).lengths) for row in range(len(batch)))
    close = CLOSE if shortest > 1e-3 else {"rtol": 1e-5}
    np.testing.assert_allclose(model.loss(batch, model(batch)).item(), slow.loss(batch), **close)


def test_every_option_of_the_configuration_has_a_twin_or_a_test():
    seen = {name for settings in FORWARD_OPTIONS + LOSS_OPTIONS for name in settings}
    assert seen | TESTED_BY_NAME == {field.name for field in dataclasses.fields(CarpConfig)}


# ---- the equations one by one


def test_squash_is_equation_5(twin):
    vectors = torch.randn(40, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 3
    for vector, short in zip(vectors, squash(vectors), strict=True):
        np.testing.assert_allclose(short, twin.squash(vector.tolist()), rtol=1e-9)
        assert 0 < float(short.norm()) < 1
    assert squash(torch.zeros(3)).tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("viewpoints", [1, 2, 3, 4])
@pytest.mark.parametrize("lengths", [LENGTHS, EMPTY], ids=["lengths 1 to 8", "empty documents"])
def test_viewpoints_and_attention_are_equations_1_and_2(twin, viewpoints, lengths):
    model = twin.make_model(viewpoints, viewpoints=viewpoints)
    batch = twin.make_batch(viewpoints, lengths)
    slow = twin.SlowCarp(model)
    with torch.no_grad():
        sides = {
            "user_side": (*model.read_users(batch.user_words, batch.user_reviews)[:2], batch.user_words),
            "item_side": (*model.read_items(batch.item_words, batch.item_reviews)[:2], batch.item_words),
        }
    for side, (vectors, attention, words) in sides.items():
        reviews = batch.user_reviews if side == "user_side" else batch.item_reviews
        for row in range(len(batch)):
            expected, weights = slow.sides(side, words[row].tolist(), reviews[row].tolist())
            count = int((words[row] > 0).sum())
            np.testing.assert_allclose(vectors[row], expected, **CLOSE)
            np.testing.assert_allclose(attention[row, :count].T, np.reshape(weights, (viewpoints, count)), **CLOSE)
            assert not attention[row, count:].any(), "padding takes no attention"


@pytest.mark.parametrize("order", ["difference first", "product first", "appended"])
def test_logic_units_are_equation_3(twin, order):
    model = twin.make_model(1, viewpoints=3, logic_unit=order)
    v, a = torch.randn(2, 2, 3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    units, slow = model.pair(v, a), twin.SlowCarp(model)
    assert units.shape == (2, 9, 12 if order == "appended" else 6)
    for pair in range(2):
        for x in range(3):
            for y in range(3):
                expected = slow.logic_unit(v[pair, x].tolist(), a[pair, y].tolist())
                np.testing.assert_allclose(units[pair, 3 * x + y], expected, **CLOSE)


@pytest.mark.parametrize("highway", ["paper", "reversed"])
def test_degrees_are_equations_7_to_9(twin, highway):
    model = twin.make_model(2, highway=highway)
    capsules = torch.rand(6, 2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2)) - 0.5
    degrees, slow = model.rate(capsules).detach(), twin.SlowCarp(model)
    for pair in range(6):
        for s in (0, 1):
            np.testing.assert_allclose(float(degrees[pair, s]), slow.degree(s, capsules[pair, s].tolist()), **CLOSE)


@pytest.mark.parametrize("levels", [5, 10])
@pytest.mark.parametrize("biases", ["learned", "tuned", "leave-one-out"])
def test_ratings_are_equation_10_and_strangers_get_the_mean_bias(twin, biases, levels):
    model = twin.make_model(3, sizes=replace(twin.SIZES, levels=levels), biases=biases)
    balance = torch.tensor([-2.0, 0.3, 5.0, -0.1], dtype=torch.float64)
    users, items = torch.tensor([0, -1, 3, -1]), torch.tensor([1, 2, -1, -1])
    found, slow = model.combine(balance, users, items, None).detach(), twin.SlowCarp(model)
    expected = [slow.rating(float(balance[n]), int(users[n]), int(items[n])) for n in range(4)]
    np.testing.assert_allclose(found, expected, **CLOSE)


def test_the_sigmoid_of_equation_10_fills_the_rating_range(twin):
    model = twin.make_model(3)
    with torch.no_grad():
        model.user_bias.zero_()
        model.item_bias.zero_()
    one = torch.zeros(1, dtype=torch.int64)
    balances = [torch.tensor([b], dtype=torch.float64) for b in (-60, 0, 60)]
    found = [model.combine(balance, one, one, None).item() for balance in balances]
    np.testing.assert_allclose(found, [1, 3, 5], atol=1e-12)


# ---- the whole


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("viewpoints", [1, 2, 3, 4])
@pytest.mark.parametrize("routing", ["bi-agreement", "agreement"])
def test_forward_and_loss_follow_the_paper(twin, seed, viewpoints, routing):
    model = twin.make_model(seed, viewpoints=viewpoints, routing=routing)
    batch = twin.make_batch(seed, LENGTHS[seed:] + LENGTHS[:seed][:2])
    assert_same_forward(twin, model, batch)
    assert_same_loss(twin, model, batch)


@pytest.mark.parametrize("settings", FORWARD_OPTIONS + LOSS_OPTIONS, ids=named)
def test_each_option_follows_its_twin(twin, settings):
    model = twin.make_model(11, **settings)
    for training in (False, True):  # a training pair's own rating is left out of the biases
        batch = twin.make_batch(12, LENGTHS, training=training)
        assert_same_forward(twin, model, batch)
        assert_same_loss(twin, model, batch)


@pytest.mark.parametrize("settings", LOSS_OPTIONS, ids=named)
def test_each_option_of_the_loss_changes_it(twin, settings):
    batch = twin.make_batch(12, LENGTHS)
    paper, changed = twin.make_model(11), twin.make_model(11, **settings)
    before, after = (model.loss(batch, model(batch)).item() for model in (paper, changed))
    assert after != pytest.approx(before, rel=1e-4)


@pytest.mark.parametrize("settings", [{}, {"routing": "agreement"}, {"variant": "released"}], ids=named)
def test_empty_documents_follow_the_twin(twin, settings):
    """Where a capsule is empty its length is 1e-6 instead of 0, so that its gradient exists."""
    model, batch = twin.make_model(5, **settings), twin.make_batch(6, EMPTY)
    slow, fast = twin.SlowCarp(model), model(batch)
    for row in range(len(batch)):
        expected = slow.pair(batch, row)
        np.testing.assert_allclose(fast.tensors["lengths"][row].detach(), expected.lengths, atol=2e-6)
        np.testing.assert_allclose(fast.rating[row].item(), expected.rating, atol=2e-5)


def test_the_released_variant_is_every_difference_at_once():
    released = make_config(Carp, {"variant": "released"})
    for name, value in RELEASED.items():
        assert getattr(released, name) == value != getattr(CarpConfig(), name)
    assert make_config(Carp, {"variant": "released", "hinge": "linear"}).hinge == "linear"


def test_the_released_variant_is_trained_as_the_released_code_trains():
    released, paper = (sort_settings("carp-paper", {"variant": variant}) for variant in ("released", "paper"))
    assert released.training.optimizer_epsilon == 1e-10
    assert (released.training.epochs, released.training.patience) == (150, 150)
    assert released.fit.target_reviews == "keep"
    assert (paper.training, paper.fit) == (TrainingSettings(), FitSettings())
    given = sort_settings("carp", {"variant": "released", "epochs": 7, "target_reviews": "leave out"})
    assert (given.training.epochs, given.training.optimizer_epsilon) == (7, 1e-10)
    assert given.fit.target_reviews == "leave out"


# ---- what padding and neighbouring reviews may do


@pytest.mark.parametrize("settings", [{}, {"routing": "agreement"}, {"across_reviews": True}], ids=named)
def test_longer_padding_changes_nothing(twin, settings):
    model, batch = twin.make_model(7, **settings), twin.make_batch(8, LENGTHS + EMPTY)
    wide = replace(
        batch,
        user_words=F.pad(batch.user_words, (0, 9)),
        user_reviews=F.pad(batch.user_reviews, (0, 9), value=-1),
        item_words=F.pad(batch.item_words, (0, 4)),
        item_reviews=F.pad(batch.item_reviews, (0, 4), value=-1),
    )
    with torch.no_grad():
        narrow_answer, wide_answer = model(batch), model(wide)
        attention = model.read_users(wide.user_words, wide.user_reviews)[1]
    torch.testing.assert_close(wide_answer.rating, narrow_answer.rating, rtol=0, atol=1e-12)
    for name, tensor in narrow_answer.tensors.items():
        torch.testing.assert_close(wide_answer.tensors[name], tensor, rtol=0, atol=1e-12)
    assert not attention[wide.user_words == 0].any()
    sums = attention.sum(1)
    written = (wide.user_words > 0).any(1)
    torch.testing.assert_close(sums[written], torch.ones_like(sums[written]))


def test_padding_takes_attention_only_where_asked(twin):
    batch = twin.make_batch(8, [(2, 2)])
    shares = {}
    for attends in (False, True):
        model = twin.make_model(7, padding_attends=attends)
        shares[attends] = model.read_users(batch.user_words, batch.user_reviews)[1].sum().item()
    assert shares[False] == pytest.approx(2, abs=1e-12)  # two viewpoints
    assert shares[True] < 1.9


@pytest.mark.parametrize("across", [False, True])
def test_windows_do_not_cross_reviews_unless_asked(twin, across):
    convolution = twin.make_model(9, across_reviews=across).user_side.convolution
    table = torch.randn(12, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(9))
    words, reviews = torch.tensor([[1, 2, 3, 4, 5, 6]]), torch.tensor([[7, 7, 7, 8, 8, 8]])
    before = convolution(table, words, reviews)
    words[0, 3] = 11  # the first word of the second review
    moved = (convolution(table, words, reviews) != before).any(-1)[0].tolist()
    assert moved == [False, False, across, True, True, False]


# ---- options that the forward pass does not show


def dropped_shapes(monkeypatch, model, batch):
    shapes = []

    def record(tensor, probability=0.5, training=True, inplace=False):
        assert (probability, training) == (0.25, True)
        shapes.append(tuple(tensor.shape))
        return tensor

    monkeypatch.setattr(F, "dropout", record)
    model.train()(batch)
    return shapes


def test_dropout_falls_on_the_features_of_both_sides(twin, monkeypatch):
    model, batch = twin.make_model(1, dropout=0.25), twin.make_batch(1, [(5, 3), (2, 4)])
    assert dropped_shapes(monkeypatch, model, batch) == [(2, 5, 3), (2, 4, 3)]


def test_dropout_falls_on_the_weights_the_released_code_names(twin, monkeypatch):
    """Convolution, gates, highway and regression vector."""
    model = twin.make_model(1, dropout=0.25, dropout_on="weights")
    shapes = dropped_shapes(monkeypatch, model, twin.make_batch(1, [(5, 3), (2, 4)]))
    convolution, gates, highway = (3, 4, 3), (2, 3, 3), (2, 3, 3)
    assert sorted(shapes) == sorted([convolution, gates, gates] * 2 + [highway, highway, (2, 3)])


def test_dropout_is_silent_outside_training_and_scales_inside(twin):
    model, batch = twin.make_model(1, dropout=0.5), twin.make_batch(1, LENGTHS)
    with torch.no_grad():
        still = model.eval()(batch).rating
        torch.testing.assert_close(model(batch).rating, still, rtol=0, atol=0)
        torch.manual_seed(0)
        assert not torch.equal(model.train()(batch).rating, still)
        none = twin.make_model(1, dropout=0.0)
        torch.testing.assert_close(none.train()(batch).rating, still, rtol=0, atol=0)


def test_starts_are_those_asked_for():
    sizes = Sizes(users=4000, items=3000, words=2000)
    torch.manual_seed(0)
    paper = Carp(make_config(Carp, {"dimension": 50}), sizes)
    released = Carp(make_config(Carp, {"dimension": 50, "variant": "released"}), sizes)
    for model in (paper, released):
        assert not model.embedding.weight[0].any()
        assert model.regression_bias.tolist() == [3.0, 1.0]
    assert not paper.user_bias.any()
    assert not paper.item_bias.any()
    assert released.user_bias.std().item() == pytest.approx(0.02, rel=0.1)
    assert released.item_bias.std().item() == pytest.approx(0.02, rel=0.1)
    words = released.embedding.weight[1:]
    assert words.min() >= 0
    assert words.max() < 1
    assert words.mean().item() == pytest.approx(0.5, abs=0.01)
    assert paper.embedding.weight[1:].mean().item() == pytest.approx(0, abs=0.02)
    assert paper.embedding.weight[1:].std().item() == pytest.approx(1, abs=0.02)
    for side in ("user_side", "item_side"):
        plain, filters = getattr(paper, side).convolution, getattr(released, side).convolution
        assert plain.weight.std().item() == pytest.approx(1 / math.sqrt(3 * 50), rel=0.05)
        assert not plain.bias.any()
        assert filters.weight.abs().max() <= 0.6  # a normal of 0.3, cut at twice its spread
        assert filters.weight.std().item() == pytest.approx(0.3 * 0.8796, rel=0.03)
        torch.testing.assert_close(filters.bias, torch.full_like(filters.bias, 0.1))
        torch.testing.assert_close(getattr(released, side).attention_bias, torch.full((5, 50), 0.1))
    torch.testing.assert_close(released.capsule_bias, torch.full((2, 25), 0.1))


def test_the_first_step_of_routed_attention_is_cut_from_the_gradient(twin):
    side = twin.make_model(4, attention="routed").user_side
    contextual = torch.randn(2, 4, 2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    there = torch.tensor([[True] * 4, [True, True, False, False]])
    contextual = (contextual * there[:, :, None, None]).requires_grad_()
    viewpoints, _ = side._attend(contextual, there)
    (found,) = torch.autograd.grad(viewpoints.square().sum(), contextual)

    with torch.no_grad():
        asking = squash(contextual.sum(1) / there.sum(1)[:, None, None] + side.attention_bias)
    scores = (contextual * asking.unsqueeze(1)).sum(-1).masked_fill(~there.unsqueeze(-1), -torch.inf)
    again = squash((scores.softmax(1).unsqueeze(-1) * contextual).sum(1) + side.attention_bias)
    (expected,) = torch.autograd.grad(again.square().sum(), contextual)
    torch.testing.assert_close(viewpoints, again)
    torch.testing.assert_close(found, expected)


# ---- gradients


def differentiable(model, names):
    parameters = {name: p.detach().clone().requires_grad_() for name, p in model.named_parameters() if name in names}
    return parameters, tuple(parameters.values())


def test_gradient_of_squash():
    vectors = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    assert torch.autograd.gradcheck(squash, (vectors,))


@pytest.mark.parametrize("settings", [{}, {"projection": "per viewpoint"}, {"padding_attends": True}], ids=named)
def test_gradient_of_viewpoints(twin, settings):
    model = twin.make_model(21, filters=2, dimension=2, latent_size=2, **settings)
    side, batch = model.user_side, twin.make_batch(22, [(4, 1), (1, 1), (0, 1)])
    inputs = batch.user_words, batch.user_reviews
    raw = side.convolution(model.embedding.weight, *inputs)
    assert raw[batch.user_words > 0].abs().min() > 1e-3, "no feature may sit on the kink of the ReLU"
    parameters, values = differentiable(side, {name for name, _ in side.named_parameters()})

    def viewpoints(table, *given):
        return functional_call(side, dict(zip(parameters, given, strict=True)), (table, *inputs))[0]

    table = model.embedding.weight.detach().clone().requires_grad_()
    assert torch.autograd.gradcheck(viewpoints, (table, *values))


@pytest.mark.parametrize(
    "settings", [{}, {"routing": "agreement"}, {"hinge": "squared"}, {"variant": "calibrated"}], ids=named
)
def test_gradient_of_the_whole_loss(twin, settings):
    sizes = replace(twin.SIZES, words=6)
    model = twin.make_model(31, sizes=sizes, filters=2, dimension=2, latent_size=2, **settings)
    batch = twin.make_batch(32, [(3, 2), (1, 4)], sizes=sizes, training=True)
    parameters, values = differentiable(model, {name for name, _ in model.named_parameters()})

    def loss(*given):
        weights = dict(zip(parameters, given, strict=True))
        return model.loss(batch, functional_call(model, weights, (batch,)))

    assert torch.autograd.gradcheck(loss, values, fast_mode=True), "along a random direction"
    changed = [name for name, g in zip(parameters, torch.autograd.grad(loss(*values), values), strict=True) if g.any()]
    assert changed == list(parameters), "every parameter learns"


@pytest.mark.parametrize("variant", ["paper", "released", "calibrated"])
def test_gradients_are_finite_where_documents_are_empty(twin, variant):
    model, batch = twin.make_model(41, variant=variant), twin.make_batch(42, [(0, 0), (0, 2), (3, 0)])
    model.train().loss(batch, model(batch)).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name
