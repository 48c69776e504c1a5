"""Documents with their texts: every word knows its review, its sentence and its characters."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carp.errors import DamagedError
from carp.reviews.text.sentences import sentences as sentence_spans


@dataclass(frozen=True)
class WrittenReview:
    """A review that contains words of a document."""

    text: str
    user: str | None
    item: str | None
    rating: float | None
    title: str | None = None  # of the item, if it is known

    @cached_property
    def sentences(self) -> list[tuple[int, int]]:
        return sentence_spans(self.text)

    def sentences_at(self, starts: NDArray[np.signedinteger[Any]]) -> NDArray[np.int64]:
        """The number of the sentence in which each of these characters stands, of words of this review.

        Saved words and a saved text may be of different reviews, if somebody has edited them.
        """
        begins, ends = np.array(self.sentences, np.int64).reshape(-1, 2).T
        places = np.searchsorted(begins, starts, side="right") - 1
        if len(starts) and (places.min() < 0 or (starts >= ends[places]).any()):
            raise DamagedError(
                "the words of a document do not stand in the sentences of its texts",
                fix="train the model again, or restore it from a copy",
            )
        return places


@dataclass(frozen=True, eq=False)
class ReadableDocument:
    """A document whose words know their characters in the reviews."""

    words: NDArray[np.int32]  # [L] model word ids
    review: NDArray[np.int32]  # [L] key into sources
    starts: NDArray[np.int64]  # [L] characters in the review's text
    ends: NDArray[np.int64]
    sources: dict[int, WrittenReview]

    @cached_property
    def sentence(self) -> list[tuple[int, int]]:
        """For each word its sentence: the review, and the number of the sentence in it."""
        places = np.zeros(len(self.words), dtype=np.int64)
        for review in np.unique(self.review).tolist():
            there = self.review == review
            places[there] = self.sources[review].sentences_at(self.starts[there])
        return list(zip(self.review.tolist(), places.tolist(), strict=True))

    @cached_property
    def sentences(self) -> list[tuple[int, int]]:
        """The sentences that contain a word the model sees, in the order of the document."""
        return list(dict.fromkeys(self.sentence))

    @cached_property
    def sentence_numbers(self) -> NDArray[np.int64]:
        """For each word the number of its sentence among `sentences`. [L]"""
        numbers = {key: number for number, key in enumerate(self.sentences)}
        return np.array([numbers[key] for key in self.sentence], dtype=np.int64)
