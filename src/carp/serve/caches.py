"""What the service keeps so that no answer waits for what was known before: documents, readings, finished answers."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, fields, replace
from typing import Generic, TypeVar

import numpy as np
import torch

from carp.models.carp import Carp, DocumentReading
from carp.models.predict import BLOCK_WORDS
from carp.reviews.documents import Documents, padded
from carp.reviews.readable import ReadableDocument
from carp.reviews.split_parts import TRAIN
from carp.training.fitted_corpus import FittedCorpus

T = TypeVar("T")
DOCUMENTS_KEPT = 6_000  # a few kilobytes each
LARGEST_READINGS = 500_000_000  # bytes; what would need more is read when it is asked for


class LastUsed(Generic[T]):
    """The values used last, so many and no more.

    >>> kept = LastUsed[int](2)
    >>> [kept.get(key, lambda key=key: key * 10) for key in (1, 2, 1, 3)], sorted(kept.values)
    ([10, 20, 10, 30], [1, 3])
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.values: OrderedDict[Hashable, T] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        value = self.kept(key)
        return self.keep(key, make()) if value is None else value

    def kept(self, key: Hashable) -> T | None:
        if key not in self.values:
            return None
        self.values.move_to_end(key)
        return self.values[key]

    def keep(self, key: Hashable, value: T) -> T:
        self.values[key] = value
        if len(self.values) > self.limit:
            self.values.popitem(last=False)
        return value


@dataclass(frozen=True, eq=False)
class RememberingCorpus(FittedCorpus):
    """A fitted corpus that keeps the documents it has made readable, without the word lists that led to them."""

    kept: LastUsed[ReadableDocument] = field(default_factory=lambda: LastUsed(DOCUMENTS_KEPT))

    @classmethod
    def of(cls, fitted: FittedCorpus) -> RememberingCorpus:
        return cls(**{f.name: getattr(fitted, f.name) for f in fields(FittedCorpus)})

    def readable(self, documents: Documents, owner: int, leave_out: int = -1) -> ReadableDocument:
        if leave_out >= 0 and self.part[leave_out] != TRAIN:
            leave_out = -1  # what is held out stands in no document

        def made() -> ReadableDocument:
            document = FittedCorpus.readable(self, documents, owner, leave_out)
            return replace(document, sources={number: replace(one) for number, one in document.sources.items()})

        return self.kept.get((documents is self.user_documents, owner, leave_out), made)


@dataclass(frozen=True, eq=False)
class Readings:
    """What CARP takes from every document of one side, word by word, end to end as the documents are."""

    viewpoints: torch.Tensor  # [D, M, k]
    attention: torch.Tensor  # [T, M]
    contextual: torch.Tensor  # [T, M, k]
    offsets: torch.Tensor  # [D + 1]

    def of(self, owner: int) -> DocumentReading | None:
        """One document's reading, as if it had been read alone; none of an empty document."""
        start, end = self.offsets[owner : owner + 2].tolist()
        if start == end:
            return None
        return DocumentReading(
            self.viewpoints[owner : owner + 1], self.attention[start:end][None], self.contextual[start:end][None]
        )


@torch.no_grad()
def read_all(
    model: Carp, read: Callable[[torch.Tensor, torch.Tensor], DocumentReading], documents: Documents
) -> Readings | None:
    """The readings of all documents, those of like length together; None where they would need too much memory."""
    lengths = documents.lengths()
    words, m = len(documents.words), model.config.viewpoints
    probe = read(torch.zeros((1, 1), dtype=torch.int32), torch.full((1, 1), -1, dtype=torch.int32))
    size = probe.contextual.shape[-1]
    if 4 * words * m * (size + 1) > LARGEST_READINGS:
        return None
    viewpoints = torch.empty(len(documents), m, size)
    attention, contextual = torch.empty(words, m), torch.empty(words, m, size)
    order = np.argsort(lengths, kind="stable")
    start = 0
    while start < len(order):
        end = min(len(order), start + BLOCK_WORDS // 8)
        while end - start > 1 and (end - start) * int(lengths[order[end - 1]]) > BLOCK_WORDS:
            end = start + (end - start) // 2
        chosen = order[start:end]
        block = read(*map(torch.from_numpy, padded(documents, chosen)))
        viewpoints[torch.from_numpy(chosen)] = block.viewpoints
        for row, owner in enumerate(chosen.tolist()):
            stretch = slice(int(documents.offsets[owner]), int(documents.offsets[owner + 1]))
            attention[stretch] = block.attention[row, : lengths[owner]]
            contextual[stretch] = block.contextual[row, : lengths[owner]]
        start = end
    return Readings(viewpoints, attention, contextual, torch.from_numpy(documents.offsets))
