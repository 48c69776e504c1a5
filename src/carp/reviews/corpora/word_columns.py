"""Phase two of preparing: the texts that are kept are cut into words and packed, end to end, into their columns."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from carp.reviews.text.tokens import Tokens, tokenise_bytes

STAMPS = 1 << 20  # places that are looked at together when counting documents: they fit into a processor's cache
HEADER = 128  # bytes before the data of a column with one axis

Ints = NDArray[np.int64]


class CutTask(NamedTuple):
    """Texts that wait in a file, and which of them are kept."""

    texts: Path
    sizes: NDArray[np.int32]  # [texts in the file] bytes
    kept: Ints  # places among them


class CutTexts(NamedTuple):
    """The kept texts that have a word in them, and those words."""

    worded: NDArray[np.bool_]  # [kept]
    text: bytes  # of those with a word, end to end
    text_sizes: Ints
    tokens: Tokens
    total: Ints  # [distinct words] how often each stands in the texts
    documents: Ints  # [distinct words] in how many of them


def cut_texts(task: CutTask) -> CutTexts:
    content = task.texts.read_bytes()
    ends = np.cumsum(task.sizes, dtype=np.int64)
    begins = ends - task.sizes
    spans = zip(begins[task.kept].tolist(), ends[task.kept].tolist(), strict=True)
    texts = [content[begin:end] for begin, end in spans]
    tokens = tokenise_bytes(texts)
    worded = np.diff(tokens.offsets) > 0
    if not worded.all():
        texts = [texts[place] for place in np.flatnonzero(worded).tolist()]
        tokens = tokens._replace(offsets=np.concatenate([tokens.offsets[:1], tokens.offsets[1:][worded]]))
    sizes = np.fromiter(map(len, texts), np.int64, len(texts))
    words = len(tokens.words)
    total = np.bincount(tokens.tokens, minlength=words)
    return CutTexts(
        worded, b"".join(texts), sizes, tokens, total, count_documents(tokens.tokens, tokens.offsets, words)
    )


def count_documents(tokens: NDArray[np.int32], offsets: Ints, words: int) -> Ints:
    """In how many stretches of the tokens each word stands.

    >>> count_documents(np.array([0, 1, 0, 1, 1], np.int32), np.array([0, 3, 5]), words=3).tolist()
    [1, 2, 0]
    """
    counted = np.zeros(len(tokens), dtype=bool)
    at_once = max(1, STAMPS // max(1, words))
    stamps = np.zeros(at_once * words, np.int32)
    for first in range(0, len(offsets) - 1, at_once):
        edges = offsets[first : first + at_once + 1]
        stretch = slice(edges[0], edges[-1])
        place = np.repeat(np.arange(len(edges) - 1) * words, np.diff(edges)) + tokens[stretch]
        number = np.arange(len(place), dtype=np.int32)
        stamps[place] = number  # of the same word in the same stretch the last one stays
        counted[stretch] = stamps[place] == number
    return np.bincount(tokens[counted], minlength=words)


class ColumnFile:
    """A column that grows in its file, which in the end is what numpy would have saved."""

    def __init__(self, path: Path, dtype: DTypeLike) -> None:
        self.dtype = np.dtype(dtype)
        self.length = 0
        self._file = path.open("wb")
        self._file.write(bytes(HEADER))

    def append(self, values: NDArray[Any] | bytes) -> None:
        if isinstance(values, bytes):
            self._file.write(values)
        else:
            self._file.write(np.ascontiguousarray(values, self.dtype).data)
        self.length += len(values)

    def close(self) -> None:
        header = io.BytesIO()
        facts = {"descr": self.dtype.str, "fortran_order": False, "shape": (self.length,)}
        np.lib.format.write_array_header_1_0(header, facts)
        if len(header.getvalue()) != HEADER:
            raise ValueError(f"numpy writes a header of {len(header.getvalue())} bytes, not {HEADER}")
        self._file.seek(0)
        self._file.write(header.getvalue())
        self._file.close()

    def abandon(self) -> None:
        self._file.close()


class Packer:
    """The columns of words and texts of a corpus folder, written as the cut texts come."""

    def __init__(self, folder: Path) -> None:
        self._texts = ColumnFile(folder / "texts.npy", np.uint8)
        self._tokens = ColumnFile(folder / "tokens.npy", np.int32)
        self._starts = ColumnFile(folder / "token_starts.npy", np.int32)
        self._lengths = ColumnFile(folder / "token_lengths.npy", np.uint8)
        self._places: dict[str, int] = {}
        self._total = self._documents = np.zeros(0, np.int64)
        self._worded: list[NDArray[np.bool_]] = []
        self._text_sizes: list[Ints] = []
        self._token_counts: list[Ints] = []

    def __enter__(self) -> Packer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for column in (self._texts, self._tokens, self._starts, self._lengths):
            column.close() if kind is None else column.abandon()

    def add(self, cut: CutTexts) -> None:
        places = self._places
        place_of = np.array([places.setdefault(word, len(places)) for word in cut.tokens.words], dtype=np.int32)
        self._count(place_of, cut.total, cut.documents)
        self._texts.append(cut.text)
        self._tokens.append(place_of[cut.tokens.tokens])
        self._starts.append(cut.tokens.starts)
        self._lengths.append(cut.tokens.lengths)
        self._worded.append(cut.worded)
        self._text_sizes.append(cut.text_sizes)
        self._token_counts.append(np.diff(cut.tokens.offsets))

    def _count(self, place_of: NDArray[np.int32], total: Ints, documents: Ints) -> None:
        if len(self._places) > len(self._total):
            room = np.zeros(len(self._places), np.int64)  # doubled, so that growing does not cost more and more
            self._total = np.concatenate([self._total, room])
            self._documents = np.concatenate([self._documents, room])
        self._total[place_of] += total
        self._documents[place_of] += documents

    @property
    def words(self) -> list[str]:
        return list(self._places)

    def counts(self) -> tuple[Ints, Ints]:
        """Of each word how often it stands in the texts, and in how many of them."""
        return self._total[: len(self._places)], self._documents[: len(self._places)]

    def worded(self) -> NDArray[np.bool_]:
        return np.concatenate(self._worded)

    def text_offsets(self) -> Ints:
        return _offsets(self._text_sizes)

    def token_offsets(self) -> Ints:
        return _offsets(self._token_counts)


def _offsets(sizes: Sequence[Ints]) -> Ints:
    return np.cumsum(np.concatenate([np.zeros(1, np.int64), *sizes]))
