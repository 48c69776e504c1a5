"""Documents as TF-IDF rows of words and bigrams, each with or without one of its reviews, for products in a solver.

    x_dt  = (1 + ln tf_dt) · idf_t, x_d then divided by its length
    idf_t = (1 + ln((1 + D) / (1 + df_t)))^rarity; a rarity of 1 is the usual one, 0 makes all terms alike

A document without one of its reviews differs from the whole one in that review's terms alone, so a row for each
training pair costs no more than its review.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from carp.models.batch import NameWords
from carp.models.segments import Segments
from carp.reviews.documents import Documents

WHOLE_DOCUMENTS = {"max_words": 1_000_000}  # text settings of models whose cost is that of the distinct words
NO_BIGRAM = np.iinfo(np.int64).max  # fills a model's table where fewer are known than it holds
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Occurrences:
    """Every word of documents where it stands, document after document, on one device."""

    document: Tensor  # [T]
    word: Tensor  # [T]
    review: Tensor  # [T]
    documents: int

    @staticmethod
    def of(documents: Documents, device: torch.device = CPU) -> Occurrences:
        lengths = torch.from_numpy(documents.lengths()).to(device)
        owner = torch.repeat_interleave(torch.arange(len(documents), device=device), lengths)
        word, review = (
            torch.from_numpy(np.ascontiguousarray(c)).to(device) for c in (documents.words, documents.review)
        )
        return Occurrences(owner, word.long(), review.long(), len(documents))

    def bigrams(self, words: int) -> tuple[Tensor, Tensor]:
        """Bigrams as first · (words + 1) + second, and the place of each one's second word."""
        neighbours = (self.review[1:] == self.review[:-1]) & (self.document[1:] == self.document[:-1])
        place = torch.nonzero(neighbours).squeeze(1) + 1
        return self.word[place - 1] * (words + 1) + self.word[place], place

    def frequent_bigrams(self, words: int, most: int, least: int) -> Tensor:
        """The bigrams that are in most reviews, sorted by code."""
        code, place = self.bigrams(words)
        known, number = torch.unique(code, return_inverse=True)
        reviews = int(self.review.max()) + 1 if len(self.review) else 1
        once = torch.unique(number * reviews + self.review[place])
        count = torch.bincount(once // reviews, minlength=len(known))
        known, count = known[count >= least], count[count >= least]
        kept = known[torch.argsort(-count, stable=True)[:most]]
        return torch.sort(kept).values


def term_occurrences(
    words: Tensor, reviews: Tensor, bigrams: Tensor, known_words: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Every occurrence of a term in documents [B, L]: its document, its number, the place of its (first) word.

    Words come first, then the known bigrams, which are sorted codes of `bigram_codes`.
    """
    same_review = (reviews[:, :-1] == reviews[:, 1:]) & (reviews[:, 1:] >= 0)
    likely = same_review & _begins_bigram(bigrams, known_words)[words[:, :-1].long()]
    first_row, first_column = torch.nonzero(likely, as_tuple=True)
    code = words[first_row, first_column].long() * (known_words + 1) + words[first_row, first_column + 1].long()
    place = torch.searchsorted(bigrams, code).clamp_max(len(bigrams) - 1)
    known = bigrams[place] == code
    row, column = torch.nonzero(words > 0, as_tuple=True)
    rows = torch.cat([row, first_row[known]])
    terms = torch.cat([words[row, column].long(), place[known] + known_words + 1])
    return rows, terms, torch.cat([column, first_column[known]])


def _begins_bigram(bigrams: Tensor, words: int) -> Tensor:
    """Of each word whether a known bigram begins with it [words + 1]: so few need be looked for among all bigrams."""
    begins = torch.zeros(words + 1, dtype=torch.bool, device=bigrams.device)
    begins[(bigrams // (words + 1)).clamp_max(words)] = True
    return begins


def spread_over_words(
    parts: Tensor, shape: torch.Size, occurrences: tuple[Tensor, Tensor, Tensor], known_words: int
) -> Tensor:
    """The parts of term occurrences by the words of documents [B, L]; a bigram's goes to its two words in halves."""
    rows, terms, places = occurrences
    words = int((terms <= known_words).sum())  # `term_occurrences` names them before the bigrams
    total = parts.new_zeros(shape)
    total.index_put_((rows[:words], places[:words]), parts[:words], accumulate=True)
    halves = parts[words:] / 2
    for step in (0, 1):
        total.index_put_((rows[words:], places[words:] + step), halves, accumulate=True)
    return total


@dataclass(frozen=True)
class Entries:
    """A sparse matrix, entry by entry, row after row."""

    row: Tensor
    column: Tensor
    value: Tensor  # float64
    shape: tuple[int, int]

    def times(self, vector: Tensor) -> Tensor:
        return add_up(self.row, self.value * vector[self.column], self.shape[0])

    def transposed_times(self, vector: Tensor) -> Tensor:
        return add_up(self.column, self.value * vector[self.row], self.shape[1])

    def square_lengths(self) -> Tensor:
        return add_up(self.row, self.value.square(), self.shape[0])


@dataclass(frozen=True)
class Features:
    """Rows x of one side, a row a pair: its owner's whole document, plus the pair's difference, times its scale."""

    whole: Entries  # [documents, terms]
    difference: Entries  # [pairs, terms]
    owner: Tensor  # [pairs]
    scale: Tensor  # [pairs] 1 / length

    def times(self, weight: Tensor) -> Tensor:
        return self.scale * (self.whole.times(weight)[self.owner] + self.difference.times(weight))

    def transposed_times(self, vector: Tensor) -> Tensor:
        scaled = self.scale * vector
        of_owner = add_up(self.owner, scaled, self.whole.shape[0])
        return self.whole.transposed_times(of_owner) + self.difference.transposed_times(scaled)


@dataclass(frozen=True)
class Terms:
    """Every word and known bigram of one side's documents where it stands, and the weight of each term."""

    document: Tensor
    term: Tensor
    review: Tensor
    documents: int
    terms: int
    rarity: float = 1.0

    @staticmethod
    def of(places: Occurrences, bigrams: Tensor, words: int, terms: int, rarity: float = 1.0) -> Terms:
        code, place = places.bigrams(words)
        found = torch.searchsorted(bigrams, code).clamp_max(max(len(bigrams) - 1, 0))
        known = bigrams[found] == code if len(bigrams) else torch.zeros_like(code, dtype=torch.bool)
        place = place[known]
        return Terms(
            document=torch.cat([places.document, places.document[place]]),
            term=torch.cat([places.word, found[known] + words + 1]),
            review=torch.cat([places.review, places.review[place]]),
            documents=places.documents,
            terms=terms,
            rarity=rarity,
        )

    def idf(self) -> Tensor:
        return self._idf(torch.unique(self.document * self.terms + self.term))

    def _idf(self, key: Tensor) -> Tensor:
        """From each document's distinct terms."""
        within = torch.bincount(key % self.terms, minlength=self.terms).double()
        usual = 1 + torch.log((1 + self.documents) / (1 + within))
        return usual if self.rarity == 1 else usual**self.rarity

    def features(self, owner: Tensor, leave_out: Tensor | None, idf: Tensor | None = None) -> Features:
        """Rows for pairs of these owners, each without the record that it leaves out; idf is that of the documents
        unless it is given."""
        key, count, in_document = _counted(self.document * self.terms + self.term)
        idf, term = (self._idf(key) if idf is None else idf.double()), key % self.terms
        whole = Entries(key // self.terms, term, weigh(count) * idf[term], (self.documents, self.terms))
        square = whole.square_lengths()[owner]
        shape = (len(owner), self.terms)
        if leave_out is None:
            nothing = owner[:0]
            difference = Entries(nothing, nothing, square[:0], shape)
        else:
            pair, term, own, all_of_document = self._own_terms(leave_out, in_document)
            before, after = weigh(all_of_document) * idf[term], weigh(all_of_document - own) * idf[term]
            difference = Entries(pair, term, after - before, shape)
            square = square + add_up(pair, after.square() - before.square(), len(owner))
        # One term's square is 1 or more: less is what rounding leaves of an emptied document.
        scale = torch.where(square > 0.5, square.clamp_min(0.5).rsqrt(), 0.0)
        return Features(whole, difference, owner, scale)

    def _own_terms(self, leave_out: Tensor, in_document: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Pair, term and count of what stands in the records that pairs leave out, and how often the term stands in
        the whole document: all words of a record stand in one, and in_document knows it of each occurrence."""
        records = 1 + max(int(self.review.max()) if len(self.review) else 0, int(leave_out.max()))
        pair_of_record = torch.full((records,), -1, device=leave_out.device)
        pairs = torch.nonzero(leave_out >= 0).squeeze(1)
        pair_of_record[leave_out[pairs]] = pairs
        pair = pair_of_record[self.review]
        theirs = pair >= 0
        key, place, count = torch.unique(
            pair[theirs] * self.terms + self.term[theirs], return_inverse=True, return_counts=True
        )
        of_document = torch.empty_like(count)
        of_document[place] = in_document[theirs]  # the same for all occurrences of a term in a record
        return key // self.terms, key % self.terms, count, of_document


def _counted(keys: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The distinct keys, how often each is there, and of each key that is given how often it is there.

    >>> [found.tolist() for found in _counted(torch.tensor([7, 4, 7]))]
    [[4, 7], [1, 2], [2, 1, 2]]
    """
    distinct, place, count = torch.unique(keys, return_inverse=True, return_counts=True)
    return distinct, count, count[place]


def name_rows(names: NameWords, device: torch.device) -> Entries:
    """The words of names, idf of each that occurs, at length 1 [items, words]."""
    items = len(names.offsets) - 1
    lengths = torch.from_numpy(np.diff(names.offsets)).to(device)
    row = torch.repeat_interleave(torch.arange(items, device=device), lengths)
    key = torch.unique(row * names.known_words + torch.from_numpy(names.words).to(device))
    row, column = key // names.known_words, key % names.known_words
    within = torch.bincount(column, minlength=names.known_words).double()
    value = (1 + torch.log((1 + items) / (1 + within)))[column]
    length = add_up(row, value.square(), items).sqrt()
    return Entries(row, column, value / length[row], (items, names.known_words))


def weigh(count: Tensor) -> Tensor:
    """1 + ln of a count, 0 of none, in float64."""
    return torch.where(count > 0, 1 + count.clamp_min(1).double().log(), 0.0)


def add_up(places: Tensor, values: Tensor, size: int) -> Tensor:
    """The sum of the values of each place; the same bits each time, on a GPU too.

    >>> add_up(torch.tensor([0, 2, 0]), torch.tensor([1.0, 2.0, 3.0]), 3).tolist()
    [4.0, 0.0, 2.0]
    """
    return Segments.of(places, size).sums(values)
