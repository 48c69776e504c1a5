"""Reasons of a model that is a sum: they add up, their signs are what a reader would say, and aspects have names."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

import carp
from carp.errors import UsageError
from carp.explain.explainer import explainer_for
from carp.explain.explanation import LITTLE
from carp.explain.faithfulness.planted_causes import planted_causes_found
from carp.explain.named_aspects import EVERYTHING, OTHER, find_aspects, seeded_aspects
from carp.explain.praise import PRAISE_PLACES, Praise, _rows, learn_praise
from carp.explain.question import as_batch, known_pair
from carp.explain.reading_guide import ReadingGuide, make_guide, read_seeds
from carp.recommender import Recommender
from carp.reviews.corpora.column_checks import ColumnFault
from carp.reviews.corpora.corpus import build_corpus
from carp.reviews.shop.made_up_shop import TOPICS, make_shop
from carp.reviews.shop.sentence_writer import topic_of_sentence
from carp.reviews.sources.formats import read_reviews
from carp.reviews.split_parts import TEST
from carp.serve.caches import RememberingCorpus

PAIRS = 60
QUICK = {"directions": 16, "rarity": 1.0, "from_mean": False, "rounds": 6, "bigrams": 2_000}


@pytest.fixture(scope="module")
def shop():
    return make_shop(seed=0, people=70, things=30, reviews_per_person=14)


@pytest.fixture(scope="module")
def rec(shop):
    corpus = build_corpus(read_reviews(shop.frame()))
    return Recommender("meeting", device="cpu", **QUICK).fit(corpus, progress=False)


@pytest.fixture(scope="module")
def explained(rec):
    corpus = rec.fitted_corpus
    held = np.flatnonzero(corpus.part == TEST)[:PAIRS]
    return [rec.explain(corpus.users[int(corpus.user[r])], corpus.items[int(corpus.item[r])]) for r in held]


def test_a_document_that_was_read_before_gives_every_pair_its_own_reasons(rec, explained):
    """The service keeps documents, and with them what is the same for all pairs; nothing of a pair stays behind."""
    corpus = RememberingCorpus.of(rec.fitted_corpus)
    keeping = explainer_for(replace(rec.fitted_model, corpus=corpus), rec.explainer.guide)
    for _ in range(2):
        for one in explained:
            question = known_pair(corpus, corpus.users.index()[one.user], corpus.items.index()[one.item])
            assert keeping.explain([question]) == [one]


def test_a_pair_is_explained_to_the_same_bits_whoever_is_asked_about_beside_it(rec, explained):
    corpus = rec.fitted_corpus
    places = [(corpus.users.index()[one.user], corpus.items.index()[one.item]) for one in explained]
    questions = [known_pair(corpus, *place) for place in places]
    for beside in (2, 7, len(questions)):
        blocks = [questions[start : start + beside] for start in range(0, len(questions), beside)]
        assert [one for block in blocks for one in rec.explainer.explain(block)] == explained


# ---- sums


def test_the_parts_sum_to_the_rating_that_is_predicted(rec, explained):
    rated = rec.predict([(one.user, one.item) for one in explained])
    for one, rating in zip(explained, rated, strict=True):
        assert sum(part.amount for part in one.parts) == pytest.approx(rating, abs=1e-4)


def test_groups_of_words_sum_to_what_the_model_computes_without_groups(rec):
    """In float64, so that nothing but the division into groups can differ."""
    model, corpus = rec.model.double(), rec.fitted_corpus
    try:
        shares = torch.rand(len(corpus.vocabulary) + 1, 7, generator=torch.Generator().manual_seed(0)).double()
        shares /= shares.sum(1, keepdim=True)
        for record in np.flatnonzero(corpus.part == TEST)[:10]:
            question = known_pair(corpus, int(corpus.user[record]), int(corpus.item[record]))
            batch = as_batch(corpus, question, torch.device("cpu"))
            parts, user, item = model.parts(batch, shares)
            found = model(batch)
            whole = found.tensors["baseline"] + found.tensors["text"]
            torch.testing.assert_close(parts.total(), whole, rtol=0, atol=1e-10)
            name = model.words_add(batch)[2]
            torch.testing.assert_close(user.sum(1) + item.sum(1) + name, found.tensors["text"], rtol=0, atol=1e-10)
    finally:
        model.float()


# ---- signs


def test_what_is_shown_for_a_thing_praises_and_what_is_shown_against_it_complains(shop, explained):
    sentiments = {
        (review.user, review.item, review.text[one.start : one.end].strip()): one.sentiment
        for review in shop.reviews
        for one in review.sentences
    }
    said = Counter()
    for finding in (finding for one in explained for finding in one.findings if not finding.turned):
        wanted = "positive" if finding.amount > 0 else "negative"
        for sentence in finding.sentences:
            said[wanted, sentiments.get((sentence.user, sentence.item, sentence.text.strip())) == wanted] += 1
    for wanted in ("positive", "negative"):
        assert said[wanted, True] + said[wanted, False] > 40
        assert said[wanted, True] > 0.85 * (said[wanted, True] + said[wanted, False])


def test_taste_is_said_to_turn_a_sentence_only_where_it_does_more_than_the_words(explained):
    turned = [finding for one in explained for finding in one.findings if finding.turned]
    assert all(abs(finding.by_taste) > abs(finding.by_itself) for finding in turned)
    assert all(finding.by_taste * finding.amount > 0 for finding in turned)


def test_amounts_are_what_words_do_for_everybody_and_for_this_person(explained):
    findings = [finding for one in explained for finding in one.findings]
    assert findings
    assert all(one.by_itself + one.by_taste == pytest.approx(one.amount, abs=1e-6) for one in findings)


def test_the_planted_cause_is_among_the_three_sides_that_count_most(rec, shop):
    found = planted_causes_found(rec.explainer, shop, pairs=PAIRS, draws=5)
    assert found.explained > 0.6
    assert found.explained > 1.4 * found.random


# ---- little is said where little is known


def test_texts_that_hardly_move_a_rating_are_said_to(rec, explained):
    low, high = rec.fitted_corpus.scale.low, rec.fitted_corpus.scale.high
    for one in explained:
        small = abs(one.texts_move) < LITTLE * (high - low)
        assert one.little_known == (small and all(abs(f.amount) < LITTLE * (high - low) for f in one.findings))
    assert not all(one.little_known for one in explained)


def test_a_thing_nobody_wrote_of_has_no_findings(rec):
    corpus = rec.fitted_corpus
    question = known_pair(corpus, 0, 0)
    silent = corpus.newcomer([])
    found = rec.explainer.explain([type(question)(0, 0, question.user_document, silent)])[0]
    assert found.findings == ()
    assert any("the thing's side is empty" in note for note in found.notes)


# ---- aspects


def test_aspects_are_named_by_three_words_of_the_corpus_none_twice(rec):
    names = rec.explainer.guide.aspects.names
    assert names[-1] == OTHER
    words = [word for name in names[:-1] for word in name.split(", ")]
    assert len(words) == len(set(words)) >= 9
    assert set(words) <= set(rec.fitted_corpus.vocabulary.words)


def test_sentences_of_one_topic_are_mostly_about_few_aspects(rec, shop):
    """Aspects are found without topics; still a topic's sentences do not scatter."""
    guide, vocabulary = rec.explainer.guide, rec.fitted_corpus.vocabulary
    about: dict[str, Counter[int]] = {topic: Counter() for topic in TOPICS}
    for review in shop.reviews[:400]:
        for one in review.sentences:
            words = np.array(vocabulary.encode(review.text[one.start : one.end])[0], np.int32)
            if one.topic is not None and len(words):
                place = np.zeros(len(words), np.int64)
                about[one.topic][int(guide.aspects.of_sentences(words, place, 1)[0])] += 1
    shares = [sum(count for _, count in counts.most_common(4)) / counts.total() for counts in about.values()]
    assert np.mean(shares) > 0.75


