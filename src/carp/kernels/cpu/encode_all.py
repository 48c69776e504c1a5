"""All documents of a side encoded for prediction on the CPU: no padding, no gradients, bounded memory."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from carp.kernels.cpu.ragged import Block, Windows, cut, lay_down
from carp.kernels.cpu.threads import workers
from carp.kernels.cpu.viewpoints import Gates, Store, Traces, forward_block, read_features
from carp.kernels.cpu.viewpoints_c import NativeDocuments, NativeReader, find_windows, read_blocks
from carp.kernels.cpu.word_convolution_c import NativeFilters, take_rows
from carp.models.carp import Viewpoints
from carp.models.side_room import room_for_sides
from carp.reviews.corpora.string_column import stretches_of
from carp.reviews.documents import Documents

CHUNK_WORDS = 1_000_000  # of the documents encoded between two allocations
ROWS = 512
BLOCKS = 8  # that a thread encodes in one call
Encoder = Callable[[Documents, Tensor], None]  # some of the documents into their sides


@torch.no_grad()
def encode_side(side: Viewpoints, table: Tensor, documents: Documents) -> Tensor:
    """Viewpoints [D, M, k]; zero where a document is empty."""
    sides = room_for_sides(table, len(documents), side.config.viewpoints, side.config.latent_size)
    encode = _native_encoder(side, table, documents) or _torch_encoder(side, table, documents)
    for start, end in stretches_of(documents.offsets, CHUNK_WORDS):
        encode(documents.part(start, end), sides[start:end])
    return sides


def _seen(table: Tensor, documents: Documents) -> NDArray[np.bool_]:
    """Which words of the table the documents have."""
    seen = np.zeros(len(table), dtype=bool)
    for first in range(0, len(documents.words), CHUNK_WORDS):
        seen[documents.words[first : first + CHUNK_WORDS]] = True
    return seen


# ---- in C


def _native_encoder(side: Viewpoints, table: Tensor, documents: Documents) -> Encoder | None:
    reader, filters = NativeReader.of(side), NativeFilters.of(side.convolution)
    if reader is None or filters is None or table.dtype != torch.float32 or not table.is_contiguous():
        return None
    slot, slices = _native_slices(filters, table.detach(), documents)
    return lambda some, out: _encode_native(reader, slot, slices, some, out)


def _encode_native(
    reader: NativeReader, slot: NDArray[np.int32], slices: Tensor, documents: Documents, out: Tensor
) -> None:
    words, review = (np.ascontiguousarray(column, np.int32) for column in (documents.words, documents.review))
    documents = Documents(words, review, documents.characters, np.ascontiguousarray(documents.offsets, np.int64))
    places = np.empty((len(words), reader.window), np.int32)
    everyone = np.arange(len(documents))
    blocks = cut(documents.offsets, everyone, np.zeros(len(documents), np.int64), np.zeros(0, np.int64))
    tile = reader.library.tile
    laid_down = NativeDocuments(tile, blocks, places, len(slices), len(out))
    starts = np.searchsorted(documents.offsets[1:], blocks.edges, side="right")  # each block's first document
    sizes = [reader.n * tile, reader.m * reader.k * tile * laid_down.longest, laid_down.room(reader)]

    def encode(block: int) -> None:
        last = min(block + BLOCKS, len(blocks))
        find_windows(reader.library, documents, range(starts[block], starts[last]), slot, places)
        whole = Store.of_thread().take("encoding", sum(sizes), out)
        read_blocks(reader, laid_down, range(block, last), slices, torch.split(whole, sizes), out)

    workers().run(encode, range(0, len(blocks), BLOCKS))


def _native_slices(filters: NativeFilters, table: Tensor, documents: Documents) -> tuple[NDArray[np.int32], Tensor]:
    """Where each word finds its slices, and the slices of the documents' words; the last, all zero, are of no word."""
    seen = _seen(table, documents)
    words = torch.from_numpy(np.flatnonzero(seen))
    slot = np.cumsum(seen, dtype=np.int32) - np.int32(1)
    slices = filters.table(len(words), Store())
    width = filters.wide

    def multiply(start: int) -> None:
        some = words[start : start + ROWS]
        rows = Store.of_thread().take("rows", len(some) * width, table).view(-1, width)
        take_rows(filters.library, table, some, rows)
        filters.slice(rows, slices[start : start + ROWS])

    workers().run(multiply, range(0, len(words), ROWS))
    return slot, slices


# ---- in torch


def _torch_encoder(side: Viewpoints, table: Tensor, documents: Documents) -> Encoder:
    gates, slices = Gates(side), _slices(side, table, documents)
    return lambda some, out: _encode_some(side, gates, slices, some, out)


def _slices(side: Viewpoints, table: Tensor, documents: Documents) -> Tensor:
    """Every word of the documents times the filters [(V + 1) · window, n]; word 0 is no word and stays zero."""
    weight = side.convolution.weight.detach()
    window, dimension, filters = weight.shape
    laid_out = weight.permute(1, 0, 2).reshape(dimension, -1)
    bias = torch.zeros_like(laid_out[0]).view(window, filters)
    bias[window // 2] = side.convolution.bias.detach()
    slices = table.new_zeros(len(table), window * filters)
    seen = _seen(table, documents)
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

    def encode(number: int) -> None:
        block = tokens.blocks[number]
        here = Block(0, block.last - block.first, block.pairs, block.spans, block.holes)
        trace = Traces(here.last, gates, Store.of_thread(), out).of(here)
        read_features(codes[block.first : block.last], slices, trace, None)
        out[torch.from_numpy(block.pairs)] = forward_block(gates, trace)

    workers().run(encode, range(len(tokens.blocks)))
