"""What every registered model promises; a new line in the registry is picked up by itself."""

from __future__ import annotations

import dataclasses
from dataclasses import replace

import numpy as np
import pytest
import torch

import carp
from carp.errors import UsageError
from carp.models import REGISTRY, model_class, model_entry
from carp.models.base import RatingModel, make_config
from carp.models.batch import Pairs
from carp.models.predict import predict_pairs
from carp.recommender import Recommender
from carp.reviews.split_parts import TEST, TRAIN


def weights(rec):
    return {name: tensor.clone() for name, tensor in rec.model.state_dict().items()}


def same_weights(one, other):
    assert one.keys() == other.keys()
    return [name for name in one if not torch.equal(one[name], other[name])] == []


def rows_of(batch):
    """The batch's pairs one at a time, each without the padding it does not need."""
    for row in range(len(batch)):
        fields = {f.name: getattr(batch, f.name) for f in dataclasses.fields(batch)}
        yield replace(
            batch, **{name: value[row : row + 1] for name, value in fields.items() if isinstance(value, torch.Tensor)}
        )


# ---- the registry


def test_the_registry_leads_to_a_model_with_a_frozen_configuration(name):
    kind = model_class(name)
    assert issubclass(kind, RatingModel)
    assert model_entry(name).summary
    assert kind.needs <= {"ids", "documents", "names", "reviews", "target_review"}
    config = make_config(kind, model_entry(name).settings)
    assert dataclasses.is_dataclass(config)
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.anything = 1  # type: ignore[union-attr]


def test_an_unknown_setting_is_refused(name):
    with pytest.raises(UsageError, match="there is no setting 'lerning_rate'") as caught:
        Recommender(name, lerning_rate=0.1)
    assert "learning_rate" in str(caught.value)


def test_an_unknown_model_is_refused_with_the_nearest():
    with pytest.raises(UsageError, match="did you mean carp"):
        Recommender("crap")


# ---- predicting


def test_ratings_are_finite_and_in_range_for_everybody(made_up, name):
    found = np.array(made_up.of(name).predict(made_up.pairs))
    assert found.shape == (len(made_up.pairs),)
    assert np.isfinite(found).all()
    assert found.min() >= 1
    assert found.max() <= 5


def test_empty_documents_are_answered(made_up, name):
    rec = made_up.of(name)
    assert rec.fitted_corpus.user_documents.lengths()[rec.fitted_corpus.users.index()["p00"]] == 0
    assert rec.fitted_corpus.item_documents.lengths()[rec.fitted_corpus.items.index()["t00"]] == 0
    found = rec.predict([("p00", "t00"), ("p00", "t01"), ("p01", "t00")])
    assert np.isfinite(np.array(found)).all()
    assert found.notes == (None, None, None)


def test_unknown_ids_are_answered_and_noted(made_up, name):
    found = made_up.of(name).predict([("p01", "t01"), ("nobody", "t01"), ("p01", "nothing"), ("nobody", "nothing")])
    assert np.isfinite(np.array(found)).all()
    assert all(1 <= rating <= 5 for rating in found)
    known, user, item, both = found.notes
    assert known is None
    assert "unknown user" in user
    assert "unknown item" in item
    assert "unknown user and item" in both


def test_no_pairs_give_no_ratings(made_up, name):
    assert list(made_up.of(name).predict([])) == []


def test_a_batch_of_one_says_what_a_batch_of_many_says(made_up, name):
    rec = made_up.of(name)
    chosen = made_up.pairs[::29]
    alone = [rec.predict([pair])[0] for pair in chosen]
    np.testing.assert_allclose(np.array(rec.predict(chosen)), alone, atol=1e-4)


def test_the_order_of_pairs_does_not_matter(made_up, name):
    rec = made_up.of(name)
    order = np.random.default_rng(0).permutation(len(made_up.pairs))
    found = np.array(rec.predict([made_up.pairs[n] for n in order]))
    np.testing.assert_allclose(found, np.array(rec.predict(made_up.pairs))[order], atol=1e-4)


def test_asking_twice_gives_the_same_bits(made_up, name):
    rec = made_up.of(name)
    assert list(rec.predict(made_up.pairs)) == list(rec.predict(made_up.pairs))


