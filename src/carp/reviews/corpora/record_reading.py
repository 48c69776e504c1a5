"""The records of files become columns in memory. Their texts are written to temporary files.

So a review takes a few dozen bytes of memory. Files whose lines can be decoded independently are shared among all
workers; others are read in this process.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from carp.reviews.corpora.copied_texts import text_marks
from carp.reviews.corpora.records import NO_SPLIT, NO_TIME, NameColumn, RecordColumns
from carp.reviews.corpora.text_chunks import TextsInFile
from carp.reviews.corpora.worker_pool import TaskPool
from carp.reviews.sources.gathering import SourcesRead, mixed_splits
from carp.reviews.sources.json_lines import JsonLines
from carp.reviews.sources.ledger import Ledger, Record, Rejection, Review
from carp.reviews.sources.line_reading import STRETCH, Stretch
from carp.reviews.sources.request import OpenSource
from carp.reviews.split_parts import SPLIT_NAMES


class ReadRecords(NamedTuple):
    """The reviews among some records, whose texts are in a file, and a ledger of all the records."""

    columns: RecordColumns
    text_sizes: NDArray[np.int32]  # [N] bytes in UTF-8
    ledger: Ledger


class StretchTask(NamedTuple):
    """Some lines of a file, how to decode them, and the file for their texts."""

    stretch: Stretch
    decoder: JsonLines
    texts: Path


def decode_stretch(task: StretchTask) -> ReadRecords:
    return columns_and_texts(task.decoder.records(task.stretch.lines()), task.texts)


def columns_and_texts(records: Iterable[Record], texts: Path) -> ReadRecords:
    """Make columns of the reviews among the records, and write their texts to a file, end to end."""
    ledger = Ledger()
    reviews = ledger.enter(records)
    encoded = [review.text.encode() for review in reviews]
    if encoded:
        texts.write_bytes(b"".join(encoded))
    return ReadRecords(_columns(reviews), np.fromiter(map(len, encoded), np.int32, len(encoded)), ledger)


def _columns(reviews: Sequence[Review]) -> RecordColumns:
    count = len(reviews)
    times = (NO_TIME if review.time is None else review.time for review in reviews)
    parts = (NO_SPLIT if review.split is None else SPLIT_NAMES[review.split] for review in reviews)
    return RecordColumns(
        NameColumn.of(review.user for review in reviews),
        NameColumn.of(review.item for review in reviews),
        np.fromiter((review.rating for review in reviews), np.float64, count),
        np.fromiter(times, np.int64, count),
        np.fromiter(parts, np.int8, count),
        text_marks(review.text for review in reviews),
        NameColumn.of(review.title or "" for review in reviews) if any(review.title for review in reviews) else None,
    )


def _batches(records: Iterator[Record]) -> Iterator[list[Record]]:
    """The records in batches about as large as a stretch of lines."""
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


class _Numbering:
    """One numbering for the names of all chunks."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._columns: list[NDArray[np.int32]] = []

    def add(self, chunk: NameColumn) -> None:
        numbers = self._numbers
        number_of = np.array([numbers.setdefault(name, len(numbers)) for name in chunk.names], np.int32)
        self._columns.append(number_of[chunk.number])

    def finish(self) -> NameColumn:
        return NameColumn(_joined(self._columns), list(self._numbers))


def _joined(columns: list[Any]) -> Any:
    return columns[0] if len(columns) == 1 else np.concatenate(columns)


class RecordReader:
    """Reads sources into columns, and writes the texts to files in a folder."""

    def __init__(self, folder: Path) -> None:
        self.sources_read = SourcesRead()
        self.texts: list[TextsInFile] = []
        self._folder = folder
        self._count = 0
        self._users, self._items, self._titles = _Numbering(), _Numbering(), _Numbering()
        self._ratings: list[NDArray[np.float64]] = []
        self._times: list[NDArray[np.int64]] = []
        self._splits: list[NDArray[np.int8]] = []
        self._marks: list[NDArray[np.uint64]] = []

    def read(self, source: OpenSource, pool: TaskPool) -> None:
        """Read one source completely."""
        ledger, first = Ledger(), len(self._ratings)
        for path, found in self._chunks(source, pool):
            ledger.absorb(found.ledger)
            if len(found.text_sizes):
                self._add(path, found)
        ends = [end for chunk in self._ratings[first:] for end in (chunk.min(), chunk.max())]
        self.sources_read.add(source, ledger, np.array(ends, np.float64))

    def _chunks(self, source: OpenSource, pool: TaskPool) -> Iterator[tuple[Path, ReadRecords]]:
        folder, number_of_source = self._folder, len(self.sources_read.sources)

        def place(number: int) -> Path:
            return folder / f"{number_of_source}-{number}.texts"

        if source.stretches is None or source.decoder is None:
            for number, batch in enumerate(_batches(source.records)):
                yield place(number), columns_and_texts(batch, place(number))
            return
        decoder, stretches = source.decoder, enumerate(source.stretches)
        tasks = (StretchTask(stretch, decoder, place(number)) for number, stretch in stretches)
        for number, found in enumerate(pool.map(decode_stretch, tasks)):
            yield place(number), found

    def _add(self, path: Path, found: ReadRecords) -> None:
        columns = found.columns
        self._users.add(columns.user)
        self._items.add(columns.item)
        self._titles.add(columns.title or NameColumn(np.zeros(len(columns.rating), np.int32), [""]))
        self._ratings.append(columns.rating)
        self._times.append(columns.time)
        self._splits.append(columns.split)
        self._marks.append(columns.mark)
        self.texts.append(TextsInFile(path, self._count, found.text_sizes))
        self._count += len(columns.rating)

    def records(self) -> RecordColumns:
        """The columns of all sources together."""
        split = _joined(self._splits)
        if (split == NO_SPLIT).any() and (split != NO_SPLIT).any():
            raise mixed_splits()
        rating, time, mark = _joined(self._ratings), _joined(self._times), _joined(self._marks)
        titles = self._titles.finish()
        named = titles if any(titles.names) else None
        return RecordColumns(self._users.finish(), self._items.finish(), rating, time, split, mark, named)
