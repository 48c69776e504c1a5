"""Whether the columns of a saved corpus can be one corpus."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from carp.reviews.corpora import column_checks
from carp.reviews.corpora.column_checks import need
from carp.reviews.corpora.string_column import stretch
from carp.reviews.split_parts import PARTS

if TYPE_CHECKING:
    from carp.reviews.corpora.corpus import Corpus

ROUNDING = 1e-3  # ratings are kept in single precision
RECORDS_AT_ONCE = 1 << 14


def check_corpus(corpus: Corpus) -> None:
    """Refuse columns that cannot be one corpus: kinds, lengths, ranges, and what they say about each other."""
    records, tokens, levels = len(corpus.user), len(corpus.tokens), corpus.facts["levels"]
    low, high = corpus.facts["scale_range"]
    need(type(levels) is int and levels > 1, "the highest rating is not a whole number above 1")
    need(np.isfinite(float(low)) and np.isfinite(float(high)) and low < high, "the range of the ratings is none")
    for name in ("users", "items"):
        column_checks.check_strings(name, getattr(corpus, name), distinct=True)
    column_checks.check_strings("words", corpus.words)
    column_checks.check_strings("texts", corpus.texts, entries=records)
    kinds = {"user": np.int32, "item": np.int32, "rating": np.float32, "time": np.int64, "split": np.int8}
    kinds |= {"copy_group": np.int32}
    for name, kind in kinds.items():
        if getattr(corpus, name) is not None:
            column_checks.check_kind(name, getattr(corpus, name), kind, records)
    for name, kind in {"tokens": np.int32, "token_starts": np.int32, "token_lengths": np.uint8}.items():
        column_checks.check_kind(name, getattr(corpus, name), kind, tokens)
    column_checks.check_offsets("token_offsets", corpus.token_offsets, records, tokens)
    column_checks.check_range("user", corpus.user, 0, len(corpus.users) - 1)
    column_checks.check_range("item", corpus.item, 0, len(corpus.items) - 1)
    column_checks.check_range("rating", corpus.rating, 1 - ROUNDING, levels + ROUNDING)
    column_checks.check_range("tokens", corpus.tokens, 0, len(corpus.words) - 1)
    if corpus.split is not None:
        column_checks.check_range("split", corpus.split, 0, len(PARTS) - 1)
    if corpus.copy_group is not None:
        column_checks.check_range("copy_group", corpus.copy_group, -1, records - 1)
    _check_characters(corpus)
    if corpus.item_texts is not None:
        fault = corpus.item_texts.fault(len(corpus.items))
        need(fault is None, fault or "")


def _check_characters(corpus: Corpus) -> None:
    """Refuse words that stand outside of their texts."""
    characters = column_checks.characters_in(corpus.texts)
    for first in range(0, len(corpus), RECORDS_AT_ONCE):
        last = min(first + RECORDS_AT_ONCE, len(corpus))
        edges = stretch(corpus.token_offsets, first, last + 1)
        starts = stretch(corpus.token_starts, int(edges[0]), int(edges[-1]))
        ends = starts.astype(np.int64) + stretch(corpus.token_lengths, int(edges[0]), int(edges[-1]))
        room = np.repeat(characters[first:last], np.diff(edges))
        need(bool(((starts >= 0) & (ends <= room)).all()), "a word stands outside of its text")