def test_another_seed_gives_the_same_aspects_and_the_same_sentences(rec, explained):
    other = Recommender("meeting", device="cpu", seed=7, **QUICK)
    model, _ = other.train_model(rec.fitted_corpus, rec.fitted_corpus.training_data())
    for name, tensor in rec.model.state_dict().items():
        torch.testing.assert_close(tensor, model.state_dict()[name], rtol=0, atol=0)
    assert make_guide(rec.fitted_corpus).aspects.names == rec.explainer.guide.aspects.names
    assert rec.explain(explained[0].user, explained[0].item) == explained[0]


def test_aspects_keep_a_shops_own_names_when_saved(rec, tmp_path):
    rec.save(tmp_path / "model")
    again = carp.load(tmp_path / "model", device="cpu")
    first = again.explainer.guide.aspects.names[0]
    again.rename_aspects({first: "Ours"})
    again.save(tmp_path / "model", overwrite=True)
    kept = carp.load(tmp_path / "model", device="cpu")
    assert kept.explainer.guide.aspects.names[0] == "Ours"
    assert "Ours" in str(kept.aspects(pairs=5))
    assert make_guide(rec.fitted_corpus).aspects.names[0] == first


def test_a_shop_gives_its_own_aspects_by_words(rec):
    guide = rec.explainer.guide
    rec.seed_aspects({"Power": ["battery", "charge"], "Sound": ["sound", "bass"]})
    try:
        aspects = rec.explainer.guide.aspects
        assert aspects.names == ("Power", "Sound", OTHER)
        number = rec.fitted_corpus.vocabulary.words.index("battery") + 1
        assert aspects.membership[number, 0] > 0.9
        found = rec.explain("person-001", rec.fitted_corpus.items[0])
        assert sum(part.amount for part in found.parts) == pytest.approx(found.rating, abs=1e-4)
    finally:
        rec._read_by(guide)


