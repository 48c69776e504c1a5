"""What every model that explains promises; the others say who can."""

from __future__ import annotations

import copy
import json
import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

import carp
from carp.errors import UnknownIdError, UsageError
from carp.explain.explainer import explains
from carp.explain.explanation import Explanation
from carp.explain.praise import Praise
from carp.explain.question import known_pair
from carp.models import REGISTRY, model_class
from carp.models.carp import Carp
from carp.recommender import Recommender
from carp.render.explanation_json import explanation_json
from carp.render.html_page import explanation_page
from carp.render.terminal import explanation_text
from carp.reviews.split_parts import TEST, TRAIN

EXPLAINING = sorted(name for name in REGISTRY if explains(model_class(name)))
LISTENING = [name for name in EXPLAINING if not issubclass(model_class(name), Carp)]
SILENT = [name for name in sorted(REGISTRY) if name not in EXPLAINING]
NEWCOMER = ["superb strap and a brilliant cable", "the wood was flimsy, a poor switch"]


def some_pairs(rec, part, step):
    """Every so many pairs of a part of the corpus, by name, each with its record."""
    pairs = rec.fitted_corpus.pairs(part)
    for n in range(0, len(pairs), step):
        yield (
            rec.fitted_corpus.users[int(pairs.users[n])],
            rec.fitted_corpus.items[int(pairs.items[n])],
            int(pairs.records[n]),
        )


def sentences_of(explanation):
    sides = [*explanation.viewpoints, *explanation.aspects]
    sides += [side for unit in explanation.units for side in (unit.viewpoint, unit.aspect)]
    return [sentence for side in sides for sentence in side.sentences]


def attention_of(rec, batch):
    with torch.no_grad():
        found = rec.model.explain(batch, rec.model(batch))
    assert found is not None
    return (
        (found.user_words, batch.user_words > 0, found.user_names, found.user_weights),
        (found.item_words, batch.item_words > 0, found.item_names, found.item_weights),
    )


def test_the_models_that_read_documents_explain_and_those_of_ratings_or_topics_do_not():
    assert {"carp", "carp-ra", "deepconn", "transnet", "dattn", "tarmf", "mpcn", "anr", "ridge"} <= set(EXPLAINING)
    assert {"narre", "daml", "transformer"} <= set(EXPLAINING)
    assert {"mean", "bias", "mf", "pmf", "rblt", "cmle", "hft", "convmf"} <= set(SILENT)


@pytest.mark.parametrize("name", SILENT)
def test_a_model_without_reasons_names_those_that_have_some(made_up, name):
    rec = made_up.of(name)
    asked = [lambda: rec.explain("p01", "t01"), lambda: rec.explain_for(NEWCOMER, "t01")]
    for ask in asked:
        with pytest.raises(UsageError, match="without reasons") as caught:
            ask()
        assert all(able in str(caught.value) for able in EXPLAINING)


# ---- the attention of models without capsules


