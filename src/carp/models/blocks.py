"""Work in blocks that shrink where memory runs out: what fits on a large machine is also done on a small one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

Found = TypeVar("Found")


def in_blocks(size: int, at_once: int, part: Callable[[int, int], Found], keep: Callable[[int, Found], object]) -> None:
    """All of `size` in blocks; where memory runs out the block is halved and the work goes on.

    `part(begin, end)` makes a block's answer and `keep(begin, answer)` stores it; both may be asked again for the
    same begin.
    """
    begin = 0
    while begin < size:
        end = min(size, begin + max(1, at_once))
        try:
            keep(begin, part(begin, end))
            begin = end
            continue
        except (MemoryError, RuntimeError) as problem:
            if end - begin == 1 or not is_out_of_memory(problem):
                raise
        at_once = (end - begin) // 2  # here, since the error held on to all that the block had made
        torch.cuda.empty_cache()


def is_out_of_memory(problem: BaseException) -> bool:
    """Whether an error, torch's of the CPU included, says that memory did not suffice."""
    return isinstance(problem, MemoryError | torch.OutOfMemoryError) or "not enough memory" in str(problem)
