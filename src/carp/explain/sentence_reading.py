"""Reads the sentences of documents by the reading guide: what each is about, whether it praises or complains, and how
hard it pulls where a model says what every word adds."""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from carp.explain.explanation import Mark, Sentence
from carp.explain.guided_reasons import quoted_tone
from carp.explain.pair_texts import PLACES, Floats
from carp.explain.phrases import merged
from carp.explain.pulling_sentences import ReadSentences, marked_words
from carp.explain.reading_guide import ReadingGuide
from carp.reviews.readable import ReadableDocument, WrittenReview
from carp.training.fitted_corpus import FittedCorpus

Ints = NDArray[np.int64]


class GuidedReader:
    """Reads each document once for as long as somebody keeps it: but for the pull, it reads the same for every pair."""

    def __init__(self, corpus: FittedCorpus, guide: ReadingGuide) -> None:
        self.corpus, self.guide = corpus, guide
        self._read_before: WeakKeyDictionary[ReadableDocument, ReadSentences] = WeakKeyDictionary()

    def read(self, document: ReadableDocument, pull: Floats) -> ReadSentences:
        """The sentences of a document whose words add so much to the rating."""
        pull = pull[: len(document.words)]
        before = self._read_before.get(document)
        if before is not None:
            return before.pulled_by(pull)
        found = self._read(document.words, document.sentence_numbers, pull, self._tones(document))
        self._read_before[document] = found
        return found

    def read_row(self, words: NDArray[np.int32], keys: Ints, pull: Floats) -> ReadSentences:
        """The same of words that are named with the keys of their sentences, as `PairTexts` has them."""
        distinct, of_word = np.unique(keys, return_inverse=True)
        return self._read(words, of_word, pull, [self._tone_of(int(key)) for key in distinct])

    def _read(
        self, words: NDArray[np.int32], of_word: Ints, pull: Floats, tones: list[tuple[float, float]]
    ) -> ReadSentences:
        tone, of_rating = np.array(tones).reshape(-1, 2).T
        aspect = self.guide.aspects.of_sentences(words, of_word, len(tone))
        own = self.guide.aspects.membership[words, aspect[of_word]]
        belonging = np.bincount(of_word, own, len(tone)) / np.maximum(np.bincount(of_word, minlength=len(tone)), 1)
        silent = np.zeros(len(tone))
        found = ReadSentences(words, of_word, silent, tone, of_rating, aspect, belonging, self.guide.clear_tone)
        return found.pulled_by(pull)

    # ---- what sentences say

    def _tones(self, document: ReadableDocument) -> list[tuple[float, float]]:
        if any(source.rating is None for source in document.sources.values()):  # pasted: their numbers are no records
            tones = {number: self.guide.tones(source) for number, source in document.sources.items()}
            return [(float(tones[number][place]), 0.0) for number, place in document.sentences]
        self.guide.remember(document.sources)
        return [self._tone(record, place, document.sources[record]) for record, place in document.sentences]

    def _tone_of(self, key: int) -> tuple[float, float]:
        record, place = divmod(key, PLACES)
        return self._tone(record, place, self.corpus.source(record))

    def _tone(self, record: int, place: int, source: WrittenReview) -> tuple[float, float]:
        of_rating = self.guide.of_rating(float(self.corpus.rating[record]))
        return float(self.guide.tones(source, record)[place]), of_rating

    # ---- what is shown of them

    def quoted(
        self, document: ReadableDocument, read: ReadSentences, chosen: Sequence[int], pull: Floats, amount: float
    ) -> tuple[Sentence, ...]:
        """Sentences as they were written, with those words marked that pull most as the amount does."""
        found = []
        for number in chosen:
            record, place = document.sentences[number]
            source = document.sources[record]
            begin, end = source.sentences[place]
            marks = merged(
                Mark(int(document.starts[k]) - begin, int(document.ends[k]) - begin, "own", float(abs(pull[k])))
                for k in marked_words(read.of_word, pull, number, amount)
            )
            text = source.text[begin:end]
            tone = quoted_tone(text, source.rating, self.guide, self.corpus)
            found.append(Sentence(text, marks, source.user, source.item, source.rating, title=source.title, tone=tone))
        return tuple(found)
