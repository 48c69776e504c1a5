"""Every registered model learns on a made-up shop, where a rating is what a person cares about met in a thing.

Averages of people and things explain part of such ratings; the rest is there for who reads what people wrote. So every
model that reads is also held against itself in the same shop where all reviews say the same.
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import polars
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
# Where a thing has many ratings, they say as much about it as its reviews do.
TEXT_BESIDE_FACTORS = {"cmle", "convmf", "hft"}
SPARSE_SHOP = {**SHOP, "people": 300, "things": 100}
NOTHING_SAID = "there is nothing to read here"

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
    "batch_size": 50,
    "learning_rate": 0.005,
    "epochs": 8,
    "patience": 100,
}
SMALL_OF_MODEL = {
    "anr": {"epochs": 3},
    "carp": {"latent_size": 8, "viewpoints": 3, "epochs": 5},
    "carp-paper": {"latent_size": 8, "viewpoints": 3, "epochs": 6},
    "carp-ra": {"latent_size": 8, "viewpoints": 3, "epochs": 6},
    "cmle": {"noise_words": 10, "learning_rate": 0.007, "penalty": 0.1, "epochs": 10},
    "convmf": {"filters": 8, "hidden_size": 32, "dropout": 0.0, "max_words": 60},
    "daml": {"max_words": 80, "dropout": 0.0, "learning_rate": 0.003, "epochs": 3},
    "dattn": {"embedding_spread": 0.3, "filters": 8, "max_words": 50, "dropout": 0.0, "epochs": 4},
    "deepconn": {"max_words": 80, "dropout": 0.0, "batch_size": 30, "learning_rate": 0.003},
    "gaussian-process": {"steps": 4},
    "hft": {"penalty": 0.1, "epochs": 12},
    "meeting": {"directions": 16, "rounds": 3},
    "mf": {"batch_size": 100, "penalty": 0.1, "epochs": 10},
    "mpcn": {"latent_size": 32, "pointers": 1, "dropout": 0.0, "epochs": 7},
    "narre": {"reviews": 16, "review_words": 20, "dropout": 0.0, "epochs": 3},
    "overlap": {"epochs": 4},  # the model of docs/howto/new-model.md
    "pmf": {"batch_size": 20},
    "rblt": {"epochs": 5},
    "tarmf": {"epochs": 1},
    "transformer": {
        "dimension": 16,
        "layers": 1,
        "heads": 2,
        "hidden_size": 32,
        "reviews": 16,
        "review_words": 12,
        "max_words": 80,
        "dropout": 0.0,
        "learning_rate": 0.003,
        "epochs": 2,
    },
    "transnet": {"max_words": 150, "dropout": 0.1, "epochs": 10},
}

TEXT = {"documents", "reviews", "target_review"}
REVIEW_MODELS = sorted(name for name in REGISTRY if model_class(name).needs & TEXT)
AHEAD_OF_MEAN, AHEAD_OF_START = 0.9, 0.97  # shares of the reference's error
AHEAD_OF_BIAS, AHEAD_BY_ADDING = 0.97, 0.99
AHEAD_OF_ITSELF = 0.95  # than without texts


def recommender(name, **more):
    groups = (FitSettings, TextSettings, TrainingSettings, model_class(name).Config)
    known = {field.name for group in groups for field in dataclasses.fields(group)}
    settings = {**SMALL, **SMALL_OF_MODEL.get(name, {}), **more}
    return Recommender(name, device="cpu", **{key: value for key, value in settings.items() if key in known})


def shops_of(name):
    """The shop of most models, the shops of those that only add, a small shop for exact solutions, or a sparse one."""
    if name in ADDS_ONLY:
        return [{**ERRATIC_SHOP, "seed": seed} for seed in range(ERRATIC_SHOPS)]
    return [{**SHOP, "people": 70} if name in EXACT else SPARSE_SHOP if name in TEXT_BESIDE_FACTORS else SHOP]


def corpora(name, *, with_texts=True):
    return [corpus_of(tuple(shop.items()), with_texts) for shop in shops_of(name)]


@functools.cache
def corpus_of(shop, with_texts):
    """A shop's reviews, or the same with one and the same text each."""
    rows = make_shop(**dict(shop)).frame()
    if not with_texts:
        rows = rows.with_columns(text=polars.lit(NOTHING_SAID))
    return build_corpus(read_reviews(rows), min_reviews=1, copies="keep")


@pytest.fixture(scope="module")
def fitted():
    """A model on each of its shops; fitted once."""

    @functools.cache
    def of(name):
        return [recommender(name).fit(corpus, progress=False) for corpus in corpora(name)]

    return of


def fitted_without_texts(name):
    """The same model, on the same pairs, where there is nothing to read; a word in all reviews is a word there.

    It stops early: where there is nothing to find in texts, nobody has to wait until it is found. A model that does not
    know who is who is a constant without words, and that takes an epoch.
    """
    few = {"patience": 2} if "ids" in model_class(name).needs else {"epochs": 1}
    silent = functools.partial(recommender, name, max_document_share=1.0, **few)
    return [silent().fit(corpus, progress=False) for corpus in corpora(name, with_texts=False)]


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


@pytest.mark.parametrize("name", REVIEW_MODELS)
def test_a_model_that_reads_reviews_beats_itself_without_them(fitted, name):
    with_texts, without = held_out_errors(fitted(name)), held_out_errors(fitted_without_texts(name))
    assert with_texts["bias"] == without["bias"], "both are held against the same pairs"
    ratio = with_texts[name] / without[name]
    print(f"{name}: {with_texts[name]:.4f} with texts, {without[name]:.4f} without, ratio {ratio:.3f}")
    bar = AHEAD_BY_ADDING if name in ADDS_ONLY else AHEAD_OF_ITSELF
    assert ratio < bar, f"with texts the error of {name} is {ratio:.3f} of its error without"


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