@pytest.mark.parametrize(
    ("lines", "word"),
    [([], "names no aspect"), (["Battery"], "line 1"), (["A: x", "A: y"], "line 2"), (["A:"], "line 1")],
)
def test_files_of_seed_words_that_name_nothing_are_refused_with_the_line(lines, word):
    with pytest.raises(UsageError, match=word):
        read_seeds(lines, "words.txt")


def test_seed_words_that_do_not_occur_are_named(rec):
    with pytest.raises(UsageError, match="knows none of the seed words of 'Wings'"):
        rec.seed_aspects({"Wings": ["feathers"]})


def test_two_aspects_never_get_one_name(rec):
    first, second = rec.explainer.guide.aspects.names[:2]
    with pytest.raises(UsageError, match="two aspects would be called"):
        rec.rename_aspects({first: second})
    with pytest.raises(UsageError, match="there is no aspect 'Wings'"):
        rec.rename_aspects({"Wings": "Ours"})


def test_a_corpus_too_small_for_aspects_has_one(rec):
    words = np.array([1, 2, 3, 1, 2], np.int32)
    found = find_aspects(words, np.array([0, 0, 0, 1, 1]), ["soft", "strap", "loud"], np.zeros(3))
    assert found.names == (EVERYTHING, OTHER)
    np.testing.assert_array_equal(found.of_sentences(words, np.array([0, 0, 0, 1, 1]), 2), [0, 0])


def test_aspects_come_from_all_over_a_corpus_that_is_in_order(monkeypatch):
    """Half of the sentences speak of one kind of thing and stand first; the others are looked at too."""
    monkeypatch.setattr("carp.explain.named_aspects.MOST_SENTENCES", 400)
    rng = np.random.default_rng(0)
    kinds = ["strap soft leather padding", "mic stand boom clip", "beer malt hops head", "hotel bed desk pool"]
    vocabulary = " ".join(kinds).split()
    kind = np.concatenate([rng.integers(0, 2, 800), rng.integers(2, 4, 800)])
    words = (4 * kind[:, None] + rng.permuted(np.tile(np.arange(4), (1600, 1)), axis=1)[:, :3] + 1).astype(np.int32)
    found = find_aspects(words.ravel(), np.repeat(np.arange(1600), 3), vocabulary, np.zeros(16), most=4)
    named = {kinds.index(one) for name in found.names[:-1] for one in kinds if name.split(", ")[0] in one.split()}
    assert named == {0, 1, 2, 3}


