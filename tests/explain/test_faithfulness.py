"""Whether explanations are true is measured right, where the answer is known beforehand."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from carp.errors import InputError, UsageError
from carp.explain.faithfulness.against_chance import compared
from carp.explain.faithfulness.aspect_scores import aspect_correlations, beside_rating, read_aspects
from carp.explain.faithfulness.capsule_agreement import agreement
from carp.explain.faithfulness.held_out import blanked, held_out_pairs, random_sentences, random_words, ratings, without
from carp.explain.faithfulness.measures import measure_explanations
from carp.explain.faithfulness.resemblance import inverse_document_frequency, resemblance
from carp.explain.faithfulness.stability import stability
from carp.explain.faithfulness.word_removal import Trial, removal
from carp.explain.named_words import DETAIL, UNITS, NamedReasons, NamedWords
from carp.explain.pair_texts import PLACES, PaddedTexts
from carp.models.base import Prediction, RatingModel
from carp.recommender import Recommender
from carp.render.faithfulness_text import faithfulness_text
from carp.reviews.corpora.corpus import build_corpus
from carp.reviews.shop.made_up_shop import make_shop
from carp.reviews.sources.formats import read_reviews
from carp.reviews.text.tokens import tokenise

pytestmark = pytest.mark.usefixtures("single_thread")

TINY = {"dimension": 8, "filters": 6, "latent_size": 4, "viewpoints": 3, "max_words": 80}
CPU = torch.device("cpu")
OTHERS = {
    "anr": {"dimension": 8, "latent_size": 4, "aspects": 4, "hidden_size": 5},
    "dattn": {"dimension": 8, "filters": 4, "hidden": 6, "latent_size": 4},
    "mpcn": {"dimension": 8},
    "tarmf": {"dimension": 8, "hidden_size": 4, "latent_size": 3},
}


@pytest.fixture(scope="module")
def shop():
    return make_shop(people=40, things=15, reviews_per_person=8, seed=3)


@pytest.fixture(scope="module")
def corpus(shop):
    return build_corpus(read_reviews(shop.frame()))


def trained(corpus, name="carp", **settings):
    settings = {"epochs": 2, **settings}
    return Recommender(name, device="cpu", **settings).fit(corpus, progress=False)


@pytest.fixture(scope="module")
def recommender(corpus):
    return trained(corpus, **TINY)


@pytest.fixture(scope="module")
def held(recommender):
    return held_out_pairs(recommender.fitted_corpus)


@pytest.fixture(scope="module")
def reasons(recommender, held):
    return recommender.explainer.name_words(held)


# ---- what is named is what the explanation shows


def texts_of(fitted, texts, flags):
    """The sentences with a flagged word, as they were written."""
    found = set()
    for key in np.unique(texts.sentences[flags]):
        source = fitted.source(int(key) // PLACES)
        found.add(source.text[slice(*source.sentences[int(key) % PLACES])])
    return found


def shown_sides(explanation):
    """The sides whose sentences count as named: of the units, or those most listened to."""
    if explanation.units:
        return [unit.viewpoint for unit in explanation.units], [unit.aspect for unit in explanation.units]
    return tuple(
        sorted(sides, key=lambda side: -side.weight)[:UNITS] for sides in (explanation.viewpoints, explanation.aspects)
    )


def asked(recommender, held, row):
    fitted, pairs = recommender.fitted_corpus, held.pairs
    detail = {"prevailing_units": DETAIL.prevailing_units, "other_units": DETAIL.other_units}
    return recommender.explain(fitted.users[int(pairs.users[row])], fitted.items[int(pairs.items[row])], **detail)


def check_named(recommender, held, reasons, rows):
    named = 0
    for row in rows:
        explanation = asked(recommender, held, row)
        for sides, texts, words in zip(shown_sides(explanation), held.sides, reasons.sides, strict=True):
            said = {sentence.text for side in sides for sentence in side.sentences}
            flagged = np.zeros(texts.words.shape, bool)
            flagged[row] = words.shown[row]
            assert texts_of(recommender.fitted_corpus, texts, flagged) == said
            named += len(said)
    assert named


@pytest.mark.parametrize("settings", [{}, {"variant": "released"}, {"variant": "calibrated", "attention_scale": 5.0}])
def test_the_words_removed_are_those_that_carp_explains_with(corpus, settings):
    recommender = trained(corpus, **TINY, **settings)
    held = held_out_pairs(recommender.fitted_corpus)
    check_named(recommender, held, recommender.explainer.name_words(held), range(0, len(held), 6))


def test_of_a_model_that_knows_directions_the_sentences_that_pull_as_the_texts_do_are_named(corpus):
    recommender = trained(corpus, "ridge", bigrams=50)
    held = held_out_pairs(recommender.fitted_corpus)
    reasons = recommender.explainer.name_words(held)
    up = reasons.direction > 0
    assert up.any()
    assert not up.all()
    moves = removal(Trial(recommender.model, held, reasons, CPU), (reasons.user.shown, reasons.item.shown)).beside_words
    assert moves.signed_comprehensiveness.difference > 0
    assert moves.signed_comprehensiveness.p_t < 1e-3
    names = {True: "raises the rating", False: "lowers the rating"}
    for row in range(0, len(held), 20):
        told = asked(recommender, held, row)
        for sides, texts, named in (
            (told.viewpoints, held.user, reasons.user),
            (told.aspects, held.item, reasons.item),
        ):
            shown = {one.text for side in sides if side.name == names[bool(up[row])] for one in side.sentences}
            flags = np.zeros_like(named.shown)
            flags[row] = named.shown[row]
            assert texts_of(recommender.fitted_corpus, texts, flags) == shown


@pytest.mark.parametrize("name", OTHERS)
def test_the_words_removed_are_those_that_other_models_explain_with(corpus, name):
    recommender = trained(corpus, name, max_words=80, **OTHERS[name])
    held = held_out_pairs(recommender.fitted_corpus)
    check_named(recommender, held, recommender.explainer.name_words(held), range(0, len(held), 12))


def test_marked_words_stand_in_the_marks_of_the_sentences_shown(recommender, held, reasons):
    fitted = recommender.fitted_corpus
    for row in range(0, len(held), 6):
        explanation = asked(recommender, held, row)
        document = fitted.readable(fitted.item_documents, int(held.pairs.items[row]))
        expected = np.zeros(held.item.words.shape[1], bool)
        for place, ((record, number), start) in enumerate(zip(document.sentence, document.starts, strict=True)):
            begin, end = document.sources[record].sentences[number]
            text = document.sources[record].text[begin:end]
            expected[place] = any(
                sentence.text == text and mark.start <= start - begin < mark.end
                for unit in explanation.units
                for sentence in unit.aspect.sentences
                for mark in sentence.marks
            )
        assert expected.any()
        np.testing.assert_array_equal(reasons.item.marked[row], expected)


def test_marked_words_are_among_those_shown(reasons):
    for side in reasons.sides:
        assert (side.shown | ~side.marked).all()
        assert side.marked.sum() < side.shown.sum()


# ---- taking words away


def three_documents():
    words = np.array([[5, 6, 7, 8, 9], [1, 2, 0, 0, 0], [0, 0, 0, 0, 0]], np.int32)
    there = words > 0
    return PaddedTexts(words, np.where(there, 3, -1).astype(np.int32), np.where(there, [[10, 10, 11, 11, 12]], -1))


def test_words_that_are_deleted_let_the_others_close_up():
    gone = np.zeros((3, 5), bool)
    gone[0, [0, 2]] = gone[1, 1] = True
    left = without(three_documents(), gone)
    assert left.words.tolist() == [[6, 8, 9], [1, 0, 0], [0, 0, 0]]
    assert left.sentences.tolist() == [[10, 11, 12], [10, -1, -1], [-1, -1, -1]]
    assert left.reviews.tolist() == [[3, 3, 3], [3, -1, -1], [-1, -1, -1]]


def test_words_that_are_blanked_leave_the_others_where_they_are():
    gone = np.zeros((3, 5), bool)
    gone[0, [0, 4]] = True
    left = blanked(three_documents(), gone)
    assert left.words.tolist() == [[0, 6, 7, 8, 0], [1, 2, 0, 0, 0], [0, 0, 0, 0, 0]]
    assert left.rows(np.array([0])).words.tolist() == [[0, 6, 7, 8]]


@pytest.mark.parametrize("draw", [random_words, random_sentences])
def test_as_many_random_words_are_drawn_from_words_that_are_there(draw, held):
    number = np.minimum(held.item.there.sum(1), np.arange(len(held)) % 40)
    chosen = draw(held.item, number, np.random.default_rng(0))
    np.testing.assert_array_equal(chosen.sum(1), number)
    assert not (chosen & ~held.item.there).any()
    assert (chosen != draw(held.item, number, np.random.default_rng(1))).any()


def test_random_sentences_are_whole_but_for_one(held):
    number = held.item.there.sum(1) // 2
    chosen = random_sentences(held.item, number, np.random.default_rng(0))
    for row in range(len(held)):
        keys, place = np.unique(held.item.sentences[row][held.item.there[row]], return_inverse=True)
        share = np.bincount(place, chosen[row][held.item.there[row]]) / np.bincount(place)
        assert np.count_nonzero((share > 0) & (share < 1)) <= 1
        assert len(keys) > 1


def test_whole_documents_are_rated_as_the_recommender_rates_them(recommender, held, reasons):
    fitted, pairs = recommender.fitted_corpus, held.pairs
    named = [(fitted.users[int(u)], fitted.items[int(i)]) for u, i in zip(pairs.users, pairs.items, strict=True)]
    clipped = np.clip(ratings(recommender.model, held, CPU), 1, fitted.levels)
    np.testing.assert_allclose(clipped, list(recommender.predict(named)), atol=1e-5)
    np.testing.assert_allclose(reasons.rating, ratings(recommender.model, held, CPU), atol=1e-5)


class CountsOneWord(RatingModel):
    """Rates by how often one word stands in the item's document, and by nothing else."""

    word = 1

    def forward(self, batch):
        return Prediction(1 + (batch.item_words == self.word).sum(1).float())