def test_forward_agrees_with_separate_sides_and_with_single_rows(made_up, name):
    rec = made_up.of(name)
    data, pairs = rec.fitted_corpus.training_data(), rec.fitted_corpus.pairs(TEST)
    with torch.no_grad():
        (batch,) = data.batches(pairs)
        whole = rec.model(batch).rating
        assert whole.shape == (len(pairs),)
        single = torch.cat([rec.model(row).rating for row in rows_of(batch)])
    torch.testing.assert_close(single, whole, rtol=1e-4, atol=1e-4)
    separate = predict_pairs(rec.model, data, pairs, rec.device)
    np.testing.assert_allclose(separate, whole.clamp(1, 5), atol=1e-4)


# ---- learning


def test_the_loss_and_its_gradients_are_finite(made_up, name):
    rec = made_up.of(name)
    fitted = rec.fitted_corpus
    torch.manual_seed(0)
    model = rec.kind(rec.config, fitted.sizes)
    data = fitted.training_data()
    model.start(data)
    silent = np.flatnonzero((fitted.pairs(TRAIN).users == 0) | (fitted.pairs(TRAIN).items == 0))
    for chosen in (np.arange(20), silent):
        batch = data.batch(data.train, chosen, training=True)
        model.train().zero_grad()
        loss = model.loss(batch, model(batch))
        assert loss.shape == ()
        assert torch.isfinite(loss)
        if loss.requires_grad:
            loss.backward()
        for parameter, tensor in model.named_parameters():
            assert tensor.grad is None or torch.isfinite(tensor.grad).all(), parameter


def test_it_beats_the_mean_where_ratings_follow_from_people_and_things(made_up, name):
    if name == "mean":
        pytest.skip("the mean is what the others are held against")
    rows = made_up.of(name).evaluate()["rows"]
    assert rows[name]["mse"] < 0.9 * rows["mean"]["mse"], rows


def test_evaluation_stands_beside_the_mean_and_the_biases(made_up, name):
    found = made_up.of(name).evaluate()
    assert {name, "mean", "bias"} == set(found["rows"])
    test = made_up.of(name).fitted_corpus.test_pairs()
    assert found["test_pairs"] == len(test)
    mean = made_up.of("mean").fitted_corpus.pairs(TRAIN).ratings.mean()
    assert found["rows"]["mean"]["mse"] == pytest.approx(float(np.square(test.ratings - mean).mean()), rel=1e-5)


def test_the_same_seed_gives_the_same_weights_and_another_seed_others(made_up, name):
    first = made_up.fit(name, made_up.corpus, made_up.split, seed=5, epochs=2)
    again = made_up.fit(name, made_up.corpus, made_up.split, seed=5, epochs=2)
    assert same_weights(weights(first), weights(again))
    assert list(first.predict(made_up.pairs)) == list(again.predict(made_up.pairs))
    if first.kind.learns:
        other = made_up.fit(name, made_up.corpus, made_up.split, seed=6, epochs=2)
        assert not same_weights(weights(first), weights(other))


# ---- leaks


def test_held_out_texts_leave_no_trace(made_up, name):
    """The same split, every validation and test review replaced: weights and predictions equal to the bit."""
    assert list(made_up.noisy.texts) != list(made_up.corpus.texts)
    honest = made_up.fit(name, made_up.corpus, made_up.split, epochs=3)
    noisy = made_up.fit(name, made_up.noisy, made_up.split, epochs=3)
    assert honest.fitted_corpus.vocabulary.words == noisy.fitted_corpus.vocabulary.words
    assert same_weights(weights(honest), weights(noisy))
    assert list(honest.predict(made_up.pairs)) == list(noisy.predict(made_up.pairs))


def with_noise(documents, record, words, seed):
    """The documents with the words of one review replaced by others."""
    rng = np.random.default_rng(seed)
    changed = documents.words.copy()
    there = documents.review == record
    changed[there] = 1 + (changed[there] + rng.integers(1, words - 1, there.sum())) % words
    assert (changed[there] != documents.words[there]).all()
    return replace(documents, words=changed.astype(np.int32)), int(there.sum())


def test_a_target_review_never_reaches_its_own_prediction(made_up, name):
    """In training, and when a training pair is asked for later: its own words may be anything."""
    rec = made_up.of(name)
    fitted = rec.fitted_corpus
    data, pairs = fitted.training_data(), fitted.pairs(TRAIN)
    replaced = 0
    for n in range(0, len(pairs), 17):
        record = int(pairs.records[n])
        users, count = with_noise(fitted.user_documents, record, fitted.sizes.words, n)
        items, _ = with_noise(fitted.item_documents, record, fitted.sizes.words, n)
        noisy = replace(data, user_documents=users, item_documents=items)
        with torch.no_grad():
            ratings = [rec.model(d.batch(pairs, np.array([n]), training=True)).rating for d in (data, noisy)]
        assert torch.equal(*ratings)
        replaced += count
    assert replaced > 20, "there were words to replace"


