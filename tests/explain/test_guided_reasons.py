"""What the reading guide adds to the reasons of CARP and other models: names, tones, and an honest word of doubt."""

from __future__ import annotations

import html
import json
from dataclasses import replace

import numpy as np
import pytest

import carp
from carp.explain.explanation import LITTLE, Reasons, Sentence, Side
from carp.explain.guided_reasons import Topics, side_names, toned, with_tones
from carp.explain.named_aspects import EVERYTHING, OTHER, NamedAspects
from carp.explain.praise import PRAISE_PLACES, Praise
from carp.explain.profiles import summary_for
from carp.explain.question import known_pair
from carp.explain.reading_guide import ReadingGuide
from carp.render.capsule_telling import doubt_words
from carp.render.explanation_json import explanation_json
from carp.render.html_page import explanation_page
from carp.render.summary_text import summary_text
from carp.render.summed_telling import told
from carp.reviews.split_parts import TEST

pytestmark = pytest.mark.usefixtures("single_thread")
SETTINGS = {"epochs": 2, "dimension": 12, "filters": 8, "latent_size": 6, "viewpoints": 3, "min_reviews": 1}
FORMS = ("calibrated", "paper", "released")
PAIRS = 12


@pytest.fixture(scope="module")
def corpus():
    shop = carp.make_shop(people=40, things=12, reviews_per_person=10, seed=4)
    return carp.build_corpus(carp.read_reviews(shop.frame()), min_reviews=1)


@pytest.fixture(scope="module")
def forms(corpus):
    made = {form: carp.Recommender("carp", device="cpu", variant=form, **SETTINGS) for form in FORMS}
    return {form: rec.fit(corpus, progress=False) for form, rec in made.items()}


@pytest.fixture(scope="module", params=FORMS)
def rec(forms, request):
    return forms[request.param]


def some_explained(rec, number=PAIRS):
    corpus = rec.fitted_corpus
    held = np.flatnonzero(corpus.part == TEST)[:number]
    return [rec.explain(corpus.users[corpus.user[k]], corpus.items[corpus.item[k]]) for k in held]


def guide_of(*names, words, said=0.5):
    """A guide of a vocabulary in which each word belongs to one aspect wholly."""
    membership = np.zeros((len(words) + 1, len(names) + 1), np.float32)
    membership[0, -1] = 1
    for place, aspect in enumerate(words, start=1):
        membership[place, aspect] = 1
    praise = Praise(np.zeros(PRAISE_PLACES, np.float32))
    return ReadingGuide(praise, NamedAspects((*names, OTHER), membership), 3.0, said)


# ---- names


def test_every_form_of_carp_calls_its_sides_by_the_guide_and_no_two_alike(rec):
    names = set(rec.explainer.guide.aspects.names)
    for one in some_explained(rec):
        for sides in (one.viewpoints, one.aspects):
            called = [side.name for side in sides]
            assert len(set(called)) == len(called)
            numbered = {f"{kind} {side.index}" for side in sides for kind in ("viewpoint", "aspect")}
            assert set(called) <= names | numbered
            assert names & set(called)
        for unit in one.units:
            assert unit.viewpoint.name == one.viewpoints[unit.viewpoint.index - 1].name
            assert unit.aspect.name == one.aspects[unit.aspect.index - 1].name
        titles = [(unit.sentiment, said.title) for unit, said in zip(one.units, told(one).units, strict=False)]
        assert len(set(titles)) == len(titles)


def test_another_seed_calls_by_the_same_names(forms, corpus):
    other = carp.Recommender("carp", device="cpu", seed=7, **SETTINGS).fit(corpus, progress=False)
    assert other.explainer.guide.aspects.names == forms["calibrated"].explainer.guide.aspects.names


def test_a_shops_own_names_are_those_of_carp_too_and_are_saved(forms, tmp_path):
    rec = forms["calibrated"]
    first = some_explained(rec, 1)[0]
    name = first.units[0].aspect.name
    rec.save(tmp_path / "model")
    again = carp.load(tmp_path / "model", device="cpu")
    again.rename_aspects({name: "Ours"})
    again.save(tmp_path / "renamed")
    renamed = carp.load(tmp_path / "renamed", device="cpu").explain(first.user, first.item)
    assert renamed.units[0].aspect.name == "Ours"
    assert (tmp_path / "renamed" / "guide.safetensors").is_file()


