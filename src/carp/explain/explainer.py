"""How predictions are explained: one explainer for each way of explaining, and every model names its own.

`RatingModel.explained_by` is a name of EXPLAINERS, or None for models that give ratings alone. One explainer serves a
single pair, a batch of them, the service, profiles, and the measures of faithfulness.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import ClassVar, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from carp.errors import CarpError, UsageError
from carp.explain.explanation import Explanation, Reasons, Sentence, Sentiment, Side
from carp.explain.named_words import NamedReasons
from carp.explain.pair_texts import PairTexts
from carp.explain.question import Detail, Question
from carp.explain.reading_guide import ReadingGuide, make_guide
from carp.models import REGISTRY, model_class
from carp.models.base import RatingModel
from carp.reviews.readable import ReadableDocument
from carp.training.fitted_model import FittedModel

T = TypeVar("T")
EXPLAINERS: dict[str, str] = {  # name → module:class
    "capsules": "carp.explain.capsule_reasons:CapsuleExplainer",
    "attention": "carp.explain.attention_reasons:AttentionExplainer",
    "sum": "carp.explain.summed_reasons:SummedExplainer",
}
OF_REASONS = tuple(one.name for one in fields(Reasons))
NO_CAPSULES = "the model {name} has no capsules: it does not say what is liked and disliked"


@dataclass(frozen=True)
class SummarySentence(Sentence):
    """A sentence about a thing that matters to one person."""

    weight: float | None
    aspect: int  # 1-based: the aspect through which it matters most
    sentiment: Sentiment | None  # None where the model does not say whether it speaks for or against
    turned: bool = field(default=False, kw_only=True)  # the person's taste turns what it says into the opposite


@dataclass(frozen=True)
class AspectOpinion:
    """An aspect of a thing with the raters for whom it counts."""

    aspect: Side
    raters: int  # who have it among the top units of the sentiment
    prevailing: int  # those of them whose capsule of this sentiment is the longer one
    strength: float  # mean of coupling × length of the capsule, over these raters
    viewpoints: tuple[SharedViewpoint, ...]  # with which it meets, the most frequent first


@dataclass(frozen=True)
class SharedViewpoint:
    """A viewpoint of several people, by phrases of some of them."""

    index: int
    phrases: tuple[str, ...]


@dataclass(frozen=True)
class StrongestMeeting:
    """A viewpoint that met an aspect, by the phrases of both, best first."""

    viewpoint: tuple[str, ...]
    aspect: tuple[str, ...]


class Explainer:
    """Explains one fitted model. This one is for models that give ratings alone, and says so."""

    for_and_against: ClassVar[bool] = False  # whether it says what speaks for a thing and what against it

    reads_by_guide: ClassVar[bool] = False  # whether a reading guide, saved with the model, names what it tells of
    chooses_by_guide: ClassVar[bool] = False  # whether that guide also decides which sentences are shown

    def __init__(self, fitted: FittedModel) -> None:
        self.fitted = fitted
        self.corpus = fitted.corpus

    @cached_property
    def guide(self) -> ReadingGuide:
        """How sentences of this corpus are read; learned now where the saved model does not hold it."""
        return make_guide(self.corpus)

    # ---- one pair, or several at once

    def explain(self, questions: Sequence[Question], detail: Detail | None = None) -> list[Explanation]:
        """Why each pair would be rated so."""
        raise self.silent()

    def summarise(self, question: Question, n: int) -> list[SummarySentence]:
        """The sentences about the thing that matter most to the person."""
        raise self.silent()

    # ---- many pairs, as places of words

    def name_words(self, pairs: PairTexts) -> NamedReasons:
        """What the explanations of these pairs would name."""
        raise self.silent()

    # ---- people and things by themselves

    def viewpoints_of(
        self, user: int, records: NDArray[np.int64], sentences: int
    ) -> tuple[tuple[Side, ...], tuple[str, ...]]:
        """What a person cares about, judged over these records of theirs; and notes for the reader."""
        return (), (f"the model {self.fitted.name} has no viewpoints of a person apart from a thing",)

    def opinions_of(
        self, item: int, raters: NDArray[np.int32], sentences: int
    ) -> tuple[tuple[AspectOpinion, ...], tuple[AspectOpinion, ...], tuple[str, ...]]:
        """What these raters like and dislike about a thing; and notes for the reader."""
        return (), (), (NO_CAPSULES.format(name=self.fitted.name),)

    def strongest_meetings(self, person: int | ReadableDocument, items: Sequence[int]) -> list[StrongestMeeting] | None:
        """Of each item the meeting that counts most for a numbered person, or for one known by a document alone; None
        where the model knows no meetings."""
        return None

    # ---- what is kept

    def degree_scale(self) -> list[float]:
        """The largest degree of either sentiment over training pairs, by which the degrees shown are divided."""
        return [1.0, 1.0]

    def keep_readings(self) -> None:
        """Read every document now, where the model reads documents word by word, so that answers come faster."""

    def prepare_sides(self, most: int) -> None:
        """Make ready what is shown of the first `most` people and things, where that can be kept."""

    # ---- what all explainers share

    def silent(self) -> CarpError:
        able = ", ".join(sorted(name for name in REGISTRY if explains(model_class(name))))
        what = f"the model {self.fitted.name} gives ratings without reasons"
        return UsageError(what, fix=f"train one that explains: {able}")

    def explanation(
        self, question: Question, rating: float, baseline: float, margin: float, reasons: Reasons
    ) -> Explanation:
        """What the model said of a pair, with what is known of the pair without a model."""
        corpus = self.corpus
        mean = float(corpus.item_means[question.item])
        stars = self._on_scale(rating)
        return Explanation(
            user=corpus.users[question.user] if question.user >= 0 else None,
            item=corpus.items[question.item],
            rating=corpus.own_rating(stars),
            rating_range=(corpus.scale.low, corpus.scale.high),
            item_mean=None if math.isnan(mean) else corpus.own_rating(mean),
            baseline=corpus.own_rating(baseline),
            notes=_notes(question, trained=question.trained_on(corpus)),
            model=self.fitted.name,
            title=corpus.title(question.item),
            low=None if math.isnan(margin) else corpus.own_rating(self._on_scale(stars - margin)),
            high=None if math.isnan(margin) else corpus.own_rating(self._on_scale(stars + margin)),
            **{name: getattr(reasons, name) for name in OF_REASONS},
        )

    def _on_scale(self, stars: float) -> float:
        return min(max(float(stars), 1.0), float(self.corpus.levels))

    def margins(self, questions: Sequence[Question]) -> list[float]:
        """How far above and below its prediction nine ratings of ten lie, in stars; not a number where unknown."""
        users = np.array([question.user for question in questions])
        items = np.array([question.item for question in questions])
        found: list[float] = self.fitted.margins(users, items).tolist()
        return found

    def own_ratings(self, questions: Sequence[Question]) -> Tensor | None:
        """The ratings of pairs that were trained on, to be left out again; None of pairs that were not."""
        if not questions or not questions[0].trained_on(self.corpus):
            return None
        ratings = [float(self.corpus.rating[question.record]) for question in questions]
        return torch.tensor(ratings, device=self.fitted.device)

    def baselines(self, questions: Sequence[Question]) -> list[float]:
        """What the biases alone predict for pairs that were all trained on, or none of them."""
        users = np.array([question.user for question in questions])
        items = np.array([question.item for question in questions])
        found: list[float] = self.fitted.biases_alone(users, items, self.own_ratings(questions)).tolist()
        return found

    def apart(self, questions: Sequence[Question], told: Callable[[list[Question]], list[T]]) -> list[T]:
        """What is told of pairs that were trained on, whose rating is left out again, and of the others, each asked for
        apart; in the order of the questions."""
        found: dict[int, T] = {}
        for trained in (False, True):
            places = [place for place, one in enumerate(questions) if one.trained_on(self.corpus) == trained]
            if places:
                found.update(zip(places, told([questions[place] for place in places]), strict=True))
        return [found[place] for place in range(len(questions))]


def explains(kind: type[RatingModel]) -> bool:
    return kind.explained_by is not None


def explainer_for(fitted: FittedModel, guide: ReadingGuide | None = None) -> Explainer:
    """The explainer that the model names, with the guide that was saved with it, if one was."""
    name = fitted.model.explained_by
    if name is None:
        return Explainer(fitted)
    module, _, attribute = EXPLAINERS[name].partition(":")
    kind: type[Explainer] = getattr(importlib.import_module(module), attribute)
    made = kind(fitted)
    if guide is not None:
        made.guide = guide
    return made


def _notes(question: Question, *, trained: bool) -> tuple[str, ...]:
    notes = []
    if trained:
        notes.append("this pair was trained on: its own review is left out here, but the model has learned from it")
    if not len(question.user_document.words):
        notes.append("the person's reviews hold no word the model knows: the person's side is empty")
    if not len(question.item_document.words):
        notes.append("the thing's reviews hold no word the model knows: the thing's side is empty")
    return tuple(notes)
