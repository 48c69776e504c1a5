"""RBLT: reviews enter as often as they are rated, topics follow, and the rating is the sum that the docstring gives."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from carp.models.batch import Pairs, Sizes, TrainingData
from carp.models.layers import solve_biases
from carp.models.rblt import MEETING_WEIGHTS, Rblt, RbltConfig, boosted_counts
from carp.reviews.documents import Documents

USERS, ITEMS, WORDS = 12, 8, 10


def pairs_of(users, items, ratings):
    return Pairs(np.array(users), np.array(items), np.array(ratings, np.float32), np.arange(len(users)))


def reviews_of(texts):
    words = np.array([word for text in texts for word in text], np.int32)
    lengths = [len(text) for text in texts]
    review = np.repeat(np.arange(len(texts)), lengths).astype(np.int32)
    return Documents(words, review, np.zeros_like(words), np.concatenate([[0], np.cumsum(lengths)]))


def two_themes(seed=0):
    """Items of even number are written of in words 1 to 5, the others in words 6 to 10; user 0 and item 0 in none."""
    rng = np.random.default_rng(seed)
    met = [(u, i) for u in range(USERS) for i in range(ITEMS) if rng.random() < 0.8]
    users, items = (np.array(side) for side in zip(*met, strict=True))
    ratings = rng.integers(1, 6, len(met))
    texts = [
        [] if 0 in (u, i) else (rng.integers(1, 6, 6) + 5 * (i % 2)).tolist() for u, i in zip(users, items, strict=True)
    ]
    last = len(met) * 4 // 5
    empty = reviews_of([[]] * USERS)  # whoever looks into documents finds no word there
    return TrainingData(
        pairs_of(users[:last], items[:last], ratings[:last]),
        pairs_of(users[last:], items[last:], ratings[last:]),
        empty,
        empty,
        Sizes(USERS, ITEMS, WORDS),
        reviews=reviews_of(texts[:last]),
    )


def started(data, seed=0, **settings):
    torch.manual_seed(seed)
    model = Rblt(RbltConfig(**{"latent_size": 2, **settings}), data.sizes)
    model.start(data)
    return model


def test_a_review_enters_as_often_as_it_is_rated():
    data = replace(
        two_themes(),
        train=pairs_of([0, 1, 1], [2, 2, 0], [3, 1, 3.5]),
        reviews=reviews_of([[1, 1, 4], [4], [10]]),
    )
    items = boosted_counts(data, data.train.items, ITEMS)
    expected = np.zeros((ITEMS, WORDS))
    expected[2, 0], expected[2, 3], expected[0, 9] = 2 * 3, 3 + 1, 3.5
    np.testing.assert_array_equal(items.toarray(), expected)
    users = boosted_counts(data, data.train.users, USERS)
    assert users.shape == (USERS, WORDS)
    np.testing.assert_array_equal(users.toarray()[:2, [0, 3, 9]], [[6, 3, 0], [0, 1, 3.5]])


def test_topics_are_shares_and_tell_the_themes_apart():
    model = started(two_themes(), topic_prior=0.1)
    for topics in (model.user_topics, model.item_topics):
        assert (topics >= 0).all()
        torch.testing.assert_close(topics.sum(1), torch.ones(len(topics)))
    theme = model.item_topics.argmax(1)
    assert set(theme[2::2].tolist()) != set(theme[1::2].tolist())
    assert len(set(theme[2::2].tolist())) == len(set(theme[1::2].tolist())) == 1
    assert (model.item_topics[1:].amax(1) > 0.9).all()


def test_somebody_without_words_shares_all_topics_alike():
    model = started(two_themes())
    torch.testing.assert_close(model.user_topics[0], torch.full((2,), 0.5))
    torch.testing.assert_close(model.item_topics[0], torch.full((2,), 0.5))


def test_a_corpus_without_any_word_can_be_fitted():
    data = two_themes()
    silent = replace(data, reviews=reviews_of([[]] * len(data.train)), sizes=replace(data.sizes, words=0))
    model = started(silent)
    torch.testing.assert_close(model.user_topics, torch.full((USERS, 2), 0.5))


def test_the_rating_is_the_sum_of_the_docstring():
    data = two_themes()
    model = started(data, topic_weight=0.7)
    (batch,) = data.batches(data.valid)
    state = {name: tensor.double() for name, tensor in model.state_dict().items()}
    kappa = 0.7
    found = model(batch).rating
    for row, (u, i) in enumerate(zip(data.valid.users, data.valid.items, strict=True)):
        expected = float(state["mean"] + state["user_bias"][u] + state["item_bias"][i])
        for k in range(2):
            preference = kappa * state["user_topics"][u, k] + state["user_factors"][u, k]
            recommendability = kappa * state["item_topics"][i, k] + state["item_factors"][i, k]
            expected += float(preference * recommendability)
        assert float(found[row].detach()) == pytest.approx(expected, abs=1e-5)


def test_somebody_unknown_brings_nothing():
    data = two_themes()
    model = started(data)
    (batch,) = data.batches(data.valid)
    nobody = torch.full_like(batch.users, -1)
    found = model(replace(batch, users=nobody)).rating
    torch.testing.assert_close(found, (model.mean + model.item_bias[batch.items]))
    torch.testing.assert_close(model(replace(batch, users=nobody, items=nobody)).rating, model.mean.expand(len(batch)))


def test_the_start_is_the_exact_biases_beside_the_topics_of_the_best_weight_on_validation():
    data = two_themes()
    model = started(data)
    train, valid = data.train, data.valid
    users, items = model.find_topics(data)
    for_users, for_items = model.biases.shrinkage.tolist()
    errors = {}
    for weight in MEETING_WEIGHTS:
        met = (users[train.users] * items[train.items]).sum(1)
        rest = replace(train, ratings=train.ratings - weight * met)
        mean, user, item = solve_biases(rest, for_users, for_items, USERS, ITEMS, rounds=50)
        guess = mean + user[valid.users] + item[valid.items]
        guess += weight * (users[valid.users] * items[valid.items]).sum(1)
        errors[weight] = np.square(guess.clip(1, 5) - valid.ratings).mean(), mean, user
    best = min(errors, key=lambda weight: errors[weight][0])
    assert float(model.meeting_weight) == pytest.approx(best)
    assert float(model.mean) == pytest.approx(errors[best][1], abs=1e-5)
    np.testing.assert_allclose(model.user_bias.detach(), errors[best][2], atol=1e-5)


def test_validation_ratings_choose_the_weight_but_never_the_topics():
    data = two_themes()
    other = replace(data, valid=replace(data.valid, ratings=6 - data.valid.ratings))
    one, two = started(data), started(other)
    assert torch.equal(one.item_topics, two.item_topics)
    assert torch.equal(one.user_topics, two.user_topics)


def test_the_paper_form_is_a_weight_of_one():
    assert float(started(two_themes(), topic_weight=1.0).meeting_weight) == 1.0


def test_biases_of_the_paper_form_start_at_zero():
    model = started(two_themes(), topic_weight=1.0, biases="learned")
    assert not model.user_bias.any()
    assert not model.item_bias.any()
    assert float(model.mean) > 1


def test_topics_and_their_weight_stay_while_factors_learn():
    data = two_themes()
    model = started(data)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    optimizer = torch.optim.RMSprop(model.parameters(), lr=0.01)
    model.train_epoch(data.training_batches(20, 0, 1, model.needs), optimizer)
    changed = {name for name, tensor in model.state_dict().items() if not torch.equal(tensor, before[name])}
    assert changed == {"user_factors", "item_factors", "user_bias", "item_bias"}


def test_the_seed_decides_the_topics():
    data = two_themes()
    assert torch.equal(started(data, seed=3).item_topics, started(data, seed=3).item_topics)
    three, four = (started(data, seed=seed, latent_size=5).item_topics for seed in (3, 4))
    assert not torch.equal(three, four)
