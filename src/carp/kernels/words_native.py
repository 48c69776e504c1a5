"""The convolution over distinct words in C: see words.c; here are its arguments."""

from __future__ import annotations

import ctypes
from functools import cache

import torch
from torch import Tensor

from carp.kernels.native import LANES, library
from carp.models.layers import WordConvolution

_LONG, _POINTER = ctypes.c_long, ctypes.c_void_p


class FilterStruct(ctypes.Structure):
    """`filters` of words.c."""

    _fields_ = [("dimension", _LONG), ("columns", _LONG), ("weight", _POINTER), ("bias", _POINTER)]


@cache
def words_library() -> ctypes.CDLL | None:
    loaded = library("words")
    if loaded is not None:
        loaded.carp_take.argtypes = [_POINTER, _LONG, _POINTER, _LONG, _POINTER]
        loaded.carp_slices.argtypes = [_POINTER, _POINTER, _LONG, _POINTER]
        loaded.carp_take.restype = loaded.carp_slices.restype = None
    return loaded


def whole_vectors(columns: int) -> int:
    return -(-columns // LANES) * LANES


class NativeFilters:
    """One side's filters laid out for a step."""

    def __init__(self, convolution: WordConvolution, scale: float, loaded: ctypes.CDLL) -> None:
        weight = convolution.weight.detach()
        self.library = loaded
        self.window, self.dimension, self.filters = weight.shape
        columns = self.window * self.filters
        self.stride = whole_vectors(columns)  # of the slices' rows
        self.weight = weight.new_zeros(self.dimension, self.stride)
        torch.mul(weight.permute(1, 0, 2), scale, out=self.weight[:, :columns].view(-1, self.window, self.filters))
        self.bias = weight.new_zeros(self.stride)
        middle = self.window // 2 * self.filters
        torch.mul(convolution.bias.detach(), scale, out=self.bias[middle : middle + self.filters])
        self.struct = FilterStruct(self.dimension, columns, self.weight.data_ptr(), self.bias.data_ptr())

    @classmethod
    def of(cls, convolution: WordConvolution, scale: float = 1.0) -> NativeFilters | None:
        single = convolution.weight.dtype == torch.float32 and convolution.weight.device.type == "cpu"
        loaded = words_library() if single else None
        return None if loaded is None else cls(convolution, scale, loaded)

    def table(self, words: int) -> Tensor:
        """Room for the slices of some words and of nobody; a vector may be read beyond the last."""
        flat = self.weight.new_empty((words + 1) * self.stride + LANES)
        table = flat[:-LANES].view(words + 1, self.stride)
        table[-1].zero_()
        return table

    def slice(self, rows: Tensor, slices: Tensor) -> None:
        """The slices of words whose embeddings, filled up to whole vectors, are `rows`."""
        self.library.carp_slices(ctypes.byref(self.struct), rows.data_ptr(), len(rows), slices.data_ptr())


def take_rows(table: Tensor, numbers: Tensor, out: Tensor) -> None:
    """Numbered rows of a table into rows that are filled up to whole vectors."""
    loaded = words_library()
    assert loaded is not None, "whoever has filters has the library"
    loaded.carp_take(table.data_ptr(), table.shape[1], numbers.data_ptr(), len(numbers), out.data_ptr())
