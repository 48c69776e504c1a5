"""Sums of the blocks of a large file: all cores sum it at once, and a part of it is checked without the rest.

The manifest holds them beside the sum of the whole file, which an older carp and `sha256sum` look at.
"""

from __future__ import annotations

import hashlib
import os
import weakref
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from io import BufferedReader
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from carp.errors import CarpError

T = TypeVar("T")
LARGE = 1 << 28  # bytes of a file that has such sums, and that is left on the disk where that is allowed
LEAST_BLOCK = 1 << 20
MOST_BLOCKS = 1000  # of a file, so that manifests stay small
DIGITS = 64  # of a sum
MOST_THREADS = 16
BYTES_AT_ONCE = 1 << 18
DIFFERS = "the file is damaged: it differs from what was saved"


def in_threads(work: Callable[[T], object], pieces: Iterable[T]) -> None:
    """Work on all pieces, on as many cores as this process may use. The error of the first piece that has one is
    raised."""
    with ThreadPoolExecutor(min(MOST_THREADS, _cores())) as threads:
        for _ in threads.map(work, pieces):  # which cancels the others after an error
            pass


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def block_size(size: int) -> int:
    """How long the blocks of a file are.

    >>> block_size(5_000), block_size(3_000_000_000)
    (1048576, 4194304)
    """
    block = LEAST_BLOCK
    while block * MOST_BLOCKS < size:
        block *= 2
    return block


def facts_of(file: Path) -> dict[str, Any]:
    """What the manifest says of a file: its size and its sum, and if it is large the sums of its blocks."""
    whole, of_block, blocks, size = hashlib.sha256(), hashlib.sha256(), [], 0
    room = memoryview(bytearray(BYTES_AT_ONCE))
    with file.open("rb", buffering=0) as opened:
        expected = os.fstat(opened.fileno()).st_size
        large, block = expected >= LARGE, block_size(expected)
        while count := opened.readinto(room[: block - size % block]):
            whole.update(room[:count])
            size += count
            if large:
                of_block.update(room[:count])
                if size % block == 0 or size == expected:
                    blocks.append(of_block.hexdigest())
                    of_block = hashlib.sha256()
    facts: dict[str, Any] = {"bytes": size, "sha256": whole.hexdigest()}
    return {**facts, "blocks": {"bytes": block, "sha256": "".join(blocks)}} if large else facts


class BlockSums(NamedTuple):
    """The sums of the blocks of a file, as its manifest gives them."""

    block: int
    sums: tuple[str, ...]

    @classmethod
    def of(cls, facts: dict[str, Any]) -> BlockSums | None:
        """Those of a file, None where it has none; a ValueError where they cannot be any."""
        given = facts.get("blocks")
        if given is None:
            return None
        block, digits = (given.get("bytes"), given.get("sha256")) if isinstance(given, dict) else (None, None)
        if type(block) is not int or not isinstance(digits, str) or block < LEAST_BLOCK or block & (block - 1):
            raise ValueError("the sums of blocks are none")
        if len(digits) != DIGITS * -(-facts["bytes"] // block):
            raise ValueError("there are not as many sums as blocks")
        return cls(block, tuple(digits[at : at + DIGITS] for at in range(0, len(digits), DIGITS)))


class CheckedBlocks:
    """An opened file, each of whose blocks is summed once, before it is used.

    It is summed by its opening and not by a mapping of it, whose pages end the process where the disk cannot read them.
    """

    def __init__(self, file: BufferedReader, size: int, sums: BlockSums, refusal: Callable[[str], CarpError]) -> None:
        self.size = size
        self._sums, self._refusal = sums, refusal
        self._handle = os.dup(file.fileno())  # blocks are checked after the others of the folder are closed
        weakref.finalize(self, os.close, self._handle)
        self._right: set[int] = set()

    def check(self, begin: int, end: int) -> None:
        """Refuse the file unless its bytes from begin to end are what was saved."""
        block = self._sums.block
        around = range(begin // block, -(-end // block)) if begin < end else range(0)
        missing = [number for number in around if number not in self._right]
        if len(missing) > 1:
            in_threads(self._check_block, missing)
        elif missing:
            self._check_block(missing[0])

    def _check_block(self, number: int) -> None:
        reached = number * self._sums.block
        end = min(reached + self._sums.block, self.size)
        total, room = hashlib.sha256(), memoryview(bytearray(min(BYTES_AT_ONCE, end - reached)))
        try:
            while count := os.preadv(self._handle, [room[: end - reached]], reached):  # none, at the end
                total.update(room[:count])
                reached += count
        except OSError as error:
            raise self._refusal(f"the file cannot be read ({error.strerror})") from error
        if total.hexdigest() != self._sums.sums[number]:
            raise self._refusal(DIFFERS)
        self._right.add(number)


class BytesCheckedOnUse(NamedTuple):
    """Bytes inside a file whose blocks are summed when they are first asked for."""

    content: NDArray[np.uint8]
    blocks: CheckedBlocks
    begin: int  # where they begin in the file

    def between(self, first: int, last: int) -> NDArray[np.uint8]:
        self.blocks.check(self.begin + first, self.begin + last)
        return self.content[first:last]

    def whole(self) -> NDArray[np.uint8]:
        self.blocks.check(self.begin, self.begin + len(self.content))
        return self.content
