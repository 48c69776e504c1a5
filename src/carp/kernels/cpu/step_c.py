"""The rounds of one training step in C: the same as in step_torch.py, in single precision.

Each thread makes one call a round and takes pieces of the work inside it, so that Python is not needed in between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from carp.kernels.cpu import compiler
from carp.kernels.cpu.ragged import Blocks
from carp.kernels.cpu.step_plan import StepPlan
from carp.kernels.cpu.threads import workers
from carp.kernels.cpu.viewpoints import Store, spread
from carp.kernels.cpu.viewpoints_c import EncodedSideStruct, NativeDocuments, NativeReader, Rounds
from carp.kernels.cpu.word_convolution import RowOptimizer
from carp.kernels.cpu.word_convolution_c import NativeFilters, WordRounds
from carp.models.carp import Carp, Viewpoints

BLOCKS = 2  # of documents in a piece, which adds up their gradients


def covers_steps_in_c(model: Carp, rows: RowOptimizer) -> bool:
    """Whether steps of this model can be taken in C."""
    single = all(t.dtype == torch.float32 and t.is_contiguous() for t in (*model.parameters(), rows.square))
    return single and compiler.library() is not None


class NativeStep:
    """`forward`, `start_backward` and `finish_backward`, one after another."""

    def __init__(
        self, step: StepPlan, sides: Sequence[Viewpoints], stores: Sequence[Store], rows: RowOptimizer, scale: float
    ) -> None:
        self.step, self.sides, self.stores, self.rows = step, sides, stores, rows
        loaded = compiler.library()
        assert loaded is not None, "asked before: covers_steps_in_c"
        self.library = loaded
        self.filters = [NativeFilters(side.convolution, scale, loaded) for side in sides]
        wide = loaded.filled_up(rows.table.shape[1])
        embeddings = self._room(0, "embeddings", len(step.words.distinct) * wide)
        self.words = WordRounds(self.filters, step.words, embeddings, len(rows.table))
        self.pieces = [(side, *piece) for side in (0, 1) for piece in self._pieces(step.sides[side].blocks)]

    def _pieces(self, blocks: Blocks) -> list[tuple[int, int]]:
        """Some blocks at once; where the step is shared, each of those that our rows read."""
        if self.step.share is not None:
            return [(number, number + 1) for number in blocks.read()]
        return [(first, min(first + BLOCKS, len(blocks))) for first in range(0, len(blocks), BLOCKS)]

    def _room(self, side: int, name: str, count: int) -> Tensor:
        return self.stores[side].take(name, count, self.rows.table)

    def forward(self) -> tuple[Tensor, Tensor]:
        """The viewpoints and the aspects of the batch's pairs."""
        together = zip(self.filters, self.step.words.sides, self.stores, strict=True)
        slices = [filters.table(words.last - words.first, store) for filters, words, store in together]
        wait = _start_on_all(lambda: self.words.forward(self.rows.table, slices))
        found = self._lay_out(slices)
        wait()
        room, like = max(documents.room(self.readers[0]) for documents in self.documents), self.rows.table
        _start_on_all(lambda: self.rounds.forward(Store.of_thread().take("reading", room, like)))()
        return found

    def _lay_out(self, slices: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Prepare what the documents' rounds need; the tensors that their viewpoints will be in."""
        step, tile = self.step, self.library.tile
        self.readers = [NativeReader(side, self.library) for side in self.sides]
        self.documents = [
            NativeDocuments(tile, tokens.blocks, of.places, len(rows), len(step.batch), step.chance, keys)
            for tokens, of, keys, rows in zip(step.sides, step.words.sides, step.keys, slices, strict=True)
        ]
        shape = len(step.batch), self.readers[0].m, self.readers[0].k
        found = self.rows.table.new_zeros(shape), self.rows.table.new_zeros(shape)
        both = [self._side(side, slices[side], found[side]) for side in (0, 1)]
        self.rounds = Rounds(self.library, both, self.pieces)
        return found

    def _side(self, side: int, slices: Tensor, viewpoints: Tensor) -> EncodedSideStruct:
        reader, documents = self.readers[side], self.documents[side]
        rows = {"features": reader.n, "gates": reader.m * reader.n, "words": reader.m * reader.k}
        traces = [self._room(side, name, count * documents.tiles * documents.tile) for name, count in rows.items()]
        places = (tensor.data_ptr() for tensor in (*traces, viewpoints))
        return EncodedSideStruct(reader.struct, documents.struct, slices.data_ptr(), slices.shape[1], *places)

    def start_backward(self, grads: tuple[Tensor, Tensor]) -> Callable[[], None]:
        """Begin to go backward through the documents; the returned function waits for the end."""
        reader, like = self.readers[0], self.rows.table
        m, n, k = reader.m, reader.n, reader.k
        width = self.library.filled_up(n)
        self.d_features = [self._room(side, "rows", len(self.step.sides[side]) * width) for side in (0, 1)]
        if self.step.share is not None:
            for rows in self.d_features:
                rows.zero_()  # what our rows do not read has no gradient here
        for side, grad, rows in zip(self.rounds.sides, grads, self.d_features, strict=True):
            side.grad, side.rows = grad.data_ptr(), rows.data_ptr()
        size = m * n * n + m * n + k * n + n
        self.sums = self._room(0, "sums", len(self.pieces) * size).view(-1, size)
        room = max(documents.room_back(reader) for documents in self.documents)
        longest = max(documents.longest for documents in self.documents)
        return _start_on_all(
            lambda: self.rounds.backward(longest, Store.of_thread().take("reading", room, like), self.sums)
        )

    def finish_backward(self) -> list[dict[str, Tensor]]:
        """Update the words' rows; the gradients of each side's parameters by name, none where the side has no word."""
        self.rows.begin()
        filters, like = self.filters[0], self.rows.table
        shape = len(self.words.stretches), 2, filters.columns, filters.wide
        parts = self._room(1, "filters", shape[0] * 2 * shape[2] * shape[3]).view(shape)
        room = self.words.room()
        take = Store.of_thread
        wait = _start_on_all(
            lambda: self.words.backward(self.d_features, self.rows, parts, take().take("words", room, like))
        )
        found = [self._gradients(side) for side in (0, 1)]
        wait()
        for side, grads in enumerate(found):
            if grads:
                grads |= self._filter_gradients(side, parts[:, side], grads.pop("bias"))
        return found

    def _gradients(self, side: int) -> dict[str, Tensor]:
        """Those of a side but for its filters'; "bias" is the sum over the tokens."""
        of = [number for number, piece in enumerate(self.pieces) if piece[0] == side]
        if not of:
            return {}
        m, n, k = self.readers[side].m, self.readers[side].n, self.readers[side].k
        sums = self.sums[of[0] : of[-1] + 1].sum(0)
        gate, query, project, bias = torch.split(sums, [m * n * n, m * n, k * n, n])
        return {**spread(self.sides[side], gate, query, project.view(k, n)), "bias": bias}

    def _filter_gradients(self, side: int, parts: Tensor, bias: Tensor) -> dict[str, Tensor]:
        words = self.step.words.sides[side]
        having = [i for i, (first, _) in enumerate(self.words.stretches) if words.first <= first < words.last]
        return self.filters[side].spread(parts[having[0] : having[-1] + 1].sum(0), bias)


def _start_on_all(work: Callable[[], None]) -> Callable[[], None]:
    return workers().start(lambda _: work(), range(workers().count))
