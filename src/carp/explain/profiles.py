"""Who a person is and what a thing is to a model: plain data that shows itself, like an Explanation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from carp.explain.explanation import Side
from carp.explain.influence import lost_sentences, slopes_at
from carp.explain.phrases import phrase_book, weightiest_sides
from carp.models.carp import NEGATIVE, POSITIVE, Carp, DocumentReading
from carp.reviews.documents import Documents
from carp.reviews.readable import ReadableDocument
from carp.reviews.split_parts import TRAIN
from carp.training.fitted_corpus import FittedCorpus

if TYPE_CHECKING:
    from carp.recommender import Recommender

Array = NDArray[np.float64]
Phrases = Callable[[int], list[tuple[str, ...]]]  # of each viewpoint of a numbered person
TOP_UNITS = 2  # of a rater's logic units that count for a sentiment, as many as an explanation lists
MOST_RATERS = 1_000  # of one thing that are asked; of more, these many evenly spread
VIEWPOINTS_NAMED = 3  # that met an aspect most often
RATERS_QUOTED = 3  # whose phrases stand for such a viewpoint
NO_CAPSULES = "the model {name} has no capsules: it does not say what is liked and disliked"


class _ShowsItself:
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
class PersonProfile(_ShowsItself):
    """What a person cares about, by the model's reading of their training reviews."""

    user: str
    reviews: int
    mean: float | None
    rating_range: tuple[float, float]
    viewpoints: tuple[Side, ...]  # a weight is the share of the longer capsule's coupling, over what they rated
    ratings: dict[str, int]  # how often each rating was given
    model: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Spoken:
    """A viewpoint of several people, by phrases of some of them."""

    index: int
    phrases: tuple[str, ...]


@dataclass(frozen=True)
class Regard:
    """An aspect of a thing with the raters for whom it counts."""

    aspect: Side
    raters: int  # who have it among the top units of the sentiment
    prevailing: int  # those of them whose capsule of this sentiment is the longer one
    strength: float  # mean of coupling × length of the capsule, over these raters
    viewpoints: tuple[Spoken, ...]  # with which it meets, the most frequent first


@dataclass(frozen=True, repr=False)
class ThingProfile(_ShowsItself):
    """What speaks for and against a thing: the logic units of its training raters, put together."""

    item: str
    reviews: int
    mean: float | None
    rating_range: tuple[float, float]
    raters: int  # that were asked
    liked: tuple[Regard, ...]  # strongest first
    disliked: tuple[Regard, ...]
    ratings: dict[str, int]
    model: str
    notes: tuple[str, ...] = ()


def person_profile(recommender: Recommender, user: str, *, sentences: int = 2) -> PersonProfile:
    """The viewpoints of a person of the training data."""
    fitted = recommender.fitted_corpus
    number = recommender._find(fitted.users.index(), user, "user")
    records = np.flatnonzero((fitted.part == TRAIN) & (fitted.user == number))
    viewpoints: tuple[Side, ...] = ()
    notes: tuple[str, ...] = ()
    if isinstance(recommender.model, Carp):
        document = fitted.readable(fitted.user_documents, number)
        reading = read_document(recommender.model.read_users, document, recommender.device)
        sides = document_sides(recommender.model, document, reading, sentences=sentences)
        judged = _judged(recommender, np.full(len(records), number), fitted.item[records])
        viewpoints = _named("viewpoint", sides, _listening(judged))
        if not len(document.words):
            notes = ("the person's reviews hold no word the model knows: the viewpoints are empty",)
    else:
        notes = (f"the model {recommender.name} has no viewpoints of a person apart from a thing",)
    return PersonProfile(
        user=user,
        reviews=len(records),
        mean=_mean(fitted, records),
        rating_range=(fitted.scale.low, fitted.scale.high),
        viewpoints=viewpoints,
        ratings=_histogram(fitted, records),
        model=recommender.name,
        notes=notes,
    )