def naming(held, word):
    """Reasons that name one word of the item's documents."""
    nothing = np.zeros(held.user.words.shape, bool)
    flags = held.item.words == word
    model = CountsOneWord(None, None)
    return NamedReasons(
        ratings(model, held, CPU),
        NamedWords(nothing, nothing, np.zeros(nothing.shape)),
        NamedWords(flags, flags, flags.astype(float)),
    )


def common_words(held, number):
    words, rows = np.unique(held.item.words[held.item.there], return_counts=True)
    return words[np.argsort(-rows)][:number].tolist()


def test_naming_the_only_word_that_counts_is_comprehensive_and_sufficient(held, monkeypatch):
    counted, other = common_words(held, 2)
    monkeypatch.setattr(CountsOneWord, "word", counted)
    reasons = naming(held, counted)
    found = removal(Trial(CountsOneWord(None, None), held, reasons, CPU), (reasons.user.shown, reasons.item.shown))
    moves = found.beside_words
    assert moves.comprehensiveness.above
    assert moves.comprehensiveness.named == pytest.approx((held.item.words == counted).sum(1).mean())
    assert moves.sufficiency.below
    assert moves.sufficiency.named == 0
    assert moves.signed_comprehensiveness is None
    assert found.blanked_beside_words is None

    wrong = naming(held, other)
    found = removal(Trial(CountsOneWord(None, None), held, wrong, CPU), (wrong.user.shown, wrong.item.shown))
    assert found.beside_words.comprehensiveness.below
    assert found.beside_words.comprehensiveness.named == 0


