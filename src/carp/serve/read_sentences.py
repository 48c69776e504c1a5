"""Sentences of reviews as the reading guide takes them: what each is about, and whether it praises or complains."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from carp.explain.explanation import Sentence
from carp.explain.kept_readings import LastUsed
from carp.explain.reading_guide import ReadingGuide
from carp.training.fitted_corpus import FittedCorpus

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
FEWEST_WORDS, MOST_WORDS = 4, 28  # of a sentence that is shown
BELONGING = 0.25  # share of a shown sentence's words that belong to its aspect
READINGS_KEPT = 20_000


@dataclass(frozen=True, eq=False)
class SentencesRead:
    """Sentences of several reviews, one row each."""

    record: Ints
    place: Ints
    words: Ints
    aspect: Ints
    belonging: Floats
    tone: Floats  # by its words
    of_rating: Floats  # what the rating of its review adds to that

    def saying(self, sign: int, clear: float) -> NDArray[np.bool_]:
        """Which sentences clearly praise (complain, where the sign is below 0): by their words, and with the rating."""
        return (sign * self.tone > clear) & (sign * (self.tone + self.of_rating) > clear)


class SentenceReader:
    """Reads reviews by a guide and remembers them."""

    def __init__(self, corpus: FittedCorpus, guide: ReadingGuide) -> None:
        self.corpus, self.guide = corpus, guide
        self._rows: LastUsed[Floats] = LastUsed(READINGS_KEPT)
        documents = corpus.item_documents
        self._order = np.argsort(documents.review, kind="stable")
        self._reviews = documents.review[self._order]

    def read(self, records: Ints) -> SentencesRead:
        """The sentences of these records, in their order."""
        new = [record for record in records.tolist() if self._rows.kept(record) is None]
        self.guide.remember({record: self.corpus.source(record) for record in new})
        tables = [self._row_of(record) for record in records.tolist()]
        columns = np.concatenate([np.zeros((0, 7)), *tables]).T
        return SentencesRead(*(column.astype(np.int64) for column in columns[:4]), *columns[4:])

    def _row_of(self, record: int) -> Floats:
        return self._rows.get(record, lambda: self._table(record))

    def _table(self, record: int) -> Floats:
        """One row a sentence: record, place, words, aspect, belonging, tone, of its rating."""
        source = self.corpus.source(record)
        # The words as the documents hold them: to cut the text again would take most of the time.
        documents = self.corpus.item_documents
        own = self._order[slice(*np.searchsorted(self._reviews, [record, record + 1]))]
        number, starts = documents.words[own], documents.characters[own, 0]
        place = source.sentences_at(starts)
        count = len(source.sentences)
        aspects = self.guide.aspects
        aspect = aspects.of_sentences(number, place, count)
        size = np.bincount(place, minlength=count)
        share = np.bincount(place, aspects.membership[number, aspect[place]], minlength=count) / np.maximum(size, 1)
        of_rating = np.full(count, self.guide.of_rating(float(self.corpus.rating[record])))
        rows = [np.full(count, record), np.arange(count), size, aspect, share, self.guide.tones(source, record)]
        return np.stack([*rows, of_rating], axis=1)[size > 0]

    def best(self, read: SentencesRead, among: NDArray[np.bool_], sign: int, most: int) -> list[Sentence]:
        """The clearest sentences of one sign among some, each of another person and in other words."""
        fits = among & (read.words >= FEWEST_WORDS) & (read.words <= MOST_WORDS) & (read.belonging >= BELONGING)
        worth = np.where(fits, sign * read.tone * (0.5 + read.belonging), 0)
        return [self.sentence(read, place) for place in self._of_others(read, worth, most)]

    def _of_others(self, read: SentencesRead, worth: Floats, most: int) -> Iterator[int]:
        seen: set[str] = set()
        left = most
        for place in np.argsort(-worth, kind="stable").tolist():
            if worth[place] <= 0 or not left:
                return
            found = self.sentence(read, place)
            marks = {str(found.user), _letters(found.text)}
            if seen.isdisjoint(marks):
                seen |= marks
                left -= 1
                yield place

    def sentence(self, read: SentencesRead, place: int) -> Sentence:
        source = self.corpus.source(int(read.record[place]))
        begin, end = source.sentences[int(read.place[place])]
        return Sentence(source.text[begin:end], (), source.user, source.item, source.rating, title=source.title)


def _letters(text: str) -> str:
    """A text without its marks and the case of its letters: what reads the same has the same.

    >>> _letters("It's light!") == _letters("It’s  LIGHT.")
    True
    """
    return "".join(letter for letter in text.casefold() if letter.isalnum())