def test_a_side_is_called_by_what_its_sentences_and_words_are_about():
    guide = guide_of("sound, bass", "strap, leather", "price, money", words=[0, 0, 1, 1, 2])
    words = np.array([1, 2, 3, 4, 5], np.int32)
    attention = np.array([[0.5, 0.5, 0.2], [0.5, 0.4, 0.2], [0, 0.1, 0.2], [0, 0, 0.2], [0, 0, 0.2]])
    shown = np.zeros((3, 5))
    shown[1, 3] = 1  # its sentence is about the strap, whatever it listens to
    assert side_names(guide, words, attention, shown, "aspect") == ["sound, bass", "strap, leather", "price, money"]


def test_topics_that_are_kept_name_sides_as_their_words_do():
    guide = guide_of("sound, bass", "strap, leather", "price, money", words=[0, 0, 1, 1, 2])
    words, sentence = np.array([1, 2, 3, 4, 5], np.int32), np.array([0, 0, 1, 1, 2])
    attention = np.array([[0.5, 0.5, 0.2], [0.5, 0.4, 0.2], [0, 0.1, 0.2], [0, 0, 0.2], [0, 0, 0.2]])
    kept = Topics.of(guide.aspects, words, sentence, attention)
    for shown in np.ndindex(3, 3):
        counts = np.zeros((3, 3))
        counts[shown] = 1
        named = side_names(guide, words, attention, counts[:, sentence], "aspect")
        assert kept.names(counts, "aspect") == named


def test_sides_for_which_no_name_is_left_keep_their_number():
    guide = guide_of("sound, bass", "strap, leather", words=[0, 1])
    attention, shown = np.full((2, 3), 0.5), np.zeros((3, 2))
    called = side_names(guide, np.array([1, 2], np.int32), attention, shown, "viewpoint")
    assert sorted(called)[:2] == ["sound, bass", "strap, leather"]
    assert called.count("viewpoint 1") + called.count("viewpoint 2") + called.count("viewpoint 3") == 1


@pytest.mark.parametrize("words", [np.zeros(0, np.int32), np.array([1], np.int32)])
def test_with_one_aspect_alone_or_no_words_nothing_is_named(words):
    one = guide_of(EVERYTHING, words=[0])
    several = guide_of("sound, bass", "strap, leather", words=[0])
    attention, shown = np.ones((len(words), 2)), np.zeros((2, len(words)))
    assert side_names(one, words, attention, shown, "aspect") == ["aspect 1", "aspect 2"]
    called = side_names(several, words, attention, shown, "aspect")
    assert ("sound, bass" in called) == bool(len(words))


def test_a_side_is_not_called_by_what_it_hardly_speaks_of():
    guide = guide_of("sound, bass", "strap, leather", "price, money", words=[0, 1, 2])
    attention = np.array([[0.95, 0.9], [0.05, 0.1], [0, 0]])
    called = side_names(guide, np.array([1, 2, 3], np.int32), attention, np.zeros((2, 3)), "aspect")
    assert called == ["sound, bass", "aspect 2"]


# ---- tones


def test_the_tones_of_sentences_are_the_guides_and_opposed_ones_are_counted(rec):
    guide, corpus = rec.explainer.guide, rec.fitted_corpus
    seen = set()
    for one in some_explained(rec):
        for unit in one.units:
            for sentence in unit.aspect.sentences:
                said = float(guide.praise.of_texts([sentence.text])[0])
                stars = float(corpus.scale.to_stars(sentence.rating, corpus.levels))
                assert sentence.tone == guide.tone(said, guide.of_rating(stars))
                seen.add(sentence.tone)
            opposite = "complaint" if unit.sentiment == "positive" else "praise"
            assert unit.aspect.opposed == sum(s.tone == opposite for s in unit.aspect.sentences)
    assert seen == {"praise", "complaint", None}


def test_a_sentence_is_clear_only_if_its_words_and_its_rating_agree():
    guide = guide_of("sound, bass", "strap, leather", words=[0], said=0.3)
    assert [guide.tone(said, rated) for said, rated in ((0.5, 0.2), (0.5, -0.4), (-0.5, -0.2), (-0.5, 0.4))] == [
        "praise",
        None,
        "complaint",
        None,
    ]


