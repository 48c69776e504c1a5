"""The made-up shop has a known answer: who cares about what, and how things do on it."""

from __future__ import annotations

import pytest

from carp.cli.demo import DEMO_SETTINGS, SHOP_SIZE
from carp.explain.faithfulness.measures import measure_explanations
from carp.explain.faithfulness.planted_causes import planted_causes_found
from carp.recommender import Recommender
from carp.reviews.corpora.corpus import build_corpus
from carp.reviews.shop.made_up_shop import make_shop
from carp.reviews.sources.formats import read_reviews

PAIRS = 120  # of 945 that are held out


@pytest.fixture(scope="module")
def shop():
    return make_shop(seed=0, **SHOP_SIZE)


@pytest.fixture(scope="module")
def recommender(shop):
    corpus = build_corpus(read_reviews(shop.frame()))
    return Recommender("carp", seed=0, device="cpu", **{**DEMO_SETTINGS, "epochs": 17}).fit(corpus, progress=False)


def test_carp_beats_the_tuned_biases_clearly(recommender):
    found = recommender.evaluate()
    assert found["ratio_to_bias"] < 0.7
    assert found["mse_minus_bias_interval"][1] < -0.25
    assert found["sentiment_auc"] > 0.8


def test_explanations_show_the_planted_cause_far_more_often_than_random_sentences(recommender, shop):
    found = planted_causes_found(recommender.explainer, shop, pairs=PAIRS)
    assert found.pairs == PAIRS
    assert found.explained > 0.75
    assert found.explained > 1.8 * found.random


def test_ratings_rest_on_the_sentences_that_explanations_name(recommender):
    """Without them the rating moves further than without random words, and away from the sentiment that prevails."""
    found = measure_explanations(recommender.explainer, pairs=PAIRS)
    moves = found.sentences.beside_words
    assert moves.comprehensiveness.pairs == PAIRS
    assert moves.comprehensiveness.above
    assert moves.comprehensiveness.named > 1.5 * moves.comprehensiveness.chance
    assert moves.signed_comprehensiveness.above
    assert found.agreement.interval[0] > 0.75
    assert found.agreement.over_biases[0] > 0


def test_a_newcomer_is_rated_by_what_the_reviews_care_about(recommender, shop):
    """Somebody who writes of nothing but one topic rates things good at it above things bad at it."""
    topic = "price"
    talk = [
        review.text[sentence.start : sentence.end]
        for review in shop.reviews
        for sentence in review.sentences
        if sentence.topic == topic
    ][:40]
    by_quality = sorted(shop.things, key=lambda thing: shop.things[thing][topic])
    worst, best = by_quality[:15], by_quality[-15:]
    rated = recommender.predict_for(talk, items=[*worst, *best], explain=True)
    assert sum(rated[15:]) / 15 > sum(rated[:15]) / 15 + 0.5
    assert [why.item for why in rated.explanations] == [*worst, *best]
    assert [why.rating for why in rated.explanations] == pytest.approx(list(rated), abs=1e-4)