def test_random_words_do_not_beat_themselves(recommender, held, reasons):
    """Words that an explanation did not choose are no better than chance: the measure cannot be won by default."""
    rng = np.random.default_rng(7)
    user, item = (
        random_words(texts, words.shown.sum(1), rng) for texts, words in zip(held.sides, reasons.sides, strict=True)
    )
    found = removal(Trial(recommender.model, held, reasons, CPU), (user, item), draws=8).beside_words
    for comparison in vars(found).values():
        assert comparison.pairs == len(held)
        assert min(comparison.p_t, comparison.p_wilcoxon) > 0.001


def test_equal_figures_are_never_called_different():
    found = compared([0.2] * 50, [0.2] * 50)
    assert (found.difference, found.p_t, found.p_wilcoxon, found.above, found.below) == (0, 1, 1, False, False)
    assert compared([np.nan], [1.0]) is None


# ---- agreement, resemblance, stability


def test_capsules_that_know_the_sign_agree_with_it_fully():
    rng = np.random.default_rng(0)
    liked = rng.random(200) < 0.8
    lengths = np.where(liked[:, None], [0.9, 0.1], [0.2, 0.7])
    found = agreement(lengths, liked, rng.random(200), rng.random(200))
    assert (found.auc, found.interval, found.prevailing) == (1, (1, 1), 1)
    assert found.liked == liked.sum()
    assert 0.3 < found.bias_auc < 0.7
    assert found.over_biases[0] > 0
    assert found.always == pytest.approx(liked.mean())


