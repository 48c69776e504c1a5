"""A saved model of tuned biases many times as large: copies of it side by side, each with people and things of its own.

Training on ten million reviews takes a core ten minutes and more. What opening does depends on the sizes and kinds of
the columns, which are here what they are there.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carp.reviews.corpora.string_column import StringColumn
from carp.storage import array_files, new_folder
from carp.storage.array_files import NAMES, PLACE, mapped_arrays

Column = NDArray[Any]
ONCE = ("mean", "shrinkage")  # are not of a person, a thing or a review


def write_copies(model: Path, copies: int, out: Path) -> None:
    """Write so many copies of a saved model as one model."""
    records = _arrays(model / "records.safetensors")
    sizes = {"user": len(records["users_offsets"]) - 1, "item": len(records["items_offsets"]) - 1}
    with new_folder(out, "model") as partial:
        for file in sorted(one for one in model.iterdir() if one.name != "manifest.json"):
            if file.suffix != ".safetensors":
                shutil.copy(file, partial)
                continue
            arrays = _arrays(file)
            if "users_offsets" in arrays:
                arrays |= _ids(arrays, copies)
            shift = _Shift(sizes, len(records["user"]), arrays, copies)
            _write(partial / file.name, {name: shift.pieces(name) for name in arrays}, arrays)


def _arrays(path: Path) -> dict[str, Column]:
    with path.open("rb") as file:
        return mapped_arrays(file, path)


def _ids(arrays: dict[str, Column], copies: int) -> dict[str, Column]:
    """The ids of all copies, each with the number of its copy before it."""
    found: dict[str, Column] = {}
    for name in ("users", "items"):
        ids = list(StringColumn(arrays[f"{name}_bytes"], arrays[f"{name}_offsets"]))
        column = StringColumn.from_strings(f"{copy}-{one}" for copy in range(copies) for one in ids)
        found |= {f"{name}_bytes": column.data, f"{name}_offsets": column.offsets}
    return found


class _Shift:
    """What an array is in each copy: numbers of people, things, reviews and places go on from those of the last."""

    def __init__(self, sizes: dict[str, int], records: int, arrays: dict[str, Column], copies: int) -> None:
        self.sizes, self.records, self.arrays, self.copies = sizes, records, arrays, copies

    def pieces(self, name: str) -> Callable[[], Iterator[Column]]:
        array, last = self.arrays[name], name.rpartition(".")[2]
        if last in ONCE or name.startswith(("users_", "items_")):
            return lambda: iter([array])
        if last in ("offsets", "texts_offsets"):
            return lambda: (array[copy > 0 :] + copy * array[-1] for copy in range(self.copies))
        if last == "pairs":
            return lambda: (self._pairs(array, copy) for copy in range(self.copies))
        step = self.records if last == "review" else self.sizes.get(last, 0) if array.dtype == np.int32 else 0
        return lambda: (array + array.dtype.type(copy * step) if step else array for copy in range(self.copies))

    def _pairs(self, pairs: Column, copy: int) -> Column:
        users, items = self.sizes["user"], self.sizes["item"]
        user, item = np.divmod(pairs, items)
        return (user + copy * users) * items * self.copies + item + copy * items


def _write(path: Path, pieces: dict[str, Callable[[], Iterator[Column]]], arrays: dict[str, Column]) -> None:
    """A safetensors file whose arrays come in pieces."""
    order = {kind: number for number, kind in enumerate(NAMES)}
    facts: dict[str, Any] = {}
    reached = 0
    for name in sorted(arrays, key=lambda one: (order[arrays[one].dtype], one)):
        shapes = [piece.shape for piece in pieces[name]()]
        shape = [sum(one[0] for one in shapes), *shapes[0][1:]] if shapes[0] else []
        end = reached + int(np.prod(shape, dtype=np.int64)) * arrays[name].dtype.itemsize
        facts[name] = {"dtype": NAMES[arrays[name].dtype], "shape": shape, "data_offsets": [reached, end]}
        reached = end
    header = json.dumps(facts).encode()
    header += b" " * (-len(header) % 8)
    with path.open("wb") as file:
        file.write(len(header).to_bytes(PLACE, "little") + header)
        for name in facts:
            for piece in pieces[name]():
                for first in range(0, max(1, len(piece) if piece.ndim else 1), array_files.BYTES_AT_ONCE):
                    some = piece[first : first + array_files.BYTES_AT_ONCE] if piece.ndim else piece
                    file.write(np.ascontiguousarray(some).tobytes())
