"""The aspects of a corpus, for a reader: their names, how much is written about each, and how often each decides."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carp.explain.explainer import Explainer
from carp.explain.explanation import Explanation, Sentence
from carp.explain.question import known_pair
from carp.explain.reading_guide import ReadingGuide
from carp.reviews.split_parts import TEST, TRAIN
from carp.training.fitted_corpus import FittedCorpus

MOST_REVIEWS = 3_000  # that are looked through for typical sentences, evenly spread
FEWEST_WORDS, MOST_WORDS = 4, 20  # of a typical sentence
TYPICAL_SHARE = 0.4  # of a sentence's words that belong to the aspect, for it to be typical


@dataclass(frozen=True)
class AspectOverview:
    """One aspect."""

    name: str
    share: float  # of all sentences
    praise: Sentence | None  # a typical sentence that praises, if there is one
    complaint: Sentence | None
    decides: float | None  # share of held-out pairs for which it is the largest amount; None where nobody counted


@dataclass(frozen=True, repr=False)
class Aspects:
    """All aspects, those that are written about most first. Shows itself in a terminal."""

    aspects: tuple[AspectOverview, ...]
    pairs: int  # explained, to count how often each decides

    def __str__(self) -> str:
        from carp.render.aspect_views import aspects_text

        return aspects_text(self)

    __repr__ = __str__

    def as_dict(self) -> dict[str, Any]:
        """The same as JSON-ready data."""
        return asdict(self)


@dataclass(frozen=True, eq=False)
class _Looked:
    """Sentences of some reviews, one row each."""

    record: NDArray[np.int64]
    place: NDArray[np.int64]
    words: NDArray[np.int64]
    aspect: NDArray[np.int64]
    belonging: NDArray[np.float64]  # share of its words that belong to its aspect
    tone: NDArray[np.float64]


def aspects_of(explainer: Explainer, pairs: int) -> Aspects:
    """The aspects by which the model explains; `pairs` held-out pairs tell how often each decides."""
    guide, corpus = explainer.guide, explainer.corpus
    looked = _look(guide, corpus)
    decided, counted = _decided(explainer, pairs)
    names = guide.aspects.names
    share = np.bincount(looked.aspect, minlength=len(names)) / max(len(looked.aspect), 1)
    found = [
        AspectOverview(
            name,
            float(share[a]),
            _typical(corpus, looked, a, 1),
            _typical(corpus, looked, a, -1),
            decided[name] / counted if counted else None,
        )
        for a, name in enumerate(names[:-1])
    ]
    return Aspects(tuple(sorted(found, key=lambda one: -one.share)), counted)


def _look(guide: ReadingGuide, corpus: FittedCorpus) -> _Looked:
    train = np.flatnonzero(corpus.part == TRAIN)
    records = train[:: max(1, -(-len(train) // MOST_REVIEWS))]
    found: list[tuple[int, int, int, int, float, float]] = []
    for record in records.tolist():
        source = corpus.source(record)
        words, starts, _ = corpus.vocabulary.encode(source.text)
        place = source.sentences_at(np.asarray(starts, np.int64))
        tones, of_rating = guide.tones(source, record), guide.of_rating(float(corpus.rating[record]))
        for number in np.unique(place).tolist():
            shares = guide.aspects.membership[np.asarray(words)[place == number]]
            aspect = int(guide.aspects.of_sentences(np.asarray(words)[place == number], _zeros(shares), 1)[0])
            belonging = float(shares[:, aspect].mean())
            found.append((record, number, len(shares), aspect, belonging, float(tones[number]) + of_rating))
    columns = np.array(found, dtype=np.float64).reshape(-1, 6).T
    record, number, count, aspect = (column.astype(np.int64) for column in columns[:4])
    return _Looked(record, number, count, aspect, columns[4], columns[5])


def _zeros(shares: NDArray[np.float32]) -> NDArray[np.int64]:
    return np.zeros(len(shares), np.int64)


def _typical(corpus: FittedCorpus, looked: _Looked, aspect: int, sign: int) -> Sentence | None:
    """The sentence that belongs most to an aspect and clearly praises (complains)."""
    fits = (looked.aspect == aspect) & (looked.words >= FEWEST_WORDS) & (looked.words <= MOST_WORDS)
    worth = np.where(fits & (looked.belonging >= TYPICAL_SHARE), sign * looked.tone * looked.belonging, 0)
    if not len(worth) or worth.max() <= 0:
        return None
    best = int(worth.argmax())
    source = corpus.source(int(looked.record[best]))
    begin, end = source.sentences[int(looked.place[best])]
    return Sentence(source.text[begin:end], (), source.user, source.item, source.rating, title=source.title)


def _decided(explainer: Explainer, pairs: int) -> tuple[Counter[str], int]:
    """How often each aspect is the first finding of held-out pairs, evenly spread, and how many were explained."""
    corpus = explainer.corpus
    held = np.flatnonzero(corpus.part == TEST)
    if not pairs or not len(held):
        return Counter(), 0
    chosen = held[np.linspace(0, len(held) - 1, min(pairs, len(held))).astype(int)]
    questions = [known_pair(corpus, int(corpus.user[record]), int(corpus.item[record])) for record in chosen]
    explained = explainer.explain(questions)
    first = (_first_aspect(found) for found in explained)
    return Counter(name for name in first if name is not None), len(explained)


def _first_aspect(explanation: Explanation) -> str | None:
    """What an explanation tells of first: an aspect by its amount, or the one of the first logic unit."""
    if explanation.little_known:
        return None
    if explanation.findings:
        return explanation.findings[0].aspect
    return explanation.units[0].aspect.name if explanation.units else None
