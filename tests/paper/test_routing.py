"""Algorithm 1 line by line, and the three properties the paper asks of it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from carp.models.carp import bi_agreement, by_agreement, uniform_coupling
from carp.models.layers import squash

POSITIVE, NEGATIVE = 0, 1
UNINFORMATIVE = (-0.05, -0.9)  # the paper's example of a unit that says nothing to either capsule


def random_votes(seed, pairs=3, units=4, size=3, spread=1.0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(pairs, 2, units, size, dtype=torch.float64, generator=generator) * spread


def coupling_of(table, couple=bi_agreement):
    """table[s][u] → c[s][u]."""
    return couple(torch.tensor([table], dtype=torch.float64))[0].numpy()


@pytest.mark.parametrize("iterations", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("viewpoints", [1, 2, 3, 4])
@pytest.mark.parametrize("spread", [0.1, 1.0, 4.0])
def test_bi_agreement_is_algorithm_1(twin, iterations, viewpoints, spread):
    model = twin.make_model(0, viewpoints=viewpoints, routing_iterations=iterations)
    votes = random_votes(viewpoints, units=viewpoints**2, spread=spread)
    coupling, capsules = model.route(votes)
    for pair in range(len(votes)):
        c, o = twin.route(votes[pair].tolist(), iterations, twin.couple_by_bi_agreement)
        np.testing.assert_allclose(coupling[pair], c, rtol=1e-7, atol=1e-12)
        np.testing.assert_allclose(capsules[pair], o, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("iterations", [1, 3, 5])
@pytest.mark.parametrize("viewpoints", [1, 2, 3])
def test_plain_agreement_is_equation_6_inside_the_same_loop(twin, iterations, viewpoints):
    model = twin.make_model(0, viewpoints=viewpoints, routing_iterations=iterations, routing="agreement")
    votes = random_votes(viewpoints, units=viewpoints**2)
    coupling, capsules = model.route(votes)
    for pair in range(len(votes)):
        c, o = twin.route(votes[pair].tolist(), iterations, twin.couple_by_agreement)
        np.testing.assert_allclose(coupling[pair], c, rtol=1e-8)
        np.testing.assert_allclose(capsules[pair], o, rtol=1e-7, atol=1e-9)


@given(st.lists(st.tuples(st.floats(-30, 30), st.floats(-30, 30)), min_size=1, max_size=9))
def test_bi_agreement_in_one_softmax_equals_lines_5_to_7(units):
    table = [[unit[s] for unit in units] for s in (POSITIVE, NEGATIVE)]
    agreement = torch.tensor([table], dtype=torch.float64)
    found = bi_agreement(agreement)[0]
    check, hat = agreement.softmax(1)[0], agreement.softmax(2)[0]
    root = (check * hat).sqrt()
    np.testing.assert_allclose(found, root / root.sum(1, keepdim=True), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.sum(1), 1, rtol=1e-12)


def test_couplings_stay_finite_at_agreements_no_exponential_can_hold():
    table = torch.tensor([[[2000.0, -2000.0, 0.0], [-2000.0, 2000.0, 0.0]]], dtype=torch.float64).requires_grad_()
    coupling = bi_agreement(table)
    np.testing.assert_allclose(coupling[0].detach(), [[1, 0, 0], [0, 1, 0]], atol=1e-12)
    coupling.square().sum().backward()
    assert torch.isfinite(table.grad).all()


def test_the_released_epsilons_stand_under_the_root_and_in_the_sum(twin):
    table = [[0.3, -1.0, 2.0], [0.1, 0.5, -0.4]]
    expected = twin.couple_by_bi_agreement(table, 1e-3, 1e-2)
    np.testing.assert_allclose(bi_agreement(torch.tensor([table], dtype=torch.float64), 1e-3)[0], expected, rtol=1e-12)


# ---- the three properties

numbers = st.floats(-4, 4)
tables = st.lists(st.tuples(numbers, numbers), min_size=2, max_size=9)
steps = st.floats(0.05, 4)


@given(tables, steps, st.sampled_from([POSITIVE, NEGATIVE]))
def test_property_1_more_agreement_than_the_others_and_than_the_other_capsule_is_heard_more(units, step, s):
    """Agreement above all others inside the capsule, and above the opposite capsule's: the largest share."""
    table = [[unit[r] for unit in units] for r in (POSITIVE, NEGATIVE)]
    table[s][0] = max(max(table[s]), table[1 - s][0]) + step
    lead = table[s][0] - table[1 - s][0]
    for unit in range(1, len(units)):  # nor does another unit prefer the capsule by more
        table[1 - s][unit] = max(table[1 - s][unit], table[s][unit] - lead)
    before = coupling_of(table)[s]
    table[s][0] += step
    assert coupling_of(table)[s][0] > before[0]
    assert before[0] >= before.max() - 1e-12


