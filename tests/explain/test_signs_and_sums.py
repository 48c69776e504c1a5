"""Signs, sums and impressions are measured right, where the answer is known beforehand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from carp.explain.explanation import AspectFinding, Part, Sentence
from carp.explain.faithfulness.aspect_impressions import clauses_of, impressions, matched_aspects, shares_of_clauses
from carp.explain.faithfulness.held_out import held_out_pairs
from carp.explain.faithfulness.measures import explained, measure_explanations
from carp.explain.faithfulness.signs import by_words_alone, known_signs, signed_sentences, signs, stars_apart
from carp.explain.faithfulness.told_amounts import FROM_BIASES, OWN_ACCOUNT, sums, texts_move
from carp.explain.named_aspects import NamedAspects
from carp.recommender import Recommender
from carp.render.faithfulness_text import faithfulness_text
from carp.reviews.corpora.corpus import build_corpus
from carp.reviews.shop.made_up_shop import make_shop
from carp.reviews.sources.formats import read_reviews

pytestmark = pytest.mark.usefixtures("single_thread")
TINY = {"dimension": 8, "filters": 6, "latent_size": 4, "viewpoints": 3, "max_words": 80, "epochs": 1}


@pytest.fixture(scope="module")
def shop():
    return make_shop(people=40, things=15, reviews_per_person=8, seed=3)


@pytest.fixture(scope="module")
def trained(shop):
    corpus = build_corpus(read_reviews(shop.frame()))
    kept = {}

    def fit(name, **settings):
        key = name, *settings.items()
        if key not in kept:
            kept[key] = Recommender(name, device="cpu", **settings).fit(corpus, progress=False)
        return kept[key]

    return fit


def some_explanations(recommender, number=6):
    return explained(recommender.explainer, held_out_pairs(recommender.fitted_corpus, number))


def sentence(text, rating=5.0, user="a"):
    return Sentence(text, (), user, "x", rating)


def finding(amount, *sentences, turned=False):
    return AspectFinding("sound", amount, amount, 0.0, sentences, turned=turned)


@pytest.fixture
def plain(trained):
    """An explanation of a model that is a sum, to be filled by hand."""
    return replace(some_explanations(trained("meeting"), 1)[0], rating_range=(1.0, 5.0))


# ---- signs


def test_amounts_above_nothing_are_for_a_thing_and_turned_ones_are_kept_apart(plain):
    told = replace(plain, findings=(
        finding(0.5, sentence("Good."), sentence("Good.")), finding(-0.2, sentence("Bad.")),
        finding(-0.1, sentence("Sweet."), turned=True),
    ))  # fmt: skip
    found = signs([told], [], None)
    assert (found.for_it, found.against_it, found.turned, found.pairs) == (1, 1, 1, 1)
    assert found.known is None


def test_stars_of_any_scale_are_told_from_one_to_five(plain):
    one = replace(plain, rating_range=(0.0, 20.0), findings=(finding(1.0, sentence("Good.", 20.0)),))
    other = replace(
        one, findings=(finding(-1.0, sentence("Bad.", 5.0)), finding(-1.0, sentence("Sweet.", 20.0), turned=True))
    )
    found = stars_apart([one, other] * 20)
    assert (found.for_it, found.against_it, found.difference) == (5.0, 2.0, 3.0)
    assert found.interval == (3.0, 3.0)
    assert stars_apart([one]) is None


def test_what_the_shop_wrote_decides_who_praises(shop, plain):
    review = next(one for one in shop.reviews if {"positive", "negative", None} <= {s.sentiment for s in one.sentences})
    by = {
        s.sentiment: Sentence(review.text[s.start : s.end], (), review.user, review.item, 3.0) for s in review.sentences
    }
    told = replace(plain, findings=(
        finding(1.0, by["positive"], by[None]), finding(-1.0, by["negative"]), finding(-1.0, by["positive"]),
    ))  # fmt: skip
    found = known_signs(signed_sentences(told), shop)
    assert (found.praise, found.complaint, found.silent) == (0.5, 0.5, 0.25)


def test_every_kind_of_model_that_says_for_and_against_has_signs(trained):
    for name, settings in (("carp", TINY), ("ridge", {}), ("meeting", {})):
        told = some_explanations(trained(name, **settings))
        assert sum(len(signed_sentences(one)) for one in told) > 0, name
        assert signs(told, [], None) is not None
    assert signed_sentences(some_explanations(trained("ridge"), 1)[0]) is not None


def test_a_model_that_does_not_say_has_none(trained):
    told = some_explanations(trained("mpcn", dimension=8, epochs=1), 2)
    assert signed_sentences(told[0]) is None
    assert signs(told, [], None) is None


def test_without_a_look_at_ratings_a_sentence_is_its_words(trained):
    explainer = trained("meeting").explainer
    other = by_words_alone(explainer)
    assert other.guide.of_rating(5.0) == 0 < explainer.guide.of_rating(5.0)
    assert by_words_alone(trained("ridge").explainer) is None


# ---- amounts


def test_the_rest_of_a_sum_that_does_not_add_up_is_told(plain):
    parts = (Part("mean", "", 3.0), Part("person", "", 0.5), Part("scale", "", -0.25))
    found = sums([replace(plain, rating=3.25, parts=parts), replace(plain, rating=3.5, parts=parts)])
    assert (found.pairs, found.parts, found.largest_gap, found.largest_rest) == (2, 3, 0.25, 0.25)


def test_parts_of_a_trained_model_sum_to_its_ratings(trained):
    found = sums(some_explanations(trained("meeting"), 30))
    assert found.pairs == 30
    assert found.largest_gap < 1e-4
    assert sums(some_explanations(trained("ridge"), 2)) is None


def test_moves_are_shares_of_the_scale(plain):
    told = [replace(plain, texts_move=move, rating_range=(1.0, 5.0)) for move in (0.04, -0.4, 0.8, -1.2, 2.0)]
    found = texts_move(told)
    assert found.counted == OWN_ACCOUNT
    assert found.quartiles == pytest.approx((0.1, 0.2, 0.3))
    assert found.largest == pytest.approx(0.5)
    assert found.little == pytest.approx(0.2)
    without = texts_move([replace(one, texts_move=None, rating=4.0, baseline=3.0) for one in told])
    assert (without.counted, without.quartiles) == (FROM_BIASES, (0.25, 0.25, 0.25))


# ---- aspects beside the whole impression


def test_found_aspects_go_where_most_of_their_words_are():
    membership = np.array([[0, 0, 1], [0.9, 0.1, 0], [0.2, 0.8, 0], [0.3, 0.7, 0]], np.float32)
    aspects, words = NamedAspects(("a", "b", "other words"), membership), ("staff", "price", "money")
    often = np.array([0, 5, 5, 5])
    assert matched_aspects(aspects, words, often, ["Service", "Value"]) == {"Service": [0], "Value": [1]}
    often = np.array([0, 5, 50, 50])
    assert matched_aspects(aspects, words, often, ["Service", "Value"]) == {"Service": [], "Value": [0, 1]}


def scored_by_what_is_said(recommender, sign):
    """Scores of Value that lie above the rating where clauses about it praise more than others do."""
    corpus, guide = recommender.fitted_corpus, recommender.explainer.guide
    clauses = clauses_of(corpus, guide)
    often = np.bincount(clauses.words, minlength=len(corpus.vocabulary) + 1)
    belongs = matched_aspects(guide.aspects, corpus.vocabulary.words, often, ["Value"])["Value"]
    weight = shares_of_clauses(guide.aspects, clauses)[:, belongs].sum(1)
    of_things = [
        np.bincount(clauses.thing, of * clauses.tone) / np.bincount(clauses.thing, of)
        for of in (weight, np.ones_like(weight))
    ]
    return {"Value": corpus.rating + sign * (of_things[0] - of_things[1])[corpus.item]}


@pytest.mark.parametrize("sign", [1, -1])
def test_scores_that_follow_what_is_written_are_known_and_their_opposite_is_not(trained, sign, monkeypatch):
    monkeypatch.setattr("carp.explain.faithfulness.aspect_impressions.FEWEST_THINGS", 10)
    recommender = trained("meeting")
    corpus, guide = recommender.fitted_corpus, recommender.explainer.guide
    found = impressions(corpus, guide, scored_by_what_is_said(recommender, sign), least=2, draws=20)
    assert found.mean["found"] == pytest.approx(sign, abs=0.05)
    assert found.aspects[0].things >= 10
    assert (found.over["share"][0] > 0) == (sign > 0)


def test_too_few_things_have_no_impressions(trained):
    recommender = trained("meeting")
    scores = {"Value": np.ones(len(recommender.fitted_corpus.user))}
    assert impressions(recommender.fitted_corpus, recommender.explainer.guide, scores) is None
    assert impressions(recommender.fitted_corpus, recommender.explainer.guide, {"Karma": scores["Value"]}) is None


# ---- all of it


def test_a_model_without_a_seed_gives_the_same_reasons_with_another(trained, shop):
    ours, theirs = trained("meeting"), trained("meeting", seed=1)
    found = measure_explanations(ours.explainer, pairs=20, against=[theirs.explainer], shop=shop, draws=1)
    assert found.stability.overlap.named == 1
    assert found.signs.known.praise is not None
    text = faithfulness_text(found)
    for part in ("Signs:", "praise", "without a look at", "Sums:", "next to nothing"):
        assert part in text
