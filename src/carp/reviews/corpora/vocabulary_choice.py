"""Which words of a corpus a model sees: the best by tf-idf, counted on the training reviews only."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from carp.errors import InputError
from carp.reviews.corpora.corpus import Corpus
from carp.reviews.text.stop_words import stop_words as stop_words_of_english
from carp.reviews.text.vocabulary import Vocabulary

WordCounts = tuple[NDArray[np.int64], NDArray[np.int64]]  # [corpus words] occurrences, and records that have the word
RECORDS_AT_ONCE = 50_000  # limits the memory that counting needs


def build_vocabulary(
    corpus: Corpus,
    records: NDArray[np.integer[Any]],
    *,
    size: int = 20_000,
    stop_words: frozenset[str] | None = None,
    max_document_share: float = 0.5,
    counts: WordCounts | None = None,
) -> Vocabulary:
    """The `size` best words by tf-idf, summed over the given records. No other record is looked at.

    Stop words, and words in more than `max_document_share` of the records, are left out. Ties are broken by the
    alphabet. If the words of these records have been counted already, pass the `counts`.
    """
    stopped = stop_words_of_english() if stop_words is None else stop_words
    total, documents = counts or count_words(corpus, records)
    seen = np.flatnonzero((total > 0) & (documents <= max_document_share * len(records)))
    scores = total[seen] * np.log(len(records) / documents[seen])
    found = zip((-scores).tolist(), map(corpus.words.__getitem__, seen.tolist()), seen.tolist(), strict=True)
    best = sorted(entry for entry in found if entry[1] not in stopped)[:size]
    if not best:
        raise InputError(
            f"no word is left for the vocabulary ({len(records)} training reviews)",
            fix="give more reviews, or leave out fewer words (train with stop_words=none or, where most reviews "
            "share their words, with max_document_share=1)",
        )
    model_ids = np.zeros(len(corpus.words), dtype=np.int32)
    model_ids[[place for _, _, place in best]] = np.arange(1, len(best) + 1)
    return Vocabulary([word for _, word, _ in best], model_ids)


def count_words(corpus: Corpus, records: NDArray[np.integer[Any]]) -> WordCounts:
    """For each word of the corpus, how often it occurs in the records, and in how many of them."""
    number = len(corpus.words)
    total, documents = np.zeros(number, np.int64), np.zeros(number, np.int64)
    for first in range(0, len(records), RECORDS_AT_ONCE):
        chunk = np.asarray(records[first : first + RECORDS_AT_ONCE], dtype=np.int64)
        place, tokens = corpus.tokens_of(chunk)
        total += np.bincount(tokens, minlength=number)
        pairs = np.sort(place * number + tokens)  # np.unique would hash them, which takes ten times as long
        documents += np.bincount(pairs[np.diff(pairs, prepend=-1) != 0] % number, minlength=number)
    return total, documents