def thing_profile(
    recommender: Recommender, item: str, *, sentences: int = 2, phrases: Phrases | None = None
) -> ThingProfile:
    """What the training raters of a thing like and dislike about it; `phrases` of raters may be known already."""
    fitted = recommender.fitted_corpus
    number = recommender._find(fitted.items.index(), item, "item")
    records = np.flatnonzero((fitted.part == TRAIN) & (fitted.item == number))
    raters = fitted.user[records]
    notes: tuple[str, ...] = ()
    if len(raters) > MOST_RATERS:
        notes = (f"{MOST_RATERS:,} of the {len(raters):,} raters were asked",)
        raters = raters[np.linspace(0, len(raters) - 1, MOST_RATERS).astype(int)]
    liked: tuple[Regard, ...] = ()
    disliked: tuple[Regard, ...] = ()
    if not isinstance(recommender.model, Carp):
        notes = (*notes, NO_CAPSULES.format(name=recommender.name))
    elif len(raters):
        phrases = phrases or cache(lambda user: viewpoint_phrases(recommender, user))
        liked, disliked = _regards(recommender, recommender.model, number, raters, sentences, phrases)
    return ThingProfile(
        item=item,
        reviews=len(records),
        mean=_mean(fitted, records),
        rating_range=(fitted.scale.low, fitted.scale.high),
        raters=len(raters),
        liked=liked,
        disliked=disliked,
        ratings=_histogram(fitted, records),
        model=recommender.name,
        notes=notes,
    )


@torch.no_grad()
def read_document(read: Any, document: ReadableDocument, device: torch.device) -> DocumentReading:
    """What a side of CARP takes from one document."""
    words = document.words if len(document.words) else np.zeros(1, np.int32)
    review = document.review if len(document.review) else np.full(1, -1, np.int32)
    reading: DocumentReading = read(torch.from_numpy(words)[None].to(device), torch.from_numpy(review)[None].to(device))
    return reading


def document_sides(
    model: Carp, document: ReadableDocument, reading: DocumentReading, *, sentences: int, moved: Array | None = None
) -> list[Side]:
    attention = reading.attention[0].double().cpu().numpy()[: len(document.words)]
    book = phrase_book(document, attention, window=model.config.window)
    return weightiest_sides(book, shown_sentences=sentences, moved=moved)


def _named(kind: str, sides: list[Side], weights: Array) -> tuple[Side, ...]:
    return tuple(
        replace(side, name=f"{kind} {side.index}", weight=float(weight))
        for side, weight in zip(sides, weights, strict=True)
    )


@torch.no_grad()
def _judged(recommender: Recommender, users: NDArray[Any], items: NDArray[Any]) -> tuple[Array, Array]:
    """Couplings [R, 2, M, M] and lengths [R, 2] of pairs, from whole documents of training reviews."""
    model = recommender.model
    assert isinstance(model, Carp)
    user_sides, item_sides = recommender._sides
    shown = model.judge(model.pair(user_sides[_places(users)], item_sides[_places(items)]))
    return shown["coupling"].double().cpu().numpy(), shown["lengths"].double().cpu().numpy()


def _places(numbers: NDArray[Any]) -> torch.Tensor:
    return torch.from_numpy(np.asarray(numbers, np.int64))


def _listening(judged: tuple[Array, Array]) -> Array:
    """The share of the longer capsule's coupling that falls on each viewpoint, on average over pairs."""
    coupling, lengths = judged
    longer = np.where(lengths[:, POSITIVE] >= lengths[:, NEGATIVE], POSITIVE, NEGATIVE)
    heard = coupling[np.arange(len(longer)), longer].sum(2)  # [R, M]
    share: Array = (heard / np.maximum(heard.sum(1, keepdims=True), 1e-30)).mean(0)
    return share


def _regards(
    recommender: Recommender, model: Carp, item: int, raters: NDArray[np.int32], sentences: int, phrases: Phrases
) -> tuple[tuple[Regard, ...], tuple[Regard, ...]]:
    fitted = recommender.fitted_corpus
    coupling, lengths = _judged(recommender, raters, np.full(len(raters), item))
    document = fitted.readable(fitted.item_documents, item)
    reading = read_document(model.read_items, document, recommender.device)
    pull = _common_pull(recommender, model, raters, reading, document)
    found = []
    for s, direction in ((POSITIVE, 1.0), (NEGATIVE, -1.0)):
        sides = document_sides(model, document, reading, sentences=sentences, moved=direction * pull)
        named = _named("aspect", sides, coupling[:, s].sum(1).mean(0))
        strength = coupling[:, s] * lengths[:, s, None, None]  # [R, M, M]
        longer = lengths[:, s] > lengths[:, 1 - s]
        found.append(_ranked(raters, strength, longer, named, phrases))
    return found[0], found[1]


