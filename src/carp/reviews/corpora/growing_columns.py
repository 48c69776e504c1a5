"""Columns that are written piece by piece, into a file or into memory."""

from __future__ import annotations

import io
import tempfile
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from carp.storage import disk_errors

HEADER = 128  # bytes that numpy writes before the data of a one-dimensional array


class GrowingColumn(Protocol):
    def append(self, values: NDArray[Any] | bytes) -> None: ...

    def finish(self) -> NDArray[Any]:
        """The whole column."""

    def abandon(self) -> None:
        """Stop without finishing."""


class ColumnInMemory:
    """A column that grows in memory."""

    def __init__(self, dtype: DTypeLike, *row: int) -> None:
        self.dtype = np.dtype(dtype)
        self._pieces: list[NDArray[Any]] = [np.zeros((0, *row), self.dtype)]

    def append(self, values: NDArray[Any] | bytes) -> None:
        piece = np.frombuffer(values, self.dtype) if isinstance(values, bytes) else values
        self._pieces.append(piece.astype(self.dtype, copy=False))

    def finish(self) -> NDArray[Any]:
        return np.concatenate(self._pieces)

    def abandon(self) -> None:
        self._pieces.clear()


class ColumnFile:
    """A column that grows in a file. The finished file is the one `np.save` would have written."""

    def __init__(self, path: Path, dtype: DTypeLike) -> None:
        self.dtype = np.dtype(dtype)
        self.length = 0
        self._path = path
        self._file = path.open("wb")
        self._file.write(bytes(HEADER))

    def append(self, values: NDArray[Any] | bytes) -> None:
        if isinstance(values, bytes):
            self._file.write(values)
        else:
            self._file.write(np.ascontiguousarray(values, self.dtype).data)
        self.length += len(values)

    def finish(self) -> NDArray[Any]:
        """Complete the file, and memory-map it."""
        header = io.BytesIO()
        facts = {"descr": self.dtype.str, "fortran_order": False, "shape": (self.length,)}
        np.lib.format.write_array_header_1_0(header, facts)
        if len(header.getvalue()) != HEADER:
            raise ValueError(f"numpy writes a header of {len(header.getvalue())} bytes, not {HEADER}")
        self._file.seek(0)
        self._file.write(header.getvalue())
        self._file.close()
        column: NDArray[Any] = np.load(self._path, mmap_mode="r", allow_pickle=False)
        return column

    def abandon(self) -> None:
        self._file.close()


class UnnamedColumn:
    """A column that grows in a file without a name, which ends with the process; each entry may be a row.

    The file lies where temporary files do: in $TMPDIR, which must be on a disk for memory to be spared.
    """

    def __init__(self, dtype: DTypeLike, *row: int) -> None:
        self.dtype, self._row = np.dtype(dtype), row
        self.length = 0
        self._file: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115  (it is open as long as the column grows)

    def append(self, values: NDArray[Any] | bytes) -> None:
        piece = np.frombuffer(values, self.dtype) if isinstance(values, bytes) else values
        with disk_errors(Path(tempfile.gettempdir())):
            self._file.write(np.ascontiguousarray(piece, self.dtype).data)
        self.length += len(piece)

    def finish(self) -> NDArray[Any]:
        """Memory-map the file."""
        shape = (self.length, *self._row)
        with disk_errors(Path(tempfile.gettempdir())):
            self._file.flush()
        if not self.length:
            return np.zeros(shape, self.dtype)
        column: NDArray[Any] = np.memmap(self._file, self.dtype, "r", 0, shape)
        self.abandon()  # the mapping keeps the file
        return column

    def abandon(self) -> None:
        self._file.close()
