"""New reviews for a model that is solved for at once: those who are touched are solved for, nothing else moves."""

from __future__ import annotations

import shutil

import numpy as np
import polars
import pytest
import torch

import carp
from carp.cli import entry
from carp.upkeep.forgetting import forget
from carp.upkeep.updating import read_for, update, update_model

WEIGHTS = ("mean", "meetings", "strengths", "bigrams", "user_side.weight", "item_side.weight", "curve.coefficients")


@pytest.fixture
def model(solved, tmp_path):
    return shutil.copytree(solved, tmp_path / "model")


def test_weights_stay_and_only_those_who_are_touched_move(model):
    new = polars.DataFrame({"user": ["somebody"], "item": ["thing-003"], "rating": [1], "text": ["It broke at once."]})
    before = carp.load(model, device="cpu")
    report = update_model(model, new, device="cpu")
    after = carp.load(model, device="cpu")
    assert not report.fitted_again
    states = before.model.state_dict(), after.model.state_dict()
    assert all(torch.equal(states[0][name], states[1][name]) for name in WEIGHTS)
    thing = before.number_of("item", "thing-003")
    moved = torch.nonzero(before.model.item != after.model.item).flatten().tolist()
    assert moved == [thing]
    assert after.predict([("somebody", "thing-004")]).notes == (None,)


def test_of_two_new_people_the_one_who_rated_lower_is_expected_to_rate_lower(model, frame):
    things = sorted(set(frame["item"]))
    rated = {"item": things[:8], "text": ["It is here."] * 8}
    rows = [
        polars.DataFrame({"user": [name] * 8, "rating": [stars] * 8, **rated})
        for name, stars in (("low", 1), ("high", 5))
    ]
    update_model(model, polars.concat(rows), device="cpu")
    after = carp.load(model, device="cpu")
    low, high = (np.array(list(after.predict([(name, thing) for thing in things[8:]]))) for name in ("low", "high"))
    assert (low < high - 0.2).all()


def test_refit_gives_the_model_that_forgetting_and_training_would_solve_for(model, frame):
    before = carp.load(model, device="cpu")
    after, report = update(before, read_for(before, frame[180:]), refit=True)
    assert report.fitted_again
    weights = [made.model.state_dict()["user_side.weight"] for made in (before, after)]
    assert not torch.equal(*weights)
    reviews = read_for(before, frame[180:])
    solved = forget(update(before, reviews)[0], "person-003").model.state_dict()
    refitted = forget(after, "person-003").model.state_dict()
    assert all(torch.equal(solved[name], refitted[name]) for name in solved)


def test_a_model_that_is_fitted_again_answers_and_is_measured_as_when_it_is_opened(model, tmp_path):
    """What was read with the weights of before says nothing of the new ones."""
    before = carp.load(model, device="cpu")
    _ = before.fitted_model.sides
    after = forget(before, "person-003")
    after.save(tmp_path / "after")
    again = carp.load(tmp_path / "after", device="cpu")
    pairs = [(user, item) for user in again.fitted_corpus.users for item in again.fitted_corpus.items]
    assert list(after.predict(pairs)) == list(again.predict(pairs))
    assert again.fitted_model.measure_margin() == again.facts["margin"]
    assert again.explainer.degree_scale() == again.facts["degree_scale"]


def test_forgetting_learns_again_how_sentences_are_read(model):
    before = carp.load(model, device="cpu")
    after = forget(before, "person-003")
    guides = [made.explainer.guide.columns() for made in (before, after)]
    assert any(not np.array_equal(guides[0][name], guides[1][name]) for name in guides[0])


def test_the_command_says_when_a_model_was_fitted_again(model, frame, tmp_path, capsys):
    frame[180:].write_csv(tmp_path / "new.csv")
    assert entry.main(["update", str(model), str(tmp_path / "new.csv"), "--refit", "--device", "cpu"]) == 0
    assert "fitted again on all reviews" in capsys.readouterr().err
