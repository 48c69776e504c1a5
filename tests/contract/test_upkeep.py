"""Every model takes in new reviews and forgets people; what was not touched is answered as before."""

from __future__ import annotations

import numpy as np
import polars
import pytest
import torch

import carp
from carp.upkeep.forgetting import forget
from carp.upkeep.updating import update

NEW = [
    ("p01", "t99", 5, "superb solid cable"),
    ("p99", "t02", 1, "awful broken strap"),
    ("p99", "t99", 4, "reliable wood neck"),
]


@pytest.fixture
def updated(name, made_up):
    frame = polars.DataFrame(NEW, schema=["user", "item", "rating", "text"], orient="row")
    before = made_up.of(name)
    after, report = update(before, carp.read_reviews(frame, rating_range=(1, 5)))
    assert (report.reviews, report.new_users, report.new_items) == (3, 1, 1)
    return before, after


def unmoved(before, after, pairs):
    """Whether pairs that were not trained on are rated as before; those that were are rated without their own rating,
    which all others have a part in."""
    rated = {(user, item) for user, item in pairs if not trained(before, user, item)}
    assert rated
    ratings = [np.array(list(recommender.predict(sorted(rated)))) for recommender in (before, after)]
    return np.abs(ratings[0] - ratings[1]).max() < 1e-5


def trained(recommender, user, item):
    numbers = recommender.number_of("user", user), recommender.number_of("item", item)
    return recommender.fitted_model.trained_record(*numbers) >= 0


def test_an_updated_model_knows_new_people_and_things_and_keeps_its_other_answers(name, updated):
    before, after = updated
    assert after.predict([("p99", "t99"), ("p99", "t05"), ("p05", "t99")]).notes == (None, None, None)
    assert before.predict([("p99", "t99")]).notes != (None,)
    others = [(f"p{p:02}", f"t{t:02}") for p in range(2, 30) for t in range(3, 14)]
    if before.model.learns or before.model.takes_in:
        assert unmoved(before, after, others)
    assert after.fitted_corpus.sizes.users == before.fitted_corpus.sizes.users + 1


def test_a_forgotten_person_is_unknown_and_the_others_are_answered_as_before(name, made_up):
    before = made_up.of(name)
    after = forget(before, "p07")
    assert "unknown user" in str(after.predict([("p07", "t03")]).notes[0])
    theirs = {row[1] for row in made_up.rows if row[0] == "p07"}
    assert "p07" not in list(after.fitted_corpus.users)
    if before.model.learns:
        others = [(f"p{p:02}", f"t{t:02}") for p in (1, 8, 29) for t in range(14) if f"t{t:02}" not in theirs]
        assert unmoved(before, after, others)


def test_a_model_in_closed_form_forgets_as_if_it_had_never_known(made_up):
    """Fitted again with the same parts of the split, nothing of the person is in the weights either."""
    from carp.models.layers import TunedBiases

    before = made_up.of("bias")
    after = forget(before, "p07")
    corpus = after.fitted_corpus
    alone = TunedBiases(corpus.sizes)
    data = corpus.training_data()
    alone.fit(data.train, data.valid, corpus.levels)
    for one, other in zip(after.model.state_dict().values(), alone.state_dict().values(), strict=True):
        assert torch.equal(one, other)
