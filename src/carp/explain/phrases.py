"""Which words, phrases and sentences of a document stand for a viewpoint or an aspect."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from carp.explain.explanation import Mark, MatchKind, Sentence, Sentiment, Side, Tone, opposed_to
from carp.reviews.readable import ReadableDocument, WrittenReview
from carp.reviews.text.tokens import tokenise

ToneOf = Callable[[tuple[int, int], WrittenReview], Tone | None]  # of a sentence, by its place and its review


@dataclass(frozen=True)
class Phrase:
    """The words of a convolution window, as characters of one sentence."""

    centre: int  # place of the middle word in the document
    start: int
    end: int
    weight: float


def phrase_weights(attention: NDArray[np.float64], sentence: NDArray[np.int64], window: int) -> NDArray[np.float64]:
    """The attention of all words in the window around each word, words of other sentences not counted. [L, M]

    >>> attention, sentence = np.array([[0.1], [0.2], [0.3], [0.4]]), np.array([7, 7, 7, 9])
    >>> phrase_weights(attention, sentence, 3).ravel().round(2).tolist()
    [0.3, 0.6, 0.5, 0.4]
    """
    total = attention.copy()
    for step in range(1, window // 2 + 1):
        same = (sentence[step:] == sentence[:-step])[:, None]
        total[step:] += attention[:-step] * same
        total[:-step] += attention[step:] * same
    return total


PHRASES_NAMED = 5


@dataclass(frozen=True, eq=False)
class PhraseBook:
    """The phrases of a document that each viewpoint (aspect) attends to most, ready to be marked in any sentence."""

    document: ReadableDocument
    weights: NDArray[np.float64]  # [L, M] of the phrase around each word
    best: list[NDArray[np.int64]]  # for each viewpoint the centres of its top phrases, best first
    window: int
    tone_of: ToneOf | None = None  # asked of a sentence when it is first shown; without it, none has a tone

    @cached_property
    def shared(self) -> NDArray[np.bool_]:
        """Which centres are top ones of several viewpoints. [L]"""
        every = np.concatenate([*self.best, np.zeros(0, np.int64)])
        return np.bincount(every, minlength=len(self.document.words)) > 1

    @cached_property
    def phrases(self) -> list[list[Phrase]]:
        """The top phrases of each viewpoint."""
        return [[self._phrase(centre, x) for centre in best.tolist()] for x, best in enumerate(self.best)]

    @cached_property
    def texts(self) -> list[tuple[str, ...]]:
        """The top phrases of each viewpoint as they were written, the best few."""
        sources = self.document.sources
        return [
            tuple(dict.fromkeys(sources[int(self.document.review[p.centre])].text[p.start : p.end] for p in phrases))[
                :PHRASES_NAMED
            ]
            for phrases in self.phrases
        ]

    @cached_property
    def _inside(self) -> list[dict[tuple[int, int], list[Phrase]]]:
        """For each viewpoint the top phrases in each sentence."""
        found: list[dict[tuple[int, int], list[Phrase]]] = [{} for _ in self.best]
        for phrases, inside in zip(self.phrases, found, strict=True):
            for phrase in phrases:
                inside.setdefault(self.document.sentence[phrase.centre], []).append(phrase)
        return found

    @cached_property
    def candidates(self) -> list[list[int]]:
        """For each viewpoint the numbers of the sentences with a top phrase, in the order of their reviews."""
        document = self.document
        return [
            sorted(set(document.sentence_numbers[best].tolist()), key=document.sentences.__getitem__)
            for best in self.best
        ]

    @cached_property
    def _shown(self) -> dict[tuple[int, tuple[int, int]], Sentence]:
        return {}  # filled as sentences are first shown

    def prepare(self) -> None:
        """Make now what the first question would wait for."""
        _ = self.texts, self.shared, self.candidates, self._inside

    def side(
        self,
        x: int,
        chosen: Iterable[tuple[int, int]],
        *,
        weight: float | None = None,
        name: str = "",
        sentiment: Sentiment | None = None,
    ) -> Side:
        """The viewpoint by these sentences. In one without a top phrase, its own best phrase is marked."""
        sentences = tuple([self._sentence(x, key) for key in chosen])
        return Side(x + 1, sentences, self.texts[x], weight, name, sentiment, opposed_to(sentiment, sentences))

    def weightiest(self, x: int, weight: Sequence[float], most: int) -> list[tuple[int, int]]:
        """The sentences with a top phrase that weigh most; after the first only those that weigh at least half of
        it."""
        ranked = sorted(self.candidates[x], key=weight.__getitem__, reverse=True)[:most]
        return [self.document.sentences[number] for number in ranked if weight[number] >= weight[ranked[0]] / 2]

    def _sentence(self, x: int, key: tuple[int, int]) -> Sentence:
        found = self._shown.get((x, key))
        if found is None:
            phrases = self._inside[x].get(key) or [self._best_in(key, x)]
            found = self._shown[x, key] = _sentence(self.document, key, phrases, self.shared, self.tone_of)
        return found

    def _phrase(self, centre: int, x: int) -> Phrase:
        return _phrase(self.document, centre, float(self.weights[centre, x]), self.window)

    def _best_in(self, key: tuple[int, int], x: int) -> Phrase:
        inside = np.flatnonzero(self.document.sentence_numbers == self.document.sentences.index(key))
        return self._phrase(int(inside[self.weights[inside, x].argmax()]), x)


def phrase_book(
    document: ReadableDocument,
    attention: NDArray[np.float64],
    *,
    window: int = 3,
    top_phrases: int = 30,
    top_share: float | None = None,
    tone_of: ToneOf | None = None,
) -> PhraseBook:
    """A phrase's weight is the sum of the attention of its words. With `top_share`, phrases are centred on words that
    have attention themselves, and there are as many as that share of these words or fewer."""
    weights = phrase_weights(attention, document.sentence_numbers, window)
    most = [top_phrases] * weights.shape[1]
    if top_share is not None:
        weights *= attention > 0
        most = [min(top_phrases, math.ceil(top_share * heard)) for heard in np.count_nonzero(attention, axis=0)]
    best = [_top(weights[:, x], most[x]) for x in range(weights.shape[1])]
    return PhraseBook(document, weights, best, window, tone_of)


def weightiest_sides(
    book: PhraseBook, *, shown_sentences: int = 2, moved: NDArray[np.float64] | None = None
) -> list[Side]:
    """Sentences with a top phrase may be shown; those that weigh most are: by the top phrases centred in them or, where
    it is known what each sentence has `moved` [S, M], by that. A second one is shown only where it weighs at least half
    of the first."""
    weights = _weights_by_phrases(book) if moved is None else moved.T.tolist()
    return [book.side(x, book.weightiest(x, weight, shown_sentences)) for x, weight in enumerate(weights)]


def _weights_by_phrases(book: PhraseBook) -> list[list[float]]:
    """For each viewpoint what the top phrases centred in each sentence weigh."""
    placed = book.document.sentence_numbers
    return [np.bincount(placed[best], book.weights[best, x]).tolist() for x, best in enumerate(book.best)]


def _top(weights: NDArray[np.float64], number: int) -> NDArray[np.int64]:
    order = np.argsort(-weights, kind="stable")[:number]
    return order[weights[order] > 0]


def _phrase(document: ReadableDocument, centre: int, weight: float, window: int) -> Phrase:
    """The characters from the window's first word to its last, not beyond the centre's sentence."""
    review, place = document.sentence[centre]
    begin, end = document.sources[review].sentences[place]
    reach = [
        j
        for j in range(max(0, centre - window // 2), min(len(document.words), centre + window // 2 + 1))
        if document.sentence[j] == (review, place)
    ]
    return Phrase(centre, max(begin, int(document.starts[reach[0]])), min(end, int(document.ends[reach[-1]])), weight)


def _sentence(
    document: ReadableDocument,
    key: tuple[int, int],
    phrases: list[Phrase],
    shared: NDArray[np.bool_],
    tone_of: ToneOf | None,
) -> Sentence:
    source = document.sources[key[0]]
    begin, end = source.sentences[key[1]]
    marks = merged(
        Mark(p.start - begin, p.end - begin, "shared" if shared[p.centre] else "own", p.weight) for p in phrases
    )
    text = source.text[begin:end]
    tone = None if tone_of is None else tone_of(key, source)
    return Sentence(text, marks, source.user, source.item, source.rating, title=source.title, tone=tone)


def merged(marks: Iterable[Mark]) -> tuple[Mark, ...]:
    """Marks of one kind that overlap become one; kinds stay apart.

    >>> merged([Mark(0, 4, "own", 0.1), Mark(2, 6, "own", 0.2), Mark(4, 8, "shared")])
    (Mark(start=0, end=6, kind='own', weight=0.2), Mark(start=4, end=8, kind='shared', weight=0.0))
    """
    joined: list[Mark] = []
    for mark in sorted(marks, key=attrgetter("kind", "start", "end")):
        last = joined[-1] if joined else None
        if last and last.kind == mark.kind and mark.start <= last.end:
            joined[-1] = Mark(last.start, max(last.end, mark.end), last.kind, max(last.weight, mark.weight))
        else:
            joined.append(mark)
    return tuple(sorted(joined, key=attrgetter("start", "end")))


def matching_marks(text: str, sides: Mapping[MatchKind, Sequence[Side]], ignored: frozenset[str]) -> tuple[Mark, ...]:
    """The words of a text that also stand in the marked phrases of the sides shown for each kind of mark.

    Words beside each other become one stretch. `ignored` words (stop words, words the model does not see) never
    match by themselves.
    """
    words, starts, ends = tokenise(text)
    marks: list[Mark] = []
    for kind, shown in sides.items():
        spoken = {
            word
            for side in shown
            for sentence in side.sentences
            for mark in sentence.marks
            for word in tokenise(sentence.text[mark.start : mark.end])[0]
        } - ignored
        hits = [j for j, word in enumerate(words) if word in spoken]
        for run in np.split(np.array(hits, dtype=np.int64), np.flatnonzero(np.diff(hits) > 1) + 1):
            if len(run):
                marks.append(Mark(starts[run[0]], ends[run[-1]], kind))
    return merged(marks)
