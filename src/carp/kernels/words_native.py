"""The convolution over distinct words in C: see words.c; here are its arguments."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

from carp.kernels.encode_cpu import Store
from carp.kernels.native import LANES, library
from carp.kernels.words_cpu import RowOptimizer, SideWords
from carp.models.layers import WordConvolution

WORDS = 96  # as in words.c
_LONG, _POINTER = ctypes.c_long, ctypes.c_void_p


class FilterStruct(ctypes.Structure):
    """`filters` of words.c."""

    _fields_ = [
        *((name, _LONG) for name in ("dimension", "window", "filters")),
        *((name, _POINTER) for name in ("weight", "turned", "bias")),
    ]


class SideStruct(ctypes.Structure):
    """`side_words` of words.c."""

    _fields_ = [
        *((name, _LONG) for name in ("first", "last")),
        *((name, _POINTER) for name in ("places", "order", "edges", "grad")),
    ]


class OptimizerStruct(ctypes.Structure):
    """`row_optimizer` of words.c."""

    _fields_ = [
        *((name, _POINTER) for name in ("table", "square", "settled")),
        ("now", _LONG),
        *((name, ctypes.c_double) for name in ("rate", "decay", "epsilon")),
    ]


@cache
def words_library() -> ctypes.CDLL | None:
    loaded = library("words")
    if loaded is not None:
        loaded.carp_take.argtypes = [_POINTER, _LONG, _POINTER, _LONG, _POINTER]
        loaded.carp_slices.argtypes = [_POINTER, _POINTER, _LONG, _POINTER]
        loaded.carp_words_back.argtypes = [*[_POINTER] * 3, *[_LONG] * 2, *[_POINTER] * 4]
        loaded.carp_rmsprop.argtypes = [*[_POINTER] * 4, _LONG, *[ctypes.c_double] * 3]
        for function in (loaded.carp_take, loaded.carp_slices, loaded.carp_words_back, loaded.carp_rmsprop):
            function.restype = None
    return loaded


def whole_vectors(columns: int) -> int:
    return -(-columns // LANES) * LANES


class NativeFilters:
    """One side's filters laid out for a step."""

    def __init__(self, convolution: WordConvolution, scale: float, loaded: ctypes.CDLL) -> None:
        weight = convolution.weight.detach()
        self.library = loaded
        self.window, self.dimension, self.filters = weight.shape
        self.scale = scale  # of dropout's survivors: ReLU lets a positive factor pass
        self.columns = self.window * self.filters
        self.stride, self.wide = whole_vectors(self.columns), whole_vectors(self.dimension)
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
        loaded = words_library() if single else None
        return None if loaded is None else cls(convolution, scale, loaded)

    def table(self, words: int, store: Store) -> Tensor:
        """Room for the slices of some words and of nobody; a vector may be read beyond the last."""
        flat = store.take("slices", (words + 1) * self.stride + LANES, self.weight)
        table = flat[:-LANES].view(words + 1, self.stride)
        table[-1].zero_()
        return table

    def slice(self, rows: Tensor, slices: Tensor) -> None:
        """The slices of words whose embeddings, filled up to whole vectors, are `rows`."""
        self.library.carp_slices(ctypes.byref(self.struct), rows.data_ptr(), len(rows), slices.data_ptr())

    def spread(self, weight: Tensor, bias: Tensor) -> dict[str, Tensor]:
        """Gradients of the convolution's parameters from those of the laid-out ones."""
        shaped = weight.view(self.window, self.filters, self.wide)[:, :, : self.dimension].transpose(1, 2)
        return {"convolution.weight": shaped * self.scale, "convolution.bias": bias * self.scale}


def take_rows(table: Tensor, numbers: Tensor, out: Tensor) -> None:
    """Numbered rows of a table into rows that are filled up to whole vectors."""
    loaded = words_library()
    assert loaded is not None, "whoever has filters has the library"
    loaded.carp_take(table.data_ptr(), table.shape[1], numbers.data_ptr(), len(numbers), out.data_ptr())


class WordsBack:
    """The way back through the words of a batch, and what they learn."""

    def __init__(
        self,
        filters: Sequence[NativeFilters],
        words: Sequence[SideWords],
        grads: Sequence[Tensor],
        optimizer: RowOptimizer,
    ) -> None:
        self.first = filters[0]
        self.filters = (FilterStruct * 2)(*(side.struct for side in filters))
        self.kept = [(side.places, side.order, side.offsets) for side in words], grads
        self.sides = (SideStruct * 2)(
            *(
                SideStruct(side.first, side.last, *(a.ctypes.data for a in arrays), grad.data_ptr())
                for side, arrays, grad in zip(words, *self.kept, strict=True)
            )
        )
        self.optimizer = OptimizerStruct(
            optimizer.table.data_ptr(), optimizer.square.data_ptr(), optimizer.settled.ctypes.data, optimizer.now,
            optimizer.rate, optimizer.decay, optimizer.epsilon,
        )  # fmt: skip

    def room(self) -> int:
        """Numbers needed for some words."""
        return WORDS * (self.first.wide + self.first.stride) + LANES

    def learn(self, first: int, last: int, rows: Tensor, numbers: Tensor, sums: Tensor, room: Tensor) -> None:
        """The words from `first` on, whose embeddings are `rows`; `sums` [2, c · n, d filled up] of each side's filters
        are written for those that have the words."""
        places = (ctypes.c_void_p * 2)(*(side.data_ptr() for side in sums))
        self.first.library.carp_words_back(
            self.filters, self.sides, ctypes.byref(self.optimizer), first, last,
            rows.data_ptr(), numbers.data_ptr(), places, room.data_ptr(),
        )  # fmt: skip
