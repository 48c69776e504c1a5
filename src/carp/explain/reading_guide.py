"""What any reader brings to a corpus: whether a sentence praises or complains, and what it is about.

Both are learned from the training reviews alone, and are the same for every model, person and thing. They take seconds
to learn, so a saved model keeps them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from carp.errors import UsageError
from carp.explain.named_aspects import NamedAspects, find_aspects, seeded_aspects
from carp.explain.praise import MOST_REVIEWS, Praise, learn_praise
from carp.reviews.readable import WrittenReview
from carp.reviews.split_parts import TRAIN
from carp.reviews.text.sentences import sentences as sentence_spans
from carp.training.fitted_corpus import FittedCorpus

Floats = NDArray[np.float64]
OF_ITS_RATING = 0.25  # of a review's rating that each of its sentences takes on
REVIEWS_KEPT = 100_000  # whose sentences' tones are remembered
_CLAUSE_ENDS = re.compile(r"[,;:()\[\]、，；：،؛]+")

Seeds = Mapping[str, Sequence[str]]


@dataclass(frozen=True, eq=False)
class ReadingGuide:
    """How sentences of a corpus are read."""

    praise: Praise
    aspects: NamedAspects
    mean_rating: float  # of the training reviews, in stars
    _tones: dict[int, Floats] = field(default_factory=dict, repr=False)

    def tones(self, record: int, review: WrittenReview, stars: float | None) -> Floats:
        """How far each sentence of a review speaks for what it is about, in stars; below 0, against it.

        What the words say counts most. A sentence of a good review is rather praise, and one of a bad review rather a
        complaint, so the rating counts too.
        """
        if stars is not None and record in self._tones:
            return self._tones[record]
        text = review.text
        found = self.praise.of_texts([text[start:end] for start, end in review.sentences])
        if stars is None:
            return found
        found = found + OF_ITS_RATING * (stars - self.mean_rating)
        if len(self._tones) < REVIEWS_KEPT:
            self._tones[record] = found
        return found

    def with_aspects(self, aspects: NamedAspects) -> ReadingGuide:
        return replace(self, aspects=aspects)


def make_guide(corpus: FittedCorpus, seeds: Seeds | None = None) -> ReadingGuide:
    """From the training reviews of a corpus; with seeds, the aspects are those that they name."""
    train = np.flatnonzero(corpus.part == TRAIN)
    some = train[:: max(1, -(-len(train) // MOST_REVIEWS))]
    praise = learn_praise((corpus.texts[int(r)] for r in some), corpus.rating[some], corpus.user[some])
    mean = float(corpus.rating[train].mean()) if len(train) else (1 + corpus.levels) / 2
    return ReadingGuide(praise, _aspects(corpus, praise, seeds), mean)


def read_seeds(lines: Iterator[str], where: str) -> Seeds:
    """A shop's own aspects, one a line: `name: word, word, word`; empty lines and those that begin with # are none.

    >>> read_seeds(iter(["# ours", "Battery: battery, charge", ""]), "a file")
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


def _aspects(corpus: FittedCorpus, praise: Praise, seeds: Seeds | None) -> NamedAspects:
    words, clause = clauses(corpus)
    vocabulary = corpus.vocabulary.words
    if seeds is not None:
        return seeded_aspects(seeds, words, clause, vocabulary)
    return find_aspects(words, clause, vocabulary, praise.of_words(vocabulary))


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
