"""Viewpoints from ragged documents in C: the arguments of encode.c and encode_back.c."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from carp.kernels.cpu import compiler
from carp.kernels.cpu.compiler import KernelLibrary
from carp.kernels.cpu.ragged import Blocks
from carp.models.carp import Viewpoints
from carp.reviews.documents import Documents

_LONG, _POINTER = ctypes.c_long, ctypes.c_void_p
COLUMNS = "edges", "tiles", "pair_edges", "spans", "hole_edges", "holes", "pairs"  # of Blocks, but for the tiles


class ReaderStruct(ctypes.Structure):
    """`reader` of reading.h."""

    _fields_ = [
        *((name, _LONG) for name in ("viewpoints", "filters", "size", "window")),
        ("scale", ctypes.c_float),
        *((name, _POINTER) for name in ("gate", "query", "project", "gate_back", "project_back")),
    ]


class LaidDown(ctypes.Structure):
    """`laid_down` of reading.h."""

    _fields_ = [
        ("places", _POINTER),
        ("chance", ctypes.c_uint32),
        ("keys", ctypes.c_uint32 * 2),
        *((name, _POINTER) for name in COLUMNS),
        *((name, _LONG) for name in ("tokens", "blocks", "rows", "pair_count", "hole_count", "batch")),
    ]


class EncodedSideStruct(ctypes.Structure):
    """`side` of reading.h."""

    _fields_ = [
        *(("reader", ReaderStruct), ("documents", LaidDown)),
        *(("slices", _POINTER), ("stride", _LONG)),
        *((name, _POINTER) for name in ("features", "gates", "words", "viewpoints", "grad", "rows")),
    ]


class NativeReader:
    """A side's parameters packed for one step."""

    def __init__(self, side: Viewpoints, loaded: KernelLibrary) -> None:
        config = side.config
        self.library = loaded
        self.m, self.n, self.k, self.window = config.viewpoints, config.filters, config.latent_size, config.window
        context = side.gate_context.detach().contiguous()  # [M, n, n]
        query = torch.einsum("xmn,xn->xm", side.gate_query.detach(), side.queries.detach()) + side.gate_bias.detach()
        project = side.projection.detach().contiguous()  # [k, n]
        m, n, k = self.m, self.n, self.k
        gate, gate_back = torch.empty_like(context), torch.empty_like(context)
        projects = torch.empty_like(project), torch.empty_like(project)
        for x in range(m):
            place = 4 * x * n * n
            loaded.carp_pack(context.data_ptr() + place, n, n, n, 1, gate.data_ptr() + place)
        loaded.carp_pack(context.data_ptr(), n, m * n, 1, n, gate_back.data_ptr())
        loaded.carp_pack(project.data_ptr(), k, n, n, 1, projects[0].data_ptr())
        loaded.carp_pack(project.data_ptr(), n, k, 1, n, projects[1].data_ptr())
        # C gets addresses, which keep nothing alive.
        self.kept = [gate, query.contiguous(), projects[0], gate_back, projects[1]]
        places = [tensor.data_ptr() for tensor in self.kept]
        self.struct = ReaderStruct(m, n, k, config.window, config.attention_scale, *places)

    @classmethod
    def of(cls, side: Viewpoints) -> NativeReader | None:
        single = side.projection.dtype == torch.float32 and side.projection.device.type == "cpu"
        loaded = compiler.library() if single else None
        return None if loaded is None else cls(side, loaded)


class NativeDocuments:
    """Documents as C expects them; `places` [T, window] lead to one of `rows` slices, pairs to one of the batch's."""

    def __init__(
        self,
        tile: int,
        blocks: Blocks,
        places: NDArray[np.int32],
        rows: int,
        batch: int,
        chance: int = 0,
        keys: tuple[int, int] = (0, 0),
    ) -> None:
        tiles = blocks.tiles(tile)
        columns = [tiles if name == "tiles" else getattr(blocks, name) for name in COLUMNS]
        self.kept = [np.ascontiguousarray(column) for column in (places, *columns)]
        self.tile, self.tiles = tile, int(tiles[-1])
        self.longest = int(np.diff(tiles).max(initial=0))  # tiles of a block
        first, *rest = (column.ctypes.data for column in self.kept)
        counts = len(places), len(blocks), rows, len(blocks.pairs), len(blocks.holes), batch
        self.struct = LaidDown(first, chance, keys, *rest, *counts)

    def room(self, reader: NativeReader) -> int:
        """Numbers needed inside a block."""
        return (2 * reader.n + 2 * self.longest + 2 + reader.k) * self.tile

    def room_back(self, reader: NativeReader) -> int:
        m, n, k = reader.m, reader.n, reader.k
        return (self.longest * (m * k + m * n + 6) + 2 * n + 2 * k + 8) * self.tile


def read_blocks(
    reader: NativeReader, documents: NativeDocuments, some: range, slices: Tensor, rooms: Sequence[Tensor], out: Tensor
) -> None:
    """The viewpoints of some blocks' pairs from slices [words, stride]; `rooms` are for features, words and more."""
    features, words, room = (tensor.data_ptr() for tensor in rooms)
    reader.library.carp_read(
        ctypes.byref(reader.struct), ctypes.byref(documents.struct), some.start, some.stop,
        slices.data_ptr(), slices.shape[1], 0, features, None, words, room, out.data_ptr(),
    )  # fmt: skip


class Rounds:
    """Both sides of a training step, forward and backward; every thread calls, and takes pieces until none is left."""

    def __init__(
        self, loaded: KernelLibrary, sides: Sequence[EncodedSideStruct], pieces: Sequence[tuple[int, int, int]]
    ) -> None:
        self.library, self.sides = loaded, (EncodedSideStruct * 2)(*sides)
        self.pieces = np.array(pieces, np.int64).reshape(-1, 3)
        self.next = np.zeros(2, np.int64)  # forward, backward

    def forward(self, room: Tensor) -> None:
        self.library.carp_read_round(
            self.sides, self.pieces.ctypes.data, len(self.pieces), self.next[:1].ctypes.data, room.data_ptr()
        )

    def backward(self, longest: int, room: Tensor, sums: Tensor) -> None:
        """`sums` [pieces, .] are those of `read_back` in encode_back.c."""
        self.library.carp_read_back_round(
            self.sides, self.pieces.ctypes.data, len(self.pieces), self.next[1:].ctypes.data,
            longest, room.data_ptr(), sums.data_ptr(), sums.shape[1],
        )  # fmt: skip


def find_windows(
    loaded: KernelLibrary, documents: Documents, some: range, slot: NDArray[np.int32], places: NDArray[np.int32]
) -> None:
    """The places of the words around each word of some documents; one beyond the last word's place is no word."""
    columns = (column.ctypes.data for column in (documents.words, documents.review, documents.offsets))
    loaded.carp_windows(
        *columns, len(documents), len(places), some.start, some.stop,
        slot.ctypes.data, len(slot), int(slot[-1]) + 1, places.shape[1], places.ctypes.data,
    )  # fmt: skip