def test_agreement_is_unknown_where_everything_was_liked():
    assert agreement(np.ones((5, 2)), np.ones(5, bool), np.ones(5), np.ones(5)) is None


def named_sentences(held, reasons, choose):
    """The same reasons with the item's sentences chosen by `choose(row)` → sentence key, and none of the user's."""
    flags = np.array([held.item.sentences[row] == choose(row) for row in range(len(held))]) & held.item.there
    nothing = np.zeros_like(reasons.user.shown)
    return replace(reasons, user=replace(reasons.user, shown=nothing), item=replace(reasons.item, shown=flags))


def test_naming_every_sentence_resembles_the_review_as_chance_does(recommender, held, reasons):
    user, item = (replace(words, shown=texts.there) for texts, words in zip(held.sides, reasons.sides, strict=True))
    found = resemblance(recommender.fitted_corpus, held, replace(reasons, user=user, item=item))
    assert found.any.difference == pytest.approx(0, abs=1e-12)


def test_naming_the_sentence_with_most_words_of_the_review_resembles_it_more(recommender, held, reasons):
    fitted = recommender.fitted_corpus

    def score(row, key):
        written = set(fitted.vocabulary.encode(fitted.texts[int(held.pairs.records[row])])[0])
        words = held.item.words[row][held.item.sentences[row] == key].tolist()
        return len(written & set(words)) / len(words)

    def keys(row):
        return np.unique(held.item.sentences[row][held.item.there[row]])

    best = named_sentences(held, reasons, lambda row: max(keys(row), key=lambda key: score(row, key)))
    worst = named_sentences(held, reasons, lambda row: min(keys(row), key=lambda key: score(row, key)))
    found = resemblance(fitted, held, best)
    assert found.sentences == 1
    assert found.any.above
    assert found.like_length.above
    assert resemblance(fitted, held, worst).any.below


def test_the_weights_of_words_are_counted_on_training_reviews_alone(recommender):
    fitted = recommender.fitted_corpus
    word = int(fitted.user_documents.words[0])
    reviews = {
        int(record)
        for documents in (fitted.user_documents, fitted.item_documents)
        for record in documents.review[documents.words == word]
    }
    train = set(np.flatnonzero(fitted.part == 0).tolist())
    assert reviews <= train
    written = fitted.vocabulary.words[word - 1]
    assert all(written in tokenise(fitted.source(record).text)[0] for record in reviews)
    expected = np.log((1 + len(train)) / (1 + len(reviews))) + 1
    assert inverse_document_frequency(fitted)[word] == pytest.approx(expected)


