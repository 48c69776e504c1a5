"""Documents with their texts: every word knows its review, its sentence and its characters."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

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
            begins = [span[0] for span in self.sources[review].sentences]
            places[there] = np.maximum(np.searchsorted(begins, self.starts[there], side="right") - 1, 0)
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
