"""A small made-up corpus whose ratings follow from who writes, what of, and in which words."""

from __future__ import annotations

import csv
import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

from carp.models import REGISTRY, model_class
from carp.recommender import Recommender
from carp.reviews.corpora.corpus import build_corpus
from carp.reviews.rating_scale import RatingScale
from carp.reviews.sources.ledger import Ledger, Reviews
from carp.reviews.split import random_split
from carp.reviews.split_parts import TEST, VALID

PEOPLE, THINGS = 30, 14
JUDGEMENTS = {
    1: ["awful", "broken", "useless", "refund"],
    2: ["poor", "flimsy", "weak", "noisy"],
    3: ["plain", "average", "usable", "ordinary"],
    4: ["solid", "pleasant", "reliable", "handy"],
    5: ["superb", "brilliant", "flawless", "gorgeous"],
}
TALK = ["strap", "cable", "wood", "neck", "string", "tuner", "pedal", "stand", "case", "bridge", "switch", "parcel"]
SILENT = "the of and it was a to in"  # stop words: a document of them is empty

# Small enough that a fit takes well under a second; each is used where a model's Config has the field.
TINY = {
    "dimension": 12,
    "filters": 8,
    "latent_size": 6,
    "viewpoints": 2,
    "factors": 4,
    "topics": 3,
    "hidden": 8,
    "hidden_size": 8,
    "aspects": 2,
    "vocabulary_size": 200,
    "min_reviews": 1,
    "epochs": 12,
    "patience": 12,
    "batch_size": 40,
    "learning_rate": 0.01,
}
TINY_OF_MODEL: dict[str, dict[str, object]] = {
    "gaussian-process": {"bigrams": 100, "steps": 3},
    "meeting": {"bigrams": 100, "directions": 6, "rounds": 4},
    "transformer": {"layers": 1, "heads": 2},
}


def made_up_rows(seed=0):
    """User, item, rating, text; person 0 and thing 0 are written of in stop words only."""
    rng = np.random.default_rng(seed)
    leniency, quality = rng.normal(0, 0.8, PEOPLE), rng.normal(0, 1.0, THINGS)
    rows = []
    for person in range(PEOPLE):
        for thing in rng.choice(THINGS, 9, replace=False):
            rating = int(np.clip(np.rint(3.2 + leniency[person] + quality[thing] + rng.normal(0, 0.4)), 1, 5))
            words = [*rng.choice(JUDGEMENTS[rating], 3), *rng.choice(TALK, 4)]
            silent = person == 0 or thing == 0
            rows.append(
                (f"p{person:02}", f"t{thing:02}", rating, SILENT if silent else " ".join(rng.permutation(words)))
            )
    return rows


def corpus_of(rows):
    users, items, ratings, texts = (list(column) for column in zip(*rows, strict=True))
    ledger = Ledger()
    ledger.accept(len(rows))
    scale = RatingScale(1, 5, clip=False, origin="made up")
    stars = np.array(ratings, dtype=np.float64)
    reviews = Reviews(users, items, stars, texts, [None] * len(rows), None, ledger, "csv", scale, ["made up"])
    return build_corpus(reviews, min_reviews=1, copies="keep")  # somebody says the same of everything


def noise_for(rng, rating):
    """Words of the same vocabulary that say something else."""
    return " ".join(rng.choice(JUDGEMENTS[6 - rating if rating != 3 else 1] + TALK, 7))


def settings_for(name, **more):
    kind = model_class(name)
    groups = Recommender("mean")
    known = {f.name for g in (groups.fit_settings, groups.text, groups.training) for f in dataclasses.fields(g)}
    known |= {f.name for f in dataclasses.fields(kind.Config)}
    tiny = {**TINY, **TINY_OF_MODEL.get(name, {})}
    return {key: value for key, value in {**tiny, **more}.items() if key in known}


def fit(name, corpus, split, seed=0, **more):
    settings = settings_for(name, **more)
    return Recommender(name, seed=seed, device="cpu", **settings).fit(corpus, split=split, progress=False)


@pytest.fixture(scope="module", autouse=True)
def one_thread(single_thread):
    """Tiny models: see `single_thread`."""


@pytest.fixture(scope="session")
def made_up(tmp_path_factory):
    """The corpus, a split file, the corpus again with every held-out text replaced, and a cache of fitted models."""
    rows = made_up_rows()
    corpus = corpus_of(rows)
    parts = random_split(corpus.user, corpus.item, seed=1).part
    split = tmp_path_factory.mktemp("made_up") / "split.csv"
    with split.open("w", newline="") as handle:
        writer = csv.writer(handle)
        writer.writerow(["user", "item", "split"])
        writer.writerows(
            [*row[:2], {VALID: "valid", TEST: "test"}.get(part, "train")] for row, part in zip(rows, parts, strict=True)
        )
    rng = np.random.default_rng(9)
    noisy = [
        (*row[:3], noise_for(rng, row[2])) if part in (VALID, TEST) else row
        for row, part in zip(rows, parts, strict=True)
    ]
    fitted: dict[str, Recommender] = {}

    def of(name):
        if name not in fitted:
            fitted[name] = fit(name, corpus, split)
        return fitted[name]

    everyone = [(f"p{p:02}", f"t{t:02}") for p in range(PEOPLE) for t in range(THINGS)]
    return SimpleNamespace(
        rows=rows,
        corpus=corpus,
        split=split,
        noisy=corpus_of(noisy),
        fit=fit,
        of=of,
        pairs=everyone,
        settings_for=settings_for,
    )


@pytest.fixture(params=sorted(REGISTRY))
def name(request):
    return request.param
