"""A trained model with what it was trained on: all that predicting and explaining need."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from carp.errors import InputError
from carp.models.base import RatingModel
from carp.models.batch import Batch, Pairs
from carp.models.calibration import NORMAL_90
from carp.models.layers import TunedBiases
from carp.models.predict import encode_documents, score_newcomer, score_pairs
from carp.models.side_room import all_finite
from carp.reviews.documents import padded
from carp.reviews.readable import ReadableDocument
from carp.reviews.split_parts import TRAIN, VALID
from carp.training.fitted_corpus import FittedCorpus

PAIRS_AT_ONCE = 500
ENOUGH_TO_MEASURE = 20  # validation pairs
Numbers = NDArray[np.int64]


@dataclass(eq=False)
class FittedModel:
    """Knows people and things by their numbers in the corpus; -1 is somebody or something it has never seen."""

    name: str  # of the registry
    model: RatingModel
    baseline: TunedBiases
    corpus: FittedCorpus
    device: torch.device
    facts: dict[str, Any]

    @cached_property
    def sides(self) -> tuple[Tensor, Tensor]:
        """The sides of all users and of all items, each document encoded once; for models whose sides separate."""
        return (
            _numbers(encode_documents(self.model.encode_users, self.corpus.user_documents, self.device)),
            _numbers(encode_documents(self.model.encode_items, self.corpus.item_documents, self.device)),
        )

    @torch.no_grad()
    def biases_alone(self, users: Numbers, items: Numbers, own_ratings: Tensor | None = None) -> Tensor:
        """What the tuned biases predict, in stars. Somebody unknown gets the mean, and the thing's own level."""
        places = (torch.from_numpy(np.asarray(side, np.int64)).to(self.device) for side in (users, items))
        stars: Tensor = self.baseline(*places, own_ratings)
        return stars.clamp(1, self.corpus.levels)

    @torch.no_grad()
    def rate(self, users: Numbers, items: Numbers) -> NDArray[np.float64]:
        """Stars of numbered pairs. This is the one place that decides what somebody unknown gets: the biases that are
        known, which is the mean for a stranger and a thing's own level for an unknown user."""
        places = (torch.from_numpy(side).to(self.device) for side in (users, items))
        stars = self.baseline(*places).double()
        known = np.flatnonzero((users >= 0) & (items >= 0))
        records = self.trained_records(users[known], items[known])
        for chosen, trained in ((known[records < 0], False), (known[records >= 0], True)):
            if len(chosen):
                own = records[records >= 0] if trained else np.full(len(chosen), -1)
                ratings = self.corpus.rating[own] if trained else np.zeros(len(chosen), np.float32)
                found = self._rate_known(Pairs(users[chosen], items[chosen], ratings, own), trained)
                stars[torch.from_numpy(chosen).to(self.device)] = found.double()
        return np.asarray(_numbers(stars).clamp(1, self.corpus.levels).cpu())

    @torch.no_grad()
    def margins(self, users: Numbers, items: Numbers) -> NDArray[np.float64]:
        """How far above and below its prediction nine ratings of ten lie, in stars; not a number where unknown.

        Models that know how sure they are of each person and thing say it. For the others it is one width for all,
        which holds nine tenths of the validation ratings.
        """
        places = (torch.from_numpy(side).to(self.device) for side in (users, items))
        deviations = self.model.deviations(*places)
        if deviations is not None:
            return NORMAL_90 * np.asarray(deviations.double().cpu())
        known = self.facts.get("margin")
        return np.full(len(users), np.nan if known is None else float(known))

    def measure_margin(self) -> float | None:
        """The width that holds nine tenths of the validation ratings; None where there are hardly any."""
        valid = self.corpus.pairs(VALID)
        if len(valid) < ENOUGH_TO_MEASURE:
            return None
        errors = np.abs(self.rate(valid.users, valid.items) - valid.ratings)
        return float(np.quantile(errors, 0.9, method="higher"))

    def trained_record(self, user: int, item: int) -> int:
        """The record of a pair that was trained on; -1 for every other pair."""
        return int(self.trained_records(np.array([user]), np.array([item]))[0])

    def trained_records(self, users: Numbers, items: Numbers) -> Numbers:
        """The records of pairs that were trained on; -1 for every other pair."""
        records = self.corpus.record_of_pair.find(users, items)
        return np.where((records >= 0) & (self.corpus.part[records] == TRAIN), records, -1)

    def _rate_known(self, pairs: Pairs, trained: bool) -> Tensor:
        """Pairs of training are rated as in training: without their own review and rating."""
        if self.model.separates and not trained:
            return score_pairs(self.model, *self.sides, pairs)
        data = self.corpus.training_data()
        starts = range(0, len(pairs), PAIRS_AT_ONCE)
        blocks = [np.arange(start, min(start + PAIRS_AT_ONCE, len(pairs))) for start in starts]
        return torch.cat(
            [self.model(data.batch(pairs, block, training=trained).to(self.device)).rating for block in blocks]
        )

    @torch.no_grad()
    def rate_newcomer(self, document: ReadableDocument, items: Numbers) -> NDArray[np.float64]:
        """Stars that somebody known by a document alone would give to numbered items."""
        words = torch.from_numpy(document.words)[None].to(self.device)
        reviews = torch.from_numpy(document.review)[None].to(self.device)
        places = torch.from_numpy(items).to(self.device)
        stars = self.baseline(torch.full_like(places, -1), places).double()
        known = places >= 0
        if self.model.separates:
            viewpoints = self.model.encode_users(words, reviews)
            stars[known] = score_newcomer(self.model, viewpoints, self.sides[1], places[known]).double()
        elif bool(known.any()):
            stars[known] = self._rate_beside(words, reviews, items[items >= 0]).double()
        return np.asarray(_numbers(stars).clamp(1, self.corpus.levels).cpu())

    def _rate_beside(self, words: Tensor, reviews: Tensor, items: Numbers) -> Tensor:
        """A newcomer's document [1, L] read beside that of each item."""
        found = []
        for start in range(0, len(items), PAIRS_AT_ONCE):
            some = items[start : start + PAIRS_AT_ONCE]
            numbers = torch.from_numpy(some).to(self.device)
            thing, its_reviews = (torch.from_numpy(of) for of in padded(self.corpus.item_documents, some))
            own, own_reviews = (of.expand(len(some), -1) for of in (words, reviews))
            batch = Batch(torch.full_like(numbers, -1), numbers, own, own_reviews, thing, its_reviews)
            found.append(self.model(batch.to(self.device)).rating)
        return torch.cat(found)


def _numbers(found: Tensor) -> Tensor:
    """What a model found, unless it is no number: then its weights are too large, and nobody should act on them."""
    if not all_finite(found):
        fix = "train it again, or restore it from a copy"
        raise InputError("the weights of this model lead to what is no number", fix=fix)
    return found
