"""Every registered model learns on a made-up shop, where a rating is what a person cares about met in a thing.

Averages of people and things explain part of such ratings; the rest is there for who reads what people wrote.
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import pytest
import torch

from carp.models import REGISTRY, model_class
from carp.models.predict import predict_pairs
from carp.recommender import Recommender
from carp.reviews.corpora.corpus import build_corpus
from carp.reviews.shop.made_up_shop import make_shop
from carp.reviews.sources.formats import read_reviews
from carp.reviews.text.vocabulary import TextSettings
from carp.settings import FitSettings
from carp.training.loop import TrainingSettings

TOPICS = ("weight", "durability", "sound", "price")
SHOP = {"people": 400, "things": 60, "reviews_per_person": 16, "topics": TOPICS, "noise": 0.0}

# In a model that only adds, user and item never meet, and what only their meeting explains is beyond it. What words
# say of a thing, whoever asks, is worth more than its average where ratings are few and erratic.
ADDS_ONLY = {"ridge"}
ERRATIC_SHOP = {"people": 120, "things": 120, "reviews_per_person": 8, "topics": TOPICS[:3], "noise": 1.0}
ERRATIC_SHOPS = 6  # judged together: each has some 190 test pairs
EXACT = {"gaussian-process"}  # costs grow with the cube of the pairs

# Each is used where a model knows the setting, unless the model has one of its own below. Nothing stops early: models
# that keep the strongest place of a document alone stay at the biases' level for epochs before they find who cares
# about what, and under strong dropout for many more.
SMALL = {
    "dimension": 32,
    "filters": 16,
    "latent_size": 16,
    "hidden": 64,
    "max_words": 120,
    "dropout": 0.2,
    "batch_size": 20,
    "learning_rate": 0.002,
    "epochs": 8,
    "patience": 100,
}
SMALL_OF_MODEL = {
    "anr": {"epochs": 3},
    "carp": {"latent_size": 8, "viewpoints": 3},
    "carp-ra": {"latent_size": 8, "viewpoints": 3, "epochs": 6},
    "cmle": {"batch_size": 100, "learning_rate": 0.005, "penalty": 0.1, "epochs": 10},
    "daml": {"max_words": 80, "dropout": 0.0, "batch_size": 50, "learning_rate": 0.005, "epochs": 2},
    "dattn": {"embedding_spread": 0.3, "filters": 8, "dropout": 0.0, "epochs": 4},
    "deepconn": {"dropout": 0.0, "epochs": 8},
    "gaussian-process": {"steps": 4},
    "meeting": {"directions": 16, "rounds": 5},
    "mf": {"batch_size": 100, "learning_rate": 0.005, "penalty": 0.1, "epochs": 10},
    "mpcn": {"latent_size": 32, "pointers": 1, "dropout": 0.0, "batch_size": 50, "learning_rate": 0.005, "epochs": 7},
    "narre": {"reviews": 16, "review_words": 20, "dropout": 0.0, "batch_size": 50, "learning_rate": 0.005, "epochs": 3},
    "overlap": {"epochs": 4},  # the model of docs/howto/new-model.md
    "pmf": {"learning_rate": 0.005},
    "rblt": {"learning_rate": 0.005},
    "tarmf": {"epochs": 2},
    "transformer": {
        "dimension": 16,
        "layers": 1,
        "heads": 2,
        "hidden_size": 32,
        "reviews": 16,
        "review_words": 20,
        "max_words": 80,
        "dropout": 0.0,
        "batch_size": 50,
        "learning_rate": 0.003,
        "epochs": 2,
    },
    "transnet": {"max_words": 150, "dropout": 0.1, "batch_size": 50, "learning_rate": 0.005, "epochs": 14},
}

TEXT = {"documents", "reviews", "target_review"}
REVIEW_MODELS = sorted(name for name in REGISTRY if model_class(name).needs & TEXT)
AHEAD_OF_MEAN, AHEAD_OF_START = 0.9, 0.97  # shares of the reference's error
AHEAD_OF_BIAS, AHEAD_BY_ADDING = 0.97, 0.99


def recommender(name):
    groups = (FitSettings, TextSettings, TrainingSettings, model_class(name).Config)
    known = {field.name for group in groups for field in dataclasses.fields(group)}
    settings = {**SMALL, **SMALL_OF_MODEL.get(name, {})}
    return Recommender(name, device="cpu", **{key: value for key, value in settings.items() if key in known})


@functools.cache
def corpora(kind):
    """The shop of most models, the shops of those that only add, or a small shop for exact solutions."""
    if kind == "adds only":
        return [corpus_of({**ERRATIC_SHOP, "seed": seed}) for seed in range(ERRATIC_SHOPS)]
    return [corpus_of({**SHOP, "people": 100} if kind == "exact" else SHOP)]


def kind_of(name):
    return "adds only" if name in ADDS_ONLY else "exact" if name in EXACT else "most"


def corpus_of(shop):
    return build_corpus(read_reviews(make_shop(**shop).frame()), min_reviews=1)


@pytest.fixture(scope="module")
def fitted():
    """A model on each of its shops; fitted once."""
    found: dict[str, list[Recommender]] = {}

    def of(name):
        if name not in found:
            found[name] = [recommender(name).fit(corpus, progress=False) for corpus in corpora(kind_of(name))]
        return found[name]

    return of


def held_out_errors(recommenders):
    """Mean squared errors on test pairs: of the model, of the mean and of the tuned biases."""
    rows = [each.evaluate()["rows"] for each in recommenders]
    return {row: float(np.mean([each[row]["mse"] for each in rows])) for row in rows[0]}


@pytest.mark.parametrize("name", sorted(set(REGISTRY) - {"mean"}))
def test_it_beats_the_mean_on_held_out_pairs(fitted, name):
    errors = held_out_errors(fitted(name))
    assert errors[name] < AHEAD_OF_MEAN * errors["mean"], errors


@pytest.mark.parametrize("name", REVIEW_MODELS)
def test_a_model_that_reads_reviews_beats_the_tuned_biases(fitted, name):
    errors = held_out_errors(fitted(name))
    bar = AHEAD_BY_ADDING if name in ADDS_ONLY else AHEAD_OF_BIAS
    assert errors[name] < bar * errors["bias"], errors


@pytest.mark.parametrize("name", [name for name in sorted(REGISTRY) if model_class(name).learns])
def test_training_beats_what_the_model_starts_from(fitted, name):
    """Some start from solved biases or factors: what is solved before the first step shows no learning."""
    (trained,) = fitted(name)
    torch.manual_seed(trained.seed)
    model = trained.kind(trained.config, trained.fitted_corpus.sizes)
    data, test = trained.fitted_corpus.training_data(), trained.fitted_corpus.test_pairs()
    model.start(data)
    guess = predict_pairs(model.eval(), data, test, trained.device)
    started = float(np.square(guess - test.ratings, dtype=np.float64).mean())
    assert held_out_errors([trained])[name] < AHEAD_OF_START * started
