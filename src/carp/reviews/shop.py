"""A made-up shop: people with viewpoints, things with aspects, and reviews that follow from their meeting.

Each person cares about two or three topics and about nothing else; each thing is clearly good at some topics and
clearly bad at as many others. A rating is what the person's topics meet in the thing, plus a little noise, so that
averages of people or things say next to nothing, and every rating has a known cause which the review puts into words.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from carp.errors import UnknownIdError, UsageError
from carp.reviews.shop_words import FILLER, KINDS, LINKS, MAKERS, SHARED, TOPIC_WORDS, TopicWords

Sentiment = Literal["positive", "negative"]

TOPICS: tuple[str, ...] = tuple(TOPIC_WORDS)
LOWEST_RATING, HIGHEST_RATING = 1.0, 5.0
FEWEST_REVIEWS = 6
NEUTRAL_RATING = 3.4
STARS_PER_MATCH = 1.5
PERSON_BIAS, THING_BIAS = 0.15, 0.10
# The weakest clear match, 0.8 * 0.5, outweighs two vague ones, 2 * 1.2 * 0.15, so that where anything is clear the
# planted cause is a clear one.
LEAST_CARE, MOST_CARE = 0.8, 1.2
LEAST_CLEAR, MOST_VAGUE = 0.5, 0.15
FIRST_DAY, LAST_DAY = 1_546_300_800, 1_703_980_800  # 2019 to 2023, in Unix seconds


@dataclass(frozen=True)
class PlantedCause:
    """What one topic does to one rating; `strength` is in stars and negative where it speaks against the thing."""

    topic: str
    sentiment: Sentiment
    strength: float


@dataclass(frozen=True)
class WrittenSentence:
    """Where a sentence stands in the text, and what it is about; a topic without sentiment is a stance or a shrug."""

    start: int
    end: int
    topic: str | None
    sentiment: Sentiment | None


@dataclass(frozen=True)
class ShopReview:
    """One review and its causes, strongest first: all topics the person cares about."""

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
        """The topic that does most to move the rating to the side of neutral on which it lies without noise."""
        return _main_cause(self.causes(user, item))

    def expected_rating(self, user: str, item: str) -> float:
        """The rating without noise and without leniency of the person or popularity of the thing."""
        return _clamp(NEUTRAL_RATING + sum(cause.strength for cause in self.causes(user, item)))

    def topics_in(self, text: str) -> tuple[str, ...]:
        """The topics that a text or a part of one touches, in order of first appearance.

        Works on parts of the shop's own sentences too, as long as a word of the topic is among them.
        """
        topics = map(topic_of_sentence, re.split(r"(?<=[.!?])\s+", text))
        return tuple(dict.fromkeys(topic for topic in topics if topic is not None))

    def records(self) -> list[dict[str, Any]]:
        """The reviews as plain rows with user, item, rating, text and time: what a reader of reviews would see."""
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

    `reviews_per_person` is a mean; nobody writes fewer than six, and no thing gets fewer than six. `topics` are
    those that people care about. `noise` is the standard deviation, in stars, of what no cause explains.
    """
    unknown = [topic for topic in topics if topic not in TOPICS]
    if unknown or len(set(topics)) < 3:
        raise UsageError(
            f"{', '.join(topics)} are no three topics of the shop", mend=f"choose from {', '.join(TOPICS)}"
        )
    _check_size(people, things, reviews_per_person, noise)
    rng, writing = np.random.default_rng(seed).spawn(2)  # apart, so that a reworded template moves no rating
    tastes = {f"person-{number:03}": _make_taste(topics, rng) for number in range(people)}
    qualities = {f"thing-{number:03}": _make_quality(topics, rng) for number in range(things)}
    kinds = [list(KINDS)[index] for index in rng.integers(len(KINDS), size=things)]
    names = dict(zip(qualities, _name_things(kinds, rng), strict=True))
    voices = [_make_voice(writing) for _ in range(people)]
    leniency = rng.normal(0, PERSON_BIAS, people)
    popularity = rng.normal(0, THING_BIAS, things)
    users, items = list(tastes), list(qualities)
    reviews = []
    for person, thing in _choose_pairs(list(tastes.values()), list(qualities.values()), reviews_per_person, rng):
        causes = _causes(tastes[users[person]], qualities[items[thing]])
        stars = NEUTRAL_RATING + sum(cause.strength for cause in causes)
        stars += leniency[person] + popularity[thing] + noise * rng.standard_normal()
        rating = _clamp(float(np.rint(stars)))
        writer = _Writer(KINDS[kinds[thing]], voices[person], writing)
        text, sentences = writer.write(rating, causes, qualities[items[thing]])
        time = int(rng.integers(FIRST_DAY, LAST_DAY))
        reviews.append(ShopReview(users[person], items[thing], rating, text, time, causes, sentences))
    reviews.sort(key=lambda review: (review.time, review.user, review.item))
    return Shop(tuple(reviews), tastes, qualities, names)


