"""What CARP makes of pairs, and which logic units and sentences speak for it: numbers alone, before anything is shown.

Documents are read (`ReadSide`), pairs are judged together (`judge_pairs`), and the units of each pair are chosen with
the sentences that pull most through them (`unit_reasons`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from carp.explain.guided_reasons import Topics
from carp.explain.influence import SentenceInfluence, Slopes, judge_with_gradient, slopes_at
from carp.explain.named_aspects import NamedAspects
from carp.explain.phrases import PhraseBook
from carp.explain.question import Detail
from carp.explain.selection import Reason, choose_reasons, likeness
from carp.models.carp import NEGATIVE, POSITIVE, Carp, DocumentReading

Array = NDArray[np.float64]
USER, ITEM = 0, 1


@dataclass(frozen=True, eq=False)
class ReadSide:
    """What the reasons need of one document, whatever it is paired with."""

    reading: DocumentReading  # of this document alone
    words: NDArray[np.int32]  # [L]
    sentence: NDArray[np.int64]  # [L] the number of each word's sentence
    lost: Tensor  # [S, M, k] what the viewpoints lose without each sentence

    @cached_property
    def alike(self) -> Array:
        """How much the sentences of the document say the same. [S, S]"""
        return likeness(self.words, self.sentence)


@dataclass(frozen=True, eq=False)
class ShownSide(ReadSide):
    """The same of a document that can be shown."""

    book: PhraseBook
    _read_as: list[Topics] = field(default_factory=list, repr=False)  # one, by the guide that was asked last

    def prepare(self, aspects: NamedAspects) -> None:
        """Make now what the first question would wait for."""
        self.book.prepare()
        _ = self.alike, self.topics(aspects)

    def topics(self, aspects: NamedAspects) -> Topics:
        """What the document is about, as a guide with these aspects reads it."""
        if not self._read_as or self._read_as[0].aspects is not aspects:
            attention = self.reading.attention[0, : len(self.words)].double().cpu().numpy()
            self._read_as[:] = [Topics.of(aspects, self.words, self.sentence, attention)]
        return self._read_as[0]


@dataclass(frozen=True, eq=False)
class Judgement:
    """What the model made of one pair."""

    rating: float  # stars, not clipped
    balance: float
    lengths: Array  # [2]
    degrees: Array  # [2]
    coupling: Array  # [2, M, M]
    slopes: Slopes

    @property
    def prevailing(self) -> int:
        return POSITIVE if self.lengths[POSITIVE] >= self.lengths[NEGATIVE] else NEGATIVE


def judge_pairs(
    model: Carp,
    viewpoints: Tensor,  # [B, M, k]
    aspects: Tensor,  # [B, M, k]
    users: Tensor,
    items: Tensor,
    own_ratings: Tensor | None = None,
) -> list[Judgement]:
    judged, gradient = judge_with_gradient(model, viewpoints, aspects)
    with torch.no_grad():
        ratings = model.combine(judged["balance"], users, items, own_ratings).tolist()
    shown = (judged[name].double().cpu().numpy() for name in ("lengths", "degrees", "coupling"))
    slopes = slopes_at(model, gradient, viewpoints, aspects).of_each_pair()
    return [Judgement(*one) for one in zip(ratings, judged["balance"].double().tolist(), *shown, slopes, strict=True)]


@dataclass(frozen=True)
class UnitReason:
    """A logic unit with the sentences of both sides that speak through it."""

    sentiment: int
    viewpoint: int
    aspect: int
    reason: Reason


def unit_reasons(
    judged: Judgement, influence: SentenceInfluence, alike: tuple[Array, Array], detail: Detail
) -> list[UnitReason]:
    """The units each capsule listens to most: more of the prevailing sentiment, which comes first."""
    numbers = (judged.prevailing, detail.prevailing_units), (1 - judged.prevailing, detail.other_units)
    return [
        unit
        for sentiment, number in numbers
        for unit in reasons_of_sentiment(influence, alike, judged.coupling[sentiment], sentiment, number, detail)
    ]


def reasons_of_sentiment(
    influence: SentenceInfluence,
    alike: tuple[Array, Array],
    coupling: Array,  # [M, M] of the sentiment
    sentiment: int,
    units: int,
    detail: Detail,
) -> list[UnitReason]:
    """The logic units a capsule listens to most, most first, each with the reason that pulls most through it.

    The sentences are those that pull the rating most in the direction of the sentiment; each unit shows those of them
    that pull most through it.
    """
    direction = 1.0 if sentiment == POSITIVE else -1.0
    order = np.argsort(-coupling.ravel(), kind="stable")[:units].tolist()
    left = choose_reasons(
        direction * influence.in_all[USER],
        direction * influence.in_all[ITEM],
        direction * influence.together,
        alike,
        reasons=len(order),
        sentences=detail.sentences,
    )
    found = []
    for x, y in (divmod(place, coupling.shape[1]) for place in order):
        # The last one left needs no comparing.
        through = [direction * _pull_through(influence, one, x, y) for one in left] if len(left) > 1 else [0.0]
        found.append(UnitReason(sentiment, x, y, left.pop(through.index(max(through)))))
    return found


def _pull_through(influence: SentenceInfluence, reason: Reason, x: int, y: int) -> float:
    """What the sentences of a reason pull through one logic unit."""
    user, item = influence.user[list(reason.user), x, y], influence.item[list(reason.item), x, y]
    return float(user.sum() + item.sum())


def added_by_words(reading: DocumentReading) -> Tensor:
    """What each word adds to the viewpoints of its document. [L, M, k]"""
    return reading.attention[0].unsqueeze(-1) * (reading.contextual[0] - reading.viewpoints[0])
