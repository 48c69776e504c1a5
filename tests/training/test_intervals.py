"""Every rating says between which two ratings nine of ten lie: models that know it say it, others by validation."""

from __future__ import annotations

import numpy as np
import pytest

import carp
from carp.reviews.split_parts import VALID


@pytest.fixture(scope="module")
def corpus():
    shop = carp.make_shop(people=60, things=20, reviews_per_person=8, seed=4)
    return carp.build_corpus(carp.read_reviews(shop.frame()), min_reviews=2)


@pytest.fixture(scope="module", params=["bias", "meeting"])
def fitted(request, corpus):
    return carp.Recommender(request.param).fit(corpus, progress=False)


def of_part(recommender, part):
    pairs = recommender.fitted_corpus.pairs(part)
    known = recommender.fitted_corpus
    return [(known.users[u], known.items[i]) for u, i in zip(pairs.users, pairs.items, strict=True)], pairs.ratings


def test_the_interval_is_around_the_rating_and_within_the_scale(fitted):
    found = fitted.predict(of_part(fitted, VALID)[0])
    low, high = (np.array(ends) for ends in found.intervals())
    assert (low >= 1).all()
    assert (high <= 5).all()
    assert (low < found.ratings).all()
    assert (found.ratings < high).all()


def test_one_width_holds_nine_tenths_of_the_validation_ratings_and_no_more_than_it_must(corpus):
    recommender = carp.Recommender("bias").fit(corpus, progress=False)
    pairs, ratings = of_part(recommender, VALID)
    errors = np.abs(np.asarray(recommender.predict(pairs)) - ratings)
    margin = recommender.facts["margin"]
    assert (errors <= margin).mean() >= 0.9
    assert (errors < margin).mean() < 0.9


def test_people_differ_in_how_sure_the_successor_is(corpus):
    recommender = carp.Recommender("meeting").fit(corpus, progress=False)
    widths = recommender.fitted_model.margins(np.arange(20), np.zeros(20, np.int64))
    assert len(np.unique(widths.round(6))) > 5


def test_a_newcomer_has_an_interval_too(fitted):
    if not fitted.model.separates:
        pytest.skip("this model reads no reviews of newcomers")
    found = fitted.predict_for(["the battery lasts and the sound is clear"], [fitted.fitted_corpus.items[0]])
    (low,), (high,) = found.intervals()
    assert low < found[0] < high


def test_intervals_are_the_same_after_loading(fitted, saved):
    pair = [(fitted.fitted_corpus.users[1], fitted.fitted_corpus.items[2])]
    assert carp.load(saved(fitted)).predict(pair) == fitted.predict(pair)


def test_a_model_of_before_says_that_it_does_not_know(fitted):
    if fitted.name != "bias":
        pytest.skip("the successor knows it from its own weights")
    kept = fitted.facts.pop("margin")
    try:
        assert fitted.predict([("person-001", "thing-001")]).intervals() == ([None], [None])
    finally:
        fitted.facts["margin"] = kept
