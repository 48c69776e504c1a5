"""Phase one of preparing: records become columns, their texts wait on the disk.

What is held in memory is a few dozen bytes a review. Files whose lines can be decoded apart from each other go to
all workers, stretch by stretch; the others are read in this process.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from carp.reviews.corpora.worker_pool import WorkerPool
from carp.reviews.sources.gathering import Account, mixed_splits
from carp.reviews.sources.json_lines import JsonLines
from carp.reviews.sources.ledger import Ledger, Record, Rejection, Review
from carp.reviews.sources.line_reading import STRETCH, Stretch
from carp.reviews.sources.request import OpenSource
from carp.reviews.split_parts import SPLIT_NAMES

NO_SPLIT = -1
NO_TIME = -1


class Names(NamedTuple):
    """A column of names: numbers in order of first appearance, and the names they stand for."""

    number: NDArray[np.int32]  # [N]
    names: list[str]

    @classmethod
    def of(cls, names: Iterable[str]) -> Names:
        """
        >>> Names.of(["ann", "bob", "ann"])
        Names(number=array([0, 1, 0], dtype=int32), names=['ann', 'bob'])
        """
        numbers: defaultdict[str, int] = defaultdict()
        numbers.default_factory = numbers.__len__
        return cls(np.fromiter(map(numbers.__getitem__, names), np.int32), list(numbers))


class Columns(NamedTuple):
    """Some reviews without their texts, and the account of all records among which they were found."""

    user: Names
    item: Names
    rating: NDArray[np.float64]  # [N] as in the source
    time: NDArray[np.int64]  # [N] seconds since 1970, NO_TIME where unknown
    split: NDArray[np.int8]  # [N] the data's own, or NO_SPLIT
    text_sizes: NDArray[np.int32]  # [N] bytes in UTF-8
    ledger: Ledger


class StretchTask(NamedTuple):
    """Some lines of a file, how they are decoded, and where their texts shall wait."""

    stretch: Stretch
    decoder: JsonLines
    texts: Path


def decode_stretch(task: StretchTask) -> Columns:
    return columns_of(task.decoder.records(task.stretch.lines()), task.texts)


def columns_of(records: Iterable[Record], texts: Path) -> Columns:
    """The records as columns; the texts are written to a file, end to end."""
    ledger, reviews = Ledger(), list[Review]()
    for record in records:
        if isinstance(record, Rejection):
            ledger.reject(record)
        else:
            reviews.append(record)
    ledger.accept(len(reviews))
    encoded = [review.text.encode() for review in reviews]
    if encoded:
        texts.write_bytes(b"".join(encoded))
    count = len(reviews)
    times = (NO_TIME if review.time is None else review.time for review in reviews)
    parts = (NO_SPLIT if review.split is None else SPLIT_NAMES[review.split] for review in reviews)
    return Columns(
        Names.of(review.user for review in reviews),
        Names.of(review.item for review in reviews),
        np.fromiter((review.rating for review in reviews), np.float64, count),
        np.fromiter(times, np.int64, count),
        np.fromiter(parts, np.int8, count),
        np.fromiter(map(len, encoded), np.int32, count),
        ledger,
    )


def _batches(records: Iterator[Record]) -> Iterator[list[Record]]:
    """The records in runs whose texts fill about a stretch."""
    batch: list[Record] = []
    size = 0
    for record in records:
        batch.append(record)
        size += 1000 if isinstance(record, Rejection) else 1000 + len(record.text)
        if size > STRETCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


@dataclass(frozen=True)
class Waiting:
    """A file in which the texts of some reviews wait."""

    texts: Path
    first: int  # which of all reviews its first is
    sizes: NDArray[np.int32]  # [reviews in the file] bytes of each text


class _Numbering:
    """One numbering for the names of all chunks."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._columns: list[NDArray[np.int32]] = []

    def add(self, chunk: Names) -> None:
        numbers = self._numbers
        number_of = np.array([numbers.setdefault(name, len(numbers)) for name in chunk.names], np.int32)
        self._columns.append(number_of[chunk.number])

    def finish(self) -> Names:
        return Names(_joined(self._columns), list(self._numbers))


def _joined(columns: list[Any]) -> Any:
    return columns[0] if len(columns) == 1 else np.concatenate(columns)


class Spilled:
    """All reviews as columns while they are read, and where their texts wait."""

    def __init__(self, folder: Path) -> None:
        self.account = Account()
        self.waiting: list[Waiting] = []
        self.count = 0
        self._folder = folder
        self._users, self._items = _Numbering(), _Numbering()
        self._ratings: list[NDArray[np.float64]] = []
        self._times: list[NDArray[np.int64]] = []
        self._splits: list[NDArray[np.int8]] = []

    def take(self, reading: OpenSource, pool: WorkerPool) -> None:
        """Read one source to its end."""
        ledger, first = Ledger(), len(self._ratings)
        for path, columns in self._chunks(reading, pool):
            ledger.absorb(columns.ledger)
            if len(columns.rating):
                self._add(path, columns)
        ratings = self._ratings[first:]
        ends = [end for chunk in ratings for end in (chunk.min(), chunk.max())]
        self.account.settle(reading, ledger, np.array(ends, np.float64))

    def _chunks(self, reading: OpenSource, pool: WorkerPool) -> Iterator[tuple[Path, Columns]]:
        folder, source = self._folder, len(self.account.readings)

        def place(number: int) -> Path:
            return folder / f"{source}-{number}.texts"

        if reading.stretches is None or reading.decoder is None:
            for number, batch in enumerate(_batches(reading.records)):
                yield place(number), columns_of(batch, place(number))
            return
        decoder, stretches = reading.decoder, enumerate(reading.stretches)
        tasks = (StretchTask(stretch, decoder, place(number)) for number, stretch in stretches)
        for number, columns in enumerate(pool.map(decode_stretch, tasks)):
            yield place(number), columns

    def _add(self, path: Path, columns: Columns) -> None:
        self._users.add(columns.user)
        self._items.add(columns.item)
        self._ratings.append(columns.rating)
        self._times.append(columns.time)
        self._splits.append(columns.split)
        self.waiting.append(Waiting(path, self.count, columns.text_sizes))
        self.count += len(columns.rating)

    def finish(self) -> Columns:
        """Everything that was read, as one."""
        split = _joined(self._splits)
        if (split == NO_SPLIT).any() and (split != NO_SPLIT).any():
            raise mixed_splits()
        rating, time = _joined(self._ratings), _joined(self._times)
        sizes = _joined([waiting.sizes for waiting in self.waiting])
        return Columns(self._users.finish(), self._items.finish(), rating, time, split, sizes, self.account.ledger)
