"""One training step of CARP as a fixed list of kernels: no shape, no launch depends on the batch.

The step's number lies on the device and every kernel finds its pairs by it, so that the whole step can be recorded
once and replayed without the host. A step past the last pair changes nothing.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from carp.kernels.gpu.device_corpus import GpuCorpus
from carp.kernels.gpu.parameter_layout import Packed
from carp.kernels.gpu.workspace import ROWS, Buffers, Tuning
from carp.models.carp import Carp

PAIRS = 64  # a program takes at once
FIXED = 2.0**44  # of fixed-point sums: 6e-14 is told apart, half a million still fits


@dataclass(frozen=True)
class Precision:
    """How products are computed ("tf32", "tf32x3" nearly in full, "ieee"), and whether sums repeat to the bit."""

    products: str = "tf32"
    repeatable: bool = True


@dataclass(frozen=True)
class Rates:
    """RMSprop's."""

    learning: float
    decay: float
    epsilon: float
    weight_decay: float


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
    ) -> None:
        self.config, self.levels, self.liked_above = model.config, model.sizes.levels, model.liked_above
        self.packed, self.corpus, self.batch = packed, corpus, batch
        self.rates, self.precision, self.tuning = rates, precision, tuning
        self.table, self.table_squares = table, table_squares
        self.room = Buffers(packed, corpus, batch, tuning, repeatable=precision.repeatable)
        self.order = torch.zeros(corpus.pairs, dtype=torch.int32, device=table.device)
        self.stream: torch.cuda.Stream | None = None
        if tuning.beside and table.is_cuda:
            self.stream = torch.cuda.Stream(table.device)  # type: ignore[no-untyped-call]

    def run(self) -> None:
        self.take_gradients()
        self.update()

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
        """What is launched here may run beside what is launched afterwards, until they join."""
        if self.stream is None:
            yield
            return
        self.stream.wait_stream(torch.cuda.current_stream(self.table.device))
        with torch.cuda.stream(self.stream):
            yield

    def _join(self) -> None:
        if self.stream is not None:
            torch.cuda.current_stream(self.table.device).wait_stream(self.stream)

    @property
    def _document(self) -> tuple[Tensor, ...]:
        c = self.corpus
        return c.offsets, c.owners, c.records, self.order, self.room.state

    @property
    def _reading(self) -> dict[str, Any]:
        return {
            "BATCH": self.batch,
            "LONGEST": self.room.longest,
            "BLOCK": self.tuning.block,
            "N": self.packed.shapes.N,
        }

    @property
    def _words(self) -> dict[str, Any]:
        columns = self.room.projected.shape[1]
        keep = 1.0 - self.config.dropout
        return {**self._reading, "COLUMNS": columns, "WINDOW": self.packed.shapes.window, "KEEP": keep}

    @property
    def _viewpoints(self) -> dict[str, Any]:
        s = self.packed.shapes
        return {**self._reading, "K": s.K, "M": s.M, "SCALE": self.config.attention_scale, **self._products}

    @property
    def _products(self) -> dict[str, Any]:
        return {"PRECISION": self.precision.products}

    def read(self) -> None:
        """Documents to viewpoints and aspects."""
        from carp.kernels.gpu import triton_encode as kernels

        s, w, room, corpus = self.packed.shapes, self.packed.weights, self.room, self.corpus
        kernels.answer_queries[(2 * s.M,)](w["gate_query"], w["queries"], w["gate_bias"], room.answers, N=s.N)
        torch.mm(self.table, w["convolution"].view(s.d, -1), out=room.projected)
        grid = (2 * self.batch, room.longest // self.tuning.block)
        kernels.write_features[grid](
            room.projected, w["convolution_bias"], corpus.words, corpus.reviews, *self._document,
            room.features, corpus.pairs, **self._words,
        )  # fmt: skip
        kernels.read_documents[(2 * self.batch, s.M)](
            w["gate_context"], room.answers, w["projection"], corpus.reviews, *self._document,
            room.features, room.sides, room.wide, room.narrow, room.vectors, room.normal, room.counts, corpus.pairs,
            **self._viewpoints, TRAIN=True, num_warps=self.tuning.read_warps, num_stages=self.tuning.read_stages,
        )  # fmt: skip

    def judge(self) -> None:
        """Pairs to losses, and back to viewpoints and aspects."""
        from carp.kernels.gpu import triton_pair as kernels

        s, w, room, corpus, config = self.packed.shapes, self.packed.weights, self.room, self.corpus, self.config
        sizes = {"BATCH": self.batch, "M": s.M, "U": s.U, "K": s.K}
        products = {"BLOCK": PAIRS, "PRECISION": self.precision.products}
        blocks = math.ceil(self.batch / PAIRS)
        kernels.cast_votes[(2 * s.M**2, blocks)](room.sides, w["vote_weight"], room.votes, **sizes, **products)
        learned = "user_bias" in w
        kernels.judge[(self.batch,)](
            room.votes, w["highway_gate"], w["highway_gate_bias"], w["highway"], w["highway_bias"],
            w["regression"], w["regression_bias"], corpus.base,
            w.get("user_bias", corpus.base), w.get("item_bias", corpus.base),
            corpus.ratings, corpus.owners, self.order, room.state,
            room.vote_changes, room.capsule_vectors, room.degree_changes, room.losses, room.errors, room.lengths,
            corpus.pairs, corpus.users, **sizes,
            ITERATIONS=config.routing_iterations, BI=config.routing == "bi-agreement", LEARNED=learned,
            SPAN=float(self.levels - 1), LIKED=float(self.liked_above), MARGIN=config.margin,
            WEIGHT=config.rating_weight, OPPOSITE=config.opposite_weight if config.mutual_exclusion else 0.0,
            SQUARED=config.hinge == "squared",
        )  # fmt: skip
        kernels.vote_weight_gradients[(2 * s.M**2,)](
            room.sides, room.vote_changes, self.packed.changes["vote_weight"], **sizes, **products
        )
        narrow = {**products, "BLOCK": 16}
        kernels.side_gradients[(math.ceil(self.batch / 16), 2 * s.M)](
            room.sides, w["vote_weight"], room.vote_changes, room.side_changes, **sizes, **narrow
        )

    def attend_back(self) -> None:
        """From viewpoints' and aspects' gradients to every word's attention and score."""
        from carp.kernels.gpu import triton_encode_back as kernels

        w, room, corpus = self.packed.weights, self.room, self.corpus
        kernels.attend_backward[(2 * self.batch, self.packed.shapes.M)](
            w["gate_context"], room.answers, w["projection"], corpus.reviews, *self._document,
            room.features, room.wide, room.narrow, room.vectors, room.normal, room.counts,
            room.side_changes, room.attention, corpus.pairs,
            **self._viewpoints, num_warps=self.tuning.read_warps, num_stages=self.tuning.read_stages,
        )  # fmt: skip

    def gates_back(self) -> None:
        """On to the gradients of the gates and of all that is small."""
        from carp.kernels.gpu import triton_encode_back, triton_update

        s, w, change = self.packed.shapes, self.packed.weights, self.packed.changes
        room, corpus = self.room, self.corpus
        triton_encode_back.gate_gradients[(self.tuning.split, 2 * s.M)](
            w["gate_context"], room.answers, corpus.reviews, *self._document,
            room.features, room.attention, room.vectors, room.gate_parts, room.answer_parts, corpus.pairs,
            **self._reading, M=s.M, **self._products, SPLIT=self.tuning.split,
            num_warps=self.tuning.gate_warps, num_stages=self.tuning.gate_stages,
        )  # fmt: skip
        self._add(room.gate_parts, change["gate_context"], self.tuning.split, 2 * s.M * s.N**2, 1)
        triton_update.query_gradients[(2 * s.M,)](
            w["gate_query"], w["queries"], room.answer_parts,
            change["gate_query"], change["queries"], change["gate_bias"],
            SPLIT=self.tuning.split, SPLITS=1 << (self.tuning.split - 1).bit_length(), N=s.N,
        )  # fmt: skip
        triton_encode_back.projection_gradients[(2, room.shares)](
            room.side_changes, room.narrow, room.wide, room.projection_parts, self.batch * s.M,
            ROWS=ROWS, K=s.K, N=s.N, **self._products,
        )  # fmt: skip
        self._add(room.projection_parts, change["projection"], room.shares, s.K * s.N, 2)
        triton_update.highway_gradients[(2,)](
            room.capsule_vectors, room.degree_changes,
            *(change[name] for name in ("highway_gate", "highway_gate_bias", "highway", "highway_bias")),
            change["regression"], change["regression_bias"],
            BATCH=self.batch, BLOCK=PAIRS, K=s.K, PRECISION=self.precision.products,
        )  # fmt: skip
        if "user_bias" in change:
            self._biases(change["user_bias"], change["item_bias"])

    def words_back(self) -> None:
        """On to the gradients of the words and of the filters that read them."""
        from carp.kernels.gpu import triton_encode_back, triton_update

        s, w, change = self.packed.shapes, self.packed.weights, self.packed.changes
        room, corpus = self.room, self.corpus
        fixed = self.precision.repeatable
        if not fixed:
            room.projected_change.zero_()
        triton_encode_back.words_backward[(2 * self.batch, room.longest // self.tuning.block)](
            w["gate_context"], room.answers, corpus.words, corpus.reviews, *self._document,
            room.features, room.attention, room.vectors, room.bias_parts,
            room.fixed if fixed else room.projected_change, corpus.pairs, s.n,
            **self._words, M=s.M, **self._products, FIXED=FIXED if fixed else 0.0,
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

        together, block = (32, 64) if rows <= 64 else (256, 16)  # many rows in few turns: they wait for each other
        kernels.add_parts[(math.ceil(size / block), groups)](parts, result, rows, size, ROWS=together, BLOCK=block)

    def _biases(self, user_change: Tensor, item_change: Tensor) -> None:
        from carp.kernels.gpu import triton_update as kernels

        corpus, room = self.corpus, self.room
        kernels.bias_gradients[(math.ceil(self.batch / 32), 2)](
            room.errors, corpus.owners, self.order, room.state, user_change, item_change, corpus.pairs, corpus.users,
            BATCH=self.batch, BLOCK=32,
        )  # fmt: skip

    def update(self) -> None:
        from carp.kernels.gpu import triton_update as kernels

        packed, room, rates, pairs = self.packed, self.room, self.rates, self.corpus.pairs
        numbers = (rates.learning, rates.decay, rates.epsilon, rates.weight_decay)
        size = self.table.numel()
        kernels.update_table[(math.ceil(size / 1024),)](
            self.table, self.table_squares, room.table_change, room.state, pairs, size, *numbers,
            BATCH=self.batch, BLOCK=1024,
        )  # fmt: skip
        size = packed.native.numel()
        kernels.update_rest[(math.ceil(size / 1024),)](
            packed.native, packed.squares, packed.where, packed.packed, packed.gradients, room.state, pairs, size,
            packed.sparse_from, *numbers, BATCH=self.batch, BLOCK=1024,
        )  # fmt: skip
        kernels.finish[(1,)](room.losses, room.total, room.state, BATCH=self.batch, BLOCK=256)
