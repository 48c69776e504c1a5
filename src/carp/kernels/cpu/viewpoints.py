"""Viewpoints from ragged documents on the CPU, forward and backward, a cache-sized block of words at a time.

The mathematics is that of `Viewpoints` in models/carp.py (Equations 1 and 2). Inside a block everything lies with the
words along the last, contiguous axis, so that gating is plain multiplication of long rows:

    features   Cᵀ [n + 1, T]   a row of ones at the end carries the gates' bias
    gate       σ([W_1 | W_2 q + b] Cᵀ) [M, n, T]
    contextual W_p (C ⊙ gate_x) [M, k, T]
    mean       of each pair's words [P, T], zero where a pair's review is left out
    rudiment   mean · contextualᵀ [M, P, k]
    attention  softmax over T of rudiment · contextual [M, P, T]
    viewpoints attention · contextualᵀ [M, P, k]
"""

from __future__ import annotations

import contextlib
import mmap
import threading
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from carp.kernels.cpu.ragged import Block, pair_weights
from carp.models.carp import CarpConfig, Viewpoints


def covers_encoding(config: CarpConfig) -> bool:
    """Whether documents of this form of the model can be encoded by this package."""
    return (
        config.dropout_on == "features"
        and not config.across_reviews
        and config.window % 2 == 1
        and config.projection == "shared"
        and config.attention == "softmax"
        and not config.padding_attends
    )


class Gates:
    """The parameters of a side, laid out for the blocks of one step."""

    def __init__(self, side: Viewpoints) -> None:
        config = side.config
        self.viewpoints, self.filters, self.size = config.viewpoints, config.filters, config.latent_size
        self.scale = config.attention_scale
        context = side.gate_context.detach().flatten(0, 1)  # [M·n, n]
        query = torch.einsum("xmn,xn->xm", side.gate_query.detach(), side.queries.detach()) + side.gate_bias.detach()
        self.gate = torch.cat([context, query.view(-1, 1)], 1)  # [M·n, n + 1]
        self.back = context.T.contiguous()  # [n, M·n]
        self.project = side.projection.detach().clone()  # [k, n]


@dataclass
class SideGradients:
    """Of one block: [W_1 | query] transposed, W_p and the convolution's bias."""

    gate: Tensor  # [n + 1, M·n]
    project: Tensor  # [k, n]
    bias: Tensor  # [n]


