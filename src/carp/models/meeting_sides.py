"""What people and things say to `meeting`: documents read many at once, or one by one and kept for all that they meet.

Symbols as in `carp.models.meeting`: x is a TF-IDF row, w what each of its words adds, z the row in the directions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from carp.models.layers import SizedByData
from carp.models.pair_covariance import from_centre
from carp.models.segments import Segments
from carp.models.tfidf import spread_over_words

EMPTY = 1e-9  # the length of a text without words
Occurrences = tuple[Tensor, Tensor, Tensor]  # of terms in documents, as `term_occurrences` finds them


class MeetingSide(SizedByData):
    """What documents of users, or of items, say: w · x in the first number, x in k directions in the others."""

    idf: Tensor
    weight: Tensor
    directions: Tensor
    centre: Tensor
    sized_by_data = ("idf", "weight", "directions")  # by the known bigrams

    def __init__(self, words: int, directions: int) -> None:
        super().__init__()
        self.register_buffer("idf", torch.ones(words + 2))
        self.register_buffer("weight", torch.zeros(words + 2))
        self.register_buffer("directions", torch.zeros(words + 2, directions))
        self.register_buffer("centre", torch.zeros(directions))  # where z is taken from

    def forward(self, rows: Tensor, terms: Tensor, size: int) -> Tensor:
        """Sides [size, 1 + k] from the terms of documents, each as often as it occurs."""
        row, term, value, _, _ = self._values(rows, terms)
        by_row = Segments.of(row, size)
        length = text_length(value, by_row).unsqueeze(1)
        text = by_row.sums((value * self.weight[term]).unsqueeze(1))
        places = self.directions.index_select(0, term).mul_(value.unsqueeze(1))  # a third of the time of [term] * value
        return torch.cat([text, by_row.sums(places)], 1) / length

    def seen(self, places: Tensor) -> tuple[Tensor, Tensor]:
        """z [B, k] of places in the directions, and what a place was multiplied with to be at length 1 [B, 1]."""
        away = from_centre(places, self.centre)
        scale = to_length_one(away)
        return away * scale, scale

    def read(self, rows: Tensor, terms: Tensor, size: int) -> TermValues:
        """What the distinct terms of documents are worth, and where each occurrence's term stands among them."""
        row, term, value, count, place = self._values(rows, terms)
        by_row = Segments.of(row, size)
        entry = value / text_length(value, by_row)[row] / count
        of_centre = value / by_row.sums(value).clamp_min(EMPTY)[row] / count
        return TermValues(row, term, count, entry, of_centre, entry * self.weight[term], place)

    def image(self, of: TermValues) -> Tensor:
        """Of each distinct term what one occurrence adds to x in the directions less the centre [D, k]."""
        return self.directions[of.term] * of.entry.unsqueeze(1) - of.of_centre.unsqueeze(1) * self.centre

    def along(self, of: TermValues, wanted: Tensor) -> Tensor:
        """What `image` of one document is along a direction `wanted` [k]: of each distinct term [D]."""
        found = self.directions.index_select(0, of.term) @ wanted
        return found * of.entry - of.of_centre * (self.centre @ wanted)

    def _values(self, rows: Tensor, terms: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Document, term, TF-IDF before lengths, and count of each distinct term; where each occurrence's stands."""
        key, place, count = torch.unique(rows * len(self.idf) + terms, return_inverse=True, return_counts=True)
        row, term = key // len(self.idf), key % len(self.idf)
        return row, term, (1 + count.to(self.idf.dtype).log()) * self.idf[term], count, place


def to_length_one(rows: Tensor) -> Tensor:
    """What rows are multiplied with to be at length 1 [B, 1]; 0 for those of nothing."""
    length = rows.square().sum(1, keepdim=True).sqrt()
    return torch.where(length > EMPTY, 1 / length.clamp_min(EMPTY), 0.0)


def text_length(value: Tensor, by_row: Segments) -> Tensor:
    """The length of each document's TF-IDF row; next to nothing where it has no words."""
    return by_row.sums(value.square()).sqrt().clamp_min(EMPTY)


@dataclass(frozen=True)
class TermValues:
    """The distinct terms of documents, document after document. What they are worth is told of one occurrence."""

    row: Tensor  # [D] the document
    term: Tensor  # [D]
    count: Tensor  # [D] how often it occurs
    entry: Tensor  # [D] of x
    of_centre: Tensor  # [D] its share of the centre that is taken off
    linear: Tensor  # [D] its part of w · x
    place: Tensor  # [T] where the term of each occurrence stands among these


class SideTerms(Protocol):
    """The documents of one side, term by term, with words divided into groups where somebody asks for that."""

    def silent(self) -> Tensor:
        """Which documents have no words [B]."""

    def places(self) -> Tensor:
        """x in the directions less the centre [B, k]."""

    def groups(self) -> tuple[Tensor, Tensor]:
        """w · x [B, G] and x in the directions less the centre [B, G, k], divided by groups of words."""

    def words_add(self, wanted: Tensor) -> Sequence[Tensor] | Tensor:
        """What each word of each document adds to w · x + wanted · (x in the directions − centre), where `wanted` has
        a row for each document [B, k]; a bigram's part goes to its two words in halves."""


@dataclass(frozen=True, eq=False)
class PaddedTerms:
    """Documents of one width, read together."""

    side: MeetingSide
    words: Tensor  # [B, L]
    found: Occurrences
    known_words: int
    shares: Tensor | None = None  # of words in groups [words + 1, G]

    @cached_property
    def values(self) -> TermValues:
        return self.side.read(self.found[0], self.found[1], len(self.words))

    @cached_property
    def _image(self) -> Tensor:
        return self.side.image(self.values)

    def silent(self) -> Tensor:
        return ~(self.words > 0).any(1)

    def places(self) -> Tensor:
        return self._sums(self._image * self.values.count.unsqueeze(1))

    def groups(self) -> tuple[Tensor, Tensor]:
        shares = self._term_shares()
        row, image = self.values.row, self._image
        each = [shares[row == one].T @ image[row == one] for one in range(len(self.words))]
        return self._sums(shares * self.values.linear.unsqueeze(1)), torch.stack(each)

    def words_add(self, wanted: Tensor) -> Tensor:
        parts = self.values.linear + (self._image * wanted[self.values.row]).sum(1)
        return spread_over_words(parts[self.values.place], self.words.shape, self.found, self.known_words)

    def _sums(self, of_terms: Tensor) -> Tensor:
        return Segments.of(self.values.row, len(self.words)).sums(of_terms)

    def _term_shares(self) -> Tensor:
        """Of each distinct term how often it occurs in each group; a bigram is half in the group of either word."""
        assert self.shares is not None
        rows, terms, places = self.found
        second = (places + (terms > self.known_words)).clamp_max(self.words.shape[1] - 1)
        of_occurrence = (self.shares[self.words[rows, places]] + self.shares[self.words[rows, second]]) / 2
        return Segments.of(self.values.place, len(self.values.term)).sums(of_occurrence)


@dataclass(frozen=True, eq=False)
class KeptTerms:
    """One document with all that is the same of it whatever it meets, small enough to be kept.

    The rows of its terms in the directions are not: they are large and quickly looked up.
    """

    side: MeetingSide
    values: TermValues
    empty: bool
    place: Tensor  # [k]
    linear_groups: Tensor  # [G]
    place_groups: Tensor  # [G, k]
    linear: Tensor  # [L] what each word adds to w · x
    words: tuple[Tensor, Tensor]  # of each occurrence of a word its place, and where it stands among the values
    halves: tuple[Tensor, Tensor]  # the same of each half of a bigram

    @staticmethod
    def of(padded: PaddedTerms) -> KeptTerms:
        """Of the only document."""
        values, (_, terms, at) = padded.values, padded.found
        linear_groups, place_groups = padded.groups()
        words = int((terms <= padded.known_words).sum())  # `term_occurrences` names them before the bigrams
        return KeptTerms(
            side=padded.side,
            values=values,
            empty=bool(padded.silent()[0]),
            place=padded.places()[0],
            linear_groups=linear_groups[0],
            place_groups=place_groups[0],
            linear=spread_over_words(values.linear[values.place], padded.words.shape, padded.found, padded.known_words)[
                0
            ],
            words=(at[:words], values.place[:words]),
            halves=(torch.cat([at[words:], at[words:] + 1]), values.place[words:].repeat(2)),
        )

    def words_add(self, wanted: Tensor) -> Tensor:
        """What each word adds [L], with `wanted` [k]."""
        along = self.side.along(self.values, wanted)
        total = self.linear.clone()
        for (places, terms), share in ((self.words, 1.0), (self.halves, 0.5)):
            total.index_add_(0, places, along[terms], alpha=share)
        return total


@dataclass(frozen=True)
class KeptTogether:
    """Kept documents that are asked about together."""

    documents: Sequence[KeptTerms]

    def silent(self) -> Tensor:
        return torch.tensor([one.empty for one in self.documents], device=self.documents[0].place.device)

    def places(self) -> Tensor:
        return torch.stack([one.place for one in self.documents])

    def groups(self) -> tuple[Tensor, Tensor]:
        linear = torch.stack([one.linear_groups for one in self.documents])
        return linear, torch.stack([one.place_groups for one in self.documents])

    def words_add(self, wanted: Tensor) -> list[Tensor]:
        return [one.words_add(row) for one, row in zip(self.documents, wanted, strict=True)]


@dataclass(frozen=True)
class MeetingParts:
    """What f is the sum of. The words of the person and of the thing are in G groups; a thing's name is one more."""

    mean: Tensor  # [B]
    person: Tensor  # [B]
    thing: Tensor  # [B]
    person_words: Tensor  # [B, G]
    thing_words: Tensor  # [B, G + 1]
    by_person: Tensor  # [B, G + 1] what this person makes of things of which such words are written
    by_thing: Tensor  # [B, G] what people who write such words make of this thing
    by_both: Tensor  # [B, G, G + 1] what people who write such words make of things of which such words are written

    def levels(self) -> Tensor:
        """What is the same whatever anybody wrote [B]."""
        return self.mean + self.person + self.thing

    def total(self) -> Tensor:
        """f [B]."""
        words = self.person_words.sum(1) + self.thing_words.sum(1)
        return self.levels() + words + self.by_person.sum(1) + self.by_thing.sum(1) + self.by_both.sum((1, 2))