@pytest.mark.parametrize("name", LISTENING)
def test_every_side_shares_itself_out_among_the_words_and_gives_padding_nothing(made_up, name):
    rec = made_up.of(name)
    data, pairs = rec.fitted_corpus.training_data(), rec.fitted_corpus.pairs(TEST)
    person, thing = rec.fitted_corpus.users.index()["p00"], rec.fitted_corpus.items.index()["t00"]
    silent = np.flatnonzero((pairs.users == person) | (pairs.items == thing))
    batch = data.batch(pairs, np.concatenate([np.arange(12), silent]))
    assert bool((batch.user_words == 0).any()), "there is padding"
    assert bool((batch.item_words > 0).any(1).logical_not().any()), "there are empty documents"
    for words, there, names, weights in attention_of(rec, batch):
        assert words.shape == (*there.shape, len(names))
        assert len(set(names)) == len(names)
        assert bool((words >= 0).all())
        assert bool((words[~there] == 0).all())
        expected = there.any(1, keepdim=True).to(words.dtype).expand(-1, len(names))
        torch.testing.assert_close(words.sum(1), expected, rtol=0, atol=1e-5)
        if weights is not None:
            assert weights.shape == (len(batch), len(names))
            assert bool((weights >= 0).all())
            torch.testing.assert_close(weights.sum(1), torch.ones(len(batch)), rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", LISTENING)
def test_a_pair_is_explained_alone_as_among_others(made_up, name):
    rec = made_up.of(name)
    data, pairs = rec.fitted_corpus.training_data(), rec.fitted_corpus.pairs(TEST)
    together = attention_of(rec, data.batch(pairs, np.arange(8)))
    for row in (0, 5):
        alone = attention_of(rec, data.batch(pairs, np.array([row])))
        for (whole, _, _, weights), (single, there, _, own) in zip(together, alone, strict=True):
            torch.testing.assert_close(whole[row, : there.shape[1]], single[0], rtol=1e-3, atol=1e-5)
            if weights is not None:
                torch.testing.assert_close(weights[row], own[0], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", LISTENING)
def test_listening_leaves_no_gradient_behind(made_up, name):
    rec = made_up.of(name)
    rec.model.zero_grad(set_to_none=True)
    rec.explain("p01", "t01")
    assert all(parameter.grad is None for parameter in rec.model.parameters())


def test_where_no_word_is_heard_more_than_another_none_is_shown(made_up):
    rec = made_up.of("deepconn")
    model = copy.deepcopy(rec.model)
    with torch.no_grad():
        model.machine.weight.zero_()
        model.machine.factors.zero_()
    deaf = Recommender.of(replace(rec.fitted_model, model=model))
    assert sentences_of(rec.explain("p01", "t01"))
    found = deaf.explain("p01", "t01")
    assert sentences_of(found) == []
    assert "No word stands out." in str(found)


# ---- explanations of all models that give them


@pytest.mark.parametrize("name", EXPLAINING)
def test_an_explanation_is_of_the_rating_that_is_predicted(made_up, name):
    rec = made_up.of(name)
    asked = [*some_pairs(rec, TEST, 9), *some_pairs(rec, TRAIN, 40)]
    rated = rec.predict([pair[:2] for pair in asked])
    for (user, item, _), rating in zip(asked, rated, strict=True):
        found = rec.explain(user, item)
        assert (found.model, found.user, found.item) == (name, user, item)
        assert found.rating == pytest.approx(rating, abs=1e-3)


@pytest.mark.parametrize("name", EXPLAINING)
def test_pairs_that_are_explained_together_are_explained_as_if_alone(made_up, name):
    """Trained on or not, and also where there is none: whatever was asked before is kept by the service."""
    rec = made_up.of(name)
    corpus, explainer = rec.fitted_corpus, rec.explainer
    asked = [one for pair in zip(some_pairs(rec, TRAIN, 60), some_pairs(rec, TEST, 30), strict=False) for one in pair]
    questions = [known_pair(corpus, corpus.users.index()[u], corpus.items.index()[i]) for u, i, _ in asked]
    together = explainer.explain(questions)
    assert len(together) == len(questions) > 3
    for question, found in zip(questions, together, strict=True):
        (alone,) = explainer.explain([question])
        assert (found.user, found.item, found.notes) == (alone.user, alone.item, alone.notes)
        assert found.rating == pytest.approx(alone.rating, abs=1e-5)
        assert found.baseline == pytest.approx(alone.baseline, abs=1e-5)
        assert (found.low, found.high) == pytest.approx((alone.low, alone.high), abs=1e-5)
        assert [one.text for one in sentences_of(found)] == [one.text for one in sentences_of(alone)]
    assert explainer.explain([]) == []


@pytest.mark.parametrize("name", EXPLAINING)
def test_all_sides_stand_in_their_order_with_names_and_weights(made_up, name):
    rec = made_up.of(name)
    spoken = 0
    for user, item, _ in some_pairs(rec, TEST, 9):
        found = rec.explain(user, item)
        for sides in (found.viewpoints, found.aspects):
            assert [side.index for side in sides] == list(range(1, len(sides) + 1))
            assert all(side.name for side in sides)
            assert not sides or sum(side.weight for side in sides) == pytest.approx(1, abs=1e-4)
        spoken += len(sentences_of(found))
        if issubclass(rec.kind, Carp):
            assert len(found.viewpoints) == len(found.aspects) == rec.config.viewpoints
            assert found.prevailing in ("positive", "negative")
            coupling = np.array(getattr(found, f"coupling_{found.prevailing}"))
            heard = [side.weight for side in found.viewpoints]
            np.testing.assert_allclose(heard, coupling.sum(1) / coupling.sum(), rtol=1e-6)
        else:
            assert (found.positive, found.negative, found.prevailing) == (None, None, None)
            assert found.coupling_positive == found.coupling_negative == found.units == ()
            assert found.meaning
    assert spoken > 0, "some sentence was listened to"


@pytest.mark.parametrize("name", [name for name in EXPLAINING if model_class(name).explained_by == "sum"])
def test_the_parts_that_are_shown_sum_to_the_rating(made_up, name):
    rec = made_up.of(name)
    for user, item, _ in [*some_pairs(rec, TEST, 9), *some_pairs(rec, TRAIN, 40)]:
        found = rec.explain(user, item)
        assert sum(part.amount for part in found.parts) == pytest.approx(found.rating, abs=1e-4)
        told = {part.name: part.amount for part in found.parts}
        assert all(finding.amount == pytest.approx(told[finding.aspect], abs=1e-5) for finding in found.findings)


@pytest.mark.parametrize("name", EXPLAINING)
def test_quotes_are_what_people_wrote_of_other_pairs_and_marks_lie_inside(made_up, name):
    """Above all, a pair's own review never speaks for it."""
    rec = made_up.of(name)
    texts = {row[:2]: row[3] for row in made_up.rows}
    for user, item, record in [*some_pairs(rec, TEST, 9), *some_pairs(rec, TRAIN, 40)]:
        found = rec.explain(user, item)
        for sentence in sentences_of(found):
            assert (sentence.user, sentence.item) != (user, item)
            assert user == sentence.user or item == sentence.item
            assert sentence.text in texts[sentence.user, sentence.item]
            assert sentence.marks
            assert all(0 <= mark.start < mark.end <= len(sentence.text) for mark in sentence.marks)
        if rec.fitted_corpus.part[record] == TRAIN:
            assert found.target is None
            assert any("trained on" in note for note in found.notes)
        else:
            assert found.target.text == texts[user, item]


@pytest.mark.parametrize("name", EXPLAINING)
def test_json_gives_back_all_of_it(made_up, name):
    explanation = made_up.of(name).explain("p01", "t01")
    again = json.loads(explanation_json(explanation))
    assert again == json.loads(json.dumps(explanation.as_dict()))
    assert again["model"] == name
    assert set(again) == {*Explanation.__dataclass_fields__, "prevailing", "little_known"}
    assert len(again["viewpoints"]) == len(explanation.viewpoints)


@pytest.mark.parametrize("name", EXPLAINING)
def test_an_explanation_reads_as_text_and_page(made_up, name):
    rec = made_up.of(name)
    for user, item, _ in some_pairs(rec, TEST, 20):
        explanation = rec.explain(user, item)
        text, page = explanation_text(explanation, width=100), explanation_page(explanation)
        for shown in (text, page):
            assert user in shown
            assert item in shown
            assert "None" not in shown
            assert not re.search(r"\bnan\b", shown)
        if explanation.prevailing is None and not explanation.little_known:
            assert "listened to" in text
            assert "speaks for it" not in page


@pytest.mark.parametrize("name", EXPLAINING)
def test_the_same_question_is_answered_by_the_same_bits(made_up, name, tmp_path):
    rec = made_up.of(name)
    first = rec.explain("p01", "t01").as_dict()
    rec.explain("p02", "t03")
    assert rec.explain("p01", "t01").as_dict() == first
    rec.save(tmp_path / "model")
    assert carp.load(tmp_path / "model", device="cpu").explain("p01", "t01").as_dict() == first


@pytest.mark.parametrize("name", EXPLAINING)
def test_unknown_ids_and_unknown_details_are_refused(made_up, name):
    rec = made_up.of(name)
    with pytest.raises(UnknownIdError, match="nobody"):
        rec.explain("nobody", "t01")
    with pytest.raises(UnknownIdError, match="nothing"):
        rec.explain("p01", "nothing")
    with pytest.raises(UsageError, match="sentnces"):
        rec.explain("p01", "t01", sentnces=1)


@pytest.mark.parametrize("name", EXPLAINING)
def test_empty_documents_have_nothing_to_quote_and_say_so(made_up, name):
    rec = made_up.of(name)
    for user, item, empty in (("p00", "t00", "pt"), ("p00", "t01", "p"), ("p01", "t00", "t")):
        found = rec.explain(user, item)
        assert 1 <= found.rating <= 5
        if rec.kind.explained_by != "sum":  # which shows only what there is something to say of
            assert found.viewpoints
            assert found.aspects
        if "p" in empty:
            assert not any(side.sentences or side.phrases for side in found.viewpoints)
            assert any("the person's side is empty" in note for note in found.notes)
        if "t" in empty:
            assert not any(side.sentences or side.phrases for side in found.aspects)
            assert any("the thing's side is empty" in note for note in found.notes)
        assert explanation_page(found)
        assert str(found)


@pytest.mark.parametrize("name", EXPLAINING)
def test_a_newcomer_is_explained(made_up, name):
    rec = made_up.of(name)
    found = rec.explain_for(NEWCOMER, "t01")
    assert found.user is None
    assert found.rating == pytest.approx(rec.predict_for(NEWCOMER, ["t01"])[0], abs=1e-3)
    quoted = [sentence for side in found.viewpoints for sentence in side.sentences]
    assert all(any(sentence.text in text for text in NEWCOMER) for sentence in quoted)
    assert all(sentence.user is None for sentence in quoted)
    assert found.target is None
    with pytest.raises(UnknownIdError, match="nothing"):
        rec.explain_for(NEWCOMER, "nothing")


@pytest.mark.parametrize("name", EXPLAINING)
def test_no_sentence_that_a_newcomer_pastes_is_read_again_for_each_other_one(made_up, name, monkeypatch):
    """A review of a thousand sentences would keep the service for minutes."""
    rec = made_up.of(name)
    read, as_before = Counter(), Praise.of_texts
    monkeypatch.setattr(Praise, "of_texts", lambda self, texts: read.update(texts) or as_before(self, texts))
    rec.explain_for(" ".join(f"{NEWCOMER[n % 2].capitalize()} number {n}." for n in range(60)), "t01")
    pasted = {text: times for text, times in read.items() if "number" in text}
    assert max(pasted.values(), default=0) <= 2, "once with all others and once where it is quoted"


@pytest.mark.parametrize("name", EXPLAINING)
def test_fewer_sentences_are_shown_where_fewer_are_asked_for(made_up, name):
    rec = made_up.of(name)
    for user, item, _ in some_pairs(rec, TEST, 20):
        found = rec.explain(user, item, sentences=1)
        assert all(len(side.sentences) <= 1 for side in (*found.viewpoints, *found.aspects))
