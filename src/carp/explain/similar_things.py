"""Things of which people write alike: the cosine of what their reviews say, rare words counting more."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from carp.training.fitted_corpus import FittedCorpus

WORDS_NAMED = 5


@dataclass(frozen=True)
class SimilarThing:
    """A thing of which people write much as they do of another."""

    item: str
    likeness: float  # from 0 to 1
    words: tuple[str, ...]  # that make the two alike, the weightiest first
    item_mean: float | None
    title: str | None = None


class TextLikeness:
    """How much the reviews of things say the same, from their training documents."""

    def __init__(self, corpus: FittedCorpus) -> None:
        self.corpus = corpus
        documents, size = corpus.item_documents, len(corpus.vocabulary) + 1
        owner = np.repeat(np.arange(len(documents)), documents.lengths())
        cells, counts = np.unique(owner * size + documents.words, return_counts=True)
        self.owner, self.word = np.divmod(cells, size)
        things_with = np.bincount(self.word, minlength=size)
        rarity = np.log((1 + len(documents)) / (1 + things_with)) + 1
        self.weight = (1 + np.log(counts)) * rarity[self.word]
        norm = np.sqrt(np.bincount(self.owner, np.square(self.weight), len(documents)))
        self.weight /= norm[self.owner]
        self.size = size

    def similar(self, item: int, n: int) -> list[SimilarThing]:
        """The n things most like a numbered one, and the words that make them so."""
        own = self._row(item)
        shared = own[self.word] * self.weight
        likeness = np.bincount(self.owner, shared, len(self.corpus.items))
        likeness[item] = 0
        best = np.argsort(-likeness, kind="stable")[:n]
        return [self._thing(int(other), float(likeness[other]), shared) for other in best if likeness[other] > 0]

    def _row(self, item: int) -> NDArray[np.float64]:
        row = np.zeros(self.size)
        own = self.owner == item
        row[self.word[own]] = self.weight[own]
        return row

    def _thing(self, item: int, likeness: float, shared: NDArray[np.float64]) -> SimilarThing:
        cells = np.flatnonzero(self.owner == item)
        weightiest = cells[np.argsort(-shared[cells], kind="stable")][:WORDS_NAMED]
        words = tuple(self.corpus.vocabulary.words[self.word[cell] - 1] for cell in weightiest if shared[cell] > 0)
        mean = float(self.corpus.item_means[item])
        average = None if np.isnan(mean) else self.corpus.own_rating(mean)
        return SimilarThing(self.corpus.items[item], min(likeness, 1.0), words, average, self.corpus.title(item))