class Store:
    """Memory that is kept from step to step, since fresh memory costs more than arithmetic."""

    def __init__(self) -> None:
        self._buffers: dict[str, Tensor] = {}

    def take(self, name: str, count: int, like: Tensor) -> Tensor:
        buffer = self._buffers.get(name)
        if buffer is None or buffer.numel() < count or buffer.dtype != like.dtype:
            buffer = self._buffers[name] = _fresh(count + count // 8, like)
        return buffer[:count]

    @staticmethod
    def of_thread() -> Store:
        """A store for what is needed inside a block and not after it."""
        if not hasattr(_own, "store"):
            _own.store = Store()
        store: Store = _own.store
        return store


_own = threading.local()
LARGE = 1 << 22  # bytes


def _fresh(count: int, like: Tensor) -> Tensor:
    """Memory; a lot of it comes in large pages where the system has them, since all of it is read."""
    size = count * like.element_size()
    if size < LARGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return like.new_empty(count)
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a Linux kernel may be built without them
        pages.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(pages, dtype=like.dtype, count=count)


@dataclass
class Trace:
    """What a block keeps for going backward."""

    features: Tensor  # [n + 1, T]
    gate: Tensor  # [M, n, T]
    contextual: Tensor  # [M, k, T]
    mean: Tensor  # [P, T]
    rudiment: Tensor  # [M, P, k]
    attention: Tensor  # [M, P, T]


class Traces:
    """Room for the traces of all blocks of a side, one after another."""

    def __init__(self, tokens: int, gates: Gates, store: Store, like: Tensor) -> None:
        m, n, k = gates.viewpoints, gates.filters, gates.size
        self.shapes = (n + 1, 1), (m, n), (m, k)
        names = "features", "gate", "contextual"
        rows = [a * b for a, b in self.shapes]
        self.rooms = [store.take(name, r * tokens, like) for name, r in zip(names, rows, strict=True)]

    def of(self, block: Block) -> Trace:
        first, last = block.first, block.last
        features, gate, contextual = (
            room[a * b * first : a * b * last].view(a, b, last - first)
            for room, (a, b) in zip(self.rooms, self.shapes, strict=True)
        )
        weights = pair_weights(block, np.float32 if gate.dtype == torch.float32 else np.float64)
        mean = torch.from_numpy(weights)
        return Trace(features[:, 0], gate, contextual, mean, mean, mean)


def read_features(codes: Tensor, slices: Tensor, trace: Trace, dropped: NDArray[np.bool_] | None) -> None:
    """c_j of a block: the sum of its neighbours' slices, through ReLU; and the row of ones."""
    features = trace.features[:-1]
    begins = torch.arange(0, codes.numel(), codes.shape[1], dtype=torch.int32)
    sums = torch.embedding_bag(slices, codes.view(-1), begins, mode=0)[0]  # without F's checks in Python
    features.copy_(sums.T)
    features.relu_()
    if dropped is not None:
        features.masked_fill_(torch.from_numpy(dropped), 0)
    trace.features[-1].fill_(1)


def forward_block(gates: Gates, trace: Trace) -> Tensor:
    """From features to viewpoints [P, M, k]; gates and contextual words are left in the trace."""
    m, n = gates.viewpoints, gates.filters
    flat = trace.gate.view(m * n, -1)
    torch.mm(gates.gate, trace.features, out=flat).sigmoid_()
    gated = _like("gated", trace.gate)
    torch.mul(trace.gate, trace.features[:-1], out=gated)  # s_{u,x,j} (1)
    torch.matmul(gates.project, gated, out=trace.contextual)  # p_{u,x,j}
    words = trace.contextual.transpose(1, 2)  # [M, T, k]
    trace.rudiment = torch.matmul(trace.mean, words)
    scores = torch.bmm(trace.rudiment, trace.contextual)  # pᵀv, [M, P, T]
    if gates.scale != 1:
        scores *= gates.scale
    scores.masked_fill_(trace.mean == 0, float("-inf"))
    trace.attention = scores.softmax(-1)
    return torch.bmm(trace.attention, words).transpose(0, 1)  # v_{u,x} (2)


def backward_block(gates: Gates, trace: Trace, grad: Tensor, out: Tensor) -> SideGradients:
    """From the gradient of viewpoints [P, M, k] to that of the convolution's sums [T, n] in `out`."""
    m, n = gates.viewpoints, gates.filters
    d_words = _attention_back(gates, trace, grad.transpose(0, 1))  # [M, k, T]
    features = trace.features[:-1]
    gated, d_gated = _like("gated", trace.gate), _like("d_gated", trace.gate)
    torch.mul(trace.gate, features, out=gated)
    project = torch.bmm(d_words, gated.transpose(1, 2)).sum(0)  # [k, n]
    torch.matmul(gates.project.T, d_words, out=d_gated)
    slope = torch.sub(features, gated, out=gated)  # c (1 − gate)
    d_gated.mul_(trace.gate)
    d_features = d_gated.sum(0)  # [n, T]
    d_gate = d_gated.mul_(slope).view(m * n, -1)  # before the sigmoid
    d_features.addmm_(gates.back, d_gate)
    d_features = torch.ops.aten.threshold_backward(d_features, features, 0)
    out.copy_(d_features.T)
    return SideGradients(torch.mm(trace.features, d_gate.T), project, d_features.sum(1))


def _attention_back(gates: Gates, trace: Trace, grad: Tensor) -> Tensor:
    """Through Equation 2 to the contextual words."""
    d_attention = torch.bmm(grad, trace.contextual)  # [M, P, T]
    d_scores = torch.ops.aten._softmax_backward_data(d_attention, trace.attention, -1, grad.dtype)
    if gates.scale != 1:
        d_scores *= gates.scale
    d_rudiment = torch.bmm(d_scores, trace.contextual.transpose(1, 2))  # [M, P, k]
    left = torch.cat([grad, trace.rudiment, d_rudiment], 1).transpose(1, 2)  # [M, k, 3P]
    right = torch.cat([trace.attention, d_scores, trace.mean.expand_as(d_scores)], 1)  # [M, 3P, T]
    return torch.bmm(left, right, out=_like("d_words", trace.contextual))


def _like(name: str, tensor: Tensor) -> Tensor:
    return Store.of_thread().take(name, tensor.numel(), tensor).view(tensor.shape)


def spread(side: Viewpoints, context: Tensor, query: Tensor, project: Tensor) -> dict[str, Tensor]:
    """Gradients of a side's parameters by name from those of W_1, of W_2 q + b and of W_p."""
    shape = side.gate_context.shape
    query = query.view(shape[:2])
    return {
        "gate_context": context.reshape(shape),
        "gate_query": query.unsqueeze(2) * side.queries.detach().unsqueeze(1),
        "queries": torch.einsum("xmn,xm->xn", side.gate_query.detach(), query),
        "gate_bias": query,
        "projection": project,
    }
