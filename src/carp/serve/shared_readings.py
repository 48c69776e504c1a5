"""What CARP reads in all documents, in memory that engines share: they answer before it is there, faster once it is."""

from __future__ import annotations

import mmap

import numpy as np
import torch

from carp.explain.capsule_reasons import CapsuleExplainer
from carp.explain.kept_readings import LARGEST_READINGS, KeptReadings
from carp.reviews.documents import Documents
from carp.serve.answer_service import AnswerService

FLAG = 64  # bytes before the numbers: the first says whether they are all there
Shape = tuple[int, ...]


class SharedReadings:
    """Room for the readings of both sides. It is taken before a fork and filled after it."""

    def __init__(self, service: AnswerService) -> None:
        self._explainer = service.explainer
        self._memory: mmap.mmap | None = None
        self._sides: list[KeptReadings] = []
        if isinstance(self._explainer, CapsuleExplainer) and self._explainer.fitted.device.type == "cpu":
            self._take_room(self._explainer)

    def _take_room(self, explainer: CapsuleExplainer) -> None:
        sides = (explainer.corpus.user_documents, explainer.corpus.item_documents)
        shapes = [_shapes(*side) for side in zip(sides, explainer.fitted.sides, strict=True)]
        if max(4 * sum(map(_size, parts[1:])) for parts in shapes) > LARGEST_READINGS:
            return
        self._memory = mmap.mmap(-1, FLAG + 4 * sum(_size(shape) for parts in shapes for shape in parts))
        numbers = torch.from_numpy(np.frombuffer(self._memory, np.float32, offset=FLAG))
        at = 0
        for parts, documents in zip(shapes, sides, strict=True):
            tensors = []
            for shape in parts:
                tensors.append(numbers[at : at + _size(shape)].view(shape))
                at += _size(shape)
            viewpoints, attention, contextual = tensors
            offsets = torch.from_numpy(documents.offsets)
            self._sides.append(KeptReadings(viewpoints, attention, contextual, offsets))

    def fill(self) -> None:
        """Read every document, for all processes that share this memory."""
        if self._memory is None or not isinstance(self._explainer, CapsuleExplainer):
            return
        self._explainer.keep_readings()
        if self._explainer.kept is None:
            return
        for room, found in zip(self._sides, self._explainer.kept, strict=True):
            room.viewpoints.copy_(found.viewpoints)
            room.attention.copy_(found.attention)
            room.contextual.copy_(found.contextual)
        self._memory[0] = 1
        self.take()

    def take(self) -> bool:
        """Answer from the readings from now on, where they are all there; False where they are still awaited."""
        if self._memory is None or not isinstance(self._explainer, CapsuleExplainer):
            return True
        if self._memory[0]:
            users, items = self._sides
            self._explainer.kept = users, items
            self._explainer.fitted.sides = users.viewpoints, items.viewpoints
        return bool(self._memory[0])


def _shapes(documents: Documents, viewpoints: torch.Tensor) -> list[Shape]:
    words, (_, m, size) = len(documents.words), viewpoints.shape
    return [tuple(viewpoints.shape), (words, m), (words, m, size)]


def _size(shape: Shape) -> int:
    return int(np.prod(shape))