def test_a_model_agrees_with_itself_fully(held, reasons):
    found = stability([held, held], [reasons, reasons], reasons.rating * 0)
    assert found.models == 2
    assert found.overlap.named == 1
    assert 0 < found.overlap.chance < 0.9
    assert found.reasons == pytest.approx(1)
    assert found.texts == pytest.approx(1)


def test_reasons_turned_around_are_not_stable(held, reasons):
    turned = replace(
        reasons,
        user=replace(reasons.user, pull=-reasons.user.pull, shown=held.user.there & ~reasons.user.shown),
        item=replace(reasons.item, pull=-reasons.item.pull, shown=held.item.there & ~reasons.item.shown),
    )
    found = stability([held, held], [reasons, turned], reasons.rating * 0)
    assert found.overlap.named == 0
    assert found.overlap.below
    assert found.reasons == pytest.approx(-1)


def test_models_of_another_split_are_not_compared(corpus, recommender):
    other = Recommender("carp", device="cpu", split_seed=1, epochs=1, **TINY).fit(corpus, progress=False)
    with pytest.raises(UsageError, match="same held-out pairs"):
        measure_explanations(recommender.explainer, against=[other.explainer])


# ---- aspects


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def scored(fitted, score):
    return [
        {"user": fitted.users[int(u)], "item": fitted.items[int(i)], "aspects": {"Value": score(r)}}
        for r, (u, i) in enumerate(zip(fitted.user, fitted.item, strict=True))
    ]


def test_aspect_scores_find_their_records(recommender, tmp_path):
    fitted = recommender.fitted_corpus
    rows = scored(fitted, lambda record: None if record == 2 else record % 5 + 1)[:10]
    rows += [{"user": "nobody", "item": "nothing", "aspects": {"Karma": 3}}, {"user": "u"}]
    found = read_aspects(write_rows(tmp_path / "rows.jsonl", rows), fitted)
    assert list(found) == ["Value"]
    assert found["Value"][:10].tolist() == pytest.approx([1, 2, np.nan, 4, 5, 1, 2, 3, 4, 5], nan_ok=True)
    assert np.isnan(found["Value"][10:]).all()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{}\n{", r"line 2: this is no JSON"),
        (b"[1]\n", "line 1: this is no JSON object"),
        (b'{"user": "a"}\n', "holds no aspect score"),
        (b"", "holds no aspect score"),
        (b"\xff\xfe", "no JSON"),
    ],
)
def test_a_file_without_aspect_scores_is_refused(recommender, tmp_path, content, message):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(content)
    with pytest.raises(InputError) as refused:
        read_aspects(path, recommender.fitted_corpus)
    assert message in str(refused.value)
    with pytest.raises(InputError, match="no such file"):
        read_aspects(tmp_path / "none.jsonl", recommender.fitted_corpus)


def test_a_score_that_is_no_number_is_refused_with_its_line(recommender, tmp_path):
    rows = scored(recommender.fitted_corpus, lambda record: "high" if record == 3 else 1)
    with pytest.raises(InputError, match="'high'") as refused:
        read_aspects(write_rows(tmp_path / "rows.jsonl", rows), recommender.fitted_corpus)
    assert "line 4" in str(refused.value)


def test_a_damaged_archive_of_scores_is_refused(recommender, tmp_path):
    path = tmp_path / "rows.jsonl.gz"
    path.write_bytes(b"not gzip")
    with pytest.raises(InputError, match="cannot be read"):
        read_aspects(path, recommender.fitted_corpus)


def correlated(recommender, held, reasons, badness):
    """Of the pairs, as they stand, where the held-out reviews scored Value so low."""
    scores = np.full(len(recommender.fitted_corpus.user), np.nan)
    scores[held.pairs.records] = -badness
    found = aspect_correlations(recommender.fitted_corpus, held, reasons, {"Value": scores, "Karma": scores}, draws=200)
    assert {one.aspect for one in found} == {"Value"}
    return next(one for one in found if (one.of, one.low) == ("pairs", "score"))


