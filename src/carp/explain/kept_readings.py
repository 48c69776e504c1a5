"""What CARP takes from documents, word by word: read one at a time, or all of them at once and kept."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch

from carp.explain.question import as_tensors
from carp.models.blocks import blocks_of_like_length
from carp.models.carp import Carp, DocumentReading
from carp.models.predict import BLOCK_WORDS
from carp.reviews.documents import Documents, padded
from carp.reviews.readable import ReadableDocument

T = TypeVar("T")
Read = Callable[[torch.Tensor, torch.Tensor], DocumentReading]  # `read_users` or `read_items` of a model
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


@torch.no_grad()
def read_document(read: Read, document: ReadableDocument, device: torch.device) -> DocumentReading:
    """What a side of CARP takes from one document; an empty one is read as a single padding."""
    words, review = as_tensors(document)
    return read(words.to(device), review.to(device))


@dataclass(frozen=True, eq=False)
class KeptReadings:
    """What CARP takes from every document of one side, end to end as the documents are."""

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
def read_all(model: Carp, read: Read, documents: Documents) -> KeptReadings | None:
    """The readings of all documents on the CPU; None where they would need too much memory."""
    lengths = documents.lengths()
    words, m = len(documents.words), model.config.viewpoints
    probe = read(torch.zeros((1, 1), dtype=torch.int32), torch.full((1, 1), -1, dtype=torch.int32))
    size = probe.contextual.shape[-1]
    if 4 * words * m * (size + 1) > LARGEST_READINGS:
        return None
    viewpoints = torch.empty(len(documents), m, size)
    attention, contextual = torch.empty(words, m), torch.empty(words, m, size)
    for chosen in blocks_of_like_length(lengths, most_words=BLOCK_WORDS, most=BLOCK_WORDS // 8):
        block = read(*map(torch.from_numpy, padded(documents, chosen)))
        viewpoints[torch.from_numpy(chosen)] = block.viewpoints
        for row, owner in enumerate(chosen.tolist()):
            stretch = slice(int(documents.offsets[owner]), int(documents.offsets[owner + 1]))
            attention[stretch] = block.attention[row, : lengths[owner]]
            contextual[stretch] = block.contextual[row, : lengths[owner]]
    return KeptReadings(viewpoints, attention, contextual, torch.from_numpy(documents.offsets))