def test_words_beside_seed_words_belong_to_their_aspect():
    rng = np.random.default_rng(0)
    vocabulary = ["battery", "hours", "strap", "soft", "price", "paid", "sound", "bass"]
    pairs = [(int(first), int(first) + 1) for first in rng.choice([1, 3, 5, 7], 60)]
    words = np.array([word for pair in pairs for word in pair], np.int32)
    found = seeded_aspects({"Power": ["battery"], "Strap": ["strap"]}, words, np.repeat(np.arange(60), 2), vocabulary)
    assert found.membership[2].argmax() == 0
    assert found.membership[4].argmax() == 1


# ---- praise


def test_praise_is_learned_from_ratings_and_negations_count():
    texts = ["it is good", "it is not good", "good", "not good at all", "bad", "not bad"] * 8
    ratings = np.array([5, 1, 5, 1, 1, 4] * 8, np.float32)
    praise = learn_praise(texts, ratings, np.arange(len(texts), dtype=np.int32))
    good, not_good, bad = praise.of_texts(["good", "not good", "bad"])
    assert good > 0.3
    assert not_good < 0
    assert bad < 0


def test_ratings_that_are_all_alike_teach_no_praise():
    praise = learn_praise(["good", "bad"], np.array([4, 4], np.float32), np.array([0, 1], np.int32))
    assert not praise.weight.any()
    assert praise.of_texts(["good"]).tolist() == [0.0]


def test_a_text_alone_says_to_the_bit_what_it_says_among_many():
    praise = Praise(np.random.default_rng(0).normal(size=PRAISE_PLACES).astype(np.float32))
    texts = ["Good, good, good sound; not good value.", "", "...", "音質がとても良い😀", "It's fine. It's fine."]
    among_many = _rows(texts) @ praise.weight.astype(np.float64)
    assert [float(praise.of_texts([text])[0]) for text in texts] == among_many.tolist()


# ---- what is saved


def test_a_guide_comes_back_from_its_columns(rec):
    guide, words = rec.explainer.guide, len(rec.fitted_corpus.vocabulary)
    again = ReadingGuide.from_columns(guide.columns(), words, rec.fitted_corpus.levels)
    assert again.aspects.names == guide.aspects.names
    np.testing.assert_array_equal(again.praise.weight, guide.praise.weight)
    assert (again.mean_rating, again.clear_tone) == (guide.mean_rating, guide.clear_tone)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("praise_places", lambda old: old + PRAISE_PLACES),
        ("praise_weights", lambda old: old * np.float32("nan")),
        ("praise_weights", lambda old: old[:-1]),
        ("membership", lambda old: old[:-1]),
        ("membership", lambda old: -old),
        ("membership", lambda old: old * 2),
        ("names", lambda old: np.frombuffer(b"one\0one", np.uint8)),
        ("names", lambda old: old.view(np.int8)),
        ("names", lambda old: old.reshape(1, -1)),
        ("mean_rating", lambda old: np.array([99.0])),
        ("clear_tone", lambda old: np.array([-1.0])),
    ],
)
def test_columns_of_a_guide_that_do_not_fit_are_refused(rec, column, value):
    columns = rec.explainer.guide.columns()
    columns[column] = value(columns[column])
    with pytest.raises(ColumnFault):
        ReadingGuide.from_columns(columns, len(rec.fitted_corpus.vocabulary), rec.fitted_corpus.levels)


# ---- people and things


def test_a_persons_profile_is_bars_over_named_aspects_no_two_alike(rec):
    found = rec.profile(user="person-001")
    names = [side.name for side in found.viewpoints]
    assert len(names) == len(set(names)) > 1
    assert 0.5 < sum(side.weight for side in found.viewpoints) <= 1


def test_what_people_like_about_a_thing_is_praise(rec, shop):
    found = rec.profile(item=rec.fitted_corpus.items[0])
    liked = [sentence for opinion in found.liked for sentence in opinion.aspect.sentences]
    assert liked
    assert any(topic_of_sentence(sentence.text) for sentence in liked)
    assert all(1 <= opinion.raters <= found.raters for opinion in (*found.liked, *found.disliked))