def topic_of_sentence(sentence: str) -> str | None:
    """The topic of a sentence that the shop wrote, told by words that no other topic uses; None for filler.

    >>> topic_of_sentence("This amp weighs a ton.")
    'weight'
    >>> topic_of_sentence("Thanks for reading this far.") is None
    True
    """
    owners = _owner_of_word()
    votes = Counter(owners[word] for word in _words(sentence) if word in owners)
    return max(votes, key=lambda topic: votes[topic]) if votes else None


# ---- people, things, and who reviews what


def _check_size(people: int, things: int, reviews_per_person: int, noise: float) -> None:
    where = "the made-up shop"
    if min(people, things) < FEWEST_REVIEWS:
        what = f"{people} people and {things} things are too few for {FEWEST_REVIEWS} reviews each"
        raise UsageError(what, where=where, mend=f"ask for at least {FEWEST_REVIEWS} people and things")
    if not FEWEST_REVIEWS <= reviews_per_person <= things:
        what = f"{reviews_per_person} reviews per person cannot be had from {things} things"
        mend = f"ask for {FEWEST_REVIEWS} to {things} reviews per person, or for more things"
        raise UsageError(what, where=where, mend=mend)
    if not 0 <= noise < float("inf"):
        raise UsageError(f"noise is {noise}", where=where, mend="give a noise of 0 or more stars")


def _make_taste(topics: Sequence[str], rng: np.random.Generator) -> dict[str, float]:
    """One topic matters most to a person, one or two more matter about half as much, and the rest not at all."""
    cared = rng.permutation(len(topics))[: 3 if rng.random() < 0.25 else 2]
    care = np.zeros(len(topics))
    care[cared[0]] = rng.uniform(0.9, 1.1)
    care[cared[1:]] = rng.uniform(0.4, 0.6, len(cared) - 1)
    return dict(zip(topics, care.tolist(), strict=True))


def _make_quality(topics: Sequence[str], rng: np.random.Generator) -> dict[str, float]:
    """Clearly good or bad on at least half of the topics, each by itself: no strength tells of a weakness elsewhere."""
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
    """Who reviews what: some things are more popular, and a thing vague on all one cares about is not chosen."""
    care = np.array([list(taste.values()) for taste in tastes])  # [people, topics]
    clear = np.array([[abs(value) >= LEAST_CLEAR for value in quality.values()] for quality in qualities])
    appeal = rng.gumbel(size=(len(tastes), len(qualities))) + rng.normal(0, 0.4, len(qualities))
    appeal -= 1000.0 * ~((care > 0).astype(int) @ clear.T.astype(int) > 0)  # kept as a last resort of tiny shops
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
        raise UnknownIdError(what, where="the made-up shop", mend=f"ids run from {first} to {last}")
    return known[name]


def _clamp(rating: float) -> float:
    return min(max(rating, LOWEST_RATING), HIGHEST_RATING)


# ---- what they write


@dataclass(frozen=True)
class _Voice:
    """How often a person contracts, exclaims, and forgets the capital letter."""

    contracts: float
    exclaims: float
    lowers: float


@dataclass(frozen=True)
class _Plan:
    template: str
    choices: Mapping[str, tuple[str, ...]]
    topic: str | None = None
    sentiment: Sentiment | None = None


