"""Parquet files, and frames of pandas and polars."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from carp.errors import InputError, let_missing_memory_through
from carp.reviews.sources.ledger import Check, Record
from carp.reviews.sources.recognition import ROLES, resolve_columns
from carp.reviews.sources.request import OpenSource, SourceRequest
from carp.reviews.sources.row_sizes import row_bytes
from carp.reviews.sources.unpacking import BOMB_FLOOR, BOMB_RATIO, SourceFile, may_unpack_to

BATCH_ROWS = 50_000
AT_ONCE = 512  # rows that become Python objects before the first of them is looked at, as long as they are small
AT_ONCE_BYTES = 16 << 20
DAY, MOST = 86_400, 2**63 - 1
PARTS_OF_SECOND = {"ms": 10**3, "us": 10**6, "ns": 10**9}
CALENDAR = (-62_135_596_800 + DAY, 253_402_300_799 - DAY)  # Python's years 1 to 9999 in any time zone, in seconds
DURATIONS = (-999_999_999 * DAY, 999_999_999 * DAY)  # Python's longest


@contextmanager
def table_errors(name: str, file: SourceFile | None = None) -> Iterator[None]:
    """Turn what stops the reading of a table into an InputError. If it is a folder of files, the file is named."""
    try:
        yield
    except _faults() as error:
        let_missing_memory_through(error)
        found = _part_to_blame(file) if file is not None and file.dataset else None
        raise found or _unreadable(error, name) from None


def _unreadable(error: Exception, name: str) -> InputError:
    first = (str(error).strip() or type(error).__name__).splitlines()[0]
    what = f"the table cannot be read ({first[:200]})"
    fix = "check that it is a whole Parquet file, with columns of text, numbers and dates"
    return InputError(what, where=name, fix=fix)


def _faults() -> tuple[type[Exception], ...]:
    """What polars raises where a table cannot be read, or holds values that Python has none for."""
    import polars

    return (polars.exceptions.PolarsError, polars.exceptions.PanicException, OSError, ValueError, OverflowError)


def _part_to_blame(file: SourceFile) -> InputError | None:
    """Which file of a data set cannot be read, or has other columns than the first; polars does not always say."""
    import polars

    first: dict[str, Any] = {}
    for part in (one for one in sorted(file.path.rglob("*")) if one.is_file()):
        name = f"{file}/{part.relative_to(file.path).as_posix()}"
        try:
            table = polars.scan_parquet(part)
            schema = dict(table.collect_schema())
            for _ in _batches(table):
                pass
        except _faults() as error:
            return _unreadable(error, name)
        first = first or schema
        if other := _otherwise(schema, first):
            fix = "write it again with the same columns, or give the files one by one instead of the folder"
            return InputError(f"{other}, and the data set is one table", where=name, fix=fix)
    return None


def _otherwise(schema: dict[str, Any], first: dict[str, Any]) -> str:
    """What is other in the columns of a part than in those of the first one; empty if nothing is."""
    told = [f"has a column {name!r} that the first part has not" for name in schema if name not in first]
    told += [f"lacks the column {name!r}" for name in first if name not in schema]
    told += [
        f"has {schema[name]} in the column {name!r}, where the first part has {kind}"
        for name, kind in first.items()
        if name in schema and schema[name] != kind
    ]
    return f"this part {' and '.join(told[:3])}" if told else ""


def scan_parquet(file: SourceFile) -> Any:
    """The table of a Parquet file, or of a folder of them, whose folders may name columns, as in year=2014."""
    import polars

    if file.dataset:
        return polars.scan_parquet(f"{glob.escape(str(file.path))}/**/*", hive_partitioning=True)
    return polars.scan_parquet(file.path)


def read_parquet(file: SourceFile, asked: SourceRequest) -> OpenSource:
    with table_errors(str(file), file):
        return read_polars(scan_parquet(file), str(file), "parquet", asked, most_bytes(file), file)


def read_polars(
    table: Any, name: str, format: str, asked: SourceRequest, most: int | None = None, file: SourceFile | None = None
) -> OpenSource:
    """The reviews in a lazy polars table; in `file`, if it comes from one."""
    import polars

    with table_errors(name, file):
        schema = table.collect_schema()
        chosen = resolve_columns(schema.names(), asked.columns, name)
        columns = []
        for role, column in chosen.items():
            values = polars.col(column).alias(role)
            # Tables may hold dates beyond Python's calendar. Whole seconds can represent them.
            dated = role == "time" and isinstance(schema[column], polars.Datetime | polars.Date)
            columns.append(values.dt.epoch("s") if dated else values)
        table = table.select(columns)
    scale = asked.scale(None)
    check = asked.check(name, scale, splits="split" in chosen)
    records = _table_records(polars_rows(table, name, most, file), list(chosen), check)
    return OpenSource(name, format, scale, records, title_column=asked.title_column(chosen), columns=chosen)


def most_bytes(file: SourceFile, floor: int = BOMB_FLOOR) -> int:
    """What the values of a Parquet file, or of all files of a folder, may take together."""
    inside = file.path.rglob("*") if file.dataset else [file.path]
    return may_unpack_to(file, sum(one.stat().st_size for one in inside if one.is_file()), floor=floor)


def polars_rows(
    table: Any, name: str, most: int | None = None, file: SourceFile | None = None
) -> Iterator[Sequence[Any]]:
    """The rows of a lazy polars table, in order and in little memory, as long as their values take no more bytes."""
    size = 0
    with table_errors(name, file):
        for batch in _batches(_within_calendar(table)):
            sizes = row_bytes(batch)
            size += sizes.sum()
            if most is not None and size > most:
                what = f"the table unpacks to more than {BOMB_RATIO} times its size, as no text does"
                raise InputError(what, where=name, fix="if you trust it, save it as CSV and give that")
            fitting = AT_ONCE_BYTES // max(1, sizes.max() or 0)
            yield from batch.iter_rows(buffer_size=max(1, min(AT_ONCE, fitting)))


def _batches(table: Any) -> Iterable[Any]:
    if hasattr(table, "collect_batches"):
        found: Iterable[Any] = table.collect_batches(chunk_size=BATCH_ROWS, maintain_order=True)
        return found
    return [table.collect()]


def _within_calendar(table: Any) -> Any:
    """A lazy table without the dates and durations that Python has no values for. They count as missing."""
    import polars

    columns = []
    for name, kind in table.collect_schema().items():
        values = polars.col(name)
        if kind.is_nested() and _holds_times(kind):
            columns.append(values.to_physical())  # numbers; nothing is read from such a column
        elif isinstance(kind, polars.Datetime | polars.Date | polars.Duration):
            low, high = DURATIONS if isinstance(kind, polars.Duration) else CALENDAR
            second = (1, DAY) if isinstance(kind, polars.Date) else (PARTS_OF_SECOND[kind.time_unit], 1)
            first, last = (max(-MOST, min(MOST, bound * second[0] // second[1])) for bound in (low, high))
            columns.append(polars.when(values.to_physical().is_between(first, last)).then(values).alias(name))
    return table.with_columns(columns) if columns else table


def _holds_times(kind: Any) -> bool:
    """Whether values of a nested type have dates or durations somewhere inside."""
    inside = [field.dtype for field in getattr(kind, "fields", ())]
    inside += [getattr(kind, part) for part in ("inner", "key", "value") if hasattr(kind, part)]
    return any(map(_holds_times, inside)) if kind.is_nested() else bool(kind.is_temporal())


def read_pandas(frame: Any, asked: SourceRequest) -> OpenSource:
    name = "pandas frame"
    names = [str(column) for column in frame.columns]
    columns = [pandas_column(frame, place) for place in range(len(names))]
    return table_source(names, zip(*columns, strict=True), name, "frame", asked)


def table_source(
    names: Sequence[str], rows: Iterable[Sequence[Any]], name: str, format: str, asked: SourceRequest
) -> OpenSource:
    """The reviews in the rows of a table with these columns."""
    chosen = resolve_columns(names, asked.columns, name)
    scale = asked.scale(None)
    check = asked.check(name, scale, splits="split" in chosen)
    roles = {column: role for role, column in chosen.items()}
    records = _table_records(rows, [roles.get(column, "") for column in names], check)
    return OpenSource(name, format, scale, records, title_column=asked.title_column(chosen), columns=chosen)


def pandas_column(frame: Any, place: int) -> list[Any]:
    """The values of a column of a pandas frame, None where they are missing."""
    values = frame.iloc[:, place].astype(object)
    values = values.where(values.notna(), None)
    return list(values.tolist())


def _table_records(rows: Iterable[Sequence[Any]], roles: Sequence[str], check: Check) -> Iterator[Record]:
    order = [roles.index(role) if role in roles else len(roles) for role in ROLES]
    for number, row in enumerate(rows, start=1):
        values = (*row, None)
        yield check(number, *[values[place] for place in order])
