"""The texts to keep are cut into words, chunk by chunk, and appended to the columns of a corpus."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from carp.reviews.corpora.copied_texts import Marks, near_copy_keys
from carp.reviews.corpora.growing_columns import ColumnFile, ColumnInMemory, GrowingColumn
from carp.reviews.corpora.string_column import StringColumn
from carp.reviews.corpora.text_chunks import TextChunk
from carp.reviews.split_parts import OnProgress
from carp.reviews.text.tokens import Tokens, tokenise_bytes

STAMPS = 1 << 20  # size of a table for counting documents that fits into a processor's cache
GROWING = {"texts": np.uint8, "tokens": np.int32, "token_starts": np.int32, "token_lengths": np.uint8}

Ints = NDArray[np.int64]


class KeptTexts(NamedTuple):
    """The texts of a chunk that are to be kept."""

    chunk: TextChunk
    places: Ints  # which texts of the chunk
    plain: bool  # whether a word is a run of letters and digits, whatever the script


class CutTexts(NamedTuple):
    """The kept texts and their words."""

    text: bytes  # end to end
    text_sizes: Ints
    tokens: Tokens
    total: Ints  # [distinct words] how often each occurs
    documents: Ints  # [distinct words] in how many texts each occurs
    copy_keys: Marks  # [texts, keys] which near-copies share


CutEach = Callable[[Callable[[KeptTexts], CutTexts], Iterable[KeptTexts]], Iterator[CutTexts]]  # for instance `map`


def cut_texts(kept: KeptTexts) -> CutTexts:
    texts = kept.chunk.encoded(kept.places)
    tokens = tokenise_bytes(texts, plain=kept.plain)
    sizes = np.fromiter(map(len, texts), np.int64, len(texts))
    words = len(tokens.words)
    total = np.bincount(tokens.tokens, minlength=words)
    documents = count_documents(tokens.tokens, tokens.offsets, words)
    return CutTexts(b"".join(texts), sizes, tokens, total, documents, near_copy_keys(tokens))


def count_documents(tokens: NDArray[np.int32], offsets: Ints, words: int) -> Ints:
    """In how many stretches of the tokens each word occurs.

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
        stamps[place] = number  # if a word occurs again in the same stretch, the last one stays
        counted[stretch] = stamps[place] == number
    return np.bincount(tokens[counted], minlength=words)


class WordColumns:
    """The texts of a corpus and their words, as columns that grow: in files of a folder, or in memory."""

    def __init__(self, folder: Path | None = None) -> None:
        self._growing: dict[str, GrowingColumn] = {
            name: ColumnInMemory(dtype) if folder is None else ColumnFile(folder / f"{name}.npy", dtype)
            for name, dtype in GROWING.items()
        }
        self._places: dict[str, int] = {}
        self._total = self._documents = np.zeros(0, np.int64)
        self._copy_keys: list[Marks] = []
        self._text_sizes: list[Ints] = []
        self._token_counts: list[Ints] = []

    def __enter__(self) -> WordColumns:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            for column in self._growing.values():
                column.abandon()

    def cut(
        self,
        chunks: Sequence[TextChunk],
        kept: Ints,
        each: CutEach = map,
        progress: OnProgress | None = None,
        *,
        plain: bool = False,
    ) -> None:
        """Cut the texts of the kept records into words and append them, in order."""
        tasks, done = _kept_texts(chunks, kept, plain), 0
        for task, found in zip(tasks, each(cut_texts, tasks), strict=True):
            self._add(found)
            task.chunk.discard()
            done += len(task.places)
            if progress is not None:
                progress(done, len(kept))

    def _add(self, cut: CutTexts) -> None:
        places = self._places
        place_of = np.array([places.setdefault(word, len(places)) for word in cut.tokens.words], dtype=np.int32)
        self._count(place_of, cut.total, cut.documents)
        self._growing["texts"].append(cut.text)
        self._growing["tokens"].append(place_of[cut.tokens.tokens])
        self._growing["token_starts"].append(cut.tokens.starts)
        self._growing["token_lengths"].append(cut.tokens.lengths)
        self._copy_keys.append(cut.copy_keys)
        self._text_sizes.append(cut.text_sizes)
        self._token_counts.append(np.diff(cut.tokens.offsets))

    def _count(self, place_of: NDArray[np.int32], total: Ints, documents: Ints) -> None:
        if len(self._places) > len(self._total):
            room = np.zeros(len(self._places), np.int64)  # at least doubled, so that growing stays cheap
            self._total = np.concatenate([self._total, room])
            self._documents = np.concatenate([self._documents, room])
        self._total[place_of] += total
        self._documents[place_of] += documents

    def copy_keys(self) -> Marks:
        """For each text the keys that its near-copies share."""
        return np.concatenate(self._copy_keys)

    def counts(self) -> tuple[Ints, Ints]:
        """For each word, how often it occurs in the texts, and in how many of them."""
        return self._total[: len(self._places)], self._documents[: len(self._places)]

    def finish(self) -> dict[str, Any]:
        """The finished columns, by their names in a corpus."""
        grown = {name: column.finish() for name, column in self._growing.items()}
        return {
            **grown,
            "texts": StringColumn(grown["texts"], _offsets(self._text_sizes)),
            "words": StringColumn.from_strings(self._places),
            "token_offsets": _offsets(self._token_counts),
        }


def _kept_texts(chunks: Sequence[TextChunk], kept: Ints, plain: bool) -> list[KeptTexts]:
    """The kept records of each chunk. Chunks without any are left out."""
    edges = np.searchsorted(kept, [*(chunk.first for chunk in chunks), np.iinfo(np.int64).max])
    return [
        KeptTexts(chunk, kept[edges[number] : edges[number + 1]] - chunk.first, plain)
        for number, chunk in enumerate(chunks)
        if edges[number] < edges[number + 1]
    ]


def _offsets(sizes: Sequence[Ints]) -> Ints:
    return np.cumsum(np.concatenate([np.zeros(1, np.int64), *sizes]))
