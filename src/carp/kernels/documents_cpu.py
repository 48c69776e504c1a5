"""All documents of a side encoded for prediction on the CPU: no padding, no gradients, bounded memory."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from carp.kernels.encode_cpu import Gates, Store, Traces, forward_block, read_features
from carp.kernels.ragged import Block, Windows, lay_down
from carp.kernels.workers import workers
from carp.models.carp import Viewpoints
from carp.reviews.documents import Documents

CHUNK_WORDS = 1_000_000  # of documents laid down at once
ROWS = 1024


@torch.no_grad()
def encode_side(side: Viewpoints, table: Tensor, documents: Documents) -> Tensor:
    """Viewpoints [D, M, k]; zero where a document is empty."""
    gates, slices = Gates(side), _slices(side, table, documents)
    sides = table.new_zeros(len(documents), gates.viewpoints, gates.size)
    start = 0
    while start < len(documents):
        reach = int(np.searchsorted(documents.offsets, documents.offsets[start] + CHUNK_WORDS, side="right")) - 1
        end = min(len(documents), max(start + 1, reach))
        _encode_some(side, gates, slices, _stretch(documents, start, end), sides[start:end])
        start = end
    return sides


def _stretch(documents: Documents, start: int, end: int) -> Documents:
    first, last = int(documents.offsets[start]), int(documents.offsets[end])
    words, review, place = (c[first:last] for c in (documents.words, documents.review, documents.place))
    return Documents(words, review, place, documents.offsets[start : end + 1] - first)


def _slices(side: Viewpoints, table: Tensor, documents: Documents) -> Tensor:
    """Every word of the documents times the filters [(V + 1) · window, n]; word 0 is nobody and stays zero."""
    weight = side.convolution.weight.detach()
    window, dimension, filters = weight.shape
    laid_out = weight.permute(1, 0, 2).reshape(dimension, -1)
    bias = torch.zeros_like(laid_out[0]).view(window, filters)
    bias[window // 2] = side.convolution.bias.detach()
    slices = table.new_zeros(len(table), window * filters)
    seen = np.zeros(len(table), dtype=bool)
    seen[documents.words] = True
    words = torch.from_numpy(np.flatnonzero(seen))

    def multiply(start: int) -> None:
        some = words[start : start + ROWS]
        slices[some] = torch.addmm(bias.flatten(), table.detach()[some], laid_out)

    workers().run(multiply, range(0, len(words), ROWS))
    return slices.view(-1, filters)


def _encode_some(side: Viewpoints, gates: Gates, slices: Tensor, documents: Documents, out: Tensor) -> None:
    window = side.config.window
    tokens = lay_down(Windows.of(documents, window), np.arange(len(documents)))
    codes = torch.from_numpy(tokens.neighbours) * window + torch.arange(window, dtype=torch.int32)

    def encode(block: Block) -> None:
        here = Block(0, block.last - block.first, block.pairs, block.spans, block.holes)
        trace = Traces(here.last, gates, Store.of_thread(), out).of(here)
        read_features(codes[block.first : block.last], slices, trace, None)
        out[torch.from_numpy(block.pairs)] = forward_block(gates, trace)

    workers().run(encode, tokens.blocks)
