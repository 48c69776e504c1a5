"""Whom a thing would suit: people who have not rated it, and would like it more than the averages say."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from carp.recommender import Recommender
from carp.serve.id_search import Register

MOST_ASKED = 20_000  # people with most reviews whose rating is predicted
MOST_ASKED_SLOWLY = 400  # the same for models that read both documents for every pair
THEMES = 3  # of what each writes about


def audience(recommender: Recommender, people: Register, item: int, n: int) -> list[dict[str, Any]]:
    """Those for whom what is written counts most in favour of a thing, and who would rate it as they usually rate or
    better."""
    fitted, corpus = recommender.fitted_model, recommender.fitted_corpus
    most = MOST_ASKED if fitted.model.separates else MOST_ASKED_SLOWLY
    raters = set(corpus.user[corpus.item == item].tolist())
    asked = np.array([user for user in people.by_reviews(most) if user not in raters], dtype=np.int64)
    if not len(asked):
        return []
    things = np.full(len(asked), item, np.int64)
    rating = fitted.rate(asked, things)
    lift = rating - np.asarray(fitted.biases_alone(asked, things).double().cpu())
    usual = people.means[asked]
    lift = np.where(rating >= np.nan_to_num(usual, nan=np.inf), lift, -np.inf)
    chosen = [int(place) for place in np.argsort(-lift, kind="stable")[:n] if lift[place] > 0]
    return [_row(recommender, people, int(asked[place]), rating[place]) for place in chosen]


def _row(recommender: Recommender, people: Register, user: int, stars: NDArray[Any]) -> dict[str, Any]:
    sides, _ = recommender.explainer.viewpoints_of(user, people.records(user), 1)
    themes = [(side.phrases or (side.name,))[0] for side in sides[:THEMES] if side.phrases or side.name]
    return {
        "user": people.ids[user],
        "rating": recommender.fitted_corpus.own_rating(float(stars)),
        "usual": people.mean(user),
        "reviews": int(people.counts[user]),
        "writes_about": list(dict.fromkeys(themes)),
    }
