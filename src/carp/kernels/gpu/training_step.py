"""One training step of CARP as a fixed list of kernels: neither shapes nor launches depend on the batch.

The step's number is on the device, and every kernel finds its pairs by it. So the whole step can be recorded once and
replayed without the host. A step past the last pair changes nothing.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from carp.kernels.gpu.availability import NoFastPath
from carp.kernels.gpu.device_corpus import GpuCorpus
from carp.kernels.gpu.kernel_arguments import (
    DocumentBatch,
    GateWeights,
    HighwayWeights,
    LossTerms,
    PairSizes,
    ParameterPlaces,
    RatedPairs,
    Rates,
    ReadingSizes,
    compiled_in,
)
from carp.kernels.gpu.parameter_layout import Packed
from carp.kernels.gpu.workspace import ROWS, Buffers, Tuning
from carp.models.batch_share import BatchShare, Others
from carp.models.carp import Carp

PAIRS = 64  # that a program takes at once
FIXED = 2.0**44  # the unit of fixed-point sums is 6e-14, and half a million still fits


@dataclass(frozen=True)
class Precision:
    """How precise products are ("tf32", "tf32x3" nearly exact, "ieee"), and whether sums repeat to the bit."""

    products: str = "tf32"
    repeatable: bool = True


class RecordedStep:
    """The kernels of a step, in order; `run` launches them."""

    def __init__(
        self,
        model: Carp,
        packed: Packed,
        corpus: GpuCorpus,
        batch: int,
        rates: Rates,
        precision: Precision,
        tuning: Tuning,
        table: Tensor,
        table_squares: Tensor,
        others: Others | None = None,
    ) -> None:
        self.config, self.packed, self.corpus, self.batch = model.config, packed, corpus, batch
        self.rates, self.precision, self.tuning = rates, precision, tuning
        self.table, self.table_squares = table, table_squares
        self.room = Buffers(packed, corpus, batch, tuning, repeatable=precision.repeatable)
        self.order = torch.zeros(corpus.pairs, dtype=torch.int32, device=table.device)
        self.others = others
        if others is not None and batch < others.size:
            raise NoFastPath("a batch has fewer pairs than there are processes")
        ours = slice(0, batch) if others is None else BatchShare.of(others, batch).rows
        self.documents = DocumentBatch(
            corpus.words, corpus.reviews, corpus.offsets, corpus.owners, corpus.records,
            self.order, self.room.state, corpus.pairs, ours.start, ours.stop,
        )  # fmt: skip
        self.terms = compiled_in(LossTerms.of(model))
        self.stream: torch.cuda.Stream | None = None
        if tuning.beside and table.is_cuda:
            self.stream = torch.cuda.Stream(table.device)  # type: ignore[no-untyped-call]

    def run(self) -> None:
        self.take_gradients()
        self.add_up()
        self.update()

    def add_up(self) -> None:
        """Put the gradients of all processes in the place of ours."""
        if self.others is not None:
            self.others.total(self.room.table_change)
            self.others.total(self.packed.gradients)

    def take_gradients(self) -> None:
        self.read()
        self.judge()
        self.attend_back()
        with self._beside():
            self.gates_back()
        self.words_back()
        self._join()

    @contextlib.contextmanager
    def _beside(self) -> Iterator[None]:
        """Kernels launched here may run at the same time as those launched afterwards, until both are joined."""
        if self.stream is None:
            yield
            return
        self.stream.wait_stream(torch.cuda.current_stream(self.table.device))
        with torch.cuda.stream(self.stream):
            yield

    def _join(self) -> None:
        if self.stream is not None:
            torch.cuda.current_stream(self.table.device).wait_stream(self.stream)

    @cached_property
    def _reading(self) -> ReadingSizes:
        s = self.packed.shapes
        sizes = ReadingSizes(
            BATCH=self.batch,
            LONGEST=self.room.longest,
            BLOCK=self.tuning.block,
            N=s.N,
            K=s.K,
            M=s.M,
            WINDOW=s.window,
            COLUMNS=self.room.projected.shape[1],
            KEEP=1.0 - self.config.dropout,
            SCALE=self.config.attention_scale,
            PRECISION=self.precision.products,
        )
        return compiled_in(sizes)

    @cached_property
    def _judging(self) -> PairSizes:
        s, config = self.packed.shapes, self.config
        routing = config.routing_iterations, config.routing == "bi-agreement"
        return compiled_in(PairSizes(self.batch, s.M, s.U, s.K, *routing, self.precision.products))

    @cached_property
    def _gates(self) -> GateWeights:
        w = self.packed.weights
        return GateWeights(w["gate_context"], self.room.answers, w["projection"])

    @cached_property
    def _highway(self) -> tuple[HighwayWeights, HighwayWeights]:
        """The weights behind the capsules, and their gradients."""
        names = "highway_gate", "highway_gate_bias", "highway", "highway_bias", "regression", "regression_bias"
        weights, changes = self.packed.weights, self.packed.changes
        return HighwayWeights(*map(weights.__getitem__, names)), HighwayWeights(*map(changes.__getitem__, names))

    @cached_property
    def _rated(self) -> RatedPairs:
        w, c = self.packed.weights, self.corpus
        biases = w.get("user_bias", c.base), w.get("item_bias", c.base)
        return RatedPairs(c.ratings, c.base, *biases, c.users)

    def read(self) -> None:
        """Documents to viewpoints and aspects."""
        from carp.kernels.gpu import triton_encode as kernels

        s, w, room = self.packed.shapes, self.packed.weights, self.room
        kernels.answer_queries[(2 * s.M,)](w["gate_query"], w["queries"], w["gate_bias"], room.answers, N=s.N)
        torch.mm(self.table, w["convolution"].view(s.d, -1), out=room.projected)
        kernels.write_features[(2 * self.batch, room.longest // self.tuning.block)](
            self.documents, room.projected, w["convolution_bias"], room.trace.features, self._reading
        )
        kernels.read_documents[(2 * self.batch, s.M)](
            self.documents, self._gates, room.trace, room.sides, self._reading, TRAIN=True,
            num_warps=self.tuning.read_warps, num_stages=self.tuning.read_stages,
        )  # fmt: skip

    def judge(self) -> None:
        """Pairs to losses, and back to viewpoints and aspects."""
        from carp.kernels.gpu import triton_pair as kernels

        s, room, sizes = self.packed.shapes, self.room, self._judging
        weight, change = self.packed.weights["vote_weight"], self.packed.changes["vote_weight"]
        blocks = math.ceil(self.batch / PAIRS)
        kernels.cast_votes[(2 * s.M**2, blocks)](room.sides, weight, room.votes, sizes, BLOCK=PAIRS)
        kernels.judge[(self.batch,)](
            self.documents, room.votes, self._highway[0], self._rated, room.judged, sizes, self.terms
        )
        back = room.judged.vote_gradients
        kernels.vote_weight_gradients[(2 * s.M**2,)](room.sides, back, change, sizes, BLOCK=PAIRS)
        kernels.side_gradients[(math.ceil(self.batch / 16), 2 * s.M)](
            room.sides, weight, back, room.side_changes, sizes, BLOCK=16
        )

    def attend_back(self) -> None:
        """From the gradients of viewpoints and aspects to those of every word's attention and score."""
        from carp.kernels.gpu import triton_encode_back as kernels

        kernels.attend_backward[(2 * self.batch, self.packed.shapes.M)](
            self.documents, self._gates, self.room.trace, self.room.side_changes, self._reading,
            num_warps=self.tuning.read_warps, num_stages=self.tuning.read_stages,
        )  # fmt: skip

    def gates_back(self) -> None:
        """On to the gradients of the gates and of everything small."""
        from carp.kernels.gpu import triton_encode_back, triton_update

        s, w, change, room = self.packed.shapes, self.packed.weights, self.packed.changes, self.room
        triton_encode_back.gate_gradients[(self.tuning.split, 2 * s.M)](
            self.documents, self._gates, room.trace, room.gate_parts, room.answer_parts, self._reading,
            SPLIT=self.tuning.split, num_warps=self.tuning.gate_warps, num_stages=self.tuning.gate_stages,
        )  # fmt: skip
        self._add(room.gate_parts, change["gate_context"], self.tuning.split, 2 * s.M * s.N**2, 1)
        triton_update.query_gradients[(2 * s.M,)](
            w["gate_query"], w["queries"], room.answer_parts,
            change["gate_query"], change["queries"], change["gate_bias"],
            SPLIT=self.tuning.split, SPLITS=1 << (self.tuning.split - 1).bit_length(), N=s.N,
        )  # fmt: skip
        triton_encode_back.projection_gradients[(2, room.shares)](
            room.side_changes, room.trace, room.projection_parts, self.batch * s.M, self._reading, ROWS=ROWS
        )
        self._add(room.projection_parts, change["projection"], room.shares, s.K * s.N, 2)
        triton_update.highway_gradients[(2,)](room.judged, self._highway[1], self._judging, BLOCK=PAIRS)
        if "user_bias" in change:
            triton_update.bias_gradients[(math.ceil(self.batch / 32), 2)](
                self.documents, room.judged.errors, change["user_bias"], change["item_bias"], self.corpus.users,
                BATCH=self.batch, BLOCK=32,
            )  # fmt: skip

    def words_back(self) -> None:
        """On to the gradients of the words and of the filters that read them."""
        from carp.kernels.gpu import triton_encode_back, triton_update

        s, w, change, room = self.packed.shapes, self.packed.weights, self.packed.changes, self.room
        fixed = self.precision.repeatable
        if not fixed:
            room.projected_change.zero_()
        triton_encode_back.words_backward[(2 * self.batch, room.longest // self.tuning.block)](
            self.documents, self._gates, room.trace, room.bias_parts,
            room.fixed if fixed else room.projected_change, s.n, self._reading, FIXED=FIXED if fixed else 0.0,
            num_warps=self.tuning.back_warps, num_stages=self.tuning.back_stages,
        )  # fmt: skip
        if fixed:
            size = room.fixed.numel()
            triton_update.to_float[(math.ceil(size / 1024),)](
                room.fixed, room.projected_change, size, FIXED=FIXED, BLOCK=1024
            )
        self._add(room.bias_parts, change["convolution_bias"], room.bias_parts.shape[1], s.N, 2)
        weight = w["convolution"].view(s.d, -1)
        torch.mm(room.projected_change, weight.t(), out=room.table_change)
        torch.mm(self.table.t(), room.projected_change, out=change["convolution"].view(s.d, -1))

    def _add(self, parts: Tensor, result: Tensor, rows: int, size: int, groups: int) -> None:
        from carp.kernels.gpu import triton_update as kernels

        together, block = (32, 64) if rows <= 64 else (256, 16)  # many rows at once: turns wait for each other
        kernels.add_parts[(math.ceil(size / block), groups)](parts, result, rows, size, ROWS=together, BLOCK=block)

    def update(self) -> None:
        from carp.kernels.gpu import triton_update as kernels

        packed, room = self.packed, self.room
        size = self.table.numel()
        kernels.update_table[(math.ceil(size / 1024),)](
            self.documents, self.table, self.table_squares, room.table_change, size, self.rates,
            BATCH=self.batch, BLOCK=1024,
        )  # fmt: skip
        size = packed.native.numel()
        places = ParameterPlaces(packed.native, packed.squares, packed.where, packed.packed, packed.gradients)
        kernels.update_rest[(math.ceil(size / 1024),)](
            self.documents, places, size, packed.sparse_from, self.rates, BATCH=self.batch, BLOCK=1024
        )
        kernels.finish[(1,)](room.judged.losses, room.total, room.state, BATCH=self.batch, BLOCK=256)
