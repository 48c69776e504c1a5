"""A made-up shop: people with viewpoints, things with aspects, and reviews that follow from both.

Each person cares most about one topic, about half as much about one or two more, and about nothing else. Each thing is
clearly good at some topics and clearly bad at others. A rating depends on how good the thing is at the person's topics,
plus a little noise. So averages of people or things say little, and every rating has a known cause, which the review
puts into words.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from carp.errors import UnknownIdError, UsageError, nearest
from carp.reviews.shop.sentence_templates import KINDS, MAKERS, TOPIC_WORDS
from carp.reviews.shop.sentence_writer import LEAST_CLEAR, Sentiment, Writer, WrittenSentence, make_voice
from carp.reviews.shop.sentence_writer import topic_of_sentence as topic_of_sentence  # offered here as well

TOPICS: tuple[str, ...] = tuple(TOPIC_WORDS)
LOWEST_RATING, HIGHEST_RATING = 1.0, 5.0
FEWEST_REVIEWS = 6
NEUTRAL_RATING = 3.4
STARS_PER_MATCH = 1.5
PERSON_BIAS, THING_BIAS = 0.15, 0.10
MOST_CARED = 3
MOST_VAGUE = 0.1
FIRST_DAY, LAST_DAY = 1_546_300_800, 1_703_980_800  # 2019 to 2023, in Unix seconds


@dataclass(frozen=True)
class PlantedCause:
    """What one topic does to one rating. `strength` is in stars, and negative if it speaks against the thing."""

    topic: str
    sentiment: Sentiment
    strength: float


@dataclass(frozen=True)
class ShopReview:
    """One review and its causes: all topics the person cares about, strongest first."""

    user: str
    item: str
    rating: float
    text: str
    time: int
    causes: tuple[PlantedCause, ...]
    sentences: tuple[WrittenSentence, ...]


@dataclass(frozen=True)
class Shop:
    """All reviews, and the truth behind them.

    >>> shop = make_shop(people=20, things=10, reviews_per_person=6)
    >>> review = shop.reviews[0]
    >>> shop.planted_cause(review.user, review.item).topic in shop.topics_in(review.text)
    True
    """

    reviews: tuple[ShopReview, ...]
    people: Mapping[str, Mapping[str, float]]
    things: Mapping[str, Mapping[str, float]]
    names: Mapping[str, str]

    def causes(self, user: str, item: str) -> tuple[PlantedCause, ...]:
        """What each topic the person cares about does to the rating, strongest first."""
        return _causes(_known(user, self.people, "person"), _known(item, self.things, "thing"))

    def planted_cause(self, user: str, item: str) -> PlantedCause:
        """The topic that does most to make the rating (without noise) better or worse than neutral."""
        return _main_cause(self.causes(user, item))

    def expected_rating(self, user: str, item: str) -> float:
        """The rating without noise, and without the biases of the person and the thing."""
        return _clamp(NEUTRAL_RATING + sum(cause.strength for cause in self.causes(user, item)))

    def topics_in(self, text: str) -> tuple[str, ...]:
        """The topics that a text or a part of it mentions, in order of first appearance.

        Works on parts of the shop's own sentences too, as long as they contain a word of the topic.
        """
        topics = map(topic_of_sentence, re.split(r"(?<=[.!?])\s+", text))
        return tuple(dict.fromkeys(topic for topic in topics if topic is not None))

    def records(self) -> list[dict[str, Any]]:
        """The reviews as plain rows with user, item, rating, text and time, without their causes."""
        return [{name: getattr(review, name) for name in RECORD_FIELDS} for review in self.reviews]

    def frame(self) -> Any:
        """The same rows as a polars frame, for `carp.read_reviews`."""
        import polars

        return polars.DataFrame(self.records())


RECORD_FIELDS = ("user", "item", "rating", "text", "time")


def make_shop(
    *,
    people: int = 200,
    things: int = 80,
    reviews_per_person: int = 12,
    topics: Sequence[str] = TOPICS,
    seed: int = 0,
    noise: float = 0.35,
) -> Shop:
    """Invent a shop; the same arguments give the same shop.

    Args:
        people: How many write reviews.
        things: How many things there are.
        reviews_per_person: The mean. Every person writes at least six reviews, and every thing gets at least six.
        topics: What people care about and write about.
        seed: The same seed gives the same shop.
        noise: The standard deviation, in stars, of the part of a rating that has no cause.

    Returns:
        The shop, with its reviews and the causes of their ratings.
    """
    _check_topics(topics)
    _check_size(people, things, reviews_per_person, noise)
    rng, writing = np.random.default_rng(seed).spawn(2)  # separate, so that a reworded template changes no rating
    tastes = {f"person-{number:03}": _make_taste(topics, rng) for number in range(people)}
    qualities = {f"thing-{number:03}": _make_quality(topics, rng) for number in range(things)}
    kinds = [list(KINDS)[index] for index in rng.integers(len(KINDS), size=things)]
    names = dict(zip(qualities, _name_things(kinds, rng), strict=True))
    voices = [make_voice(writing) for _ in range(people)]
    leniency = rng.normal(0, PERSON_BIAS, people)
    popularity = rng.normal(0, THING_BIAS, things)
    users, items = list(tastes), list(qualities)
    reviews = []
    for person, thing in _choose_pairs(list(tastes.values()), list(qualities.values()), reviews_per_person, rng):
        causes = _causes(tastes[users[person]], qualities[items[thing]])
        stars = NEUTRAL_RATING + sum(cause.strength for cause in causes)
        stars += leniency[person] + popularity[thing] + noise * rng.standard_normal()
        rating = _clamp(float(np.rint(stars)))
        writer = Writer(KINDS[kinds[thing]], voices[person], writing)
        cared, cause = [cause.topic for cause in causes], _main_cause(causes).topic
        text, sentences = writer.write(rating, cared, cause, qualities[items[thing]])
        time = int(rng.integers(FIRST_DAY, LAST_DAY))
        reviews.append(ShopReview(users[person], items[thing], rating, text, time, causes, sentences))
    reviews.sort(key=lambda review: (review.time, review.user, review.item))
    return Shop(tuple(reviews), tastes, qualities, names)


# ---- people, things, and who reviews what


def _check_topics(topics: Sequence[str]) -> None:
    where = "the made-up shop"
    for topic in topics:
        if topic not in TOPICS:
            raise UsageError(f"there is no topic {topic!r}", where=where, fix=nearest(topic, TOPICS))
    if len(topics) < MOST_CARED or len(set(topics)) < len(topics):
        what = f"{', '.join(topics) or 'no topics'} are not {MOST_CARED} or more different topics"
        raise UsageError(what, where=where, fix=f"choose from {', '.join(TOPICS)}")


def _check_size(people: int, things: int, reviews_per_person: int, noise: float) -> None:
    where = "the made-up shop"
    if min(people, things) < FEWEST_REVIEWS:
        what = f"{people} people and {things} things are too few for {FEWEST_REVIEWS} reviews each"
        raise UsageError(what, where=where, fix=f"ask for at least {FEWEST_REVIEWS} people and things")
    if not FEWEST_REVIEWS <= reviews_per_person <= things:
        what = f"{reviews_per_person} reviews per person are too many for {things} things"
        fix = f"ask for {FEWEST_REVIEWS} to {things} reviews per person, or for more things"
        raise UsageError(what, where=where, fix=fix)
    if not 0 <= noise < float("inf"):
        raise UsageError(f"noise is {noise}", where=where, fix="give a noise of 0 or more stars")


def _make_taste(topics: Sequence[str], rng: np.random.Generator) -> dict[str, float]:
    """One topic matters most to a person, one or two more matter about half as much, the rest do not matter."""
    cared = rng.permutation(len(topics))[: MOST_CARED if rng.random() < 0.25 else MOST_CARED - 1]
    care = np.zeros(len(topics))
    care[cared[0]] = rng.uniform(0.9, 1.1)
    care[cared[1:]] = rng.uniform(0.4, 0.6, len(cared) - 1)
    return dict(zip(topics, care.tolist(), strict=True))


def _make_quality(topics: Sequence[str], rng: np.random.Generator) -> dict[str, float]:
    """Clearly good or bad at half of the topics or more. The topics are independent of each other."""
    count = len(topics)
    clear = rng.permutation(count) < int(rng.integers(count // 2, count + 1))
    size = np.where(clear, rng.uniform(LEAST_CLEAR, 1, count), rng.uniform(0.01, MOST_VAGUE, count))
    return dict(zip(topics, (size * rng.choice([-1.0, 1.0], count)).tolist(), strict=True))


def _name_things(kinds: Sequence[str], rng: np.random.Generator) -> list[str]:
    makers = rng.permutation(MAKERS).tolist()
    seen: Counter[str] = Counter()
    names = []
    for number, kind in enumerate(kinds):
        name = f"{makers[number % len(makers)]} {kind}"
        seen[name] += 1
        names.append(name if seen[name] == 1 else f"{name} {seen[name]}")
    return names


def _choose_pairs(
    tastes: Sequence[Mapping[str, float]],
    qualities: Sequence[Mapping[str, float]],
    reviews_per_person: int,
    rng: np.random.Generator,
) -> list[tuple[int, int]]:
    """Who reviews what. Some things are more popular. Nobody chooses a thing that is vague at all their topics."""
    care = np.array([list(taste.values()) for taste in tastes])  # [people, topics]
    clear = np.array([[abs(value) >= LEAST_CLEAR for value in quality.values()] for quality in qualities])
    appeal = rng.gumbel(size=(len(tastes), len(qualities))) + rng.normal(0, 0.4, len(qualities))
    appeal -= 1000.0 * ~((care > 0).astype(int) @ clear.T.astype(int) > 0)  # the last resort of tiny shops
    order = np.argsort(-appeal, axis=1)
    extra = rng.poisson(reviews_per_person - FEWEST_REVIEWS, len(tastes))
    counts = np.minimum(FEWEST_REVIEWS + extra, len(qualities))
    chosen: npt.NDArray[np.bool_] = np.zeros(appeal.shape, dtype=bool)
    for person, count in enumerate(counts):
        chosen[person, order[person, :count]] = True
    for thing in np.flatnonzero(chosen.sum(axis=0) < FEWEST_REVIEWS):
        willing = np.argsort(-np.where(chosen[:, thing], -np.inf, appeal[:, thing]))
        chosen[willing[: FEWEST_REVIEWS - chosen[:, thing].sum()], thing] = True
    return [(int(person), int(thing)) for person, thing in np.argwhere(chosen)]


def _causes(taste: Mapping[str, float], quality: Mapping[str, float]) -> tuple[PlantedCause, ...]:
    causes = [
        PlantedCause(topic, "positive" if quality[topic] > 0 else "negative", STARS_PER_MATCH * care * quality[topic])
        for topic, care in taste.items()
        if care > 0
    ]
    return tuple(sorted(causes, key=lambda cause: -abs(cause.strength)))


def _main_cause(causes: Sequence[PlantedCause]) -> PlantedCause:
    sentiment = "positive" if sum(cause.strength for cause in causes) > 0 else "negative"
    return next(cause for cause in causes if cause.sentiment == sentiment)


def _known(name: str, known: Mapping[str, Mapping[str, float]], kind: str) -> Mapping[str, float]:
    if name not in known:
        first, *_, last = known
        what = f"there is no {kind} {name!r}"
        raise UnknownIdError(what, where="the made-up shop", fix=f"ids run from {first} to {last}")
    return known[name]


def _clamp(rating: float) -> float:
    return min(max(rating, LOWEST_RATING), HIGHEST_RATING)
