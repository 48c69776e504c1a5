"""The convolution over distinct words in C: the arguments of words.c."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from carp.kernels.cpu import compiler
from carp.kernels.cpu.compiler import KernelLibrary
from carp.kernels.cpu.viewpoints import Store
from carp.kernels.cpu.word_convolution import BatchWords, RowOptimizer, SideWords
from carp.models.layers import WordConvolution

WORDS = 96  # the same number as in words.c
_LONG, _POINTER = ctypes.c_long, ctypes.c_void_p


class FilterStruct(ctypes.Structure):
    """`filters` of words.c."""

    _fields_ = [
        *((name, _LONG) for name in ("dimension", "window", "filters")),
        *((name, _POINTER) for name in ("weight", "turned", "bias")),
    ]


class WordSideStruct(ctypes.Structure):
    """`side_words` of words.c."""

    _fields_ = [
        *((name, _LONG) for name in ("first", "last")),
        *((name, _POINTER) for name in ("places", "order", "edges", "grad")),
        ("tokens", _LONG),
    ]


class OptimizerStruct(ctypes.Structure):
    """`row_optimizer` of words.c."""

    _fields_ = [
        *((name, _POINTER) for name in ("table", "square", "settled", "held")),
        ("now", _LONG),
        *((name, ctypes.c_double) for name in ("rate", "decay", "epsilon")),
    ]


class BatchStruct(ctypes.Structure):
    """`batch` of words.c."""

    _fields_ = [
        *((name, _POINTER) for name in ("numbers", "stretches")),
        ("count", _LONG),
        *((name, _POINTER) for name in ("next", "rows")),
        *((name, _LONG) for name in ("words", "table")),
    ]


class NativeFilters:
    """One side's filters laid out for a step."""

    def __init__(self, convolution: WordConvolution, scale: float, loaded: KernelLibrary) -> None:
        weight = convolution.weight.detach()
        self.library = loaded
        self.window, self.dimension, self.filters = weight.shape
        self.scale = scale  # of the features that dropout keeps: ReLU lets a positive factor pass
        self.columns = self.window * self.filters
        self.stride, self.wide = loaded.filled_up(self.columns), loaded.filled_up(self.dimension)
        self.weight = weight.new_zeros(self.dimension, self.stride)
        shaped = self.weight[:, : self.columns].view(-1, self.window, self.filters)
        torch.mul(weight.permute(1, 0, 2), scale, out=shaped)
        self.turned = weight.new_zeros(self.columns, self.wide)
        self.turned[:, : self.dimension] = self.weight[:, : self.columns].T
        self.bias = weight.new_zeros(self.stride)
        middle = self.window // 2 * self.filters
        torch.mul(convolution.bias.detach(), scale, out=self.bias[middle : middle + self.filters])
        places = (tensor.data_ptr() for tensor in (self.weight, self.turned, self.bias))
        self.struct = FilterStruct(self.dimension, self.window, self.filters, *places)

    @classmethod
    def of(cls, convolution: WordConvolution, scale: float = 1.0) -> NativeFilters | None:
        single = convolution.weight.dtype == torch.float32 and convolution.weight.device.type == "cpu"
        loaded = compiler.library() if single else None
        return None if loaded is None else cls(convolution, scale, loaded)

    def table(self, words: int, store: Store) -> Tensor:
        """Room for the slices of some words and, at the end, of no word; a vector may be read beyond them."""
        flat = store.take("slices", (words + 1) * self.stride + self.library.lanes, self.weight)
        table = flat[: -self.library.lanes].view(words + 1, self.stride)
        table[-1].zero_()
        return table

    def slice(self, rows: Tensor, slices: Tensor) -> None:
        """The slices of words whose embeddings, filled up to whole vectors, are `rows`."""
        self.library.carp_slices(ctypes.byref(self.struct), rows.data_ptr(), len(rows), slices.data_ptr())

    def spread(self, weight: Tensor, bias: Tensor) -> dict[str, Tensor]:
        """Gradients of the convolution's parameters from those of the laid-out ones."""
        shaped = weight.view(self.window, self.filters, self.wide)[:, :, : self.dimension].transpose(1, 2)
        return {"convolution.weight": shaped * self.scale, "convolution.bias": bias * self.scale}


def take_rows(loaded: KernelLibrary, table: Tensor, numbers: Tensor, out: Tensor) -> None:
    """Numbered rows of a table into rows that are filled up to whole vectors."""
    loaded.carp_take(table.data_ptr(), *table.shape, numbers.data_ptr(), len(numbers), out.data_ptr())


def _side_struct(side: SideWords) -> WordSideStruct:
    columns = (array.ctypes.data for array in (side.places, side.order, side.offsets))
    return WordSideStruct(side.first, side.last, *columns, None, len(side.places))


class WordRounds:
    """The words of a batch, forward and backward; every thread calls, and takes stretches until none is left."""

    def __init__(self, filters: Sequence[NativeFilters], words: BatchWords, rows: Tensor, table_rows: int) -> None:
        self.words, self.wide, self.stride = words, filters[0].wide, filters[0].stride
        self.library = filters[0].library
        self.filters = (FilterStruct * 2)(*(side.struct for side in filters))
        self.sides = (WordSideStruct * 2)(*map(_side_struct, words.sides))
        self.stretches, self.next = np.array(words.stretches(), np.int64).reshape(-1, 2), np.zeros(2, np.int64)
        self.kept = rows
        places = words.distinct.data_ptr(), self.stretches.ctypes.data
        count, sizes = len(self.stretches), (len(words.distinct), table_rows)
        self.batches = [
            BatchStruct(*places, count, self.next[way:].ctypes.data, rows.data_ptr(), *sizes) for way in (0, 1)
        ]

    def forward(self, table: Tensor, slices: Sequence[Tensor]) -> None:
        """Copy the words' embeddings to their rows, and compute each side's slices."""
        places = (_POINTER * 2)(*(side.data_ptr() for side in slices))
        batch = ctypes.byref(self.batches[0])
        self.library.carp_slices_round(self.filters, self.sides, table.data_ptr(), batch, places)

    def room(self) -> int:
        return WORDS * (self.wide + self.stride) + self.library.lanes

    def backward(self, grads: Sequence[Tensor], optimizer: RowOptimizer, sums: Tensor, room: Tensor) -> None:
        """Update the words by their tokens' gradients, or hold these; `sums` are those of carp_words_round."""
        for side, grad in zip(self.sides, grads, strict=True):
            side.grad = grad.data_ptr()
        settings = OptimizerStruct(
            optimizer.table.data_ptr(), optimizer.square.data_ptr(), optimizer.settled.ctypes.data,
            None if optimizer.held is None else optimizer.held.data_ptr(), optimizer.now,
            optimizer.rate, optimizer.decay, optimizer.epsilon,
        )  # fmt: skip
        batch = ctypes.byref(self.batches[1])
        self.library.carp_words_round(
            self.filters, self.sides, ctypes.byref(settings), batch, sums.data_ptr(), room.data_ptr()
        )
