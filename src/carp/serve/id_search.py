"""Finding people and things by id or by what is written in their reviews, fast enough for every key pressed."""

from __future__ import annotations

import difflib
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from carp.reviews.corpora.string_column import StringColumn
from carp.reviews.split_parts import TRAIN
from carp.training.fitted_corpus import FittedCorpus

SHORTEST_TEXT = 2  # characters: one letter stands in every review
MOST_FOUND = 20_000  # reviews looked at for one query; a person who gets so many types on
SNIPPET = 140  # characters
NEIGHBOURS = 60  # ids before and after an unknown one, in order, that are compared with it
LONGEST_COMPARED = 200


class Haystack:
    """Many strings that are searched as one, without regard to case.

    >>> Haystack(["Red drum", "a DRUM kit", "horn"]).having("drum")
    [0, 1]
    """

    def __init__(self, strings: Iterable[str]) -> None:
        folded = [string.casefold().replace("\0", " ") for string in strings]
        self._whole = "\0".join(["", *folded, ""])
        sizes = np.fromiter((len(string) + 1 for string in folded), np.int64, len(folded))
        self._starts = np.concatenate([np.ones(1, np.int64), 1 + np.cumsum(sizes)])

    def having(self, words: str, most: int = MOST_FOUND) -> list[int]:
        """The places of the strings that hold these words, in order."""
        needle = words.casefold().replace("\0", " ")
        found: list[int] = []
        at = self._whole.find(needle)
        while at >= 0 and len(found) < most:
            place = int(np.searchsorted(self._starts, at, side="right")) - 1
            if 0 <= place < len(self._starts) - 1:
                found.append(place)
            at = self._whole.find(needle, int(self._starts[min(place + 1, len(self._starts) - 1)]))
        return found

    def beginning(self, words: str) -> set[int]:
        needle = "\0" + words.casefold().replace("\0", " ")
        found: set[int] = set()
        at = self._whole.find(needle)
        while at >= 0:
            found.add(int(np.searchsorted(self._starts, at + 1, side="right")) - 1)
            at = self._whole.find(needle, at + 1)
        return found - {len(self._starts) - 1}  # the end is no string


@dataclass(frozen=True)
class Found:
    """One page of what was found; `complete` is False where a query met so much that not all was looked at."""

    total: int
    places: list[int]
    reviews: dict[int, int]  # of those found by their texts, the review that holds the words
    complete: bool


