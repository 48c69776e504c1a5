"""What a sentence pulls is what the rating loses without it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from carp.explain.influence import lost_sentences, sentence_influence, unit_slopes, without_each
from carp.models.batch import Sizes
from carp.models.carp import RELEASED, Carp, CarpConfig

WORDS = 40
LENGTHS = ((4, 6, 3, 5), (5, 2, 7))  # words of each review of the person and of the thing


def make_model(**options):
    torch.manual_seed(3)
    config = CarpConfig(dimension=6, filters=5, latent_size=4, viewpoints=3, **options)
    return Carp(config, Sizes(users=2, items=2, words=WORDS, max_words=30)).double().eval()


def make_document(lengths, seed):
    words = torch.from_numpy(np.random.default_rng(seed).integers(1, WORDS + 1, sum(lengths)))[None]
    review = np.repeat(np.arange(len(lengths)), lengths)
    return words, torch.from_numpy(review)[None], review


def pulls_between(model, user, item, sentences):
    lost = lost_sentences(model, user, sentences[0]), lost_sentences(model, item, sentences[1])
    return sentence_influence(*lost, unit_slopes(model, user, item))


def read_both(model):
    user, item = (make_document(lengths, seed) for seed, lengths in enumerate(LENGTHS))
    with torch.no_grad():
        return model.read_users(*user[:2]), model.read_items(*item[:2]), (user[2], item[2])


def pulls_of(model):
    user, item, sentences = read_both(model)
    return pulls_between(model, user, item, sentences)


@pytest.mark.parametrize("scale", [1.0, 4.0])
def test_viewpoints_without_a_review_are_those_of_the_document_that_never_had_it(scale):
    """Words see no further than their review, so here nothing of it is left."""
    model = make_model(attention_scale=scale)
    words, reviews, review = make_document(LENGTHS[0], 0)
    with torch.no_grad():
        whole = model.read_users(words, reviews)
        member = torch.from_numpy(np.eye(len(LENGTHS[0]))[review].T)
        found = without_each(whole, member, scale)
        for gone in range(len(LENGTHS[0])):
            left = torch.from_numpy(np.flatnonzero(review != gone))
            torch.testing.assert_close(found[gone], model.read_users(words[:, left], reviews[:, left]).viewpoints[0])


def test_without_its_only_sentence_a_document_is_an_empty_one():
    model = make_model()
    words, reviews, _ = make_document((5,), 0)
    with torch.no_grad():
        found = without_each(model.read_users(words, reviews), torch.ones(1, 5, dtype=torch.float64))
        empty = model.read_users(torch.zeros_like(words), torch.full_like(reviews, -1)).viewpoints
    torch.testing.assert_close(found, empty)


@pytest.mark.parametrize("order", ["difference first", "product first", "appended"])
def test_slopes_are_those_of_the_balance(order):
    model = make_model(logic_unit=order)
    user, item, _ = read_both(model)
    found = unit_slopes(model, user, item)
    sides = [reading.viewpoints.clone().requires_grad_() for reading in (user, item)]
    by_user, by_item = torch.autograd.grad(model.judge(model.pair(*sides))["balance"].sum(), sides)
    torch.testing.assert_close(found.user.sum(1), by_user[0])
    torch.testing.assert_close(found.item.sum(0), by_item[0])


@pytest.mark.parametrize("order", ["difference first", "product first", "appended"])
def test_where_the_balance_is_a_straight_sum_pulls_are_exactly_what_is_lost(monkeypatch, order):
    """Of one sentence, and of two what their own losses do not explain: the second difference."""
    model = make_model(logic_unit=order)
    weight = torch.randn(9, 16 if order == "appended" else 8, dtype=torch.float64)
    monkeypatch.setattr(model, "judge", lambda units: {"balance": (units * weight).sum((1, 2))})
    user, item, sentences = read_both(model)
    found = pulls_between(model, user, item, sentences)
    v, a = (
        torch.cat([r.viewpoints, without_each(r, torch.from_numpy(np.eye(max(n) + 1)[n].T))])
        for r, n in zip((user, item), sentences, strict=True)
    )
    with torch.no_grad():
        balance = np.array([[float(model.judge(model.pair(x[None], y[None]))["balance"]) for y in a] for x in v])
    np.testing.assert_allclose(found.user.sum((1, 2)), balance[0, 0] - balance[1:, 0], atol=1e-12)
    np.testing.assert_allclose(found.item.sum((1, 2)), balance[0, 0] - balance[0, 1:], atol=1e-12)
    both = balance[0, 0] - balance[1:, :1] - balance[:1, 1:] + balance[1:, 1:]
    np.testing.assert_allclose(found.together, both, atol=1e-12)
    assert np.abs(both).max() > 1e-6


@pytest.mark.parametrize("options", [{}, RELEASED, {"attention": "routed"}, {"padding_attends": True}])
def test_every_variant_has_pulls_of_every_sentence(options):
    found = pulls_of(make_model(**options))
    assert found.user.shape == (4, 3, 3)
    assert found.item.shape == (3, 3, 3)
    assert found.together.shape == (4, 3)
    assert all(np.isfinite(pull).all() and np.abs(pull).max() > 0 for pull in (found.user, found.item, found.together))


def test_an_empty_document_pulls_nothing():
    model = make_model()
    _, item, (_, things) = read_both(model)
    with torch.no_grad():
        nobody = model.read_users(torch.zeros(1, 1, dtype=torch.long), torch.full((1, 1), -1))
    nothing = np.zeros(0, np.int64)
    found = pulls_between(model, nobody, item, (nothing, things))
    assert found.user.shape == (0, 3, 3)
    assert found.together.shape == (0, 3)
    assert np.abs(found.item).max() > 0


def test_pulls_leave_no_gradient_behind():
    model = make_model()
    pulls_of(model)
    assert all(parameter.grad is None for parameter in model.parameters())
