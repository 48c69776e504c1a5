"""The phrases of a document's sides, found once: which sentences an explanation shows of them depends on the pair.

The same as `carp.evidence.readable_sides` says, in two steps, of which the first is kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from carp.evidence import Phrase, ReadableDocument, _sentence, _top, phrase_weights
from carp.explain import Sentence, Side

Array = NDArray[np.float64]
PHRASES_NAMED = 5


@dataclass(frozen=True, eq=False)
class SideOf:
    """One side: its phrases as texts, and the sentences that hold one, with their marks, by number."""

    phrases: tuple[str, ...]
    inside: dict[int, list[Phrase]]
    shown: dict[int, Sentence] = field(default_factory=dict)  # filled as they are first shown


class Phrasing:
    """The sides of one document by the attention [L, M] of its words."""

    def __init__(self, document: ReadableDocument, attention: Array, *, window: int, top_phrases: int) -> None:
        self.document = document
        self.keys = list(dict.fromkeys(document.sentence))
        numbers = {key: number for number, key in enumerate(self.keys)}
        self.number = np.fromiter((numbers[key] for key in document.sentence), np.int64, len(document.words))
        weights = phrase_weights(attention, self.number, window)
        best = [_top(weights[:, x], top_phrases) for x in range(weights.shape[1])]
        owners = np.bincount(np.concatenate([*best, np.zeros(0, np.int64)]), minlength=len(document.words))
        self._shared = owners > 1
        starts, ends = self._spans(window)
        self.sides = [
            self._side_of(top.tolist(), starts[top].tolist(), ends[top].tolist(), weights[top, x].tolist())
            for x, top in enumerate(best)
        ]

    def _spans(self, window: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The characters from the first to the last word in the window around each word, inside its sentence. [L]"""
        document, places = self.document, np.arange(len(self.number))
        spans = [document.sources[review].sentences[place] for review, place in self.keys]
        begin, end = np.array(spans, dtype=np.int64).reshape(-1, 2).T
        first = np.searchsorted(self.number, self.number, side="left")  # words of a sentence stand beside each other
        last = np.searchsorted(self.number, self.number, side="right") - 1
        left, right = np.maximum(places - window // 2, first), np.minimum(places + window // 2, last)
        return (
            np.maximum(document.starts[left], begin[self.number]),
            np.minimum(document.ends[right], end[self.number]),
        )

    def _side_of(self, centres: list[int], starts: list[int], ends: list[int], weights: list[float]) -> SideOf:
        texts: dict[str, None] = {}
        inside: dict[int, list[Phrase]] = {}
        for phrase in map(Phrase, centres, starts, ends, weights):
            inside.setdefault(int(self.number[phrase.centre]), []).append(phrase)
            if len(texts) < PHRASES_NAMED:
                source = self.document.sources[int(self.document.review[phrase.centre])]
                texts[source.text[phrase.start : phrase.end]] = None
        return SideOf(tuple(texts), inside)

    @cached_property
    def phrases(self) -> list[tuple[str, ...]]:
        return [side.phrases for side in self.sides]

    def side(self, x: int, influence: Array, *, shown: int, name: str, weight: float) -> Side:
        """One side by the sentences that the `influence` [L] of their words makes weigh most."""
        kept = self.sides[x]
        moved = np.bincount(self.number, influence, len(self.keys)).tolist()
        ranked = sorted(kept.inside, key=lambda number: (-moved[number], self.keys[number]))[:shown]
        chosen = [number for number in ranked if moved[number] >= moved[ranked[0]] / 2]
        sentences = tuple(self._sentence(kept, number) for number in chosen)
        return Side(x + 1, sentences, kept.phrases, weight, name)

    def _sentence(self, kept: SideOf, number: int) -> Sentence:
        if number not in kept.shown:
            kept.shown[number] = _sentence(self.document, self.keys[number], kept.inside[number], self._shared)
        return kept.shown[number]
