"""The folder of results: one JSON line a cell, each cell once, whatever moment a process dies in.

One process at a time owns a folder's lines, by a lock that goes with the process. It alone appends: first the errors of
a cell, pair by pair, then its line, which has reached the disk before the cell counts as done.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import carp
from carp.bench.cells import CellResult, Line
from carp.bench.durable_lines import append_line, whole_lines
from carp.bench.pair_errors import ErrorColumns
from carp.errors import DamagedError, UsageError
from carp.storage import disk_errors, read_json, sweep, write_bytes, write_json

FORMAT = 2
READABLE = (1, 2)  # 1 had a file of its own for each column of errors
ABOUT = "results.json"
BENCH, STUDY = "bench.jsonl", "study.jsonl"
KIND = "results"
Kinds = dict[str, type | tuple[type, ...]]
CELL: Kinds = {"id": str, "corpus": str, "fingerprint": str, "model": str, "name": str, "split_seed": int, "seed": int}
FIGURES: Kinds = {"test_pairs": int, "pairs": str} | dict.fromkeys(("valid_mse", "test_mse", "seconds"), (int, float))


@dataclass
class Results:
    """The cells that are done, by identity."""

    folder: Path
    file: str
    lines: dict[str, Line] = field(default_factory=dict)
    version: str = carp.__version__  # of the carp that made them

    @cached_property
    def errors(self) -> ErrorColumns:
        return ErrorColumns(self.folder)

    def append(self, found: CellResult) -> None:
        """Add a cell; it is on the disk when this returns."""
        line = found.line
        if line["id"] in self.lines:
            raise AssertionError(f"cell {line['id']} is there already")
        if found.errors is not None:
            self.errors.add(line["id"], found.errors)
        append_line(self.folder / self.file, line)
        self.lines[line["id"]] = line

    def forget_failures(self, cells: Collection[str]) -> None:
        """Take those of the cells out that failed, so that they run again; other failures stay on record."""
        kept = {name: line for name, line in self.lines.items() if "error" not in line or name not in cells}
        if len(kept) < len(self.lines):
            text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in kept.values())
            write_bytes(self.folder / self.file, text.encode())
            self.lines = kept


@contextlib.contextmanager
def owned_results(folder: Path, file: str) -> Iterator[Results]:
    """The results of a folder, for this process alone to add to; made where there are none."""
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder / f".{file}.lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            fix = "wait for it, or choose another --out"
            raise UsageError("another process is adding to these results", where=str(folder), fix=fix) from None
        _check_version(folder, own=True)
        sweep(folder, "*")
        yield Results(folder, file, _read(folder / file))
    finally:
        os.close(handle)


def read_results(folder: Path, file: str) -> Results:
    """The results of a folder, to look at."""
    if not folder.is_dir():
        fix = "run carp bench CORPUS --out FOLDER first"
        raise UsageError("there is no folder of results here", where=str(folder), fix=fix)
    version = _check_version(folder, own=False)
    return Results(folder, file, _read(folder / file), version)


def _check_version(folder: Path, *, own: bool) -> str:
    """Results of another format cannot be read, and those of another version are not mixed with this one's."""
    about = folder / ABOUT
    elsewhere = "choose another --out" if own else "give another folder of results"
    if not about.exists():
        strange = [name for name in (BENCH, STUDY) if (folder / name).exists()]
        if strange:
            what = f"{strange[0]} was made by another version of carp: {ABOUT} is missing"
            raise UsageError(what, where=str(folder), fix=elsewhere)
        if own:
            write_json(about, {"kind": KIND, "format": FORMAT, "version": carp.__version__})
        return carp.__version__
    found = read_json(about)
    if not isinstance(found, dict) or found.get("kind") != KIND:
        raise DamagedError("this is no description of results", where=str(about), fix=elsewhere)
    if found.get("format") not in READABLE:
        what = f"the results are of another version of carp (format {found.get('format')}, this one reads {FORMAT})"
        raise UsageError(what, where=str(folder), fix=f"use that version, or {elsewhere}")
    if own and found.get("version") != carp.__version__:
        what = f"the results were made by carp {found.get('version')} and this is {carp.__version__}"
        raise UsageError(what, where=str(folder), fix=f"{elsewhere}: two versions do not mix in one table")
    return str(found.get("version"))


def _read(path: Path) -> dict[str, Line]:
    lines: dict[str, Line] = {}
    for number, text in enumerate(whole_lines(path), 1):
        try:
            line: Any = json.loads(text)
            _check_line(line)
            lines[line["id"]] = line
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            where = f"{path}, line {number}"
            what = "the line is damaged" + (f" ({error})" if isinstance(error, _Unfit) else "")
            raise DamagedError(what, where=where, fix="remove the line; its cell runs again") from error
    return lines


class _Unfit(ValueError):
    """JSON, but no cell."""


def _check_line(line: Any) -> None:
    """Refuse what a report could not be made of: a cell has its figures, or the error that it failed with."""
    if not isinstance(line, dict):
        raise _Unfit("it is no object")
    needed = {**CELL, **({"error": str} if "error" in line else FIGURES)}
    for name, kind in needed.items():
        if name not in line:
            raise _Unfit(f"{name} is missing")
        if not isinstance(line[name], kind) or isinstance(line[name], bool):
            raise _Unfit(f"{name} cannot be {line[name]!r}")
    for name in ("given", "search"):
        if not isinstance(line.get(name, {}), dict):
            raise _Unfit(f"{name} cannot be {line[name]!r}")
