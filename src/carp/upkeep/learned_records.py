"""Which records of a model its weights were learned with: the first ones, since updates put theirs behind them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from carp.recommender import Recommender
from carp.reviews.split_parts import TRAIN
from carp.training.fitted_corpus import FittedCorpus

LEARNED = "learned_records"  # among the facts of a model: how many are the first ones, where others came behind them
REPLACED = "learned_replaced"  # and how many more there were, which updates replaced


class Learned(NamedTuple):
    """What the weights of a model were learned with of a person's reviews."""

    trained: int
    perhaps: int  # came in with updates, but maybe in the place of others that the weights were learned with
    all_trained: int  # of everybody


def learned_of(model: Recommender, number: int) -> Learned:
    """How many reviews of a person the weights were learned with."""
    corpus, facts = model.fitted_corpus, model.facts
    first = _first(corpus, facts)
    train = corpus.part == TRAIN
    theirs = np.flatnonzero(train & (corpus.user == number))
    trained = int((theirs < first).sum())
    return Learned(trained, min(len(theirs) - trained, facts.get(REPLACED, 0)), int(train[:first].sum()))


def without(before: Recommender, gone: Sequence[int] | NDArray[np.int64], *, replaced: bool) -> dict[str, int]:
    """What the facts of a model say of this when some records have gone."""
    first = _first(before.fitted_corpus, before.facts)
    out = int((np.asarray(gone, dtype=np.int64) < first).sum())
    return {LEARNED: first - out, REPLACED: before.facts.get(REPLACED, 0) + (out if replaced else 0)}


def _first(corpus: FittedCorpus, facts: dict[str, Any]) -> int:
    return int(facts.get(LEARNED, len(corpus.user)))
