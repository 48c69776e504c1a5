"""A raw line, row or block becomes a Review, or a Rejection with its reason.

Reading a file has three steps: recognise its format by its first records (`recognition`), divide it into records with
line numbers (`line_reading`), and check the fields of each record (`ledger`). A bad record never stops the reading of
the others. If a whole file is useless, an InputError says how to fix it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from carp.errors import InputError, UsageError
from carp.reviews.rating_scale import RatingScale
from carp.reviews.sources.beer_blocks import BEER_KEYS, BEER_NAME, BEERADVOCATE, RATEBEER, beer_records, beer_scale
from carp.reviews.sources.databases import SqlQuery, read_sql
from carp.reviews.sources.frames import BATCH_ROWS, read_pandas, read_parquet, read_polars
from carp.reviews.sources.gathering import gather
from carp.reviews.sources.json_lines import JsonLines
from carp.reviews.sources.json_values import first_values, is_spread, json_lines_of
from carp.reviews.sources.ledger import Check, Ledger, Record, Rejection, Review, Reviews
from carp.reviews.sources.line_reading import MAX_BYTES, CsvRow, head_lines, read_lines, read_rows, read_stretches
from carp.reviews.sources.recognition import (
    FORMATS,
    JSON_NAMES,
    REQUIRED,
    ROLES,
    USUAL_NAMES,
    PathLike,
    detect_format,
    keys_of,
    numbered_columns,
    recognise,
    refuse_strange,
    resolve_columns,
    split_header,
)
from carp.reviews.sources.request import OpenSource, SourceRequest
from carp.reviews.sources.sheets import fitted, sheet_rows
from carp.reviews.sources.source_files import locate, opened
from carp.reviews.sources.unpacking import PARQUET, ZIP, SourceFile, first_bytes
from carp.reviews.split_parts import OnProgress

__all__ = [
    "BATCH_ROWS",
    "BEERADVOCATE",
    "BEER_KEYS",
    "FORMATS",
    "JSON_NAMES",
    "KNOWN_SCALES",
    "RATEBEER",
    "REQUIRED",
    "ROLES",
    "USUAL_NAMES",
    "Ledger",
    "PathLike",
    "RatingScale",
    "Record",
    "Rejection",
    "Review",
    "Reviews",
    "detect_format",
    "iterate_reviews",
    "read_reviews",
    "resolve_columns",
]
KNOWN_SCALES = {
    "amazon": RatingScale(1, 5, clip=False, origin="Amazon's 1 to 5 stars"),
    "amazon2023": RatingScale(1, 5, clip=False, origin="Amazon's 1 to 5 stars"),
    "yelp": RatingScale(1, 5, clip=False, origin="Yelp's 1 to 5 stars"),
}


def iterate_reviews(path: PathLike, asked: SourceRequest | None = None) -> Iterator[Record]:
    """The records of one file one by one, each a Review or a Rejection, in little memory."""
    request = asked or SourceRequest()
    return (record for source in open_sources(path, request, None) for record in source.records)


def read_reviews(
    source: Any,
    *,
    format: str = "auto",
    columns: Mapping[str, str] | None = None,
    rating_range: tuple[float, float] | None = None,
    clip_ratings: bool = False,
    max_bytes: int = MAX_BYTES,
    titles: bool = True,
    encoding: str | None = None,
    markup: bool = False,
    database: str | None = None,
    progress: OnProgress | None = None,
) -> Reviews:
    """Read files, folders, zip archives, workbooks, addresses of object stores, or a pandas or polars frame.

    Args:
        source: A path, a folder, a pattern such as `reviews/*.csv`, an address such as `s3://bucket/reviews.jsonl`, `-`
            for standard input, several of these, or a frame.
        format: What the files are; `auto` recognises it by looking.
        columns: Which column is the user, item, rating, text, time, split, or the title of the item, where their
            names do not say.
        rating_range: The lowest and the highest rating that can be given, where the files do not say.
        clip_ratings: Take ratings beyond the range as its ends instead of refusing them.
        max_bytes: The most bytes that one file may unpack to.
        titles: Whether a column with names of the items, such as `name`, is taken as their titles.
        encoding: The encoding of the files; without it, it is recognised by looking.
        markup: Leave tags of HTML in texts as they are.
        database: A file of SQLite or DuckDB, or an address such as `postgresql://user@host/name`; the source is then a
            query.
        progress: Called with how much has been read, and with how much there is.

    Returns:
        The reviews on one rating scale, with a ledger of every record that was refused.

    >>> import polars
    >>> frame = polars.DataFrame({"user": ["ann"], "item": [7], "rating": [5], "text": ["It is light."]})
    >>> read_reviews(frame)
    <Reviews: 1 reviews by 1 users of 1 items, frame, ratings 1 to 5>
    """
    asked = SourceRequest(format, columns, rating_range, clip_ratings, max_bytes, titles, encoding, markup)
    return gather(open_sources(source if database is None else SqlQuery(str(source), database), asked, progress))


def open_sources(source: Any, asked: SourceRequest, progress: OnProgress | None) -> Iterator[OpenSource]:
    """Each source in turn, with its format recognised, ready to be read."""
    library = type(source).__module__.partition(".")[0]
    if library in ("pandas", "polars") and hasattr(source, "columns" if library == "pandas" else "lazy"):
        yield (
            read_pandas(source, asked)
            if library == "pandas"
            else read_polars(source.lazy(), "polars frame", "frame", asked)
        )
        return
    if isinstance(source, SqlQuery):
        yield read_sql(source, asked)
        return
    paths = [source] if isinstance(source, str | os.PathLike) else source
    if not isinstance(paths, list | tuple) or not all(isinstance(path, str | os.PathLike) for path in paths):
        raise UsageError(
            f"reviews cannot be read from a {type(source).__name__}", fix="give a path, a list of paths, or a frame"
        )
    if not paths:
        raise UsageError("no file was given", fix="give at least one file with reviews")
    found = locate(paths)
    total, before = sum(location.size for location in found), 0
    with TemporaryDirectory(prefix="carp-") as folder:
        for location in found:
            for file in opened(location, asked.reading(Path(folder))):
                yield _open(file, asked, progress and _shifted(progress, before, total))
            before += location.size


def _shifted(progress: OnProgress, before: int, total: int) -> OnProgress:
    return lambda done, _: progress(min(before + done, total), total)


def _open(file: SourceFile, asked: SourceRequest, progress: OnProgress | None = None) -> OpenSource:
    first = b"" if file.dataset else first_bytes(file)
    if file.dataset or first.startswith(PARQUET) or asked.format == "parquet":
        return read_parquet(file, asked)
    if first.startswith(ZIP):
        return _rows(sheet_rows(file), str(file), asked, "xlsx")
    head = head_lines(file, max_bytes=asked.max_bytes)
    format = recognise(head, str(file)) if asked.format == "auto" else asked.format
    if not head:
        raise InputError("the file has no usable line", where=str(file), fix="give a file with reviews")
    if asked.columns and format in JSON_NAMES:
        format = "jsonl"
    if format not in ("csv", "beer"):
        refuse_strange(head[0], str(file))
        return _json(file, head, format, asked, progress)
    lines = read_lines(file, max_bytes=asked.max_bytes, progress=progress)
    if format == "csv":
        source = _rows(read_rows(lines, split_header(head[0])[0]), str(file), asked, "csv")
        return source._replace(encoding=file.encoding)
    scale = asked.scale(beer_scale(head))
    records = beer_records(lines, beer_scale(head).high, asked.check(str(file), scale))
    roles = {role: key.decode() for key, role in BEER_KEYS.items()}
    named = asked.title_column({"title": BEER_NAME})
    return OpenSource(str(file), format, scale, records, title_column=named, columns=roles, encoding=file.encoding)


def _json(
    file: SourceFile, head: list[bytes], format: str, asked: SourceRequest, progress: OnProgress | None
) -> OpenSource:
    spread = is_spread(head)
    if spread:
        head = first_values(file, max_bytes=asked.max_bytes)
        format = recognise(head, str(file)) if asked.format == "auto" and not asked.columns and head else format
    fields = JSON_NAMES.get(format)
    if fields is None:
        fields = resolve_columns(keys_of(head) or REQUIRED, asked.columns, str(file))
    scale = asked.scale(KNOWN_SCALES.get(format))
    decoder = JsonLines.of(fields, asked.check(str(file), scale, splits="split" in fields))
    lines = json_lines_of(file, [b"["] if spread else [], max_bytes=asked.max_bytes, progress=progress)
    stretches = None if spread else read_stretches(file, max_bytes=asked.max_bytes, progress=progress)
    shown = {role: name for role, name in fields.items() if role != "variant"}
    named = asked.title_column(fields)
    return OpenSource(str(file), format, scale, decoder.records(lines), stretches, decoder, named, shown, file.encoding)


def _rows(rows: Iterator[CsvRow], name: str, asked: SourceRequest, format: str) -> OpenSource:
    """The reviews in the rows of a table, whose first row is the header."""
    header = next(rows, None)
    if header is None:
        raise InputError("there are no rows", where=name, fix="give a file with reviews")
    if header.fault:
        raise InputError(f"the header cannot be read ({header.fault})", where=name, fix="check the first line")
    names = ["" if field is None else str(field).strip() for field in header.fields]
    if numbered_columns(names, asked.columns):
        rows, names = chain([header], rows), [str(number) for number in range(1, len(names) + 1)]
    chosen = resolve_columns(names, asked.columns, name)
    scale = asked.scale(None)
    check = asked.check(name, scale, splits="split" in chosen)
    order = [names.index(chosen[role]) if role in chosen else len(names) for role in ROLES]
    records = _row_records(rows, len(names), order, check, sheet=format == "xlsx")
    return OpenSource(name, format, scale, records, title_column=asked.title_column(chosen), columns=chosen)


def _row_records(
    rows: Iterator[CsvRow], width: int, order: Sequence[int], check: Check, *, sheet: bool
) -> Iterator[Record]:
    for line, found, fault in rows:
        if fault:
            yield Rejection.of(check.file, line, fault, ",".join(map(str, found)) or None)
            continue
        fields: list[Any] = fitted(found, width) if sheet else found
        if len(fields) == width:
            fields.append("")  # the value of every column the file does not have
            yield check(line, *[fields[place] for place in order])
        elif len(fields) > 1 or not fields[0].isspace():
            yield Rejection.of(check.file, line, "number of fields differs from the header", ",".join(map(str, fields)))
