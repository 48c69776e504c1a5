"""What any reader brings to a corpus: whether a sentence praises or complains, and what it is about.

Both are learned from the training reviews alone, and are the same for every model, person and thing. They take seconds
to learn, so a saved model keeps them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carp.errors import UsageError
from carp.explain.explanation import Tone
from carp.explain.named_aspects import NamedAspects, find_aspects, seeded_aspects
from carp.explain.praise import MOST_REVIEWS, PRAISE_PLACES, Praise, learn_praise
from carp.reviews.corpora.column_checks import need
from carp.reviews.readable import WrittenReview
from carp.reviews.split_parts import TRAIN
from carp.reviews.text.languages import ENGLISH
from carp.reviews.text.sentences import sentences as sentence_spans
from carp.reviews.text.stop_words import stop_words_in
from carp.training.fitted_corpus import FittedCorpus

Floats = NDArray[np.float64]
OF_ITS_RATING = 0.25  # of a review's rating that each of its sentences takes on
CLEAR_SHARE = 0.75  # of how far sentences usually go, for one to be clear
REVIEWS_SAMPLED = 2_000  # to see how far sentences usually go
REVIEWS_KEPT = 100_000  # whose sentences' tones are remembered
SENTENCES_KEPT = 100_000  # quoted ones, whose tones are remembered
_CLAUSE_ENDS = re.compile(r"[,;:()\[\]、，；：،؛]+")

Seeds = Mapping[str, Sequence[str]]


@dataclass(frozen=True, eq=False)
class ReadingGuide:
    """How sentences of a corpus are read."""

    praise: Praise
    aspects: NamedAspects
    mean_rating: float  # of the training reviews, in stars
    clear_tone: float  # stars: a sentence that says less neither praises nor complains
    _tones: dict[int, Floats] = field(default_factory=dict, repr=False)
    _said: dict[tuple[str, float | None], Tone | None] = field(default_factory=dict, repr=False)

    def tones(self, review: WrittenReview, record: int = -1) -> Floats:
        """How far each sentence of a review speaks for what it is about, in stars, by its words; below 0, against it.
        With its record in the corpus, the answer is remembered."""
        if record not in self._tones:
            self.remember({record: review})
        return self._tones[record] if record >= 0 else self._tones.pop(record)

    def remember(self, reviews: Mapping[int, WrittenReview]) -> None:
        """Read the reviews that were not read before, all at once."""
        if len(self._tones) > REVIEWS_KEPT:
            self._tones.clear()
        new = {record: review for record, review in reviews.items() if record not in self._tones}
        if not new:
            return
        spans = [(review.text, span) for review in new.values() for span in review.sentences]
        found = self.praise.of_texts([text[start:end] for text, (start, end) in spans])
        ends = np.cumsum([len(review.sentences) for review in new.values()])
        self._tones.update(zip(new, np.split(found, ends[:-1]), strict=True))

    def of_rating(self, stars: float) -> float:
        """What a review's rating adds to the tone of its sentences: one of a good review is rather praise."""
        return OF_ITS_RATING * (stars - self.mean_rating)

    def tone_of_quoted(self, text: str, stars: float | None) -> Tone | None:
        """Whether a quoted sentence clearly praises or complains, by its words and the stars of its review, where they
        are known; None where it does neither. Answers are remembered."""
        if (text, stars) not in self._said:
            if len(self._said) >= SENTENCES_KEPT:
                self._said.clear()
            said = float(self.praise.of_texts([text])[0])
            self._said[text, stars] = self.tone(said, 0.0 if stars is None else self.of_rating(stars))
        return self._said[text, stars]

    def tone(self, said: float, of_rating: float) -> Tone | None:
        """What a sentence does whose words say so much and whose review's rating adds so much: clearly, with the rating
        and without it, or nothing."""
        if min(said, said + of_rating) > self.clear_tone:
            return "praise"
        return "complaint" if max(said, said + of_rating) < -self.clear_tone else None

    def columns(self) -> dict[str, NDArray[Any]]:
        """The guide as columns of a file; words that say nothing are left out."""
        said = np.flatnonzero(self.praise.weight)
        names = [name.encode() for name in self.aspects.names]
        return {
            "praise_places": said.astype(np.int32),
            "praise_weights": self.praise.weight[said],
            "membership": self.aspects.membership,
            "names": np.frombuffer(b"\0".join(names), np.uint8),
            "mean_rating": np.array([self.mean_rating]),
            "clear_tone": np.array([self.clear_tone]),
        }

    @staticmethod
    def from_columns(columns: Mapping[str, NDArray[Any]], words: int, levels: int) -> ReadingGuide:
        """From the columns of a file, for a vocabulary of so many words; columns that do not fit are refused."""
        places, weights, membership = (columns[n] for n in ("praise_places", "praise_weights", "membership"))
        need(columns["names"].dtype == np.uint8 and columns["names"].ndim == 1, "the names of aspects are no text")
        names = tuple(columns["names"].tobytes().decode("utf-8").split("\0"))
        (mean,), (clear,) = columns["mean_rating"].tolist(), columns["clear_tone"].tolist()
        need(places.dtype == np.int32 and weights.dtype == np.float32, "what words say is of another kind")
        need(places.shape == weights.shape == (len(places),), "what words say has holes")
        need(not len(places) or (places.min() >= 0 and places.max() < PRAISE_PLACES), "what words say lies elsewhere")
        need(membership.dtype == np.float32 and membership.shape == (words + 1, len(names)), "aspects do not fit words")
        need(bool(np.isfinite(weights).all() and np.isfinite(membership).all()), "the guide holds what is no number")
        need(bool((membership >= 0).all()), "a word has less than no share in an aspect")
        need(bool((np.abs(membership.sum(1) - 1) < 1e-3).all()), "a word's shares in the aspects do not sum to 1")
        need(len(set(names)) == len(names) > 1 and all(names), "aspects have no names, or two the same")
        need(isinstance(mean, float) and 1 <= mean <= levels, "the mean rating is none")
        need(isinstance(clear, float) and 0 <= clear <= levels, "what is clear praise is not told")
        weight = np.zeros(PRAISE_PLACES, np.float32)
        weight[places] = weights
        return ReadingGuide(Praise(weight), NamedAspects(names, membership), mean, clear)

    def with_aspects(self, aspects: NamedAspects) -> ReadingGuide:
        return replace(self, aspects=aspects)


