"""Which words, phrases and sentences of a document stand for a viewpoint or an aspect."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from carp.explain import Mark, MatchKind, Sentence, Side
from carp.reviews.text import sentences as sentence_spans
from carp.reviews.text import tokenise


@dataclass(frozen=True)
class Source:
    """A review that words of a document were written in."""

    text: str
    user: str | None
    item: str | None
    rating: float | None

    @cached_property
    def sentences(self) -> list[tuple[int, int]]:
        return sentence_spans(self.text)

    @cached_property
    def words(self) -> tuple[list[str], list[int], list[int]]:
        return tokenise(self.text)


@dataclass(frozen=True, eq=False)
class ReadableDocument:
    """A document whose words know the characters they stand on."""

    words: NDArray[np.int32]  # [L] model word ids
    review: NDArray[np.int32]  # [L] key into sources
    starts: NDArray[np.int64]  # [L] characters in the review's text
    ends: NDArray[np.int64]
    sources: dict[int, Source]

    @cached_property
    def sentence(self) -> list[tuple[int, int]]:
        """For each word its sentence: the review and the sentence's place in it."""
        found = []
        for review, start in zip(self.review.tolist(), self.starts.tolist(), strict=True):
            begins = [span[0] for span in self.sources[review].sentences]
            found.append((review, max(0, int(np.searchsorted(begins, start, side="right")) - 1)))
        return found


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


def readable_sides(
    document: ReadableDocument,
    attention: NDArray[np.float64],
    *,
    window: int = 3,
    top_phrases: int = 30,
    top_share: float | None = None,
    shown_sentences: int = 2,
    influence: NDArray[np.float64] | None = None,
) -> list[Side]:
    """Every viewpoint (aspect) of a document by its best sentences, the top phrases marked.

    A phrase's weight is the sum of the attention of its words. With `top_share`, phrases are centred on words that
    have attention themselves, and there are as many as that share of these words or fewer. Sentences with a top phrase
    may be shown; those that weigh most are, by the top phrases centred in them or, where the `influence` [L, M] of each
    word is given, by that of their words. A second one is shown only where it weighs at least half of the first.
    """
    numbers = {key: number for number, key in enumerate(dict.fromkeys(document.sentence))}
    sentence = np.array([numbers[key] for key in document.sentence], dtype=np.int64)
    weights = phrase_weights(attention, sentence, window)
    most = [top_phrases] * weights.shape[1]
    if top_share is not None:
        weights *= attention > 0
        most = [min(top_phrases, math.ceil(top_share * heard)) for heard in np.count_nonzero(attention, axis=0)]
    best = [_top(weights[:, x], most[x]) for x in range(weights.shape[1])]
    owners = np.bincount(np.concatenate([*best, np.zeros(0, np.int64)]), minlength=len(document.words))
    sides = []
    for x in range(weights.shape[1]):
        phrases = [_phrase(document, int(j), float(weights[j, x]), window) for j in best[x]]
        informative = None if influence is None else np.bincount(sentence, influence[:, x])
        total = {key: 0.0 for key in numbers if key in {document.sentence[phrase.centre] for phrase in phrases}}
        for key in total:
            if informative is not None:
                total[key] = float(informative[numbers[key]])
            else:
                total[key] = sum(phrase.weight for phrase in phrases if document.sentence[phrase.centre] == key)
        sides.append(_side(document, x, phrases, total, owners > 1, shown_sentences))
    return sides


def _top(weights: NDArray[np.float64], number: int) -> NDArray[np.int64]:
    order = np.argsort(-weights, kind="stable")[:number]
    return order[weights[order] > 0]


def _side(
    document: ReadableDocument,
    x: int,
    phrases: list[Phrase],
    total: dict[tuple[int, int], float],
    shared: NDArray[np.bool_],
    shown: int,
) -> Side:
    by_sentence: dict[tuple[int, int], list[Phrase]] = {}
    for phrase in phrases:
        by_sentence.setdefault(document.sentence[phrase.centre], []).append(phrase)
    ranked = sorted(total, key=lambda key: (-total[key], key))[:shown]
    chosen = [key for key in ranked if total[key] >= total[ranked[0]] / 2]
    texts = [document.sources[document.sentence[p.centre][0]].text[p.start : p.end] for p in phrases]
    return Side(
        index=x + 1,
        sentences=tuple(_sentence(document, key, by_sentence[key], shared) for key in chosen),
        phrases=tuple(dict.fromkeys(texts))[:5],
    )


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
    document: ReadableDocument, key: tuple[int, int], phrases: list[Phrase], shared: NDArray[np.bool_]
) -> Sentence:
    source = document.sources[key[0]]
    begin, end = source.sentences[key[1]]
    marks = merged(
        Mark(p.start - begin, p.end - begin, "shared" if shared[p.centre] else "own", p.weight) for p in phrases
    )
    return Sentence(source.text[begin:end], marks, source.user, source.item, source.rating)


def merged(marks: Iterable[Mark]) -> tuple[Mark, ...]:
    """Marks of one kind that overlap become one; kinds stay apart.

    >>> merged([Mark(0, 4, "own", 0.1), Mark(2, 6, "own", 0.2), Mark(4, 8, "shared")])
    (Mark(start=0, end=6, kind='own', weight=0.2), Mark(start=4, end=8, kind='shared', weight=0.0))
    """
    joined: list[Mark] = []
    for mark in sorted(marks, key=lambda m: (m.kind, m.start, m.end)):
        last = joined[-1] if joined else None
        if last and last.kind == mark.kind and mark.start <= last.end:
            joined[-1] = replace(last, end=max(last.end, mark.end), weight=max(last.weight, mark.weight))
        else:
            joined.append(mark)
    return tuple(sorted(joined, key=lambda m: (m.start, m.end)))


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
