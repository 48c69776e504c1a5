"""The documents of a corpus, made for some owners at a time, so that all of them may be larger than memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from carp.reviews.corpora.growing_columns import ColumnInMemory, GrowingColumn, UnnamedColumn
from carp.reviews.corpora.string_column import stretches_of
from carp.reviews.documents import Documents, ReviewCut, collected, training_words

if TYPE_CHECKING:
    from carp.reviews.corpora.corpus import Corpus
    from carp.reviews.text.vocabulary import Vocabulary

WORDS_AT_ONCE = 1 << 22  # of the reviews that are read between two pieces
WORDS_IN_MEMORY = 1 << 26  # of all training reviews; of more than that, documents are left on the disk
Numbers = NDArray[np.int64]


def training_documents(
    corpus: Corpus,
    vocabulary: Vocabulary,
    train: Numbers,
    owner_of_record: NDArray[np.integer[Any]],
    owners: int,
    *,
    max_words: int,
    cut: ReviewCut | None = None,
) -> Documents:
    """What `make_documents` makes of the words of the training records, to the bit, without all of them in memory.

    Args:
        corpus: The reviews.
        vocabulary: The words that a model sees.
        train: The training records, in rising order.
        owner_of_record: For each record of the corpus whose document it belongs to.
        owners: How many documents there are.
        max_words: The longest document.
        cut: What a model keeps of each review, where it reads them one by one.

    Returns:
        The documents, in memory, or in files without a name that end with the process.
    """
    owner = np.asarray(owner_of_record)
    records = train[np.argsort(owner[train], kind="stable")]
    edges = _from_zero(np.bincount(owner[train], minlength=owners))
    lengths = corpus.token_offsets[records + 1] - corpus.token_offsets[records]
    grown = _columns(on_disk=int(lengths.sum()) > WORDS_IN_MEMORY)
    counts = [np.zeros(0, np.int64)]
    for first, last in stretches_of(_from_zero(lengths)[edges], WORDS_AT_ONCE):
        words, review, characters = training_words(corpus, vocabulary, records[edges[first] : edges[last]])
        whose = (owner[review] - first).astype(np.int32)
        piece = collected(words, review, characters, whose, last - first, max_words=max_words, cut=cut)
        for column, values in zip(grown, (piece.words, piece.review, piece.characters), strict=True):
            column.append(values)
        counts.append(piece.lengths())
    words, review, characters = (column.finish() for column in grown)
    return Documents(words, review, characters, _from_zero(np.concatenate(counts)))


def _columns(*, on_disk: bool) -> list[GrowingColumn]:
    """Words, reviews and characters."""
    kind = UnnamedColumn if on_disk else ColumnInMemory
    return [kind(np.int32), kind(np.int32), kind(np.int32, 2)]


def _from_zero(lengths: NDArray[np.integer[Any]]) -> Numbers:
    """Where each of so many begins, and where the last one ends."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])
