"""The sentences of the made-up shop: written from templates, and recognised by their words."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Literal, NamedTuple

import numpy as np

from carp.reviews.shop.sentence_templates import FILLER, KINDS, LINKS, SHARED, TOPIC_WORDS, TopicWords

Sentiment = Literal["positive", "negative"]

LEAST_CLEAR = 0.5  # if a thing is neither this good nor this bad at a topic, the writer shrugs


@dataclass(frozen=True)
class WrittenSentence:
    """Where a sentence is in the text, and its topic. A topic without sentiment is a stance or a shrug."""

    start: int
    end: int
    topic: str | None
    sentiment: Sentiment | None


class Voice(NamedTuple):
    """How often a person uses contractions and exclamation marks, and forgets the capital letter."""

    contracts: float
    exclaims: float
    lowers: float


@dataclass(frozen=True)
class _Plan:
    """A planned sentence: its template, the choices for its gaps, and its topic."""

    template: str
    choices: Mapping[str, tuple[str, ...]]
    topic: str | None = None
    sentiment: Sentiment | None = None


# Only before a word, and "it is" only after a comma: "how light it is." and "wearing it is fine" must stay.
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


def make_voice(rng: np.random.Generator) -> Voice:
    contracts, exclaims = rng.beta(0.6, 0.6), 0.25 * rng.beta(0.5, 2.0)
    return Voice(float(contracts), float(exclaims), 0.8 if rng.random() < 0.06 else 0.01)


class Writer:
    """Writes one review, and remembers what it has used, so that it does not repeat itself."""

    def __init__(self, noun: str, voice: Voice, rng: np.random.Generator) -> None:
        self.noun, self.voice, self.rng = noun, voice, rng
        self.used: set[str] = set()

    def write(
        self, rating: float, cared: Sequence[str], cause: str, quality: Mapping[str, float]
    ) -> tuple[str, tuple[WrittenSentence, ...]]:
        """A review that mentions every topic the person `cared` about, sometimes the `cause` of the rating twice."""
        text, sentences = "", list[WrittenSentence]()
        for plan in self._plan(rating, cared, cause, quality):
            sentence = self._say(plan, sentences[-1].sentiment if sentences else None)
            start = len(text) + 1 if text else 0
            text = f"{text} {sentence}" if text else sentence
            sentences.append(WrittenSentence(start, len(text), plan.topic, plan.sentiment))
        return text, tuple(sentences)

    def _plan(self, rating: float, cared: Sequence[str], cause: str, quality: Mapping[str, float]) -> list[_Plan]:
        """What to say, in order: how it came about, then the topics, and a verdict at the end."""
        rng = self.rng
        topics = [*cared, cause] if rng.random() < 0.4 else list(cared)
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
        # other openings (commands, fragments, questions) do not read well after a linking word
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
        """An option not yet used in this review, if there is one. A greater `lean` favours the first ones."""
        fresh = [option for option in options if option not in self.used] or options
        option = fresh[int(len(fresh) * self.rng.random() ** lean)]
        self.used.add(option)
        return option


# ---- reading topics back


def topic_of_sentence(sentence: str) -> str | None:
    """The topic of a sentence the shop wrote, found by words that no other topic uses. None for filler.

    >>> topic_of_sentence("This amp weighs a ton.")
    'weight'
    >>> topic_of_sentence("Thanks for reading this far.") is None
    True
    """
    owners = _owner_of_word()
    votes = Counter(owners[word] for word in _words(sentence) if word in owners)
    return max(votes, key=lambda topic: votes[topic]) if votes else None


@cache
def _pieces(template: str) -> tuple[str, ...]:
    """Fixed text and names of gaps in turn, starting with fixed text."""
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
    """The topic of each word that occurs in the sentences of one topic only."""
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