# Only where a word follows, and "it is" only after a comma: "how light it is." and "wearing it is fine" must stay.
CONTRACTIONS = tuple(
    (re.compile(rf"\b{full}(?= \w)"), short)
    for full, short in (
        ("did not", "didn't"),
        ("does not", "doesn't"),
        ("Do not", "Don't"),
        ("do not", "don't"),
        ("will not", "won't"),
        ("would not", "wouldn't"),
        ("could not", "couldn't"),
        ("should not", "shouldn't"),
        ("cannot", "can't"),
        ("have not", "haven't"),
        ("has not", "hasn't"),
        ("It is", "It's"),
        ("(?<=, )it is", "it's"),
        ("I am", "I'm"),
        ("That is", "That's"),
        ("that is", "that's"),
        ("I will", "I'll"),
        ("I would", "I'd"),
        ("I have(?= (?:had|paid|asked|ever|owned|clicked))", "I've"),
    )
)


def _make_voice(rng: np.random.Generator) -> _Voice:
    contracts, exclaims = rng.beta(0.6, 0.6), 0.25 * rng.beta(0.5, 2.0)
    return _Voice(float(contracts), float(exclaims), 0.8 if rng.random() < 0.06 else 0.01)


class _Writer:
    """Writes one review; remembers what it has used, so that it does not repeat itself."""

    def __init__(self, noun: str, voice: _Voice, rng: np.random.Generator) -> None:
        self.noun, self.voice, self.rng = noun, voice, rng
        self.used: set[str] = set()

    def write(
        self, rating: float, causes: Sequence[PlantedCause], quality: Mapping[str, float]
    ) -> tuple[str, tuple[WrittenSentence, ...]]:
        text, sentences = "", list[WrittenSentence]()
        for plan in self._plan(rating, causes, quality):
            sentence = self._say(plan, sentences[-1].sentiment if sentences else None)
            start = len(text) + 1 if text else 0
            text = f"{text} {sentence}" if text else sentence
            sentences.append(WrittenSentence(start, len(text), plan.topic, plan.sentiment))
        return text, tuple(sentences)

    def _plan(self, rating: float, causes: Sequence[PlantedCause], quality: Mapping[str, float]) -> list[_Plan]:
        """What is said, in order: first how it came about, last the verdict, and topics in between as they come."""
        rng = self.rng
        cared = [cause.topic for cause in causes]
        topics = [*cared, _main_cause(causes).topic] if rng.random() < 0.4 else cared
        known_for = [topic for topic in quality if topic not in cared and abs(quality[topic]) >= LEAST_CLEAR]
        if known_for and rng.random() < 0.4:
            topics = [*topics, known_for[int(rng.integers(len(known_for)))]]
        body = [self._opinion(topic, quality[topic]) for topic in topics]
        if rng.random() < 0.5:
            topic = cared[int(rng.integers(len(cared)))]
            words = TOPIC_WORDS[topic]
            body.append(_Plan(self._pick(words.stance, 2.0), words.choices, topic))
        count = min(max(int(rng.integers(0, 3)), 3 - len(body)), 7 - len(body))
        parts = set(rng.permutation(["opening", "middle", "verdict", "closing"])[:count].tolist())
        if "middle" in parts:
            body.append(_Plan(self._pick(FILLER.middle), FILLER.choices))
        opening = [_Plan(self._pick(FILLER.opening), FILLER.choices)] if "opening" in parts else []
        verdict = [self._verdict(rating)] if "verdict" in parts else []
        closing = [_Plan(self._pick(FILLER.closing), FILLER.choices)] if "closing" in parts else []
        return [*opening, *(body[index] for index in rng.permutation(len(body))), *verdict, *closing]

    def _opinion(self, topic: str, quality: float) -> _Plan:
        words = TOPIC_WORDS[topic]
        if abs(quality) < LEAST_CLEAR:
            return _Plan(self._pick(words.shrug), words.choices, topic)
        if quality > 0:
            return _Plan(self._pick(words.positive, 2.0), words.choices, topic, "positive")
        return _Plan(self._pick(words.negative, 2.0), words.choices, topic, "negative")

    def _verdict(self, rating: float) -> _Plan:
        if rating > 3:
            return _Plan(self._pick(FILLER.satisfied), FILLER.choices, None, "positive")
        if rating < 3:
            return _Plan(self._pick(FILLER.dissatisfied), FILLER.choices, None, "negative")
        return _Plan(self._pick(FILLER.undecided), FILLER.choices)

    def _say(self, plan: _Plan, before: Sentiment | None) -> str:
        pieces = list(_pieces(plan.template))
        for place in range(1, len(pieces), 2):
            gap = pieces[place]
            pieces[place] = self.noun if gap == "thing" else self._pick(plan.choices.get(gap) or SHARED[gap], 3.0)
        sentence = "".join(pieces)
        sentence = sentence[0].upper() + sentence[1:]
        if plan.topic and plan.sentiment:
            sentence = self._link(sentence, plan.sentiment, before)
        return self._voiced(sentence, may_exclaim=plan.sentiment is not None)

    def _link(self, sentence: str, sentiment: Sentiment, before: Sentiment | None) -> str:
        # other openings (commands, fragments, questions) do not read well behind a link
        if not sentence.startswith(("The ", "It ", "My ", "This ")) or sentence.count(" ") > 13:
            return sentence
        contrast = before is not None and before != sentiment
        if self.rng.random() > (0.5 if contrast else 0.15):
            return sentence
        link = self._pick(LINKS["contrast" if contrast else "addition" if before else sentiment], 1.5)
        return f"{link} {sentence[0].lower()}{sentence[1:]}"

    def _voiced(self, sentence: str, *, may_exclaim: bool) -> str:
        if self.rng.random() < self.voice.contracts:
            for full, short in CONTRACTIONS:
                sentence = full.sub(short, sentence)
        if may_exclaim and sentence.endswith(".") and self.rng.random() < self.voice.exclaims:
            sentence = sentence[:-1] + "!"
        if not sentence.startswith(("I ", "I'")) and self.rng.random() < self.voice.lowers:
            sentence = sentence[0].lower() + sentence[1:]
        return sentence

    def _pick(self, options: Sequence[str], lean: float = 1.0) -> str:
        """An option not yet used in this review, if any is left; a greater `lean` favours the first ones."""
        fresh = [option for option in options if option not in self.used] or options
        option = fresh[int(len(fresh) * self.rng.random() ** lean)]
        self.used.add(option)
        return option


