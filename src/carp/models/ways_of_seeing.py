"""How `meeting` comes to see texts: which way of counting and comparing words foretells held-out training pairs best.

Tried are how much rare words count (the power of idf), and whether a text's place among the directions is taken from
the origin or from the mean of all texts. Symbols as in `carp.models.meeting`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from carp.models.batch import Pairs, Sizes, TrainingData
from carp.models.covariance_solving import HeldOut
from carp.models.pair_covariance import PairCovariance, TextRows, at_length_one, from_centre
from carp.models.segments import Segments
from carp.models.tfidf import NO_BIGRAM, Entries, Occurrences, Terms, name_rows
from carp.reviews.documents import Documents

if TYPE_CHECKING:
    from carp.models.meeting import MeetingConfig

RARITIES = (0.5, 1.0)  # to choose from
MARGIN = 0.001  # of the held-out error, by which a later one must be better
MOST_TO_CHOOSE_BY = 150_000  # pairs


@dataclass(frozen=True)
class SideTexts:
    """The texts of one side of the pairs."""

    idf: Tensor  # [terms]
    rows: TextRows
    directions: Tensor  # [columns of the rows, k]
    places: Tensor  # [n, k] the rows in the directions


@dataclass(frozen=True)
class WayOfSeeing:
    """Texts with one rarity, seen from one centre a side, and the covariance that follows."""

    sides: tuple[SideTexts, SideTexts]  # of people and of things
    centres: tuple[Tensor, ...]
    covariance: PairCovariance
    rarity: float = 1.0
    from_mean: bool = False


class HeldOutFit(HeldOut):
    """Strengths, solutions and held-out predictions of one target."""

    covariance: PairCovariance

    def learn(self, start: Tensor, noise: Tensor, rounds: int, probes: int) -> tuple[Tensor, Tensor]:
        """Strengths near the top of the marginal likelihood, and the solution α [n] near them."""
        return self.covariance.learn_strengths(self.target, start, noise, rounds=rounds, probes=probes)


class FittedWay(NamedTuple):
    way: WayOfSeeing
    fit: HeldOutFit
    strengths: Tensor
    alpha: Tensor  # the solution α [n] near these strengths


@dataclass(frozen=True, eq=False)
class SeenData:
    """Training data as a model of this configuration may see it."""

    data: TrainingData
    config: MeetingConfig
    sizes: Sizes
    like: Tensor  # of the kind and on the device that the model computes with

    @cached_property
    def bigrams(self) -> Tensor:
        """The known ones, sorted; never none at all."""
        words, config = Occurrences.of(self.data.user_documents, self.like.device), self.config
        found = words.frequent_bigrams(self.sizes.words, config.bigrams, config.min_bigram_reviews)
        return found if len(found) else found.new_tensor([NO_BIGRAM])

    def choose(self, pairs: Pairs, target: Tensor, start: Tensor, rounds: int) -> FittedWay:
        """The way of seeing texts that predicts held-out pairs best, with learned strengths.

        Of very many pairs a part is enough to choose by; the strengths found on it are a good start for all.
        """
        step = -(-len(target) // MOST_TO_CHOOSE_BY)
        if step > 1:
            chosen, _, strengths, _ = self._best_way(pairs.some(slice(None, None, step)), target[::step], start, rounds)
            (way,) = self._ways(pairs, (chosen.rarity,), (chosen.from_mean,))
            fit = HeldOutFit(way.covariance, target)
            return FittedWay(way, fit, *fit.learn(strengths, torch.ones_like(target), rounds // 2, self.config.probes))
        return self._best_way(pairs, target, start, rounds)

    def _best_way(self, pairs: Pairs, target: Tensor, start: Tensor, rounds: int) -> FittedWay:
        equal, probes, config = torch.ones_like(target), self.config.probes, self.config
        rarities = RARITIES if config.rarity is None else (config.rarity,)
        centred = (False, True) if config.from_mean is None else (config.from_mean,)
        tried: list[tuple[float, FittedWay]] = []
        for way in self._ways(pairs, rarities, centred):
            fit = HeldOutFit(way.covariance, target)
            # The strengths of one way are near those of another; a term that was left out gets another chance.
            begin = torch.maximum(tried[0][1].strengths, start / 10) if tried else start
            strengths, alpha = fit.learn(begin, equal, rounds // 4 if tried else rounds, probes)
            error = fit.error(strengths, equal, alpha) * (1 if way.rarity == rarities[0] else 1 + MARGIN)
            tried.append((error, FittedWay(way, fit, strengths, alpha)))
        _, best = min(tried, key=lambda one: one[0])
        if best is tried[0][1]:
            return best
        return FittedWay(best.way, best.fit, *best.fit.learn(best.strengths, equal, rounds // 2, probes))

    def _ways(self, pairs: Pairs, rarities: tuple[float, ...], centred: tuple[bool, ...]) -> Iterator[WayOfSeeing]:
        """The ways to see texts that are tried."""
        for rarity in rarities:
            sides = self.texts(pairs, rarity)
            means = sides[0].places.mean(0), sides[1].places.mean(0)
            for from_mean in centred:
                centres = means if from_mean else tuple(map(torch.zeros_like, means))
                yield replace(self.way(pairs, sides, centres), rarity=rarity, from_mean=from_mean)

    def texts(self, pairs: Pairs, rarity: float) -> tuple[SideTexts, SideTexts]:
        """What stands in the pairs' documents."""
        words, device = self.sizes.words, self.like.device
        leave_out = self.data.target_reviews == "leave out"
        records = torch.from_numpy(pairs.records).to(device) if leave_out else None

        def side(documents: Documents, owner: NDArray[np.int64], names: Entries | None) -> SideTexts:
            places = Occurrences.of(documents, device)
            terms = Terms.of(places, self.bigrams, words, words + 1 + len(self.bigrams), rarity)
            rows = TextRows(terms.features(torch.from_numpy(owner).to(device), records), self.like, names)
            directions = rows.directions(self.config.directions)
            return SideTexts(terms.idf().to(self.like), rows, directions, rows.times(directions))

        users = side(self.data.user_documents, pairs.users, None)
        return users, side(self.data.item_documents, pairs.items, self._names())

    def way(self, pairs: Pairs, sides: tuple[SideTexts, SideTexts], centres: tuple[Tensor, ...]) -> WayOfSeeing:
        """The pairs with their texts seen from these centres."""
        owners = (pairs.users, self.sizes.users), (pairs.items, self.sizes.items)
        by_user, by_item = (Segments.of(torch.from_numpy(of).to(self.like.device), size) for of, size in owners)
        seen = [at_length_one(from_centre(side.places, centre)) for side, centre in zip(sides, centres, strict=True)]
        return WayOfSeeing(sides, centres, PairCovariance(by_user, by_item, sides[0].rows, sides[1].rows, *seen))

    def _names(self) -> Entries | None:
        names, weight = self.data.item_names, self.config.name_weight
        if names is None or not len(names.words) or weight == 0:
            return None
        rows = name_rows(names, self.like.device)
        return replace(rows, value=rows.value * weight)
