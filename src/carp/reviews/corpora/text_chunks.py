"""Texts in chunks that are cut into words one at a time, whether they lie in memory or in files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

TEXTS_AT_ONCE = 20_000


class TextChunk(Protocol):
    """The texts of some reviews that follow each other."""

    @property
    def first(self) -> int:
        """Which of all reviews the first of these is."""

    def encoded(self, places: NDArray[np.int64]) -> list[bytes]:
        """The texts at some places of the chunk, in UTF-8."""

    def discard(self) -> None:
        """Free the room the texts take: they are not needed again."""


@dataclass(frozen=True)
class TextsInFile:
    """Texts that lie end to end in a file."""

    path: Path
    first: int
    sizes: NDArray[np.int32]  # [texts in the file] bytes of each

    def encoded(self, places: NDArray[np.int64]) -> list[bytes]:
        content = self.path.read_bytes()
        ends = np.cumsum(self.sizes, dtype=np.int64)
        begins = ends - self.sizes
        spans = zip(begins[places].tolist(), ends[places].tolist(), strict=True)
        return [content[begin:end] for begin, end in spans]

    def discard(self) -> None:
        self.path.unlink()


@dataclass(frozen=True)
class TextsInMemory:
    """A stretch of texts that the caller holds anyway."""

    texts: Sequence[str]
    first: int

    def encoded(self, places: NDArray[np.int64]) -> list[bytes]:
        # Half a surrogate pair cannot be stored; one character takes its place, so that offsets still hold.
        return [self.texts[self.first + place].encode("utf-8", "replace") for place in places.tolist()]

    def discard(self) -> None:
        pass


def chunks_in_memory(texts: Sequence[str]) -> list[TextsInMemory]:
    return [TextsInMemory(texts, first) for first in range(0, len(texts), TEXTS_AT_ONCE)]
