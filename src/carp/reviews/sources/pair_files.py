"""Pairs of a user and an item to be predicted, from any file that reviews can be read from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import msgspec

from carp.errors import InputError, UsageError, nearest
from carp.reviews.sources.encodings import check_encoding
from carp.reviews.sources.frames import most_bytes, polars_rows, scan_parquet, table_errors
from carp.reviews.sources.json_values import first_values, is_spread, json_lines_of
from carp.reviews.sources.ledger import Unusable, identifier, shown_value
from carp.reviews.sources.line_reading import MAX_BYTES, CsvRow, head_lines, line_fault, read_lines, read_rows
from carp.reviews.sources.recognition import (
    USUAL_NAMES,
    guess_column,
    keys_of,
    looks_like_data,
    numbered_columns,
    split_header,
)
from carp.reviews.sources.sheets import fitted, sheet_rows
from carp.reviews.sources.source_files import Reading, locate, opened
from carp.reviews.sources.unpacking import PARQUET, ZIP, SourceFile, first_bytes

PAIR = ("user", "item")
HELP = "give a file with a header and the columns user and item"
MANY_PAIRS = 256 << 20  # bytes; a table of all things for each of many people is packed to next to nothing
_NAMES = {role: USUAL_NAMES[role] for role in PAIR}


@dataclass(frozen=True)
class PairFile:
    """Pairs of a user and an item, and the other columns of their rows."""

    pairs: list[tuple[str, str]] = field(default_factory=list)
    extra_names: list[str] = field(default_factory=list)
    extras: list[list[str]] = field(default_factory=list)


class _Table(NamedTuple):
    names: list[str]
    rows: Iterator[CsvRow]


def read_pairs(
    source: str | Path, *, columns: Mapping[str, str] | None = None, encoding: str | None = None
) -> PairFile:
    """Pairs from a path, a folder, a pattern, an address or, for `-`, from standard input.

    All rows are checked before any is used.

    Args:
        source: Where the pairs are.
        columns: Which column is the user and which the item, where their names do not say.
        encoding: The encoding of the files; without it, it is recognised by looking.
    """
    for role in columns or {}:
        if role not in PAIR:
            raise UsageError(f"there is no role {role!r} for a column of pairs", fix=nearest(role, PAIR))
    given = None if encoding is None else check_encoding(encoding) or "utf-8"
    found = PairFile()
    with TemporaryDirectory(prefix="carp-") as folder:
        how = Reading(Path(folder), MAX_BYTES, given)
        for file in (file for location in locate([source]) for file in opened(location, how)):
            _add(found, _table(file), columns, str(file))
    if not found.pairs:
        raise InputError("there are no pairs in it", where=str(source), fix="add a row for each pair, as in u1,i7")
    return found


def _add(found: PairFile, table: _Table, columns: Mapping[str, str] | None, where: str) -> None:
    names, rows = table
    if numbered_columns(names, columns):
        first = CsvRow(1, list(names))
        rows, names = chain([first], rows), [str(number) for number in range(1, len(names) + 1)]
    user, item, others = _places(names, columns, where)
    extra_names = [names[place] for place in others]
    if found.pairs and extra_names != found.extra_names:
        fix = "predict them one by one"
        raise InputError("the files have different columns", where=where, fix=fix)
    found.extra_names[:] = extra_names
    for line, values, fault in rows:
        if fault is None and len(values) != len(names):
            fault = f"{len(values)} fields where the header has {len(names)}"
        if fault:
            raise _bad_row(where, line, fault)
        found.pairs.append((_id(values[user], "user", where, line), _id(values[item], "item", where, line)))
        found.extras.append(["" if values[place] is None else str(values[place]) for place in others])


def _places(names: Sequence[str], columns: Mapping[str, str] | None, where: str) -> tuple[int, int, list[int]]:
    """The places of the user, of the item, and of all other columns."""
    chosen = {role: (columns or {}).get(role) or guess_column(role, names) for role in PAIR}
    listed = (", ".join(names) or "none")[:300]
    missing = [role for role in PAIR if chosen[role] not in names]
    if missing:
        columns_of = f"column {missing[0]} is" if len(missing) == 1 else f"columns {' and '.join(missing)} are"
        what = f"the {columns_of} missing; the columns are {listed}"
        if looks_like_data([*names, "", ""]):
            what = f"the first line looks like a pair and not like a header: {listed}"
        raise InputError(what, where=where, fix=f"{HELP}, or say which they are with --column user=NAME")
    twice = next((name for name, times in Counter(names).items() if times > 1), None)
    if twice:
        raise InputError(f"the column {twice!r} is in the header twice", where=where, fix="rename one of them")
    user, item = (names.index(str(chosen[role])) for role in PAIR)
    return user, item, [place for place in range(len(names)) if place not in (user, item)]


def _id(value: Any, role: str, where: str, line: int) -> str:
    try:
        return identifier(value.strip() if isinstance(value, str) else value, role)
    except Unusable as fault:
        value = "" if fault.value is None else f", {shown_value(fault.value)}"
        raise _bad_row(where, line, f"the {fault}{value}") from None


def _bad_row(where: str, line: int, what: str) -> InputError:
    return InputError(what, where=f"{where}, line {line}", fix="correct the row or remove it")


def _table(file: SourceFile) -> _Table:
    first = b"" if file.dataset else first_bytes(file)
    if file.dataset or first.startswith(PARQUET):
        with table_errors(str(file), file):
            table = scan_parquet(file)
            names = table.collect_schema().names()
        rows = polars_rows(table, str(file), most_bytes(file, MANY_PAIRS), file)
        return _Table(names, (CsvRow(number, list(row)) for number, row in enumerate(rows, start=1)))
    if first.startswith(ZIP):
        return _sheet(sheet_rows(file))
    head = head_lines(file)
    if head and head[0].lstrip().startswith((b"{", b"[")):
        return _objects(file, head)
    rows = read_rows(read_lines(file), split_header(head[0], _NAMES)[0] if head else ",")
    header = next(rows, CsvRow(1, []))
    if header.fault:
        raise _bad_row(str(file), header.line, f"the row cannot be read ({header.fault})")
    return _Table([name.strip() for name in header.fields], _told(rows))


def _told(rows: Iterable[CsvRow]) -> Iterator[CsvRow]:
    for row in rows:
        yield row if row.fault is None else row._replace(fault=f"the row cannot be read ({row.fault})")


def _sheet(rows: Iterator[CsvRow]) -> _Table:
    header = next(rows, CsvRow(1, []))
    names = ["" if name is None else str(name).strip() for name in header.fields]
    return _Table(names, (row._replace(fields=fitted(row.fields, len(names))) for row in rows))


def _objects(file: SourceFile, head: list[bytes]) -> _Table:
    if is_spread(head):
        head = [b"[", *first_values(file)]
    names = keys_of(head)
    return _Table(names, _object_rows(json_lines_of(file, head), names))


def _object_rows(lines: Iterable[tuple[int, bytes | None]], names: Sequence[str]) -> Iterator[CsvRow]:
    for number, line in lines:
        if line is not None and (not line or line.isspace()):
            continue
        fault = "the line is too long" if line is None else line_fault(line)
        try:
            record = msgspec.json.decode(line or b"")
        except (ValueError, RecursionError):
            record = None
        if fault or not isinstance(record, dict):
            yield CsvRow(number, [], fault or f"this is no JSON object, {shown_value(line)}")
        else:
            values: list[Any] = [record.get(name) for name in names]
            yield CsvRow(number, values)
