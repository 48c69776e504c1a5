"""Columns of reviews without their texts: a few numbers for each review."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from carp.errors import InputError
from carp.reviews.corpora.copied_texts import text_marks
from carp.reviews.split_parts import SPLIT_NAMES
from carp.reviews.text.tokens import number_by_appearance

if TYPE_CHECKING:
    from carp.reviews.sources.ledger import Reviews

NO_SPLIT = -1
NO_TIME = -1
LATEST = 2**38  # seconds since 1970 that a date may have: the year 10,000 and some


class NameColumn(NamedTuple):
    """A column of names as numbers, in order of first appearance, and the list of names."""

    number: NDArray[np.int32]  # [N]
    names: list[str]

    @classmethod
    def of(cls, names: Iterable[str]) -> NameColumn:
        """
        >>> NameColumn.of(["ann", "bob", "ann"])
        NameColumn(number=array([0, 1, 0], dtype=int32), names=['ann', 'bob'])
        """
        numbers: defaultdict[str, int] = defaultdict()
        numbers.default_factory = numbers.__len__
        return cls(np.fromiter(map(numbers.__getitem__, names), np.int32), list(numbers))

    def only(self, records: NDArray[np.int64]) -> NameColumn:
        """The column for some of the records, with new numbers."""
        distinct, number = number_by_appearance(self.number[records], len(self.names))
        return NameColumn(number, [self.names[place] for place in distinct.tolist()])


class RecordColumns(NamedTuple):
    """Everything about some reviews except their texts."""

    user: NameColumn
    item: NameColumn
    rating: NDArray[np.float64]  # [N] as in the source
    time: NDArray[np.int64]  # [N] seconds since 1970, NO_TIME where unknown
    split: NDArray[np.int8]  # [N] the part given by the data, or NO_SPLIT
    mark: NDArray[np.uint64]  # [N] the same for the same text, as `copied_texts` makes it
    title: NameColumn | None = None  # [N] of the thing, empty where the review does not say it

    @property
    def has_split(self) -> bool:
        return bool(self.split[0] != NO_SPLIT)


def columns_of_reviews(reviews: Reviews, where: str) -> RecordColumns:
    """The columns of reviews that are in memory."""
    times = (NO_TIME if time is None else time for time in reviews.times)
    return RecordColumns(
        NameColumn.of(reviews.users),
        NameColumn.of(reviews.items),
        np.asarray(reviews.ratings, dtype=np.float64),
        np.fromiter(times, np.int64, len(reviews)),
        np.full(len(reviews), NO_SPLIT, np.int8) if reviews.splits is None else _split_parts(reviews.splits, where),
        text_marks(reviews.texts),
        None if reviews.titles is None else NameColumn.of(title or "" for title in reviews.titles),
    )


def _split_parts(names: list[str], where: str) -> NDArray[np.int8]:
    plain = [name.strip().lower() for name in names]
    for name, part in zip(names, plain, strict=True):
        if part not in SPLIT_NAMES:
            raise InputError(f"{name!r} is no part of a split", where=where, fix="write train, valid or test")
    return np.array([SPLIT_NAMES[part] for part in plain], dtype=np.int8)