# ---- reading topics back


@cache
def _pieces(template: str) -> tuple[str, ...]:
    """Fixed text and gap names in turn, starting with fixed text."""
    return tuple(re.split(r"\{(\w+)\}", template))


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z]+(?:'[a-z]+)?", text.lower())


def _vocabulary(templates: Iterable[str], choices: Iterable[str]) -> set[str]:
    fixed = chain.from_iterable(_pieces(template)[::2] for template in templates)
    return set(chain.from_iterable(map(_words, chain(fixed, choices))))


def _topic_vocabulary(words: TopicWords) -> set[str]:
    templates = chain(words.positive, words.negative, words.shrug, words.stance)
    return _vocabulary(templates, chain.from_iterable(words.choices.values()))


@cache
def _owner_of_word() -> dict[str, str]:
    """The topic of each word that stands in the sentences of one topic and nowhere else."""
    filler = chain(FILLER.opening, FILLER.middle, FILLER.closing)
    verdicts = chain(FILLER.satisfied, FILLER.dissatisfied, FILLER.undecided)
    everywhere = chain(KINDS.values(), *LINKS.values(), *FILLER.choices.values(), *SHARED.values())
    common = _vocabulary(chain(filler, verdicts), everywhere)
    vocabularies = {topic: _topic_vocabulary(words) for topic, words in TOPIC_WORDS.items()}
    users = Counter(chain.from_iterable(vocabularies.values()))
    return {
        word: topic
        for topic, vocabulary in vocabularies.items()
        for word in sorted(vocabulary)
        if users[word] == 1 and word not in common
    }
