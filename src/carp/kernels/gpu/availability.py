"""When the GPU's kernels can be used, and the error that says why they cannot."""

from __future__ import annotations

import contextlib
import importlib.util
import os
from collections.abc import Iterator
from typing import Any

import torch

from carp.errors import CarpError


class NoFastPath(CarpError):
    """The GPU's kernels cannot be used; the plain path gives the same answers more slowly."""


class NoTriton(NoFastPath):
    """The one thing missing is Triton itself."""

    def __init__(self) -> None:
        super().__init__("Triton is not installed", fix="pip install triton")


def interpreted() -> bool:
    """Whether Triton runs kernels on the CPU, one program after another, to find mistakes."""
    return os.environ.get("TRITON_INTERPRET", "0") == "1"


def has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


def usable_on(device: torch.device) -> bool:
    """Whether kernels can run on the device; a GPU without Triton is an error, since installing it would help."""
    if device.type == "cuda" and not has_triton():
        raise NoTriton
    return has_triton() and (device.type == "cuda" or interpreted())


def padded_size(size: int) -> int:
    """The next power of two, 16 at least: the smallest side of a matrix product in Triton.

    >>> [padded_size(size) for size in (5, 25, 50, 64)]
    [16, 32, 64, 64]
    """
    return max(16, 1 << (size - 1).bit_length())


def on_device(device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """Make the device the current one: Triton launches there, wherever its arguments lie."""
    return torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()


@contextlib.contextmanager
def library_products(products: str) -> Iterator[None]:
    """torch's own matrix products at the same precision as the kernels'."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if products == "tf32" else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