@given(tables, steps, st.sampled_from([POSITIVE, NEGATIVE]))
def test_property_2_more_agreement_with_the_opposite_capsule_is_heard_less(units, step, s):
    """Of two units with the same high agreement, the one that agrees still more with the opposite weighs less."""
    table = [[unit[r] for unit in units] for r in (POSITIVE, NEGATIVE)]
    table[s][0] = table[s][1] = max(table[s]) + 1
    table[1 - s][0], table[1 - s][1] = table[s][0] + step, table[s][1] - step
    coupling = coupling_of(table)[s]
    assert coupling[0] < coupling[1]


@given(tables, steps, st.sampled_from([POSITIVE, NEGATIVE]))
def test_property_3_less_agreement_inside_the_capsule_is_heard_less(units, step, s):
    """However the two capsules compare: of units that prefer the capsule by as much, the lower one weighs less."""
    table = [[unit[r] for unit in units] for r in (POSITIVE, NEGATIVE)]
    table[s][0] = table[s][1] - step
    table[1 - s][0] = table[1 - s][1] - step
    coupling = coupling_of(table)[s]
    assert coupling[0] < coupling[1]


def test_property_3_fails_for_plain_agreement_on_the_papers_own_example():
    informative = [(2.0, -1.0), (1.8, -0.8), (-1.0, 2.0)]
    table = [[unit[s] for unit in [UNINFORMATIVE, *informative]] for s in (POSITIVE, NEGATIVE)]

    plain = coupling_of(table, by_agreement)
    assert [round(float(c), 1) for c in plain[:, 0]] == [0.7, 0.3], "the paper's numbers"
    shifted = [[b - 5 * (u == 0) for u, b in enumerate(row)] for row in table]
    np.testing.assert_allclose(coupling_of(shifted, by_agreement)[:, 0], plain[:, 0])  # however little it agrees

    found = coupling_of(table)
    assert found[POSITIVE, 0] < 1 / 4, "less than its even share"
    assert found[POSITIVE, 0] < found[POSITIVE, 1:3].min() / 2
    assert found[NEGATIVE, 0] < found[NEGATIVE, 3] / 2
    assert coupling_of(shifted)[POSITIVE, 0] < found[POSITIVE, 0] / 5


def test_units_that_do_not_differ_share_evenly(twin):
    model = twin.make_model(0, viewpoints=3)
    votes = torch.ones(1, 2, 9, 3, dtype=torch.float64)
    coupling, _ = model.route(votes)
    np.testing.assert_allclose(coupling, uniform_coupling(model.config), rtol=1e-12)


# ---- gradients


@pytest.mark.parametrize("couple", [bi_agreement, by_agreement])
def test_gradient_of_coupling(couple):
    agreement = random_votes(3, pairs=2, units=4, size=1)[..., 0].requires_grad_()
    assert torch.autograd.gradcheck(couple, (agreement,))


@pytest.mark.parametrize("routing", ["bi-agreement", "agreement"])
@pytest.mark.parametrize("iterations", [1, 3])
def test_gradient_of_routing_flows_through_every_iteration(twin, routing, iterations):
    model = twin.make_model(0, routing=routing, routing_iterations=iterations)
    votes = random_votes(5, pairs=1).requires_grad_()
    assert torch.autograd.gradcheck(model.route, (votes,))


def test_gradient_through_the_last_iteration_alone(twin):
    """The same numbers forward; backward the coupling is a constant."""
    votes = random_votes(6).requires_grad_()
    through_all = twin.make_model(0).route(votes)
    last_alone = twin.make_model(0, routing_gradient="last").route(votes)
    torch.testing.assert_close(last_alone[0], through_all[0])
    torch.testing.assert_close(last_alone[1], through_all[1])

    (found,) = torch.autograd.grad(last_alone[1].square().sum(), votes)
    constant = squash((through_all[0].detach().unsqueeze(-1) * votes).sum(2))
    (expected,) = torch.autograd.grad(constant.square().sum(), votes)
    torch.testing.assert_close(found, expected)
    (whole,) = torch.autograd.grad(through_all[1].square().sum(), votes)
    assert not torch.allclose(whole, expected, rtol=1e-3)