def _common_pull(
    recommender: Recommender,
    model: Carp,
    raters: NDArray[np.int32],
    reading: DocumentReading,
    document: ReadableDocument,
) -> Array:
    """How much each sentence of the thing moves the rating through each aspect, on average over raters. [S, M]

    As in the explanation of one pair: what an aspect loses without it, times the slope of the balance of sentiments.
    """
    viewpoints = recommender._sides[0][_places(raters)]
    aspects = reading.viewpoints.expand(len(viewpoints), *reading.viewpoints.shape[1:])
    units = model.pair(viewpoints, aspects).detach().requires_grad_()
    gradient = torch.autograd.grad(model.judge(units)["balance"].sum(), units)[0]  # pairs do not meet
    towards = slopes_at(model, gradient, viewpoints, aspects).item.sum(1).mean(0)  # [M, k]
    lost = lost_sentences(model, reading, document.sentence_numbers)
    pull: Array = (lost * towards).sum(-1).detach().double().cpu().numpy()
    return pull


def _ranked(
    raters: NDArray[np.int32], strength: Array, longer: NDArray[np.bool_], aspects: tuple[Side, ...], phrases: Phrases
) -> tuple[Regard, ...]:
    """The aspects by how many raters have them among their top units and how strong these are."""
    many, m = strength.shape[:2]
    order = np.argsort(-strength.reshape(many, -1), axis=1, kind="stable")[:, :TOP_UNITS]
    viewpoint, aspect = np.unravel_index(order, (m, m))  # [R, TOP_UNITS]
    regards = []
    for y in range(m):
        who, which = np.nonzero(aspect == y)
        if len(who):
            best = np.zeros(many)
            np.maximum.at(best, who, strength[who, viewpoint[who, which], y])
            having = np.unique(who)
            met = _met(raters, viewpoint[who, which], who, best, phrases)
            prevailing = int(longer[having].sum())
            regards.append(Regard(aspects[y], len(having), prevailing, float(best[having].mean()), met))
    return tuple(sorted(regards, key=lambda regard: -regard.raters * regard.strength))


def _met(
    raters: NDArray[np.int32], viewpoint: NDArray[Any], who: NDArray[Any], best: Array, phrases: Phrases
) -> tuple[Spoken, ...]:
    """The viewpoints that met an aspect, by phrases of those raters for whom it counts most."""
    spoken = []
    for x, _ in Counter(viewpoint.tolist()).most_common(VIEWPOINTS_NAMED):
        with_it = np.unique(who[viewpoint == x])
        strongest = with_it[np.argsort(-best[with_it], kind="stable")][:RATERS_QUOTED]
        said = dict.fromkeys(phrase for rater in strongest for phrase in phrases(int(raters[rater]))[x][:2])
        spoken.append(Spoken(x + 1, tuple(said)))
    return tuple(spoken)


def viewpoint_phrases(recommender: Recommender, user: int) -> list[tuple[str, ...]]:
    """The phrases of every viewpoint of a numbered person."""
    assert isinstance(recommender.model, Carp)
    return _phrases(recommender, recommender.model.read_users, recommender.fitted_corpus.user_documents, user)


def aspect_phrases(recommender: Recommender, item: int) -> list[tuple[str, ...]]:
    """The phrases of every aspect of a numbered thing."""
    assert isinstance(recommender.model, Carp)
    return _phrases(recommender, recommender.model.read_items, recommender.fitted_corpus.item_documents, item)


def _phrases(recommender: Recommender, read: Any, documents: Documents, owner: int) -> list[tuple[str, ...]]:
    assert isinstance(recommender.model, Carp)
    document = recommender.fitted_corpus.readable(documents, owner)
    reading = read_document(read, document, recommender.device)
    return [side.phrases for side in document_sides(recommender.model, document, reading, sentences=0)]


def _mean(fitted: FittedCorpus, records: NDArray[np.int64]) -> float | None:
    return fitted.own_rating(float(fitted.rating[records].mean())) if len(records) else None


def _histogram(fitted: FittedCorpus, records: NDArray[np.int64]) -> dict[str, int]:
    """How often each rating was given, in the range of the data; whole steps that nobody took are there as well."""
    own = [round(fitted.own_rating(float(stars)), 3) for stars in fitted.rating[records]]
    low, high = fitted.scale.low, fitted.scale.high
    whole = float(low).is_integer() and high - low == fitted.levels - 1
    steps = np.arange(low, high + 1).tolist() if whole else []
    counts = Counter(own)
    return {f"{step:g}": counts[step] for step in sorted({*steps, *own})}
