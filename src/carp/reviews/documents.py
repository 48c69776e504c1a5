"""Documents of users and items, made of training reviews. Each word knows its review and its characters there."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from carp.reviews.corpora.corpus import Corpus
    from carp.reviews.text.vocabulary import Vocabulary

Ints = NDArray[np.int32]


@dataclass(frozen=True)
class Documents:
    """One document for each owner, a user or an item, with all words end to end.

    Document d is `offsets[d]:offsets[d + 1]` in the three columns of words. A document keeps its first words in the
    order of the corpus, so that leaving a review out later only shortens it.
    """

    words: Ints  # [T] model word ids, from 1
    review: Ints  # [T] the record that contains the word
    characters: Ints  # [T, 2] where the word begins and ends in the text of that record
    offsets: NDArray[np.int64]  # [D + 1]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def lengths(self) -> NDArray[np.int64]:
        return np.diff(self.offsets)

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


def training_words(corpus: Corpus, vocabulary: Vocabulary, train: NDArray[np.int64]) -> tuple[Ints, Ints, Ints]:
    """The words of the training records that a model sees: word ids, records and characters, in corpus order."""
    offsets = np.asarray(corpus.token_offsets)
    lengths = offsets[train + 1] - offsets[train]
    review = np.repeat(train, lengths)
    token = offsets[review] + _ranges(lengths)
    words = vocabulary.model_ids[np.asarray(corpus.tokens)[token]]
    seen = words > 0
    characters = corpus.characters(token[seen])
    return words[seen].astype(np.int32), review[seen].astype(np.int32), characters


def make_documents(
    words: Ints, review: Ints, characters: Ints, owner_of_record: Ints, owners: int, *, max_words: int = 300
) -> Documents:
    """Collect the words of each owner's reviews, and keep the first `max_words` of each document."""
    owner = owner_of_record[review]
    order = np.argsort(owner, kind="stable")
    counts = np.bincount(owner, minlength=owners)
    order = order[_ranges(counts) < max_words]
    offsets = np.concatenate([[0], np.cumsum(np.minimum(counts, max_words))]).astype(np.int64)
    return Documents(words[order], review[order], characters[order], offsets)


def _ranges(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """
    >>> _ranges(np.array([2, 0, 3])).tolist()
    [0, 1, 0, 1, 2]
    """
    ends = np.cumsum(lengths)
    return np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - lengths, lengths)


def padded(
    documents: Documents, owners: NDArray[np.int64], leave_out: NDArray[np.int64] | None = None
) -> tuple[Ints, Ints]:
    """Words and reviews of some documents as rectangles, padded with 0 and -1.

    `leave_out` names for each document a record whose words are removed, or -1.
    """
    starts = documents.offsets[owners]
    lengths = documents.offsets[owners + 1] - starts
    row = np.repeat(np.arange(len(owners)), lengths)
    source = np.repeat(starts, lengths) + _ranges(lengths)
    review = documents.review[source]
    if leave_out is not None:
        kept = review != leave_out[row]
        row, source, review = row[kept], source[kept], review[kept]
        lengths = np.bincount(row, minlength=len(owners))
    column = _ranges(lengths)
    width = max(1, int(lengths.max(initial=0)))
    words = np.zeros((len(owners), width), dtype=np.int32)
    reviews = np.full((len(owners), width), -1, dtype=np.int32)
    words[row, column] = documents.words[source]
    reviews[row, column] = review
    return words, reviews
