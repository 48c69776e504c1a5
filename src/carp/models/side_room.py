"""Room for the sides of all documents: in memory, or on the disk where they are too many for it."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from carp.storage import disk_errors

BYTES_IN_MEMORY = 1 << 32  # of the sides of all users, or of all items


def room_for_sides(like: Tensor, *shape: int) -> Tensor:
    """Zeros of a shape. On the CPU, more than `BYTES_IN_MEMORY` lie in a file without a name, which the system maps
    and reads as far as they are asked for; scoring takes them in blocks.

    The file lies where temporary files do: in $TMPDIR, which must be on a disk for memory to be spared.
    """
    size = math.prod(shape) * like.element_size()
    if like.device.type != "cpu" or size <= BYTES_IN_MEMORY:
        return like.new_zeros(shape)
    kind = np.dtype(str(like.dtype).removeprefix("torch."))
    return torch.from_numpy(unnamed_array(kind, shape))


def unnamed_array(kind: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """Zeros in a file without a name, which ends with the array."""
    with disk_errors(Path(tempfile.gettempdir())), tempfile.TemporaryFile() as file:
        found: NDArray[Any] = np.memmap(file, kind, "w+", 0, shape)
    return found


def all_finite(found: Tensor) -> bool:
    """Whether all entries are numbers: then the least and the largest are.

    >>> all_finite(torch.tensor([1.0, 2.0])), all_finite(torch.tensor([1.0, float("nan")])), all_finite(torch.zeros(0))
    (True, False, True)
    """
    # What is no number spreads to both. This reads all entries once and writes none: a tenth of the time of isfinite.
    return not found.numel() or all(bool(torch.isfinite(one)) for one in torch.aminmax(found))