class Register:
    """The people (or the things) of a model, with what their training reviews say."""

    def __init__(
        self,
        fitted: FittedCorpus,
        ids: StringColumn,
        owner_of_record: NDArray[np.int32],
        texts: ReviewTexts,
        titles: StringColumn | None = None,
    ) -> None:
        self.fitted_corpus = fitted
        self.ids = ids
        self.titles = titles
        self.texts = texts
        self._owner = owner_of_record
        train = np.flatnonzero(fitted.part == TRAIN)
        owner = owner_of_record[train]
        self.counts = np.bincount(owner, minlength=len(ids))
        sums = np.bincount(owner, fitted.rating[train], minlength=len(ids))
        self.means = np.full(len(ids), np.nan)
        np.divide(sums, self.counts, out=self.means, where=self.counts > 0)
        self._order = train[np.argsort(owner, kind="stable")]
        self._offsets = np.concatenate([[0], np.cumsum(self.counts)])

    @cached_property
    def _names(self) -> Haystack:
        return Haystack(self.ids)

    @cached_property
    def _called(self) -> Haystack:
        return Haystack(self.titles or [])

    def title(self, owner: int) -> str | None:
        """What one is called besides its id, if that is known."""
        return None if self.titles is None else self.titles[owner] or None

    def by_reviews(self, most: int) -> list[int]:
        """The places of those with most reviews."""
        return [int(place) for place in self._by_reviews[:most]]

    @cached_property
    def _by_reviews(self) -> NDArray[np.int64]:
        return np.argsort(-self.counts, kind="stable")

    @cached_property
    def _sorted(self) -> list[str]:
        return sorted(self.ids)

    @cached_property
    def _rank(self) -> list[int]:
        """Of each id, its place in the order of the alphabet."""
        index = self.ids.index()
        ranks = [0] * len(self.ids)
        for rank, name in enumerate(self._sorted):
            ranks[index[name]] = rank
        return ranks

    def warm(self) -> None:
        """Make now what the first search would wait for."""
        _ = self._names, self._called, self._rank, self._by_reviews

    def records(self, owner: int) -> NDArray[np.int64]:
        """The training reviews of one, in the order of the corpus."""
        return self._order[self._offsets[owner] : self._offsets[owner + 1]]

    def mean(self, owner: int) -> float | None:
        return None if np.isnan(self.means[owner]) else self.fitted_corpus.own_rating(float(self.means[owner]))

    def search(self, words: str, limit: int, offset: int, allowed: NDArray[np.bool_] | None = None) -> Found:
        """Ids that begin with the words, then ids that hold them, then titles in the same way, then texts that do.

        Without words all are found, those with most reviews first. Where only some are allowed, no other is found.
        """
        words = words.strip()
        if not words:
            everybody = self._by_reviews if allowed is None else self._by_reviews[allowed[self._by_reviews]]
            return Found(len(everybody), everybody[offset : offset + limit].tolist(), {}, True)
        ids = self._names.having(words, len(self.ids))
        first = self._names.beginning(words)
        ranked = sorted(ids, key=lambda place: (place not in first, self._rank[place]))
        ranked += self._by_title(words, set(ranked))
        written, complete = self.texts.having(words) if len(words) >= SHORTEST_TEXT else ([], True)
        reviews: dict[int, int] = {}
        for record in written:
            reviews.setdefault(int(self._owner[record]), record)
        known = set(ranked)
        ranked += [place for place in reviews if place not in known]
        if allowed is not None:
            ranked = [place for place in ranked if allowed[place]]
        return Found(len(ranked), ranked[offset : offset + limit], reviews, complete)

    def _by_title(self, words: str, known: set[int]) -> list[int]:
        """Others whose title begins with the words or holds them, those with most reviews first."""
        first = self._called.beginning(words)
        found = (place for place in self._called.having(words, len(self.ids)) if place not in known)
        return sorted(found, key=lambda place: (place not in first, -int(self.counts[place])))

    def snippet(self, owner: int, words: str, record: int | None) -> str:
        """A stretch of a review: around the words that were sought, or the beginning of the first one."""
        if record is None:
            records = self.records(owner)
            return _cut(self.fitted_corpus.texts[int(records[0])], 0) if len(records) else ""
        text = self.fitted_corpus.texts[record]
        return _cut(text, max(0, text.casefold().find(words.strip().casefold()) - SNIPPET // 3))

    def nearest(self, name: str) -> str | None:
        """The known id most like an unknown one. Only those near it in order are compared: an answer must be quick."""
        if len(name) > LONGEST_COMPARED:
            return None
        place = bisect_left(self._sorted, name)
        near = self._sorted[max(0, place - NEIGHBOURS) : place + NEIGHBOURS]
        near += [self.ids[other] for other in self._names.having(name, 5)] if name.strip() else []
        close = difflib.get_close_matches(name, near, n=1)
        return close[0] if close else None


class ReviewTexts:
    """The training reviews as one haystack, made when first searched."""

    def __init__(self, fitted: FittedCorpus) -> None:
        self._fitted_corpus = fitted

    @cached_property
    def records(self) -> NDArray[np.int64]:
        return np.flatnonzero(self._fitted_corpus.part == TRAIN)

    @cached_property
    def _haystack(self) -> Haystack:
        return Haystack(self._fitted_corpus.texts[int(record)] for record in self.records)

    def warm(self) -> None:
        _ = self._haystack

    def having(self, words: str) -> tuple[list[int], bool]:
        """The reviews that hold these words, and whether these are all."""
        found = self._haystack.having(words)
        return self.records[found].tolist(), len(found) < MOST_FOUND


def _cut(text: str, start: int) -> str:
    """
    >>> _cut("one two three", 4)
    '…two three'
    """
    if start:
        start = text.find(" ", start - 1, start + 20) + 1 or start
    shown = " ".join(text[start : start + SNIPPET].split())
    return ("…" if start else "") + shown + ("…" if start + SNIPPET < len(text) else "")
