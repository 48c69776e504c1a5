"""The test errors of cells, pair by pair, for paired tests: one file of a results folder, one JSON line a column.

A line holds a column's name, its type, the sha256 of its numbers, and the numbers in base64. The squared errors of a
cell are `IDENTITY.squared`; the records of the pairs they belong to are `PAIRS.records`, once for all cells with the
same test pairs. A cell that was killed before it counted as done adds its errors again: the last line of a name counts.

carp 0.1.0 kept each column in a file of its own, `errors/NAME.npy`. Those are still read.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import itertools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carp.bench.durable_lines import append_line, whole_lines
from carp.errors import DamagedError

ERRORS = "errors.jsonl"
STUDY_ERRORS = "study-errors.jsonl"  # of studies that were put into kept results
SEPARATE_FILES = "errors"  # of carp 0.1.0
Line = dict[str, Any]


@dataclass(frozen=True)
class PairErrors:
    """The squared errors of one cell, and the records of its test pairs."""

    pairs: str  # the same for cells with the same test pairs
    records: NDArray[np.int32]
    squared: NDArray[np.float32]


class ErrorColumns:
    """The columns of a results folder. The file is read once, and a column when it is asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lines: dict[str, Line] = {}
        for text in itertools.chain(whole_lines(folder / ERRORS), whole_lines(folder / STUDY_ERRORS)):
            with contextlib.suppress(ValueError, TypeError, KeyError, RecursionError):  # missed where it is asked for
                line = json.loads(text)
                self._lines[str(line["name"])] = line

    def add(self, identity: str, errors: PairErrors) -> None:
        """Keep the errors of a cell; they are on the disk when this returns."""
        records = f"{errors.pairs}.records"
        if records not in self._lines:
            self._add(records, errors.records)
        self._add(f"{identity}.squared", errors.squared)

    def _add(self, name: str, column: NDArray[Any]) -> None:
        line = column_line(name, column)
        append_line(self.folder / ERRORS, line)
        self._lines[name] = line

    def of(self, line: Line) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """The records of a cell's test pairs and their squared errors; those that do not fit its line are refused."""
        try:
            records = self._column(f"{line['pairs']}.records")
            squared = self._column(f"{line['id']}.squared").astype(np.float64)
        except (OSError, ValueError, TypeError, KeyError) as error:
            where = str(self.folder / ERRORS)
            raise DamagedError(f"the errors of cell {line['id']} cannot be read ({error})", where=where) from error
        fits = len(records) == len(squared) == line["test_pairs"]
        if not fits or abs(squared.mean() - line["test_mse"]) > 1e-5 * max(1.0, line["test_mse"]):
            what = f"the errors of cell {line['id']} are not those of its line"
            raise DamagedError(what, where=str(self.folder / ERRORS), fix="remove the line; its cell runs again")
        return records, squared

    def _column(self, name: str) -> NDArray[Any]:
        if name in self._lines:
            return column_of(self._lines[name])
        return np.asarray(np.load(self.folder / SEPARATE_FILES / f"{name}.npy", allow_pickle=False))


def column_line(name: str, column: NDArray[Any]) -> Line:
    data = np.ascontiguousarray(column).tobytes()
    return {
        "name": name,
        "type": column.dtype.str,
        "sha256": hashlib.sha256(data).hexdigest(),
        "data": base64.b64encode(data).decode(),
    }


def column_of(line: Line) -> NDArray[Any]:
    """
    >>> column_of(column_line("a.squared", np.array([0.25, 1.0], np.float32))).tolist()
    [0.25, 1.0]
    """
    try:
        data = base64.b64decode(line["data"], validate=True)
    except binascii.Error as error:
        raise ValueError(f"{line['name']} is damaged") from error
    if hashlib.sha256(data).hexdigest() != line["sha256"]:
        raise ValueError(f"{line['name']} is damaged")
    return np.frombuffer(data, dtype=np.dtype(line["type"]))
