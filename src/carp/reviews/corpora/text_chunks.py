"""Chunks of texts, in memory or in files, that are cut into words one chunk at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

TEXTS_AT_ONCE = 20_000


class TextChunk(Protocol):
    """The texts of consecutive reviews."""

    @property
    def first(self) -> int:
        """The number of the first of these reviews."""

    def encoded(self, places: NDArray[np.int64]) -> list[bytes]:
        """Some of the texts in UTF-8, by their places in the chunk."""

    def discard(self) -> None:
        """Free the space: the texts are not needed again."""


@dataclass(frozen=True)
class TextsInFile:
    """Texts that are end to end in a file."""

    path: Path
    first: int
    sizes: NDArray[np.int32]  # [texts] in bytes

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
    """Some of the texts of a list that the caller holds anyway."""

    texts: Sequence[str]
    first: int

    def encoded(self, places: NDArray[np.int64]) -> list[bytes]:
        # Half a surrogate pair has no UTF-8. It becomes one other character, so that offsets stay right.
        return [self.texts[self.first + place].encode("utf-8", "replace") for place in places.tolist()]

    def discard(self) -> None:
        pass


def chunks_in_memory(texts: Sequence[str]) -> list[TextsInMemory]:
    return [TextsInMemory(texts, first) for first in range(0, len(texts), TEXTS_AT_ONCE)]
