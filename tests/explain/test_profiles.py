"""Profiles: what a model knows of a person and of a thing, as data, text and page."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import carp
from carp.cli.entry import main
from carp.errors import UnknownIdError
from carp.explain.explainer import AspectOpinion, SharedViewpoint
from carp.explain.explanation import Mark, Sentence, Side
from carp.explain.profiles import PersonProfile, ThingProfile
from carp.render.profile_views import profile_fragment, profile_json, profile_page, profile_text
from carp.reviews.split_parts import TRAIN

SETTINGS = {"epochs": 2, "dimension": 12, "filters": 8, "latent_size": 6, "viewpoints": 3, "min_reviews": 1}


@pytest.fixture(scope="module")
def recommender():
    torch.set_num_threads(1)
    shop = carp.make_shop(people=24, things=10, reviews_per_person=8, seed=4)
    made = carp.Recommender("carp", seed=0, device="cpu", **SETTINGS)
    return made.fit(carp.read_reviews(shop.frame()), progress=False)


@pytest.fixture(scope="module")
def ratings_only():
    shop = carp.make_shop(people=24, things=10, reviews_per_person=8, seed=4)
    made = carp.Recommender("bias", seed=0, device="cpu", min_reviews=1)
    return made.fit(carp.read_reviews(shop.frame()), progress=False)


def records_of(recommender, kind, name):
    fitted = recommender.fitted_corpus
    number = getattr(fitted, f"{kind}s").index()[name]
    return np.flatnonzero((fitted.part == TRAIN) & (getattr(fitted, kind) == number))


def test_a_person_is_known_by_training_reviews_alone(recommender):
    fitted = recommender.fitted_corpus
    for name in list(fitted.users)[:8]:
        profile = recommender.profile(user=name)
        records = records_of(recommender, "user", name)
        assert profile.reviews == len(records) == sum(profile.ratings.values())
        assert profile.mean == pytest.approx(float(fitted.rating[records].mean()))
        texts = [fitted.texts[int(record)] for record in records]
        for side in profile.viewpoints:
            assert all(any(sentence.text in text for text in texts) for sentence in side.sentences)
            assert all(any(phrase in text for text in texts) for phrase in side.phrases)


def test_the_weights_of_a_persons_viewpoints_are_the_mean_shares_over_what_they_rated(recommender):
    name = recommender.fitted_corpus.users[3]
    items = [
        recommender.fitted_corpus.items[int(recommender.fitted_corpus.item[r])]
        for r in records_of(recommender, "user", name)
    ]
    heard = []
    with torch.no_grad():
        for item in items:
            numbers = recommender.fitted_corpus.users.index()[name], recommender.fitted_corpus.items.index()[item]
            users, things = recommender.fitted_model.sides
            shown = recommender.model.judge(recommender.model.pair(users[numbers[0]][None], things[numbers[1]][None]))
            longer = int(shown["lengths"][0].argmax())
            coupling = shown["coupling"][0, longer].double()
            heard.append((coupling.sum(1) / coupling.sum()).numpy())
    weights = [side.weight for side in recommender.profile(user=name).viewpoints]
    assert weights == pytest.approx(np.mean(heard, 0), abs=1e-5)
    assert sum(weights) == pytest.approx(1)


def test_what_speaks_for_a_thing_counts_raters_by_their_own_top_units(recommender):
    fitted, model = recommender.fitted_corpus, recommender.model
    name = fitted.items[4]
    profile = recommender.profile(item=name)
    raters = [int(fitted.user[record]) for record in records_of(recommender, "item", name)]
    assert profile.raters == len(raters)
    users, things = recommender.fitted_model.sides
    with torch.no_grad():
        shown = model.judge(model.pair(users[raters], things[[fitted.items.index()[name]] * len(raters)]))
    for s, regards in ((0, profile.liked), (1, profile.disliked)):
        strength = (shown["coupling"][:, s] * shown["lengths"][:, s, None, None]).double().numpy()
        count, total = np.zeros(3, int), np.zeros(3)
        for one in strength:
            top = np.argsort(-one.ravel(), kind="stable")[:2]
            for aspect in {int(place) % 3 for place in top}:
                count[aspect] += 1
                total[aspect] += max(one.ravel()[place] for place in top if place % 3 == aspect)
        assert {regard.aspect.index - 1: regard.raters for regard in regards} == {
            aspect: many for aspect, many in enumerate(count) if many
        }
        longer = (shown["lengths"][:, s] > shown["lengths"][:, 1 - s]).sum().item()
        for regard in regards:
            aspect = regard.aspect.index - 1
            assert regard.strength == pytest.approx(total[aspect] / count[aspect], rel=1e-4)
            assert regard.prevailing <= min(regard.raters, longer)
        order = [regard.raters * regard.strength for regard in regards]
        assert order == sorted(order, reverse=True)


def test_a_model_without_capsules_says_so_and_gives_the_ratings(ratings_only):
    person = ratings_only.profile(user=ratings_only.fitted_corpus.users[0])
    thing = ratings_only.profile(item=ratings_only.fitted_corpus.items[0])
    assert (person.viewpoints, thing.liked, thing.disliked) == ((), (), ())
    assert "no viewpoints" in person.notes[0]
    assert "no capsules" in thing.notes[0]
    assert sum(thing.ratings.values()) == thing.reviews > 0
    for shown in (str(person), str(thing)):
        assert "has no" in shown


def test_unknown_names_are_refused_with_the_nearest(recommender):
    with pytest.raises(UnknownIdError, match="never seen") as refused:
        recommender.profile(user="person-0100")
    assert "person-010" in str(refused.value)
    with pytest.raises(UnknownIdError):
        recommender.profile(item="nothing like it")


def test_ratings_of_whole_steps_list_those_that_nobody_gave(recommender):
    profile = recommender.profile(item=recommender.fitted_corpus.items[2])
    assert list(profile.ratings) == ["1", "2", "3", "4", "5"]


EVIL = '<script>alert("1")</script>\x1b[31m\u202e'
SIDE = Side(1, (Sentence(EVIL, (Mark(0, 8, "own", 0.5),), EVIL, EVIL, 4.0),), (EVIL, "light"), 0.5, f"aspect {EVIL}")
PERSON = PersonProfile(EVIL, 3, 4.0, (1, 5), (SIDE,), {"4": 3}, "carp", (EVIL,))
OPINION = AspectOpinion(SIDE, 2, 1, 0.25, (SharedViewpoint(2, (EVIL,)),))
THING = ThingProfile(EVIL, 3, None, (1, 5), 3, (OPINION,), (), {"4": 3, EVIL: 1}, "carp")


@pytest.mark.parametrize("profile", [PERSON, THING], ids=["person", "thing"])
def test_nothing_in_a_profile_is_obeyed_by_a_page_or_a_terminal(profile):
    for page in (profile_page(profile), profile_fragment(profile), profile._repr_html_()):
        assert "<script" not in page
        assert "\x1b" not in page
        assert "\u202e" not in page
    assert "default-src 'none'" in profile_page(profile)
    text = profile_text(profile, width=80)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "<script" not in profile_json(profile)
    assert json.loads(profile_json(profile)) == json.loads(json.dumps(profile.as_dict()))


def test_a_profile_shows_itself_and_says_the_same_without_colour():
    plain, coloured = profile_text(THING, colour=False), profile_text(THING, colour=True)
    assert "for 2 of 3 raters; liking outweighs disliking for 1 of them" in " ".join(plain.split())
    assert "Nothing is known that speaks against it." in plain
    assert "\x1b[" in coloured
    assert repr(PERSON) == str(PERSON) == profile_text(PERSON)
    assert "What the person cares about" in str(PERSON)
    assert "unknown" in profile_text(replace(PERSON, mean=None))


def test_the_command_gives_text_page_and_json(recommender, tmp_path, capsys):
    model = tmp_path / "model"
    recommender.save(model)
    assert main(["profile", str(model), "--user", "person-010"]) == 0
    assert "person-010" in capsys.readouterr().out
    assert main(["profile", str(model), "--item", "thing-005", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["item"] == "thing-005"
    page = tmp_path / "thing.html"
    assert main(["profile", str(model), "--item", "thing-005", "--out", str(page)]) == 0
    assert page.read_text("utf-8").startswith("<!DOCTYPE html>")
    assert main(["profile", str(model), "--item", "thing-005", "--out", str(page)]) == 2
    assert main(["profile", str(model)]) == 2
    assert main(["profile", str(model), "--user", "a", "--item", "b"]) == 2
    assert main(["profile", str(model), "--user", "person-0100"]) == 1
    assert "did you mean person-010?" in capsys.readouterr().err
