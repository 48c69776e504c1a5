"""Texts that a shop does not wish for: the reasons are true all the same, or it is said that there are none."""

from __future__ import annotations

import numpy as np
import polars
import pytest

from carp.errors import UsageError
from carp.explain.named_aspects import OTHER
from carp.recommender import Recommender
from carp.render.html_page import explanation_page
from carp.reviews.corpora.corpus import build_corpus
from carp.reviews.sources.formats import read_reviews
from carp.reviews.split_parts import TRAIN
from carp.reviews.text.languages import stop_words_of

QUICK = {"directions": 8, "rarity": 1.0, "from_mean": False, "rounds": 4, "bigrams": 500}
PRAISE = (
    "Der Klang ist klar und die Bässe sind voll.",
    "Mit dem Akku kommt man lange durch den Tag.",
    "Der Stecker ist solide und verheddert sich nicht.",
    "Die Polster sind weich an meinen Ohren.",
    "Die Farbe leuchtet und gefällt meiner Frau.",
    "Der Händler hat sofort und freundlich geantwortet.",
)
COMPLAINTS = (
    "Der Klang ist dumpf, und die Bässe dröhnen.",
    "Der Akku ist nach einer Stunde leer.",
    "Der Stecker wackelt und ist schon gebrochen.",
    "Die Polster drücken nach kurzer Zeit an den Ohren.",
    "Die Farbe blättert ab und ist hässlich.",
    "Der Händler hat auf keine Nachricht geantwortet.",
)
PASTED = "Ich habe es bestellt. Der Klang ist klar und die Bässe sind voll. Die Farbe leuchtet und gefällt meiner Frau."
TOPICS = len(PRAISE)


def german_shop(people=60, things=15):
    """What each thing is praised for and complained of decides its ratings; the first person pastes one text."""
    chance = np.random.default_rng(1)
    good = chance.random((things, TOPICS)) < 0.5
    for person in range(people):
        for thing in chance.choice(things, 9, replace=False).tolist():
            topics = chance.choice(TOPICS, 2, replace=False)
            said = [PRAISE[k] if good[thing, k] else COMPLAINTS[k] for k in topics]
            text = PASTED if person == 0 else f"{' '.join(said)} Gekauft für {chance.integers(99)} Euro."
            stars = 2 + int(good[thing, topics].sum()) + int(chance.integers(-1, 2))
            yield {"user": f"p{person}", "item": f"t{thing}", "rating": float(stars), "text": text}


@pytest.fixture(scope="module")
def rec():
    """German texts of a model that was given English stop words; copies are kept."""
    corpus = build_corpus(read_reviews(polars.DataFrame(list(german_shop()))), min_reviews=1, copies="keep")
    return Recommender("meeting", device="cpu", stop_words="english", **QUICK).fit(corpus, progress=False)


def adds_up(explanation):
    return sum(part.amount for part in explanation.parts) == pytest.approx(explanation.rating, abs=1e-4)


def test_aspects_are_not_named_by_stop_words_of_the_language_whatever_stop_words_were_chosen(rec):
    assert len({"der", "die", "und", "ist", "den", "nach"} & set(rec.fitted_corpus.vocabulary.words)) >= 2
    named = {word for name in rec.explainer.guide.aspects.names[:-1] for word in name.split(", ")}
    assert len(named) >= 3
    assert not named & stop_words_of("de")


def test_reasons_in_another_language_than_the_stop_words_add_up_and_have_the_right_signs(rec):
    signs = []
    for thing in range(15):
        found = rec.explain("p5", f"t{thing}")
        assert adds_up(found)
        signs += [
            (finding.amount > 0, any(sentence.text == praise for praise in PRAISE))
            for finding in found.findings
            if not finding.turned
            for sentence in finding.sentences
        ]
    assert len(signs) >= 12
    assert np.mean([raises == praises for raises, praises in signs]) >= 0.9


def test_no_reason_quotes_the_same_words_twice(rec):
    for person, thing in (("p5", "t1"), ("p6", "t2"), ("p0", "t3")):
        found = rec.explain(person, thing)
        for side in (*found.viewpoints, *found.aspects):
            texts = [sentence.text for sentence in side.sentences]
            assert len(set(texts)) == len(texts)


def test_a_person_whose_reviews_are_all_copies_is_quoted_once_and_the_rating_adds_up(rec):
    corpus = rec.fitted_corpus
    mine = np.flatnonzero((corpus.user == corpus.users.index()["p0"]) & (corpus.part == TRAIN))
    assert len(mine) > 1
    assert {corpus.texts[int(record)] for record in mine} == {PASTED}
    for thing in ("t0", "t3", "t7"):
        found = rec.explain("p0", thing)
        assert adds_up(found)
        own = [sentence.text for side in found.viewpoints for sentence in side.sentences]
        assert len(own) == len(set(own))
        assert all(text in PASTED for text in own)
        assert str(found)
        assert explanation_page(found)
    profile = rec.profile(user="p0")
    quoted = [sentence.text for side in profile.viewpoints for sentence in side.sentences]
    assert quoted
    assert len(quoted) == len(set(quoted))


def test_with_one_aspect_alone_all_findings_are_about_it_and_the_rating_adds_up(rec):
    guide = rec.explainer.guide
    rec.seed_aspects({"Klang": ["klang", "bässe"]})
    try:
        assert rec.explainer.guide.aspects.names == ("Klang", OTHER)
        explained = [rec.explain("p5", f"t{thing}") for thing in range(6)]
        assert all(adds_up(one) for one in explained)
        assert {finding.aspect for one in explained for finding in one.findings} == {"Klang"}
        for one in explained:
            assert str(one)
            assert explanation_page(one)
        assert "Klang" in str(rec.aspects(pairs=5))
    finally:
        rec._read_by(guide)


@pytest.mark.parametrize("name", [OTHER, "Other Words"])
def test_a_shops_aspect_cannot_be_called_like_what_belongs_nowhere(rec, name):
    with pytest.raises(UsageError, match="other words"):
        rec.seed_aspects({"Klang": ["klang"], name: ["akku"]})


def test_two_names_that_differ_in_capitals_alone_are_refused(rec):
    with pytest.raises(UsageError, match="two aspects would be called"):
        rec.seed_aspects({"Klang": ["klang"], "klang": ["akku"]})
    first, second = rec.explainer.guide.aspects.names[:2]
    with pytest.raises(UsageError, match="two aspects would be called"):
        rec.rename_aspects({first: "Klang", second: "KLANG"})