def test_a_training_pair_is_predicted_without_its_own_review(made_up, name):
    rec = made_up.of(name)
    fitted, pairs = rec.fitted_corpus, rec.fitted_corpus.pairs(TRAIN)
    for n in range(0, len(pairs), 41):
        record = int(pairs.records[n])
        pair = fitted.users[int(pairs.users[n])], fitted.items[int(pairs.items[n])]
        noisy = replace(
            fitted,
            user_documents=with_noise(fitted.user_documents, record, fitted.sizes.words, n)[0],
            item_documents=with_noise(fitted.item_documents, record, fitted.sizes.words, n)[0],
        )
        other = Recommender.of(replace(rec.fitted_model, corpus=noisy))
        assert list(other.predict([pair])) == list(rec.predict([pair]))


def test_an_unasked_rating_changes_nothing(made_up, name):
    """Ratings given along with pairs that are only predicted are never looked at."""
    rec = made_up.of(name)
    data, pairs = rec.fitted_corpus.training_data(), rec.fitted_corpus.pairs(TEST)
    others = Pairs(pairs.users, pairs.items, 6 - pairs.ratings, np.full(len(pairs), -1))
    found = [predict_pairs(rec.model, data, asked, rec.device) for asked in (pairs, others)]
    assert (found[0] == found[1]).all()


# ---- keeping


def test_a_saved_model_predicts_the_same_bits(made_up, name, tmp_path):
    rec = made_up.of(name)
    size = rec.save(tmp_path / "model")
    assert size == sum(file.stat().st_size for file in (tmp_path / "model").rglob("*") if file.is_file())
    again = carp.load(tmp_path / "model", device="cpu")
    asked = [*made_up.pairs, ("nobody", "t01"), ("p01", "nothing")]
    assert list(again.predict(asked)) == list(rec.predict(asked))
    assert again.predict(asked).notes == rec.predict(asked).notes
    assert again.config == rec.config
    assert again.training == rec.training
    assert again.text == rec.text
    assert again.evaluate() == rec.evaluate()


def test_a_model_saved_again_is_the_same_folder(made_up, name, tmp_path):
    made_up.of(name).save(tmp_path / "one")
    chance = torch.get_rng_state()
    carp.load(tmp_path / "one", device="cpu").save(tmp_path / "two")
    assert torch.equal(torch.get_rng_state(), chance), "a model that is read draws nothing by chance"
    files = sorted(file.name for file in (tmp_path / "one").iterdir())
    assert files == sorted(file.name for file in (tmp_path / "two").iterdir())
    for file in files:
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes(), file


def test_the_registry_holds_the_paper_and_its_references():
    papers = {"pmf", "rblt", "cmle", "deepconn", "dattn", "transnet", "tarmf", "mpcn", "anr", "carp", "carp-ra"}
    later = {"hft", "convmf", "narre", "daml", "transformer"}
    assert papers | later | {"mean", "bias", "mf", "ridge"} <= set(REGISTRY)


def test_a_stopped_training_goes_on_to_the_same_bits(made_up, name, tmp_path):
    if not model_class(name).learns:
        pytest.skip("fitted in one go")

    def fitted(epochs, resume):
        rec = Recommender(name, device="cpu", **{**made_up.settings_for(name), "epochs": epochs})
        folder = tmp_path / ("stopped" if resume is not None else "whole")
        return rec.fit(made_up.corpus, split=made_up.split, checkpoints=folder, resume=bool(resume), progress=False)

    whole = fitted(3, None)
    fitted(2, False)
    assert same_weights(weights(fitted(3, True)), weights(whole))


def test_somebody_known_only_by_reviews_is_rated_where_documents_are_read(made_up, name):
    rec = made_up.of(name)
    items = [rec.fitted_corpus.items[1], rec.fitted_corpus.items[2], "nothing"]
    text = ["superb strap and a brilliant cable", "the wood was flimsy, a poor switch"]
    if not rec.model.reads_documents:
        with pytest.raises(UsageError):
            rec.predict_for(text, items)
        return
    ratings = rec.predict_for(text, items)
    assert all(1 <= rating <= 5 for rating in ratings)
    assert ratings.notes[:2] == (None, None)
    assert "unknown item" in ratings.notes[2]
    assert {found.item for found in rec.recommend_for(text, 3)} <= set(rec.fitted_corpus.items)
