"""The paper's settings are the defaults, and nothing held out reaches training."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import carp
from carp.models import model_class
from carp.models.base import make_config
from carp.models.batch import Pairs, Sizes
from carp.models.carp import CarpConfig
from carp.models.layers import SHRINKAGES, TunedBiases, solve_biases
from carp.recommender import Recommender
from carp.reviews.corpora.corpus import build_corpus
from carp.reviews.rating_scale import RatingScale
from carp.reviews.sources.ledger import Ledger, Reviews
from carp.reviews.split import random_split
from carp.reviews.split_parts import TEST, TRAIN, VALID
from carp.reviews.text.vocabulary import TextSettings
from carp.settings import FitSettings
from carp.training.fitted_corpus import fit_corpus
from carp.training.loop import TrainingSettings, make_optimizer

# ---- settings


def test_defaults_are_the_papers_values():
    config, training = CarpConfig(), TrainingSettings()
    assert config.variant == "paper"
    assert (config.dimension, config.window, config.filters) == (300, 3, 50)
    assert (config.latent_size, config.viewpoints, config.routing_iterations) == (25, 5, 3)
    assert (config.margin, config.rating_weight, config.dropout) == (0.8, 0.5, 0.1)
    assert (config.routing, config.hinge, config.opposite_weight) == ("bi-agreement", "linear", 1.0)
    assert config.mutual_exclusion
    assert (training.learning_rate, training.batch_size) == (0.001, 100)
    assert TextSettings().max_words == 300
    assert FitSettings().min_reviews == 5
    assert make_config(model_class("carp"), {}) == config


def test_a_pair_is_liked_above_three_of_five():
    assert model_class("carp")(CarpConfig(), Sizes(2, 2, 3, levels=5)).liked_above == 3
    assert model_class("carp")(CarpConfig(liked_above=3.5), Sizes(2, 2, 3, levels=5)).liked_above == 3.5


def test_a_rating_of_exactly_the_middle_is_no_liking(twin):
    """s_{u,i} = pos where r > π: a three asks for the negative capsule."""
    model, batch = twin.make_model(0), twin.make_batch(0, [(3, 3)])
    prediction = model(batch)
    prediction.tensors["lengths"] = torch.tensor([[0.1, 0.9]], dtype=torch.float64)
    prediction = replace(prediction, rating=torch.tensor([3.0], dtype=torch.float64))
    three = model.loss(replace(batch, ratings=torch.tensor([3.0], dtype=torch.float64)), prediction)
    assert three.item() == 0.0


def test_training_uses_rmsprop():
    model = model_class("carp")(CarpConfig(dimension=4), Sizes(2, 2, 3))
    optimizer = make_optimizer(model, TrainingSettings())
    assert isinstance(optimizer, torch.optim.RMSprop)
    assert optimizer.param_groups[0]["lr"] == 0.001
    assert len(optimizer.param_groups[0]["params"]) == len(list(model.parameters()))


def test_carp_ra_is_carp_with_plain_agreement():
    plain = Recommender("carp-ra")
    assert plain.kind is Recommender("carp").kind
    assert plain.config == CarpConfig(routing="agreement")


# ---- the split


def rated_pairs(seed, users=40, items=25, share=0.4):
    rng = np.random.default_rng(seed)
    user, item = np.nonzero(rng.random((users, items)) < share)
    order = rng.permutation(len(user))
    return user[order].astype(np.int32), item[order].astype(np.int32)


@pytest.mark.parametrize("seed", range(5))
def test_the_split_is_80_to_20_with_a_tenth_of_training_for_validation(seed):
    user, item = rated_pairs(seed)
    split = random_split(user, item, seed=seed)
    assert len(split.test) == round(0.2 * len(user))
    assert len(split.valid) == round(0.1 * (len(user) - len(split.test)))
    assert len(split.train) + len(split.valid) + len(split.test) == len(user)


@pytest.mark.parametrize("share", [0.06, 0.15, 0.6])
def test_everybody_and_everything_is_seen_in_training(share):
    for seed in range(5):
        user, item = rated_pairs(seed, users=60, items=50, share=share)
        train = random_split(user, item, seed=seed).train
        assert set(user[train]) == set(user)
        assert set(item[train]) == set(item)


def test_the_split_is_a_function_of_its_seed():
    user, item = rated_pairs(0)
    parts = [random_split(user, item, seed=seed).part for seed in (3, 3, 4)]
    assert (parts[0] == parts[1]).all()
    assert (parts[0] != parts[2]).any()


# ---- what training sees


@pytest.fixture(scope="module")
def corpus():
    """Everybody rates everything; each review holds a word of its own, `r12`, `r13`, ..., and words of the thing."""
    rows = [
        (f"u{u}", f"i{i}", 1 + (u + i) % 5, f"r{12 * u + i} thing{i} thing{i} person{u}")
        for u in range(10)
        for i in range(12)
    ]
    users, items, ratings, texts = (list(column) for column in zip(*rows, strict=True))
    ledger = Ledger()
    ledger.accept(len(rows))
    scale = RatingScale(1, 5, clip=False, origin="made")
    reviews = Reviews(
        users, items, np.array(ratings, float), texts, [None] * len(rows), None, ledger, "csv", scale, ["made"]
    )
    return build_corpus(reviews, min_reviews=1)


@pytest.fixture(scope="module")
def split(corpus):
    return random_split(corpus.user, corpus.item, seed=0)


@pytest.fixture(scope="module")
def fitted(corpus, split):
    return fit_corpus(corpus, split, TextSettings())


def own_word(fitted, record):
    return fitted.vocabulary.words.index(f"r{record}") + 1


def test_vocabulary_and_documents_are_made_of_training_reviews_alone(fitted, split):
    spoken = {word for word in fitted.vocabulary.words if word.startswith("r")}
    assert spoken == {f"r{record}" for record in split.train}
    for documents in (fitted.user_documents, fitted.item_documents):
        assert set(documents.review.tolist()) == set(split.train.tolist())


def test_document_frequencies_are_counted_on_training_reviews_alone(corpus, split):
    """A word that stands in most training reviews is a corpus stop word, however rare it is in the held-out ones."""
    held_out = np.flatnonzero(split.part != TRAIN)
    fitted = fit_corpus(corpus, split, TextSettings(max_document_share=1 / len(split.train)))
    only_once = {f"r{record}" for record in split.train}
    assert set(fitted.vocabulary.words) == only_once
    assert len(held_out) > 20


def test_the_target_review_is_left_out_of_both_documents_in_training(fitted):
    data = fitted.training_data()
    seen = 0
    for batch in data.training_batches(7, seed=0, epoch=1):
        for row in range(len(batch)):
            record = fitted.record_of_pair.get((int(batch.users[row]), int(batch.items[row])))
            for words, reviews in (
                (batch.user_words[row], batch.user_reviews[row]),
                (batch.item_words[row], batch.item_reviews[row]),
            ):
                assert record not in reviews.tolist()
                assert own_word(fitted, record) not in words.tolist()
                assert (words > 0).sum() > 0
            seen += 1
    assert seen == len(data.train)


def test_target_reviews_are_kept_where_asked(fitted):
    data = fitted.training_data("keep")
    for batch in data.training_batches(7, seed=0, epoch=1):
        for row in range(len(batch)):
            record = fitted.record_of_pair.get((int(batch.users[row]), int(batch.items[row])))
            assert record in batch.user_reviews[row].tolist()
            assert record in batch.item_reviews[row].tolist()


def test_validation_and_test_batches_hold_whole_documents_and_no_held_out_word(fitted, split):
    data = fitted.training_data()
    for pairs in (fitted.pairs(VALID), fitted.pairs(TEST)):
        for batch in data.batches(pairs, size=5):
            assert not batch.training
            for row in range(len(batch)):
                user, item = int(batch.users[row]), int(batch.items[row])
                expected = [r for r in split.train.tolist() if fitted.user[r] == user]
                assert set(batch.user_reviews[row].tolist()) - {-1} == set(expected)
                expected = [r for r in split.train.tolist() if fitted.item[r] == item]
                assert set(batch.item_reviews[row].tolist()) - {-1} == set(expected)


def test_an_epoch_shows_every_training_pair_once_in_an_order_of_seed_and_epoch(fitted):
    data = fitted.training_data()

    def order(seed, epoch):
        return [
            (int(u), int(i))
            for batch in data.training_batches(7, seed, epoch)
            for u, i in zip(batch.users, batch.items, strict=True)
        ]

    assert len(order(0, 1)) == len(set(order(0, 1))) == len(data.train)
    assert order(0, 1) == order(0, 1)
    assert order(0, 1) != order(0, 2)
    assert order(0, 1) != order(1, 1)


# ---- biases


def pairs_of(seed, users=12, items=9, share=0.5):
    rng = np.random.default_rng(seed)
    user, item = np.nonzero(rng.random((users, items)) < share)
    taste, quality = rng.normal(0, 1, users), rng.normal(0, 1, items)
    ratings = np.clip(np.rint(3 + taste[user] + quality[item] + rng.normal(0, 0.5, len(user))), 1, 5)
    return Pairs(user, item, ratings.astype(np.float32), np.arange(len(user)))


def ridge(pairs, user_shrinkage, item_shrinkage, users, items):
    """The penalised normal equations, solved as a whole."""
    n = len(pairs)
    design = np.zeros((n + users + items, users + items))
    design[np.arange(n), pairs.users] = 1
    design[np.arange(n), users + pairs.items] = 1
    penalty = np.r_[np.full(users, user_shrinkage), np.full(items, item_shrinkage)]
    design[n:, :] = np.diag(np.sqrt(penalty))
    ratings = pairs.ratings.astype(np.float64)
    target = np.r_[ratings - ratings.mean(), np.zeros(users + items)]
    solution = np.linalg.lstsq(design, target, rcond=None)[0]
    return ratings.mean(), solution[:users], solution[users:]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("for_users", "for_items"), [(1.0, 1.0), (0.5, 20.0), (50.0, 2.0)])
def test_biases_solve_the_penalised_normal_equations(seed, for_users, for_items):
    pairs = pairs_of(seed)
    found = solve_biases(pairs, for_users, for_items, 13, 9, rounds=50)  # user 12 has rated nothing
    for ours, theirs in zip(found, ridge(pairs, for_users, for_items, 13, 9), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-8)


def test_shrinkages_are_those_with_the_least_validation_error():
    train, valid = pairs_of(1), pairs_of(2, share=0.3)
    valid = dataclasses.replace(valid, records=valid.records + len(train))
    biases = TunedBiases(Sizes(12, 9, 1))
    biases.fit(train, valid, 5)

    def error(user_shrinkage, item_shrinkage):
        mean, user, item = ridge(train, user_shrinkage, item_shrinkage, 12, 9)
        guess = np.clip(mean + user[valid.users] + item[valid.items], 1, 5)
        return float(np.square(guess - valid.ratings).mean())

    for_users, for_items = biases.shrinkage.tolist()
    chosen = error(for_users, for_items)
    assert chosen <= min(error(a, b) for a in SHRINKAGES for b in SHRINKAGES) + 1e-3
    mean, user, item = ridge(train, for_users, for_items, 12, 9)
    np.testing.assert_allclose(biases.user, user, atol=1e-5)
    np.testing.assert_allclose(biases.item, item, atol=1e-5)
    assert float(biases.mean) == pytest.approx(mean, abs=1e-6)


def test_a_stranger_has_no_bias():
    biases = TunedBiases(Sizes(12, 9, 1))
    biases.fit(pairs_of(0), pairs_of(1), 5)
    found = biases(torch.tensor([-1, 3, -1]), torch.tensor([2, -1, -1]))
    mean = float(biases.mean)
    expected = [mean + float(biases.item[2]), mean + float(biases.user[3]), mean]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_tuned_biases_start_the_learned_ones(fitted):
    rec = Recommender("carp", biases="tuned", dimension=4, filters=3, latent_size=2, viewpoints=2)
    model: Any = rec.kind(rec.config, fitted.sizes)
    model.start(fitted.training_data())
    expected = TunedBiases(fitted.sizes)
    expected.fit(fitted.pairs(TRAIN), fitted.pairs(VALID), 5)
    torch.testing.assert_close(model.user_bias.detach(), expected.user)
    torch.testing.assert_close(model.item_bias.detach(), expected.item)
    assert model.user_bias.requires_grad
    assert expected.item.any()


def test_the_public_names_are_there():
    for name in carp.__all__:
        assert getattr(carp, name) is not None
