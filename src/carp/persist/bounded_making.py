"""Models that are made to be filled: no weight is drawn by chance, since all of them are read or carried over.

Where nobody vouches for the settings, no more memory is taken than the saved tensors fill.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import init
from torch.overrides import TorchFunctionMode

from carp.reviews.corpora.column_checks import need

FACTORIES = (torch.empty, torch.zeros, torch.ones, torch.full, torch.rand, torch.randn)
SLACK = 1 << 20  # entries that a model may need beside those that it keeps
MOST_TENSORS = 10_000


DRAWN = (torch.rand, torch.randn)
DRAWN_INTO = (Tensor.normal_, Tensor.uniform_, init.normal_, init.uniform_, init.kaiming_uniform_)


class Undrawn(TorchFunctionMode):
    """While this is entered, nothing is drawn by chance: drawing a large table takes longer than reading it."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func in DRAWN_INTO:
            return args[0] if args else (kwargs or {})["tensor"]
        return (torch.zeros if func in DRAWN else func)(*args, **(kwargs or {}))


class BoundedMaking(Undrawn):
    """While this is entered, tensors are made with so many entries together, and no more."""

    def __init__(self, entries: int) -> None:
        super().__init__()
        self.entries, self.tensors = 4 * entries + SLACK, MOST_TENSORS

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func in FACTORIES:
            self.entries -= _entries(args)
            self.tensors -= 1
            need(self.entries >= 0 and self.tensors >= 0, "the settings ask for a larger model than the file holds")
        return super().__torch_function__(func, types, args, kwargs)


def _entries(args: tuple[Any, ...]) -> int:
    """How many entries are asked for, as in `zeros(2, 3)` or `full((2, 3), 0.1)`."""
    sizes = args[0] if args and isinstance(args[0], tuple | list) else args
    return math.prod(size for size in sizes if isinstance(size, int))
