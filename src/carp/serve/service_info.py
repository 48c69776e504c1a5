"""What is served: how much there is of it, what it can do, and a pair to begin with."""

from __future__ import annotations

from typing import Any

import numpy as np

import carp
from carp.explain.explainer import explains
from carp.explain.explanation import LITTLE
from carp.recommender import Recommender
from carp.reviews.split_parts import TEST
from carp.training.fitted_corpus import FittedCorpus

EXAMPLES_LOOKED_AT = 100


def about(recommender: Recommender) -> dict[str, Any]:
    fitted, scale, model = recommender.fitted_corpus, recommender.fitted_corpus.scale, recommender.model
    sources = fitted.facts.get("corpus", {}).get("sources") or []
    return {
        "model": recommender.name,
        "version": carp.__version__,
        "users": len(fitted.users),
        "items": len(fitted.items),
        "reviews": len(fitted.part),
        "words": fitted.sizes.words,
        "rating_range": [scale.low, scale.high],
        "rating_step": rating_step(fitted),
        "explains": explains(type(model)),
        "capsules": recommender.explainer.for_and_against,
        "newcomers": model.reads_documents,
        "corpus": file_name(str(sources[0])) if sources else None,
        "example": example_pair(recommender),
        "mean": fitted.own_rating(float(recommender.baseline.mean)),
        "described": fitted.item_texts is not None and any(fitted.item_texts.known().values()),
        "dated": fitted.time is not None,
    }


def file_name(path: str) -> str:
    """The last part of a path of any system: where it lies is nobody's business.

    >>> file_name("/home/ann/reviews.json.gz"), file_name(r"C:\\data\\reviews.csv")
    ('reviews.json.gz', 'reviews.csv')
    """
    return path.replace("\\", "/").rpartition("/")[2]


def rating_step(fitted: FittedCorpus) -> float | None:
    """The smallest difference of ratings, where all are whole steps of the scale apart."""
    stars = np.unique(fitted.rating)
    whole = bool(np.allclose(stars, np.round(stars), atol=1e-4))
    return (fitted.scale.high - fitted.scale.low) / (fitted.levels - 1) if whole else None


def example_pair(recommender: Recommender) -> dict[str, str] | None:
    """A typical, good pair to begin with, whose own review was held back and can stand beside the reasons.

    Of the held-out pairs in which a thing that people like was liked, those of which most is written on both sides; of
    these, those whose texts move the rating enough to be told of, if there are any; of these, the half that is
    predicted better; of these, the one where what was written moves the averages most towards the rating.
    """
    fitted = recommender.fitted_corpus
    records = np.flatnonzero(fitted.part == TEST)
    mean = float(recommender.baseline.mean)
    liked = records[(fitted.rating[records] > mean) & (fitted.item_means[fitted.item[records]] > mean)]
    records = liked if len(liked) else records
    if not len(records):
        return None
    users, items = fitted.user_documents.lengths(), fitted.item_documents.lengths()
    written = np.minimum(users[fitted.user[records]], items[fitted.item[records]])
    most = records[np.argsort(-written, kind="stable")[:EXAMPLES_LOOKED_AT]]
    pairs = fitted.user[most].astype(np.int64), fitted.item[most].astype(np.int64)
    predicted = recommender.fitted_model.rate(*pairs)
    averages = np.asarray(recommender.fitted_model.biases_alone(*pairs).double().cpu())
    told = np.abs(predicted - averages) >= LITTLE * (fitted.levels - 1)
    told |= not told.any()
    missed = np.abs(predicted - fitted.rating[most])
    gained = np.abs(averages - fitted.rating[most]) - missed
    good = told & (missed <= np.median(missed[told]))
    best = int(most[int(np.argmax(np.where(good, gained, -np.inf)))])
    return {"user": fitted.users[int(fitted.user[best])], "item": fitted.items[int(fitted.item[best])]}