def test_scores_that_follow_from_the_pull_of_the_words_correlate_with_it_fully(recommender, held, reasons):
    price = [
        place for place, word in enumerate(recommender.fitted_corpus.vocabulary.words, 1) if word in ("price", "money")
    ]
    assert price
    spoken = np.isin(held.item.words, price) & held.item.there
    pull = np.where(spoken, -1.0, 0.0)  # talk of the price speaks against the thing, and nothing else does anything
    blamed = replace(reasons, item=replace(reasons.item, pull=pull))
    found = correlated(recommender, held, blamed, spoken.sum(1).astype(float))
    assert found.correlation["pull"] == pytest.approx(1)
    assert found.interval["pull"] == pytest.approx((1, 1))
    assert found.over_words["pull"][0] >= 0
    praised = replace(reasons, item=replace(reasons.item, pull=-pull))
    turned = correlated(recommender, held, praised, spoken.sum(1).astype(float))
    assert turned.correlation["pull"] == pytest.approx(-1)


def test_units_about_the_aspect_are_weighed_by_how_much_they_are_about_it(recommender, held, reasons):
    """Where only the first aspect side hears the words, only its coupling counts."""
    capsules = reasons.capsules
    attention = np.zeros_like(capsules.item_attention)
    attention[:, :, 0] = 1
    badness = (capsules.coupling[:, 1] - capsules.coupling[:, 0]).sum(1)[:, 0]
    heard = replace(reasons, capsules=replace(capsules, item_attention=attention))
    assert correlated(recommender, held, heard, badness).correlation["units"] == pytest.approx(1)
    badness = (capsules.lengths[:, 1, None] * capsules.coupling[:, 1].sum(1))[:, 0]
    badness -= (capsules.lengths[:, 0, None] * capsules.coupling[:, 0].sum(1))[:, 0]
    found = correlated(recommender, held, heard, badness)
    assert found.correlation["capsules"] == pytest.approx(1)
    assert found.over_lengths["capsules"][0] >= 0
    lengths = capsules.lengths[:, 1] - capsules.lengths[:, 0]
    assert correlated(recommender, held, heard, lengths).correlation["lengths"] == pytest.approx(1)


def test_too_few_items_are_not_told_of(recommender, held, reasons):
    scores = {"Value": np.arange(len(recommender.fitted_corpus.user), dtype=float)}
    found = aspect_correlations(recommender.fitted_corpus, held, reasons, scores, draws=20)
    assert len(recommender.fitted_corpus.items) < 30
    assert {one.of for one in found} == {"pairs"}


def test_what_is_left_beside_the_rating_has_nothing_to_do_with_it():
    rng = np.random.default_rng(0)
    rating = rng.integers(1, 6, 500).astype(np.float32)
    score = np.clip(rating + rng.integers(-1, 2, 500), 1, 5).astype(float)
    score[::7] = np.nan
    left = beside_rating(score, rating)
    known = np.isfinite(score)
    np.testing.assert_array_equal(np.isfinite(left), known)
    assert np.corrcoef(left[known], rating[known])[0, 1] == pytest.approx(0, abs=1e-9)


# ---- all of it


@pytest.fixture(scope="module")
def measured(corpus, shop, recommender, tmp_path_factory):
    other = trained(corpus, seed=1, **TINY)
    rows = scored(recommender.fitted_corpus, lambda record: record % 5 + 1)
    rows[0]["aspects"]["Karma"] = 2
    path = write_rows(tmp_path_factory.mktemp("aspects") / "rows.jsonl", rows)
    others = [other.explainer]
    return measure_explanations(recommender.explainer, pairs=60, against=others, aspects=path, shop=shop, draws=2)


def test_everything_is_measured_and_can_be_written(measured, recommender):
    assert measured.pairs == 60
    assert measured.planted.pairs == 60
    assert measured.stability.models == 2
    assert measured.aspects
    assert measured.sentences.blanked_beside_words is not None
    assert any("Karma" in note for note in measured.notes)
    read = json.loads(json.dumps(measured.as_dict(), allow_nan=False))
    assert read["sentences"]["beside_words"]["comprehensiveness"]["pairs"] == 60


