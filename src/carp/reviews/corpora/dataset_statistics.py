"""The columns of the paper's table of data sets, counted for a corpus as the paper counts them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from carp.errors import InputError
from carp.reviews.corpora.string_column import stretch
from carp.reviews.corpora.vocabulary_choice import WordCounts, build_vocabulary
from carp.reviews.split import random_split
from carp.reviews.split_parts import TEST
from carp.reviews.text.languages import ENGLISH, negations
from carp.reviews.text.stop_words import NEGATIONS, stop_words_in

if TYPE_CHECKING:
    from carp.reviews.corpora.corpus import Corpus

VOCABULARY_SIZE = 8_000
MAX_WORDS = 300
TOKENS_AT_ONCE = 1 << 20  # limits the memory that counting needs
LABELS = {"positive_negative_ratio": "positive/negative", "density_percent": "density in %"}
IN_DOCUMENTS = "reviews_in_documents"  # not a column of the paper; the line under the table mentions it


def dataset_statistics(corpus: Corpus, counts: WordCounts | None = None) -> dict[str, float]:
    """The columns of the paper's table of data sets, counted as the paper does.

    Words are the 8,000 best of the whole corpus; negations count as stop words. Documents are made of the reviews
    outside the test part (of the corpus' own split, or 80:20 with seed 0) and cut to 300 words. A corpus too small to
    split uses all its reviews. If the words have been counted already, pass the `counts`.
    """
    words = _counted_words(corpus, counts)
    chosen = _document_records(corpus)

    def words_per(owner: NDArray[np.int32], owners: int) -> float:
        sizes = np.bincount(owner[chosen], weights=words[chosen], minlength=owners)
        return float(np.minimum(sizes, MAX_WORDS).mean())

    positive = int((corpus.rating > (1 + corpus.facts["levels"]) / 2).sum())
    return {
        "users": len(corpus.users),
        "items": len(corpus.items),
        "ratings": len(corpus),
        "words_per_review": float(words.mean()),
        "words_per_user": words_per(corpus.user, len(corpus.users)),
        "words_per_item": words_per(corpus.item, len(corpus.items)),
        "positive_negative_ratio": positive / max(1, len(corpus) - positive),
        "density_percent": 100 * len(corpus) / (len(corpus.users) * len(corpus.items)),
        IN_DOCUMENTS: len(chosen),
    }


def _counted_words(corpus: Corpus, counts: WordCounts | None) -> NDArray[np.int64]:
    """For each record, how many of its words count."""
    everything = np.arange(len(corpus))
    languages = corpus.facts.get("languages", [ENGLISH])
    stopped = stop_words_in(languages) | NEGATIONS | (frozenset() if languages == [ENGLISH] else negations())
    best = build_vocabulary(corpus, everything, size=VOCABULARY_SIZE, stop_words=stopped, counts=counts)
    seen = best.model_ids > 0
    offsets = np.asarray(corpus.token_offsets)
    words = np.zeros(len(corpus), np.int64)
    first = 0
    while first < len(corpus):
        last = max(first + 1, int(np.searchsorted(offsets, offsets[first] + TOKENS_AT_ONCE, "right")) - 1)
        tokens = stretch(corpus.tokens, int(offsets[first]), int(offsets[last]))
        seen_before = np.concatenate([[0], np.cumsum(seen[tokens])])
        words[first:last] = np.diff(seen_before[offsets[first : last + 1] - offsets[first]])
        first = last
    return words


def _document_records(corpus: Corpus) -> NDArray[np.integer[Any]]:
    everything = np.arange(len(corpus))
    if corpus.split is not None:
        kept = np.flatnonzero(corpus.split != TEST)
        return kept if len(kept) else everything
    try:
        return np.flatnonzero(random_split(corpus.user, corpus.item, seed=0).part != TEST)
    except InputError:  # too few records for three parts
        return everything


def statistics_table(statistics: dict[str, float]) -> str:
    """
    >>> print(statistics_table({"users": 1429, "ratings": 10261, "words_per_review": 32.4512}))
    users               1,429
    ratings            10,261
    words per review    32.45
    counted as in the paper: 8,000 words, negations left out; documents of all reviews, at most 300 words
    """
    shown = [
        (LABELS.get(name, name.replace("_", " ")), f"{value:,}" if isinstance(value, int) else f"{value:,.{digits}f}")
        for name, value in statistics.items()
        for digits in [3 if name == "density_percent" else 2]
        if name != IN_DOCUMENTS
    ]
    width, reach = max(len(label) for label, _ in shown), max(len(value) for _, value in shown)
    rows = [f"{label:<{width}}   {value:>{reach}}" for label, value in shown]
    return "\n".join([*rows, _recipe(statistics)])


def _recipe(statistics: dict[str, float]) -> str:
    share = statistics.get(IN_DOCUMENTS, statistics["ratings"]) / statistics["ratings"]
    reviews = "all reviews" if share == 1 else f"the {100 * share:.0f} % that are not test"
    return (
        f"counted as in the paper: {VOCABULARY_SIZE:,} words, negations left out; "
        f"documents of {reviews}, at most {MAX_WORDS} words"
    )
