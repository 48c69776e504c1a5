"""Documents as TF-IDF rows of words and bigrams, each with or without one of its reviews, for products in a solver.

    x_dt  = (1 + ln tf_dt) · idf_t, x_d then divided by its length
    idf_t = 1 + ln((1 + D) / (1 + df_t))

A document without one of its reviews differs from the whole one in that review's terms alone, so a row for each
training pair costs no more than its review.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from carp.reviews.documents import Documents

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
WHOLE_DOCUMENTS = {"max_words": 1_000_000}  # text settings of models whose cost is that of the distinct words
NO_BIGRAM = np.iinfo(np.int64).max  # fills a model's table where fewer are known than it holds


def bigram_codes(documents: Documents, words: int) -> tuple[Ints, Ints]:
    """Bigrams of all documents as first · (words + 1) + second, and the place of each one's second word."""
    place = np.flatnonzero(documents.review[1:] == documents.review[:-1]) + 1
    inside = np.ones(len(documents.words) + 1, dtype=bool)
    inside[documents.offsets] = False  # the first word of a document has nothing before it
    place = place[inside[place]]
    return documents.words[place - 1].astype(np.int64) * (words + 1) + documents.words[place], place


def frequent_bigrams(documents: Documents, words: int, most: int, least: int) -> Ints:
    """The bigrams that are in most reviews, sorted by code."""
    code, place = bigram_codes(documents, words)
    once = np.unique(np.stack([code, documents.review[place].astype(np.int64)]), axis=1)[0]
    code, reviews = np.unique(once, return_counts=True)
    code, reviews = code[reviews >= least], reviews[reviews >= least]
    return np.sort(code[np.lexsort((code, -reviews))[:most]])


