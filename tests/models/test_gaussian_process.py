"""The exact Gaussian process against the formulas written out, and against fits that leave a pair out for real."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from carp.errors import UsageError
from carp.models import gaussian_process
from carp.models.gaussian_process import ExactProcess, GaussianProcess, GaussianProcessConfig, gram
from carp.models.pair_covariance import START
from carp.models.predict import predict_pairs
from carp.models.ways_of_seeing import RARITIES


def fitted(data, **settings):
    given = {"bigrams": 20, "min_bigram_reviews": 2, "rarity": 0.5, **settings}
    model = GaussianProcess(GaussianProcessConfig(**given), data.sizes).double()
    model.start(data)
    return model.eval()


def sides(small_pairs, model, data, pairs, leave_out):
    """Pairs with their TF-IDF rows, which stand for directions too: this process knows no others."""
    left_out = pairs.records if leave_out else [None] * len(pairs)
    bigrams, terms = model.bigrams.tolist(), len(model.user_text.idf)
    rarity = model.config.rarity
    user = small_pairs.rows_of(data.user_documents, pairs.users, left_out, bigrams, terms, rarity)
    item = small_pairs.rows_of(data.item_documents, pairs.items, left_out, bigrams, terms, rarity)
    return pairs, *user, *item


def process_of(model):
    return ExactProcess(model.pair_users, model.pair_items, gram(model.user_text), gram(model.item_text))


def dense_prior(small_pairs, strengths, left, right):
    return sum(s * k for s, k in zip(np.asarray(strengths), small_pairs.dense_terms(left, right), strict=False))


def test_the_covariance_is_the_one_of_the_definition(small_pairs):
    data = small_pairs.data()
    model = fitted(data)
    strengths = torch.tensor(START, dtype=torch.float64)
    noise = torch.linspace(0.5, 2, 36, dtype=torch.float64)
    train = sides(small_pairs, model, data, data.train, True)
    wanted = dense_prior(small_pairs, strengths, train, train) + np.diag(START[-1] * noise.numpy())
    assert np.allclose(process_of(model).written_out(strengths, noise).numpy(), wanted, atol=1e-9)


def test_the_power_of_idf_is_chosen_by_the_leave_one_out_errors(small_pairs):
    found = set()
    for seed in range(6):
        data = small_pairs.data(seed)
        each = {rarity: fitted(data, steps=0, rarity=rarity) for rarity in RARITIES}
        target = torch.from_numpy(data.train.ratings).double()
        target -= target.mean()
        start = torch.tensor(START).double() * target.square().mean()

        def error(model, target=target, start=start):
            return float(process_of(model).evaluate(target, start, torch.ones_like(target)).errors.square().mean())

        best = min(RARITIES, key=lambda rarity: error(each[rarity]))
        assert torch.equal(fitted(data, steps=0, rarity=None).user_text.idf, each[best].user_text.idf)
        found.add(best)
    assert found == set(RARITIES)


def test_the_slope_of_the_likelihood_is_that_of_finite_differences(small_pairs):
    data = small_pairs.data(1)
    process = process_of(fitted(data))
    target = torch.from_numpy(data.train.ratings).double()
    target -= target.mean()
    noise = torch.linspace(0.5, 2, 36, dtype=torch.float64)
    strengths = torch.tensor(START, dtype=torch.float64)
    found = process.evaluate(target, strengths, noise)
    matrix = process.written_out(strengths, noise)
    known = torch.distributions.MultivariateNormal(torch.zeros_like(target), matrix).log_prob(target)
    assert found.likelihood == pytest.approx(float(known))
    for place in range(8):
        step = torch.zeros(8, dtype=torch.float64)
        step[place] = 1e-5
        up, down = (process.evaluate(target, strengths + sign * step, noise).likelihood for sign in (1, -1))
        assert float(found.slope[place]) == pytest.approx((up - down) / 2e-5, rel=1e-4, abs=1e-4)


def test_leave_one_out_errors_are_those_of_fits_without_the_pair(small_pairs):
    data = small_pairs.data(2)
    process = process_of(fitted(data))
    target = torch.from_numpy(data.train.ratings).double()
    target -= target.mean()
    noise, strengths = torch.ones(36, dtype=torch.float64), torch.tensor(START, dtype=torch.float64)
    matrix = process.written_out(strengths, noise)
    errors = process.evaluate(target, strengths, noise).errors
    for place in range(0, 36, 5):
        rest = torch.arange(36) != place
        predicted = matrix[place, rest] @ torch.linalg.solve(matrix[rest][:, rest], target[rest])
        assert float(errors[place]) == pytest.approx(float(target[place] - predicted), abs=1e-8)


def test_no_step_from_the_learned_strengths_leads_higher(small_pairs):
    data = small_pairs.data(3, people=12, things=10, train=90)
    process = process_of(fitted(data))
    target = torch.from_numpy(data.train.ratings).double()
    target -= target.mean()
    equal = torch.ones_like(target)
    best = process.fit(target, torch.tensor(START, dtype=torch.float64), equal, 60)
    for place in range(8):
        for factor in (0.8, 1.25):
            other = best.strengths.clone()
            other[place] *= factor
            assert process.evaluate(target, other, equal).likelihood < best.likelihood + 0.05


def test_ratings_are_the_mean_of_two_dense_posterior_means_through_the_curve(small_pairs):
    data = small_pairs.data(4)
    model = fitted(data)
    train, held = sides(small_pairs, model, data, data.train, True), sides(small_pairs, model, data, data.valid, False)
    target = data.train.ratings.astype(np.float64) - float(model.mean)
    own = (model.user_noise[data.train.users] * model.item_noise[data.train.items]).numpy()
    means = []
    for strengths, noise in zip(model.strengths.numpy(), (np.ones(36), own), strict=True):
        alpha = np.linalg.solve(
            dense_prior(small_pairs, strengths, train, train) + np.diag(strengths[-1] * noise), target
        )
        means.append(dense_prior(small_pairs, strengths, held, train) @ alpha)
    sums = model.curve(torch.from_numpy(float(model.mean) + np.mean(means, 0)))
    wanted = model.width(sums, torch.from_numpy(data.valid.users)).clamp(1, 5)
    assert np.allclose(predict_pairs(model, data, data.valid, torch.device("cpu")), wanted, atol=1e-5)


def test_what_words_add_is_what_the_texts_add_in_all(small_pairs):
    data = small_pairs.data(5)
    model = fitted(data)
    batch = data.batch(data.valid, np.arange(len(data.valid)))
    user, item = model.words_add(batch)
    assert torch.allclose(user.sum(1) + item.sum(1), model(batch).tensors["text"], atol=1e-9)


def test_a_new_model_takes_the_state_of_a_fitted_one(small_pairs):
    data = small_pairs.data(6)
    model = fitted(data)
    again = GaussianProcess(model.config, data.sizes).double()
    again.load_state_dict(model.state_dict())
    found, wanted = (predict_pairs(m, data, data.valid, torch.device("cpu")) for m in (again, model))
    assert np.array_equal(found, wanted)


def test_more_pairs_than_it_takes_are_refused_with_a_way_out(small_pairs, monkeypatch):
    monkeypatch.setattr(gaussian_process, "MOST_PAIRS", 35)
    with pytest.raises(UsageError, match="36 training pairs are too many") as refused:
        fitted(small_pairs.data(7))
    assert "meeting" in str(refused.value)


def test_ratings_all_alike_are_the_rating_of_everything(small_pairs):
    data = small_pairs.data(8, rating=4.0)
    assert np.allclose(predict_pairs(fitted(data), data, data.valid, torch.device("cpu")), 4)
