"""Who a person is and what a thing is to a model: plain data that shows itself, like an Explanation."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from carp.explain.explainer import NO_CAPSULES, AspectOpinion, Explainer, SummarySentence
from carp.explain.explanation import Side, WeightsAre
from carp.explain.guided_reasons import with_their_tones
from carp.explain.question import Question
from carp.reviews.split_parts import TRAIN
from carp.training.fitted_corpus import FittedCorpus

MOST_RATERS = 1_000  # of one thing that are asked; of more, these many evenly spread


class ShowsItself:
    """Profiles show themselves in a terminal and in a notebook."""

    def __str__(self) -> str:
        from carp.render.profile_views import profile_text

        return profile_text(cast(Any, self))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from carp.render.profile_views import profile_fragment

        return profile_fragment(cast(Any, self))

    def as_dict(self) -> dict[str, Any]:
        """The same as JSON-ready data."""
        return asdict(cast(Any, self))


@dataclass(frozen=True, repr=False)
class PersonProfile(ShowsItself):
    """What a person cares about, by the model's reading of their training reviews."""

    user: str
    reviews: int
    mean: float | None
    rating_range: tuple[float, float]
    viewpoints: tuple[Side, ...]
    ratings: dict[str, int]  # how often each rating was given
    model: str
    notes: tuple[str, ...] = ()
    weights_are: WeightsAre = "listening"  # of the viewpoints: shares of the longer capsule's coupling, or of sentences


@dataclass(frozen=True, repr=False)
class ThingProfile(ShowsItself):
    """What speaks for and against a thing: the logic units of its training raters, put together."""

    item: str
    reviews: int
    mean: float | None
    rating_range: tuple[float, float]
    raters: int  # that were asked
    liked: tuple[AspectOpinion, ...]  # strongest first
    disliked: tuple[AspectOpinion, ...]
    ratings: dict[str, int]
    model: str
    notes: tuple[str, ...] = ()
    title: str | None = None  # of the item, if it is known


@dataclass(frozen=True, repr=False)
class Summary:
    """The sentences about a thing that matter to one person, weightiest first. Shows itself in a terminal."""

    user: str
    item: str
    sentences: tuple[SummarySentence, ...]
    notes: tuple[str, ...] = ()
    title: str | None = None  # of the item, if it is known

    def __str__(self) -> str:
        from carp.render.summary_text import summary_text

        return summary_text(self)

    __repr__ = __str__

    def as_dict(self) -> dict[str, Any]:
        """The same as JSON-ready data."""
        return asdict(self)


def person_profile(explainer: Explainer, user: int, *, sentences: int = 2) -> PersonProfile:
    """The viewpoints of a numbered person."""
    corpus = explainer.corpus
    records = np.flatnonzero((corpus.part == TRAIN) & (corpus.user == user))
    viewpoints, notes = explainer.viewpoints_of(user, records, sentences)
    return PersonProfile(
        user=corpus.users[user],
        reviews=len(records),
        mean=_mean(corpus, records),
        rating_range=(corpus.scale.low, corpus.scale.high),
        viewpoints=viewpoints,
        ratings=_histogram(corpus, records),
        model=explainer.fitted.name,
        notes=notes,
        weights_are="sentences" if explainer.chooses_by_guide else "listening",
    )


def thing_profile(explainer: Explainer, item: int, *, sentences: int = 2) -> ThingProfile:
    """What the training raters of a numbered thing like and dislike about it."""
    corpus = explainer.corpus
    records = np.flatnonzero((corpus.part == TRAIN) & (corpus.item == item))
    raters = corpus.user[records]
    notes: tuple[str, ...] = ()
    if len(raters) > MOST_RATERS:
        notes = (f"{MOST_RATERS:,} of the {len(raters):,} raters were asked",)
        raters = raters[np.linspace(0, len(raters) - 1, MOST_RATERS).astype(int)]
    liked: tuple[AspectOpinion, ...] = ()
    disliked: tuple[AspectOpinion, ...] = ()
    if len(raters) or not explainer.for_and_against:
        liked, disliked, further = explainer.opinions_of(item, raters, sentences)
        notes = (*notes, *further)
    return ThingProfile(
        item=corpus.items[item],
        reviews=len(records),
        mean=_mean(corpus, records),
        rating_range=(corpus.scale.low, corpus.scale.high),
        raters=len(raters),
        liked=liked,
        disliked=disliked,
        ratings=_histogram(corpus, records),
        model=explainer.fitted.name,
        notes=notes,
        title=corpus.title(item),
    )


def summary_for(explainer: Explainer, question: Question, n: int) -> Summary:
    """Of a thing's reviews, the sentences that matter to the person of the question."""
    corpus = explainer.corpus
    notes = () if explainer.for_and_against else (NO_CAPSULES.format(name=explainer.fitted.name),)
    found = explainer.summarise(question, n)
    said = with_their_tones(found, explainer.guide, corpus) if explainer.reads_by_guide else {}
    sentences = tuple(said.get(one, one) for one in found)
    names = corpus.users[question.user], corpus.items[question.item]
    return Summary(*names, sentences, notes, corpus.title(question.item))


def _mean(corpus: FittedCorpus, records: NDArray[np.int64]) -> float | None:
    return corpus.own_rating(float(corpus.rating[records].mean())) if len(records) else None


def _histogram(corpus: FittedCorpus, records: NDArray[np.int64]) -> dict[str, int]:
    """How often each rating was given, in the range of the data; whole steps that nobody took are there as well."""
    own = [round(corpus.own_rating(float(stars)), 3) for stars in corpus.rating[records]]
    low, high = corpus.scale.low, corpus.scale.high
    whole = float(low).is_integer() and high - low == corpus.levels - 1
    steps = np.arange(low, high + 1).tolist() if whole else []
    counts = Counter(own)
    return {f"{step:g}": counts[step] for step in sorted({*steps, *own})}
