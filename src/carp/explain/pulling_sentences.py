"""The sentences of one document as a reader takes them: what they are about, what they say, and how hard they pull."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from carp.explain.pair_texts import Floats

Ints = NDArray[np.int64]
SECOND_AT_LEAST = 0.5  # of what would be lost with the first sentence, for a second to be shown
PULL_COUNTS = 0.5  # of the strongest word's pull in a sentence, for a word to be marked


@dataclass(frozen=True, eq=False)
class ReadSentences:
    """The sentences of one document, as a reader takes them."""

    words: NDArray[np.int32]  # [L]
    of_word: Ints  # [L] the sentence of each word
    pull: Floats  # [S] what the words of each add to the rating
    tone: Floats  # [S] what its words say
    of_rating: Floats  # [S] what its review's rating adds to that
    aspect: Ints  # [S]
    belonging: Floats  # [S] the share of its words that are about that
    clear: float  # so much must be said, with the rating and without it, for praise or a complaint

    @cached_property
    def lost(self) -> Floats:
        """How much would go with each sentence, beside the root of its words. Texts are read at one length, so that
        without a sentence the others count for more: what goes is what it pulls beyond its share of the words."""
        words = np.maximum(np.bincount(self.of_word, minlength=len(self.pull)), 1)
        found: Floats = (self.pull - self.pull.sum() * words / max(1, words.sum())) / np.sqrt(words)
        return found

    def pulled_by(self, pull: Floats) -> ReadSentences:
        """The same sentences where each word adds so much to the rating."""
        return replace(self, pull=np.bincount(self.of_word, pull, len(self.tone)).astype(np.float64))

    def says(self, sign: float) -> NDArray[np.bool_]:
        """Which sentences clearly praise, or complain where the sign is below 0."""
        return (sign * self.tone > self.clear) & (sign * (self.tone + self.of_rating) > self.clear)

    def for_aspect(self, aspect: int, amount: float, by_itself: float, most: int) -> tuple[list[int], bool]:
        """The sentences about an aspect that pull as its amount does, those first with which most would go, and whether
        they say the opposite of it: only where it is the person's taste that turns what the words do for everybody."""
        sign = 1.0 if amount > 0 else -1.0
        about = (self.aspect == aspect) & (sign * self.pull > 0) & (sign * self.lost > 0)
        by_taste = sign * by_itself <= 0
        for turned in (False, True) if by_taste else (False,):
            clear = about & self.says(-sign if turned else sign)
            if clear.any():
                worth = np.where(clear, sign * self.lost * np.minimum(np.abs(self.tone), 1) * self.belonging, 0)
                return self._best(worth, most), turned
        return [], False

    def about(self, aspect: int, most: int, amount: float = 0.0) -> list[int]:
        """The sentences about an aspect that matter most, whatever they say: of those that pull as the amount does,
        where there is one."""
        worth = np.where(self.aspect == aspect, np.sign(amount) * self.lost if amount else np.abs(self.lost), 0)
        return self._best(worth, most)

    def mostly_about(self, aspect: int, most: int) -> list[int]:
        """The sentences that have most to do with an aspect, whoever reads them."""
        return self._best(np.where(self.aspect == aspect, self.belonging * np.abs(self.pull), 0), most)

    def _best(self, worth: Floats, most: int) -> list[int]:
        """The sentences worth most and not much less than the first of them, none of the same words as another."""
        chosen: list[int] = []
        for number in np.argsort(-worth, kind="stable").tolist():
            if len(chosen) == most or worth[number] <= 0:
                break
            if chosen and worth[number] < SECOND_AT_LEAST * worth[chosen[0]]:
                break
            if not any(self._alike(number, other) for other in chosen):
                chosen.append(number)
        return chosen

    def _alike(self, one: int, other: int) -> bool:
        return np.array_equal(self.words[self.of_word == one], self.words[self.of_word == other])


def marked_words(of_word: Ints, pull: Floats, sentence: int, amount: float) -> list[int]:
    """The places of the words in a sentence that pull most as the amount does."""
    inside = np.flatnonzero(of_word == sentence)
    worth = pull[inside] * (1.0 if amount > 0 else -1.0)
    if not len(worth) or worth.max() <= 0:
        return []
    return [int(k) for k in inside[worth >= PULL_COUNTS * worth.max()]]