def make_guide(corpus: FittedCorpus) -> ReadingGuide:
    """From the training reviews of a corpus."""
    train = np.flatnonzero(corpus.part == TRAIN)
    some = train[:: max(1, -(-len(train) // MOST_REVIEWS))]
    praise = learn_praise((corpus.texts[int(r)] for r in some), corpus.rating[some], corpus.user[some])
    mean = float(corpus.rating[train].mean()) if len(train) else (1 + corpus.levels) / 2
    vocabulary = corpus.vocabulary.words
    # The model may have been given the stop words of another language, or none: names are still free of them.
    languages = corpus.facts["corpus"].get("languages", [ENGLISH])
    aspects = find_aspects(*clauses(corpus), vocabulary, praise.of_words(vocabulary), no_names=stop_words_in(languages))
    return ReadingGuide(praise, aspects, mean, _clear_tone(corpus, praise, train))


def _clear_tone(corpus: FittedCorpus, praise: Praise, train: NDArray[np.int64]) -> float:
    """Most of how far sentences usually speak for or against something."""
    some = train[:: max(1, -(-len(train) // REVIEWS_SAMPLED))]
    texts = (corpus.texts[int(record)] for record in some)
    tones = praise.of_texts([text[start:end] for text in texts for start, end in sentence_spans(text)])
    return CLEAR_SHARE * float(np.sqrt(np.square(tones).mean())) if len(tones) else 0.0


def read_seeds(lines: Iterable[str], where: str) -> Seeds:
    """A shop's own aspects, one a line: `name: word, word, word`; empty lines and those that begin with # are none.

    >>> read_seeds(["# ours", "Battery: battery, charge", ""], "a file")
    {'Battery': ('battery', 'charge')}
    """
    seeds: dict[str, tuple[str, ...]] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, colon, words = line.partition(":")
        name, given = name.strip(), tuple(word.strip().lower() for word in words.split(",") if word.strip())
        if not colon or not name or not given:
            fix = "write a name, a colon, and words with commas between: Battery: battery, charge, hours"
            raise UsageError("this line names no aspect", where=f"{where}, line {number}", fix=fix)
        if name in seeds:
            raise UsageError(f"the aspect {name!r} is there twice", where=f"{where}, line {number}", fix="join the two")
        seeds[name] = given
    if not seeds:
        raise UsageError("it names no aspect", where=where, fix="write one a line: Battery: battery, charge, hours")
    return seeds


def aspects_from_seeds(corpus: FittedCorpus, seeds: Seeds) -> NamedAspects:
    """A shop's own aspects, by its own words for them."""
    return seeded_aspects(seeds, *clauses(corpus), corpus.vocabulary.words)


def clauses(corpus: FittedCorpus) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """The words of all training reviews as models see them, and the clause that each stands in, numbered throughout."""
    documents = corpus.item_documents
    order = np.argsort(documents.review, kind="stable")
    words, review, start = documents.words[order], documents.review[order], documents.characters[order, 0]
    records, begins = np.unique(review, return_index=True)
    clause = np.zeros(len(words), np.int64)
    count = 0
    for record, begin, end in zip(records.tolist(), begins, [*begins[1:], len(words)], strict=True):
        ends = clause_ends(corpus.texts[record])
        own, place = np.unique(np.searchsorted(ends, start[begin:end], side="right"), return_inverse=True)
        clause[begin:end] = count + place
        count += len(own)
    return words, clause


def clause_ends(text: str) -> list[int]:
    """Where stretches between commas and other marks end, sentences too.

    >>> clause_ends("Nice, but loud. Bye")
    [5, 15, 19]
    """
    return sorted({mark.end() for mark in _CLAUSE_ENDS.finditer(text)} | {end for _, end in sentence_spans(text)})
