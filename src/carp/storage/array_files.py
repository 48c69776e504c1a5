"""Arrays in files of the format safetensors, which may be larger than memory: written and mapped piece by piece."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping
from io import BufferedReader
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from carp.errors import DamagedError
from carp.storage.written_files import new_file

BYTES_AT_ONCE = 1 << 24
MOST_HEADER = 1 << 20  # bytes; ours have some thousand
PLACE = 8  # bytes before the header, which say how long it is
# In the order in which safetensors writes them, so that the bytes are those of its own writer.
KINDS = {
    "U64": np.uint64,
    "I64": np.int64,
    "F64": np.float64,
    "F32": np.float32,
    "U32": np.uint32,
    "I32": np.int32,
    "F16": np.float16,
    "U16": np.uint16,
    "I16": np.int16,
    "I8": np.int8,
    "U8": np.uint8,
    "BOOL": np.bool_,
}
NAMES = {np.dtype(kind): name for name, kind in KINDS.items()}
Arrays = dict[str, NDArray[Any]]


def save_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> str:
    """Write arrays as a safetensors file. The sha256 sum of what was to be written, whatever the disk made of it."""
    total = hashlib.sha256()
    with new_file(path) as file:
        for piece in _pieces_of_file(arrays):
            total.update(piece)
            file.write(piece)
    return total.hexdigest()


def _pieces_of_file(arrays: Mapping[str, NDArray[Any]]) -> Iterator[bytes | memoryview]:
    whole = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    order = {kind: number for number, kind in enumerate(NAMES)}
    named = sorted(whole.items(), key=lambda one: (order[one[1].dtype], one[0]))
    yield _heading(dict(named))
    for _, array in named:
        content = memoryview(array.reshape(-1).view(np.uint8).data)
        for first in range(0, len(content), BYTES_AT_ONCE):
            yield content[first : first + BYTES_AT_ONCE]


def _heading(arrays: Arrays) -> bytes:
    facts: dict[str, Any] = {"__metadata__": {}}
    begin = 0
    for name, array in arrays.items():
        offsets = [begin, begin + array.nbytes]
        facts[name] = {"dtype": NAMES[array.dtype], "shape": list(array.shape), "data_offsets": offsets}
        begin = offsets[1]
    written = json.dumps(facts, ensure_ascii=False, separators=(",", ":")).encode()
    written += b" " * (-len(written) % 8)
    return len(written).to_bytes(PLACE, "little") + written


def load_arrays(path: Path) -> Arrays:
    try:
        return arrays_of(path.read_bytes(), path)
    except OSError as error:
        raise DamagedError(f"cannot be read ({error})", where=str(path), fix="make it again") from error


def arrays_of(content: bytes, where: Path) -> Arrays:
    """The arrays in the content of a safetensors file. They cannot be written to."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        return dict(load(content))
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise DamagedError(f"cannot be read ({error})", where=str(where), fix="make it again") from error


class _Place(NamedTuple):
    """Where an array lies in a file."""

    kind: Any
    shape: tuple[int, ...]
    begin: int
    end: int


def mapped_arrays(file: BufferedReader, where: Path) -> Arrays:
    """The arrays in an opened safetensors file, left on the disk. They cannot be written to."""
    try:
        return {name: _mapped(file, place) for name, place in _places(file).items()}
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise DamagedError(f"cannot be read ({error})", where=str(where), fix="make it again") from error


def _mapped(file: BufferedReader, place: _Place) -> NDArray[Any]:
    if place.begin == place.end:
        return np.zeros(place.shape, place.kind)
    found: NDArray[Any] = np.memmap(file, place.kind, "r", place.begin, place.shape)
    return found


def header_end(file: BufferedReader) -> int:
    """Where the header of a safetensors file says that it ends, if it is no longer than a header can be."""
    file.seek(0)
    return PLACE + min(int.from_bytes(file.read(PLACE), "little"), MOST_HEADER)


def place_in(array: NDArray[Any]) -> int:
    """Where a mapped array begins in its file."""
    return array.offset if isinstance(array, np.memmap) else 0


def _places(file: BufferedReader) -> dict[str, _Place]:
    """Where each array lies; refused unless they fill the file, end to end."""
    size = os.fstat(file.fileno()).st_size
    file.seek(0)
    length = int.from_bytes(file.read(PLACE), "little")
    _need(PLACE + length <= size and length <= MOST_HEADER, "its header is longer than it can be")
    facts = json.loads(file.read(length))
    facts.pop("__metadata__", None)
    places = {name: _place(fact, PLACE + length) for name, fact in facts.items()}
    reached = PLACE + length
    for place in sorted(places.values(), key=lambda one: (one.begin, one.end)):
        _need(place.begin == reached, "its arrays do not lie end to end")
        reached = place.end
    _need(reached == size, "its length is not what it says")
    return places


def _place(fact: Any, start: int) -> _Place:
    begin, end = fact["data_offsets"]
    shape, kind = fact["shape"], np.dtype(KINDS[fact["dtype"]])
    numbers = [begin, end, *shape]
    _need(all(type(one) is int and 0 <= one < 1 << 60 for one in numbers), "a place in it is no number")
    _need(begin <= end and math.prod(shape) * kind.itemsize == end - begin, "an array has not the length it says")
    return _Place(kind, tuple(shape), start + begin, start + end)


def _need(holds: bool, what: str) -> None:
    if not holds:
        raise ValueError(what)


def plain_column(file: BufferedReader, *, mmap: bool) -> NDArray[Any]:
    """A column that `np.save` wrote, left on the disk if that is asked for; a ValueError where it is anything else."""
    file.seek(0)
    version = np.lib.format.read_magic(file)
    if version != (1, 0):
        raise ValueError(f"numpy's format {version} is not used here")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
    begin, size = file.tell(), os.fstat(file.fileno()).st_size
    if dtype.hasobject or dtype.fields is not None or fortran or len(shape) != 1:
        raise ValueError("it is not a plain column")
    if begin + shape[0] * dtype.itemsize != size:
        raise ValueError("its length is not what it says")
    if mmap:
        return np.memmap(file, dtype, "r", begin, shape)
    return np.frombuffer(file.read(), dtype)
