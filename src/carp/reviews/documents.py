"""Documents of users and items, made of training reviews. Each word knows its review and its characters there."""

from __future__ import annotations

from collections.abc import Iterable
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

    def part(self, first: int, last: int) -> Documents:
        """Documents first to last, as if there were no others."""
        begin, end = int(self.offsets[first]), int(self.offsets[last])
        words, review, characters = (
            np.asarray(column[begin:end]) for column in (self.words, self.review, self.characters)
        )
        return Documents(words, review, characters, self.offsets[first : last + 1] - begin)

    def some(self, owners: NDArray[np.int64]) -> Documents:
        """The documents of some owners, in their order."""
        lengths = self.lengths()[owners]
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        places = np.repeat(self.offsets[owners] - offsets[:-1], lengths) + np.arange(int(offsets[-1]))
        return Documents(self.words[places], self.review[places], self.characters[places], offsets)

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True)
class ReviewCut:
    """What a document holds where its reviews are read one by one: the first words of each of the first reviews."""

    reviews: int
    words: int  # of each

    @property
    def longest(self) -> int:
        """The most words that a document can have."""
        return self.reviews * self.words

    def keeps(self, owner: Ints, review: Ints) -> NDArray[np.bool_]:
        """Which words stay, of documents end to end. [T]

        >>> cut = ReviewCut(reviews=2, words=1)
        >>> cut.keeps(np.array([0, 0, 0, 0, 1]), np.array([3, 3, 5, 8, 4])).tolist()
        [True, False, True, False, True]
        """
        begins, lengths = _runs(review)
        _, reviews_of_owner = _runs(owner[begins])
        number = np.repeat(_ranges(reviews_of_owner), lengths)
        kept: NDArray[np.bool_] = (number < self.reviews) & (_ranges(lengths) < self.words)
        return kept


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
    words: Ints,
    review: Ints,
    characters: Ints,
    owner_of_record: Ints,
    owners: int,
    *,
    max_words: int = 300,
    cut: ReviewCut | None = None,
) -> Documents:
    """Collect the words of each owner's reviews, cut as asked, and keep the first `max_words` of each document."""
    return collected(words, review, characters, owner_of_record[review], owners, max_words=max_words, cut=cut)


def collected(
    words: Ints, review: Ints, characters: Ints, owner: Ints, owners: int, *, max_words: int, cut: ReviewCut | None
) -> Documents:
    """The same where the owner of each word is known."""
    order = np.argsort(owner, kind="stable")
    if cut is not None:
        order = order[cut.keeps(owner[order], review[order])]
    counts = np.bincount(owner[order], minlength=owners)
    order = order[_ranges(counts) < max_words]
    offsets = np.concatenate([[0], np.cumsum(np.minimum(counts, max_words))]).astype(np.int64)
    return Documents(words[order], review[order], characters[order], offsets)


def written_document(
    texts: Iterable[tuple[int, str]], vocabulary: Vocabulary, max_words: int, cut: ReviewCut | None
) -> NDArray[np.int64]:
    """The document of numbered texts as `make_documents` would make it: words, reviews and characters. [T, 4]"""
    rows: list[tuple[int, int, int, int]] = []
    reviews = 0
    for number, text in texts:
        found = [(word, number, start, end) for word, start, end in zip(*vocabulary.encode(text), strict=True)]
        rows += found if cut is None else found[: cut.words]
        reviews += bool(found)
        if len(rows) >= max_words or (cut is not None and reviews >= cut.reviews):
            break
    return np.array(rows[:max_words], dtype=np.int64).reshape(-1, 4)


def _runs(values: Ints) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where each stretch of equal values begins, and how long it is.

    >>> [found.tolist() for found in _runs(np.array([7, 7, 2, 7]))]
    [[0, 2, 3], [2, 1, 1]]
    """
    begins = np.flatnonzero(np.diff(values, prepend=-1) != 0)
    return begins, np.diff(np.append(begins, len(values)))


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