@pytest.mark.parametrize(
    ("sentiment", "tones", "words"),
    [
        ("negative", ["praise"], "The model counts this against it, though the sentence praises."),
        ("positive", ["complaint", "complaint"], "The model counts this for it, though the sentences complain."),
        ("negative", ["praise", None], "The model counts this against it, though one of the sentences praises."),
        ("positive", ["praise", None], ""),
        (None, ["praise", "complaint"], ""),
    ],
)
def test_where_capsules_say_otherwise_an_honest_line_says_so(sentiment, tones, words):
    sentences = tuple(Sentence(f"Number {place}.", (), "ann", "drum", 5.0) for place in range(len(tones)))
    said = {one: replace(one, tone=tone) for one, tone in zip(sentences, tones, strict=True)}
    side = toned(Side(1, sentences, (), sentiment=sentiment), said)
    assert doubt_words(side) == words


def test_the_honest_line_is_in_the_terminal_on_the_page_and_in_what_the_service_tells(forms):
    found = [one for rec in forms.values() for one in some_explained(rec) if not one.little_known]
    doubted = next(one for one in found if any(unit.aspect.opposed for unit in one.units))
    (line, *_) = [said.doubt for said in told(doubted).units if said.doubt]
    assert line.startswith("The model counts this ")
    for shown in (str(doubted), explanation_page(doubted)):
        assert line in " ".join(shown.split())
        assert "a sentence says the opposite of what the model makes of it." in " ".join(shown.split())
    read = json.loads(explanation_json(doubted))
    assert sum(unit["aspect"]["opposed"] for unit in read["units"]) > 0


def test_models_that_add_up_words_are_held_to_what_their_sentences_say(corpus):
    ridge = carp.Recommender("ridge", device="cpu", min_reviews=1).fit(corpus, progress=False)
    found = some_explained(ridge, 40)
    assert {side.sentiment for one in found for side in one.aspects} == {"positive", "negative"}
    assert any(side.opposed for one in found for side in one.aspects)
    for one in found:
        without = one.rating - one.texts_move
        assert one.rating_range[0] <= without <= one.rating_range[1]


def test_an_attention_over_aspects_gets_their_names(corpus):
    settings = {"epochs": 1, "dimension": 8, "latent_size": 4, "min_reviews": 1}
    anr = carp.Recommender("anr", device="cpu", **settings).fit(corpus, progress=False)
    one = some_explained(anr, 1)[0]
    called = [side.name for side in one.aspects]
    assert called == [side.name for side in one.viewpoints]
    assert len(set(called)) == len(called)
    assert set(called) & set(anr.explainer.guide.aspects.names)


def test_a_summary_says_where_a_sentence_counts_for_the_opposite_of_what_it_says(forms):
    rec = forms["calibrated"]
    explainer = rec.explainer
    found = [summary_for(explainer, known_pair(rec.fitted_corpus, user, 3), 8) for user in range(6)]
    opposite = {"positive": "complaint", "negative": "praise"}
    turned = [s for summary in found for s in summary.sentences if s.tone == opposite[s.sentiment]]
    assert turned
    text = "\n".join(summary_text(summary) for summary in found)
    assert text.count("but the model counts it") == len(turned)


# ---- where little is known


def test_where_the_texts_of_carp_hardly_move_a_rating_no_reason_is_counted(rec):
    one = some_explained(rec, 1)[0]
    span = one.rating_range[1] - one.rating_range[0]
    near = replace(one, baseline=one.rating - 0.5 * LITTLE * span)
    assert near.little_known
    assert not replace(one, baseline=one.rating - 2 * LITTLE * span).little_known
    assert told(near).units == ()
    for shown in (str(near), explanation_page(near)):
        words = " ".join(html.unescape(shown).split())
        assert "This rests on the person's and the thing's averages" in words
        assert "Of the reasons" not in words
        assert "What the person cares about" not in words
        assert "speaks for it:" not in words
    assert json.loads(explanation_json(near))["little_known"] is True


def test_reasons_without_sentences_have_no_tones():
    guide = guide_of("sound, bass", "strap, leather", words=[0])
    reasons = Reasons((), (), None)
    assert with_tones(reasons, guide, None) == reasons


def test_a_sentence_without_a_word_of_any_aspect_is_about_none():
    membership = np.array([[0, 0, 1], [0.9, 0.1, 0], [0.45, 0.4, 0.15], [0, 0, 1]], np.float32)
    aspects = NamedAspects(("sound", "strap", OTHER), membership)
    words, sentence = np.array([1, 2, 2, 2, 3], np.int32), np.array([0, 0, 1, 1, 2])
    assert aspects.of_sentences(words, sentence, 4).tolist() == [0, 2, 2, 2]
