"""Work in blocks that shrink where memory runs out: what fits on a large machine is also done on a small one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

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


def blocks_of_like_length(
    lengths: NDArray[np.integer[Any]], *, most_words: int, most: int
) -> Iterator[NDArray[np.int64]]:
    """Places of documents, those of like length together so that little is padded: at most `most` of them, and at most
    `most_words` words with their padding unless one document alone has more.

    >>> lengths = np.array([5, 1, 2, 9])
    >>> [block.tolist() for block in blocks_of_like_length(lengths, most_words=10, most=3)]
    [[1], [2], [0], [3]]
    """
    order = np.argsort(lengths, kind="stable")
    start = 0
    while start < len(order):
        end = min(len(order), start + max(1, most))
        while end - start > 1 and (end - start) * int(lengths[order[end - 1]]) > most_words:
            end = start + (end - start) // 2
        yield order[start:end]
        start = end


def is_out_of_memory(problem: BaseException) -> bool:
    """Whether an error, torch's of the CPU included, says that memory did not suffice."""
    return isinstance(problem, MemoryError | torch.OutOfMemoryError) or "not enough memory" in str(problem)
