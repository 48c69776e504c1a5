"""What is served: how much there is of it, what it can do, and a pair to begin with."""

from __future__ import annotations

from typing import Any

import numpy as np

import carp
from carp.archive import Archive
from carp.models.carp import Carp
from carp.reasons import explains
from carp.recommender import Recommender
from carp.reviews.split import TEST


def about(recommender: Recommender) -> dict[str, Any]:
    archive, scale, model = recommender.archive, recommender.archive.scale, recommender.model
    sources = archive.facts.get("corpus", {}).get("sources") or []
    return {
        "model": recommender.name,
        "version": carp.__version__,
        "users": len(archive.users),
        "items": len(archive.items),
        "reviews": len(archive.part),
        "words": archive.sizes.words,
        "rating_range": [scale.low, scale.high],
        "rating_step": rating_step(archive),
        "explains": explains(type(model)),
        "capsules": isinstance(model, Carp),
        "newcomers": model.separates,
        "corpus": file_name(str(sources[0])) if sources else None,
        "example": example_pair(archive),
        "mean": archive.own_rating(float(recommender.baseline.mean)),
    }


def file_name(path: str) -> str:
    """The last part of a path of any system: where it lies is nobody's business.

    >>> file_name("/home/ann/reviews.json.gz"), file_name(r"C:\\data\\reviews.csv")
    ('reviews.json.gz', 'reviews.csv')
    """
    return path.replace("\\", "/").rpartition("/")[2]


def rating_step(archive: Archive) -> float | None:
    """The smallest difference of ratings, where all are whole steps of the scale apart."""
    stars = np.unique(archive.rating)
    whole = bool(np.allclose(stars, np.round(stars), atol=1e-4))
    return (archive.scale.high - archive.scale.low) / (archive.levels - 1) if whole else None


def example_pair(archive: Archive) -> dict[str, str] | None:
    """A held-out pair of which much is written on both sides: its own review can stand beside the reasons."""
    records = np.flatnonzero(archive.part == TEST)
    if not len(records):
        return None
    users, items = archive.user_documents.lengths(), archive.item_documents.lengths()
    written = np.minimum(users[archive.user[records]], items[archive.item[records]])
    best = int(records[int(np.argmax(written))])
    return {"user": archive.users[int(archive.user[best])], "item": archive.items[int(archive.item[best])]}
