"""The words a model sees, and their numbers. `corpora.vocabulary_choice` chooses them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carp.errors import DamagedError, UsageError
from carp.reviews.text.tokens import tokenise, tokenise_bytes


@dataclass(frozen=True)
class Vocabulary:
    """The words a model sees. Id i is `words[i - 1]`. Id 0 is padding, and all other words."""

    words: list[str]
    model_ids: NDArray[np.int32]  # [corpus words] the id of each word of the corpus, or 0

    def __len__(self) -> int:
        return len(self.words)

    @cached_property
    def _index(self) -> dict[str, int]:
        return {word: place for place, word in enumerate(self.words, start=1)}

    def encode(self, text: str) -> tuple[list[int], list[int], list[int]]:
        """The words of a text that a model sees: their ids, and where each begins and ends."""
        known = [
            (self._index[w], start, end) for w, start, end in zip(*tokenise(text), strict=True) if w in self._index
        ]
        return [k[0] for k in known], [k[1] for k in known], [k[2] for k in known]

    def encode_many(self, texts: Sequence[bytes]) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int32]]:
        """The same for many texts in UTF-8: word ids, the text of each, and where it begins and ends in it. [T, 2]"""
        found = tokenise_bytes(texts) if texts else tokenise_bytes([b""])
        ids = np.array([self._index.get(word, 0) for word in found.words], dtype=np.int32)[found.tokens]
        seen = np.flatnonzero(ids)
        starts = found.starts[seen]
        text = np.repeat(np.arange(len(found.offsets) - 1), np.diff(found.offsets))[seen]
        return ids[seen], text, np.stack([starts, starts + found.lengths[seen]], axis=1)

    def to_json(self) -> dict[str, Any]:
        return {"words": self.words}

    @classmethod
    def from_json(cls, data: Any, corpus_words: Iterable[str] = ()) -> Vocabulary:
        """The inverse of `to_json`. With the words of a corpus, it can also number the tokens of that corpus."""
        words = data.get("words") if isinstance(data, dict) else None
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise DamagedError("the vocabulary is damaged", fix="train the model again, or restore it from a copy")
        index = {word: place for place, word in enumerate(words, start=1)}
        return cls(words, np.array([index.get(word, 0) for word in corpus_words], dtype=np.int32))


@dataclass(frozen=True)
class TextSettings:
    """Which words a model sees. They are counted on the training reviews only."""

    vocabulary_size: int = 20_000
    max_words: int = 300  # of a document
    max_document_share: float = 0.5  # words in a larger share of the reviews are treated as stop words
    stop_words: str = "auto"  # of the languages of the corpus; or a code such as de, english, none, or a file

    def __post_init__(self) -> None:
        if self.vocabulary_size < 1 or self.max_words < 1 or not 0 < self.max_document_share <= 1:
            raise UsageError(
                "vocabulary_size and max_words must be at least 1, and max_document_share between 0 and 1",
                fix="correct the setting",
            )