def term_occurrences(
    words: Tensor, reviews: Tensor, bigrams: Tensor, known_words: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Every occurrence of a term in documents [B, L]: its document, its number, the place of its (first) word.

    Words come first, then the known bigrams, which are sorted codes of `bigram_codes`.
    """
    row = torch.arange(len(words), device=words.device).unsqueeze(1).expand_as(words)
    code = words[:, :-1].long() * (known_words + 1) + words[:, 1:].long()
    place = torch.searchsorted(bigrams, code).clamp_max(len(bigrams) - 1)
    known = (bigrams[place] == code) & (reviews[:, :-1] == reviews[:, 1:]) & (reviews[:, 1:] >= 0)
    there = words > 0
    column = torch.arange(words.shape[1], device=words.device).expand_as(words)
    rows = torch.cat([row[there], row[:, 1:][known]])
    terms = torch.cat([words[there].long(), place[known] + known_words + 1])
    return rows, terms, torch.cat([column[there], column[:, :-1][known]])


def spread_over_words(
    parts: Tensor, shape: torch.Size, occurrences: tuple[Tensor, Tensor, Tensor], known_words: int
) -> Tensor:
    """The parts of term occurrences by the words of documents [B, L]; a bigram's goes to its two words in halves."""
    rows, terms, places = occurrences
    single = terms <= known_words
    total = parts.new_zeros(shape)
    total.index_put_((rows[single], places[single]), parts[single], accumulate=True)
    for step in (0, 1):
        total.index_put_((rows[~single], places[~single] + step), parts[~single] / 2, accumulate=True)
    return total


@dataclass(frozen=True)
class Entries:
    """A sparse matrix, entry by entry."""

    row: Ints
    column: Ints
    value: Floats
    shape: tuple[int, int]

    def times(self, vector: Floats) -> Floats:
        return add_up(self.row, self.value * vector[self.column], self.shape[0])

    def transposed_times(self, vector: Floats) -> Floats:
        return add_up(self.column, self.value * vector[self.row], self.shape[1])

    def square_lengths(self) -> Floats:
        return add_up(self.row, np.square(self.value), self.shape[0])


@dataclass(frozen=True)
class Features:
    """Rows x of one side, a row a pair: its owner's whole document, plus the pair's difference, times its scale."""

    whole: Entries  # [documents, terms]
    difference: Entries  # [pairs, terms]
    owner: Ints  # [pairs]
    scale: Floats  # [pairs] 1 / length

    def times(self, weight: Floats) -> Floats:
        return self.scale * (self.whole.times(weight)[self.owner] + self.difference.times(weight))

    def transposed_times(self, vector: Floats) -> Floats:
        scaled = self.scale * vector
        of_owner = add_up(self.owner, scaled, self.whole.shape[0])
        return self.whole.transposed_times(of_owner) + self.difference.transposed_times(scaled)


@dataclass(frozen=True)
class Terms:
    """Every word and known bigram of one side's documents where it stands."""

    document: Ints
    term: Ints
    review: Ints
    documents: int
    terms: int

    @staticmethod
    def of(documents: Documents, bigrams: Ints, words: int, terms: int) -> Terms:
        code, place = bigram_codes(documents, words)
        found = np.searchsorted(bigrams, code)
        known = found < len(bigrams)
        known[known] = bigrams[found[known]] == code[known]
        place = np.concatenate([np.arange(len(documents.words)), place[known]])
        return Terms(
            document=np.repeat(np.arange(len(documents)), documents.lengths())[place],
            term=np.concatenate([documents.words, found[known] + words + 1]).astype(np.int64),
            review=documents.review[place].astype(np.int64),
            documents=len(documents),
            terms=terms,
        )

    def idf(self) -> Floats:
        once = np.unique(self.document * self.terms + self.term)
        return 1 + np.log((1 + self.documents) / (1 + np.bincount(once % self.terms, minlength=self.terms)))

    def features(self, owner: Ints, leave_out: Ints | None) -> Features:
        """Rows for pairs of these owners, each without the record that it leaves out."""
        idf = self.idf()
        key, count = np.unique(self.document * self.terms + self.term, return_counts=True)
        term = key % self.terms
        whole = Entries(key // self.terms, term, weigh(count) * idf[term], (self.documents, self.terms))
        square = whole.square_lengths()[owner]
        shape = (len(owner), self.terms)
        if leave_out is None:
            nothing = np.zeros(0, np.int64)
            difference = Entries(nothing, nothing, np.zeros(0), shape)
        else:
            pair, term, document, own = self._own_terms(leave_out)
            counts = count[np.searchsorted(key, document * self.terms + term)]
            before, after = weigh(counts) * idf[term], weigh(counts - own) * idf[term]
            difference = Entries(pair, term, after - before, shape)
            square = square + add_up(pair, np.square(after) - np.square(before), len(owner))
        scale = np.zeros(len(owner))
        full = square > 0.5  # one term's square is 1 or more: less is what rounding leaves of an emptied document
        scale[full] = 1 / np.sqrt(square[full])
        return Features(whole, difference, owner, scale)

    def _own_terms(self, leave_out: Ints) -> tuple[Ints, Ints, Ints, Ints]:
        """Pair, term, document and count of what stands in the records that pairs leave out."""
        pair_of_record = np.full(max(self.review.max(initial=0), leave_out.max(initial=0)) + 1, -1)
        pair_of_record[leave_out[leave_out >= 0]] = np.flatnonzero(leave_out >= 0)
        pair = pair_of_record[self.review]
        theirs = pair >= 0
        key, first, count = np.unique(
            pair[theirs] * self.terms + self.term[theirs], return_index=True, return_counts=True
        )
        return key // self.terms, key % self.terms, self.document[theirs][first], count


def weigh(count: Ints) -> Floats:
    """1 + ln of a count, 0 of none."""
    return np.where(count > 0, 1 + np.log(np.maximum(count, 1)), 0.0)


def add_up(places: Ints, values: Floats, size: int) -> Floats:
    """The sum of the values of each place, in float64.

    >>> add_up(np.array([0, 2, 0]), np.array([1.0, 2.0, 3.0]), 3).tolist()
    [4.0, 0.0, 2.0]
    """
    return np.asarray(np.bincount(places, values, minlength=size), dtype=np.float64)
