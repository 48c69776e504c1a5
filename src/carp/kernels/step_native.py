"""The rounds of one training step in C: the same as step_torch.py's, in numbers of single precision."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from carp.kernels.encode_cpu import Store, spread
from carp.kernels.encode_native import (
    NativeDocuments,
    NativeReader,
    Traces,
    back_library,
    encoder_library,
    read_back,
    read_blocks,
)
from carp.kernels.ragged import TILE
from carp.kernels.steps_cpu import Step
from carp.kernels.words_cpu import RowOptimizer
from carp.kernels.words_native import NativeFilters, WordsBack, take_rows, whole_vectors, words_library
from carp.kernels.workers import workers
from carp.models.carp import Carp, Viewpoints

BLOCKS = 2  # read in one go; their gradients are added up there


def native_covers(model: Carp) -> bool:
    """Whether steps of this model can be taken in C."""
    single = all(p.dtype == torch.float32 and p.is_contiguous() for p in model.parameters())
    return single and all(library() is not None for library in (encoder_library, back_library, words_library))


class NativeStep:
    """`forth`, `start_back` and `finish_back`, one after another."""

    def __init__(
        self, step: Step, sides: Sequence[Viewpoints], stores: Sequence[Store], rows: RowOptimizer, scale: float
    ) -> None:
        self.step, self.sides, self.stores, self.rows = step, sides, stores, rows
        loaded, words = encoder_library(), words_library()
        assert loaded is not None, "asked before: native_covers"
        assert words is not None
        self.readers = [NativeReader(side, loaded) for side in sides]
        self.filters = [NativeFilters(side.convolution, scale, words) for side in sides]
        self.documents = [
            NativeDocuments(tokens.blocks, of.places, None if step.drawn is None else step.drawn[side], step.chance)
            for side, (tokens, of) in enumerate(zip(step.sides, step.words.sides, strict=True))
        ]
        self.pieces = [
            (side, range(first, min(first + BLOCKS, len(tokens.blocks))))
            for side, tokens in enumerate(step.sides)
            for first in range(0, len(tokens.blocks), BLOCKS)
        ]
        self.stretches = step.words.stretches()

    def forth(self) -> tuple[Tensor, Tensor]:
        """The viewpoints and the aspects of the batch's pairs."""
        slices = self._slices()
        reader, pairs = self.readers[0], len(self.step.batch)
        like = self.rows.table
        found = like.new_zeros(pairs, reader.m, reader.k), like.new_zeros(pairs, reader.m, reader.k)
        self.traces = [self._traces(side) for side in (0, 1)]

        def viewpoints(piece: tuple[int, range]) -> None:
            side, some = piece
            reader, documents, traces = self.readers[side], self.documents[side], self.traces[side]
            room = Store.of_thread().take("reading", documents.room(reader), like)
            rooms = traces.features, traces.gates, traces.words, room
            read_blocks(reader, documents, some, slices[side], rooms, found[side], kept=True)

        workers().run(viewpoints, self.pieces)
        return found

    def _traces(self, side: int) -> Traces:
        reader, store, like = self.readers[side], self.stores[side], self.rows.table
        tokens = self.documents[side].tiles * TILE
        rows = {"features": reader.n, "gate": reader.m * reader.n, "words": reader.m * reader.k}
        return Traces(*(store.take(name, count * tokens, like) for name, count in rows.items()))

    def _slices(self) -> list[Tensor]:
        table, distinct = self.rows.table, self.step.words.distinct
        wide = whole_vectors(table.shape[1])
        self.embeddings = self.stores[0].take("embeddings", len(distinct) * wide, table).view(-1, wide)
        words = self.step.words.sides
        sides = zip(self.filters, words, self.stores, strict=True)
        found = [filters.table(side.last - side.first, store) for filters, side, store in sides]

        def slices(stretch: tuple[int, int]) -> None:
            first, last = stretch
            rows = self.embeddings[first:last]
            take_rows(table, distinct[first:last], rows)
            for filters, side, out in zip(self.filters, words, found, strict=True):
                if side.first <= first < side.last:
                    filters.slice(rows, out[first - side.first : last - side.first])

        workers().run(slices, self.stretches)
        return found

    def start_back(self, grads: tuple[Tensor, Tensor]) -> Callable[[], None]:
        """Begin the documents' way back; the returned function waits for its end."""
        reader, like = self.readers[0], self.rows.table
        m, n, k = reader.m, reader.n, reader.k
        width = whole_vectors(n)
        self.d_features = [
            store.take("d_features", len(tokens) * width, like)
            for store, tokens in zip(self.stores, self.step.sides, strict=True)
        ]
        self.sums = self.stores[0].take("sums", len(self.pieces) * (m * n * n + m * n + k * n + n), like)
        self.sums = self.sums.view(len(self.pieces), -1)

        def way_back(number: int) -> None:
            side, some = self.pieces[number]
            reader, documents = self.readers[side], self.documents[side]
            room = Store.of_thread().take("reading", documents.room_back(reader), like)
            read_back(
                reader, documents, some, self.traces[side], grads[side], room, self.d_features[side], self.sums[number]
            )

        return workers().start(way_back, range(len(self.pieces)))

    def finish_back(self) -> list[dict[str, Tensor]]:
        """The words' rows learn; gradients of each side's parameters by name, none where the side has no word."""
        self.rows.begin()
        back = WordsBack(self.filters, self.step.words.sides, self.d_features, self.rows)
        filters, like = self.filters[0], self.rows.table
        shape = len(self.stretches), 2, filters.columns, filters.wide
        parts = self.stores[1].take("filters", shape[0] * 2 * shape[2] * shape[3], like).view(shape)
        distinct = self.step.words.distinct

        def words(number: int) -> None:
            first, last = self.stretches[number]
            room = Store.of_thread().take("words", back.room(), like)
            back.learn(first, last, self.embeddings[first:last], distinct[first:last], parts[number], room)

        workers().run(words, range(len(self.stretches)))
        return [self._gradients(side, parts[:, side]) for side in (0, 1)]

    def _gradients(self, side: int, parts: Tensor) -> dict[str, Tensor]:
        of = [number for number, piece in enumerate(self.pieces) if piece[0] == side]
        if not of:
            return {}
        reader, words = self.readers[side], self.step.words.sides[side]
        m, n, k = reader.m, reader.n, reader.k
        sums = self.sums[of[0] : of[-1] + 1].sum(0)
        gate, query, project, bias = torch.split(sums, [m * n * n, m * n, k * n, n])
        having = [i for i, (first, _) in enumerate(self.stretches) if words.first <= first < words.last]
        weight = parts[having[0] : having[-1] + 1].sum(0)
        laid_out = torch.cat([gate.view(m * n, n), query.unsqueeze(1)], 1).T
        return {
            **spread(self.sides[side], laid_out, project.view(k, n)),
            **self.filters[side].spread(weight, bias),
        }