def test_the_same_pairs_give_the_same_figures(measured, recommender):
    again = measure_explanations(recommender.explainer, pairs=60, draws=2)
    assert again.sentences == measured.sentences
    assert again.resemblance == measured.resemblance


def test_the_text_reads_every_figure(measured):
    text = faithfulness_text(measured)
    for part in ("60 held-out pairs", "random sentences", "blanked out", "AUC", "TF-IDF", "Jaccard", "Value"):
        assert part in text
    assert str(measured.planted.pairs) in text.split("Planted causes")[1]
    assert "nan" not in text.lower().split()
    assert max(map(len, text.splitlines())) < 190


@pytest.mark.parametrize(
    ("named", "chance", "says"),
    [(0.5, 0.1, "it rests on them"), (0.1, 0.5, "does not rest on them"), (0.3, 0.3, "cannot be told")],
)
def test_the_reading_follows_the_figures(measured, named, chance, says):
    rng = np.random.default_rng(0)
    noise = rng.normal(0, 0.01, 100)
    found = compared(named + noise, chance + noise[::-1])
    moves = replace(measured.sentences.beside_words, comprehensiveness=found)
    text = faithfulness_text(replace(measured, sentences=replace(measured.sentences, beside_words=moves)))
    assert says in text.split("Phrases marked")[0]


def test_words_that_overshoot_are_not_called_insufficient(measured):
    noise = np.random.default_rng(0).normal(0, 0.01, 100)
    moves = replace(
        measured.sentences.beside_words,
        sufficiency=compared(0.5 + noise, 0.2 - noise),
        signed_sufficiency=compared(-0.5 + noise, 0.2 - noise),
    )
    text = faithfulness_text(replace(measured, sentences=replace(measured.sentences, beside_words=moves)))
    assert "enough for the direction" in " ".join(text.split("Phrases marked")[0].split())


def test_models_without_reasons_are_refused(corpus):
    with pytest.raises(UsageError, match="without reasons"):
        measure_explanations(trained(corpus, "bias", epochs=1).explainer)


def test_a_model_that_reads_no_document_of_known_people_is_told_of(corpus):
    found = measure_explanations(trained(corpus, "tarmf", **OTHERS["tarmf"]).explainer, pairs=20, draws=1)
    assert found.sentences.beside_words.comprehensiveness.named == 0
    assert found.sentences.beside_words.comprehensiveness.p_t == 1
    assert found.agreement is None
    assert any("reads no document" in note for note in found.notes)
    assert "no rating moved" in faithfulness_text(found)


# ---- the command


@pytest.fixture(scope="module")
def bundle(recommender, saved):
    return saved(recommender)


def test_the_command_shows_both_kinds_of_figures(bundle, capsys):
    from carp.cli.evaluate_command import evaluate

    evaluate(bundle, explanations=True, pairs=20, as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert found["model"] == "carp"
    assert found["explanations"]["pairs"] == 20
    evaluate(bundle, explanations=True, pairs=20)
    text = capsys.readouterr().out
    assert "RMSE" in text
    assert "Are the explanations of carp" in text


def test_options_of_explanations_need_explanations(bundle):
    from carp.cli.evaluate_command import evaluate

    for option in ({"pairs": 5}, {"against": [bundle]}, {"aspects": bundle}):
        with pytest.raises(UsageError, match="only works with explanations"):
            evaluate(bundle, **option)


def test_the_demo_s_shop_is_known_again_and_no_other(corpus, recommender):
    from carp.cli.demo import QUICK_SHOP_SIZE, made_up_shop

    assert made_up_shop(recommender) is None
    demo = make_shop(seed=0, **QUICK_SHOP_SIZE)
    fitted = trained(build_corpus(read_reviews(demo.frame())), "bias", epochs=1)
    assert made_up_shop(fitted).reviews == demo.reviews
    assert made_up_shop(SimpleNamespace(fitted_corpus=SimpleNamespace(users=["A1"], items=["B2"]))) is None
