"""All documents of a side encoded on a GPU: the kernels of a training step, over whole documents and without dropout.

Documents go to the device in chunks of bounded size, so that memory does not grow with their number. The sizes that
kernels are compiled for are rounded to powers of two, so that a service which encodes one document now and then
compiles a few kernels once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from carp.kernels.gpu.availability import NoFastPath, library_products, on_device, padded_size, usable_on
from carp.kernels.gpu.kernel_arguments import DocumentBatch, GateWeights, ReadingSizes, ReadingTrace, compiled_in
from carp.models.carp import Carp, Viewpoints
from carp.reviews.documents import Documents

COVERED: dict[str, Any] = {
    "across_reviews": False,
    "projection": "shared",
    "attention": "softmax",
    "padding_attends": False,
}
MOST = {"filters": 128, "latent_size": 64}  # that fit a program's registers
FEATURES_AT_ONCE = 1 << 26  # numbers: 256 MB
WORDS = 64  # a program takes at once


@dataclass(frozen=True)
class ReadingCut:
    """How much is read at once, how programs are cut, and how precise products are."""

    features: int = FEATURES_AT_ONCE
    warps: int | None = None  # None: as many as the width of the features needs
    stages: int = 1
    products: str = "tf32x3"  # documents are read once, and their ratings should be those of other machines


def covers_encoding_on_gpu(model: Carp, device: torch.device) -> bool:
    """Whether these kernels give this model's sides on this device."""
    if model.embedding.weight.dtype != torch.float32:
        return False
    small = all(padded_size(getattr(model.config, name)) <= most for name, most in MOST.items())
    usual = all(getattr(model.config, name) == value for name, value in COVERED.items())
    return small and usual and usable_on(device)


@torch.no_grad()
def encode_side_gpu(
    side: Viewpoints, table: Tensor, documents: Documents, device: torch.device, how: ReadingCut | None = None
) -> Tensor:
    """Viewpoints [D, M, k]; zero where a document is empty."""
    how = how or ReadingCut()
    if len(documents.words) and int(documents.words.min()) < 1:
        raise NoFastPath("a document holds words without a number")
    reader = DeviceReader(side, table, documents, device, how)
    sides = torch.empty(len(documents), reader.viewpoints, reader.size, device=device)
    with on_device(device), library_products(how.products):
        reader.project(table)
        for start in range(0, len(documents), reader.chunk):
            end = min(len(documents), start + reader.chunk)
            sides[start:end] = reader.read(documents, start, end)[: end - start, :, : reader.size]
    return sides


class DeviceReader:
    """One side's weights in the kernels' layout, and room for a chunk of documents."""

    def __init__(
        self, side: Viewpoints, table: Tensor, documents: Documents, device: torch.device, how: ReadingCut
    ) -> None:
        config = side.config
        self.how, self.device = how, device
        self.viewpoints, self.size, self.window = config.viewpoints, config.latent_size, config.window
        self.N, self.K = padded_size(config.filters), padded_size(config.latent_size)
        longest = int(documents.lengths().max(initial=1))
        self.longest = max(WORDS, padded_size(longest))
        self.chunk = min(padded_size(len(documents)), max(1, how.features // (self.longest * self.N)))
        if max(self.chunk * self.longest, len(table) * self.window) * self.N >= 2**31:
            raise NoFastPath("a document or the vocabulary is too large for the GPU's kernels")
        self.projected = torch.empty(len(table), self.window * self.N, device=device)
        self.sizes = compiled_in(self._sizes(config.attention_scale))
        self._lay_out_weights(side)
        self._make_room()

    def _sizes(self, scale: float) -> ReadingSizes:
        return ReadingSizes(
            BATCH=self.chunk,
            LONGEST=self.longest,
            BLOCK=WORDS,
            N=self.N,
            K=self.K,
            M=self.viewpoints,
            WINDOW=self.window,
            COLUMNS=self.window * self.N,
            KEEP=1.0,
            SCALE=scale,
            PRECISION=self.how.products,
        )

    def _lay_out_weights(self, side: Viewpoints) -> None:
        more = self.N - side.config.filters
        gates, gate_query = (
            F.pad(weight.detach(), (0, more, 0, more)).contiguous() for weight in (side.gate_context, side.gate_query)
        )
        lines = (side.queries, side.gate_bias, side.convolution.bias)
        queries, gate_bias, self.bias = (F.pad(line.detach(), (0, more)).contiguous() for line in lines)
        projection = F.pad(side.projection.detach(), (0, more, 0, self.K - self.size)).contiguous()
        filters = F.pad(side.convolution.weight.detach(), (0, more))  # window, dimension, N
        self.filters = filters.permute(1, 0, 2).reshape(filters.shape[1], -1).contiguous()
        self.gates = GateWeights(gates, torch.empty_like(queries), projection)
        self._answer(gate_query, queries, gate_bias)

    def _make_room(self) -> None:
        features = torch.empty(self.chunk, self.longest, self.N, device=self.device)
        self.sides = torch.empty(self.chunk, self.viewpoints, self.K, device=self.device)
        self.trace = ReadingTrace(features, *[self.sides] * 6)  # nothing is kept for going backward
        self.every = torch.arange(self.chunk, dtype=torch.int32, device=self.device)
        self.left_out = torch.full_like(self.every, -2)  # no review has this number
        self.state = torch.zeros(2, dtype=torch.int64, device=self.device)

    def _answer(self, gate_query: Tensor, queries: Tensor, gate_bias: Tensor) -> None:
        from carp.kernels.gpu import triton_encode as kernels

        with on_device(self.device):
            kernels.answer_queries[(self.viewpoints,)](gate_query, queries, gate_bias, self.gates.answers, N=self.N)

    def project(self, table: Tensor) -> None:
        """Every word times the filters, for each place it can have in a window."""
        torch.mm(table.detach(), self.filters, out=self.projected)

    def read(self, documents: Documents, start: int, end: int) -> Tensor:
        """The sides of some documents, in the kernels' layout; a chunk is filled up with empty documents."""
        from carp.kernels.gpu import triton_encode as kernels

        first, last = int(documents.offsets[start]), int(documents.offsets[end])
        offsets = np.full(self.chunk + 1, last - first)
        offsets[: end - start + 1] = documents.offsets[start : end + 1] - first
        words, reviews = (self._there(column[first:last], np.int32) for column in (documents.words, documents.review))
        batch = DocumentBatch(
            words,
            reviews,
            self._there(offsets, np.int64),
            self.every,
            self.left_out,
            self.every,
            self.state,
            self.chunk,
            0,
            self.chunk,
        )
        kernels.write_features[(self.chunk, self.longest // WORDS)](
            batch, self.projected, self.bias, self.trace.features, self.sizes
        )
        kernels.read_documents[(self.chunk, self.viewpoints)](
            batch, self.gates, self.trace, self.sides, self.sizes, TRAIN=False,
            num_warps=self.how.warps or (4 if self.N <= 64 else 8), num_stages=self.how.stages,
        )  # fmt: skip
        return self.sides

    def _there(self, array: NDArray[Any], kind: type) -> Tensor:
        """The array on the device; where it is empty, one number, so that there is an address."""
        array = np.ascontiguousarray(array, dtype=kind) if len(array) else np.zeros(1, kind)
        return torch.from_numpy(array).to(self.device)
