"""A raw line, row or block becomes a Review, or a Rejection with its reason.

Reading a file has three steps: recognise its format by its first records (`recognition`), divide it into records with
line numbers (`line_reading`), and check the fields of each record (`ledger`). A bad record never stops the reading of
the others. If a whole file is useless, an InputError says how to fix it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from carp.errors import InputError, UsageError
from carp.reviews.rating_scale import RatingScale
from carp.reviews.sources.beer_blocks import BEER_KEYS, BEER_NAME, BEERADVOCATE, RATEBEER, beer_records, beer_scale
from carp.reviews.sources.frames import BATCH_ROWS, read_pandas, read_parquet, read_polars
from carp.reviews.sources.gathering import gather
from carp.reviews.sources.json_lines import JsonLines
from carp.reviews.sources.ledger import Check, Ledger, Record, Rejection, Review, Reviews
from carp.reviews.sources.line_reading import MAX_BYTES, CsvRow, Line, head_lines, read_lines, read_rows, read_stretches
from carp.reviews.sources.recognition import (
    FORMATS,
    JSON_NAMES,
    REQUIRED,
    ROLES,
    USUAL_NAMES,
    PathLike,
    detect_format,
    object_keys,
    recognise,
    refuse_strange,
    resolve_columns,
    split_header,
)
from carp.reviews.sources.request import OpenSource, SourceRequest
from carp.reviews.sources.unpacking import check_file, first_bytes
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
    return _open(path, asked or SourceRequest()).records


def read_reviews(
    source: Any,
    *,
    format: str = "auto",
    columns: Mapping[str, str] | None = None,
    rating_range: tuple[float, float] | None = None,
    clip_ratings: bool = False,
    max_bytes: int = MAX_BYTES,
    titles: bool = True,
    progress: OnProgress | None = None,
) -> Reviews:
    """Read a file, several files, or a pandas or polars frame.

    Args:
        source: A path, several paths, or a frame.
        format: What the files are; `auto` recognises it by looking.
        columns: Which column is the user, item, rating, text, time, split, or the title of the item, where their
            names do not say.
        rating_range: The lowest and the highest rating that can be given, where the files do not say.
        clip_ratings: Take ratings beyond the range as its ends instead of refusing them.
        max_bytes: The most bytes that one file may unpack to.
        titles: Whether a column with names of the items, such as `name`, is taken as their titles.
        progress: Called with how much has been read, and with how much there is.

    Returns:
        The reviews on one rating scale, with a ledger of every record that was refused.

    >>> import polars
    >>> frame = polars.DataFrame({"user": ["ann"], "item": [7], "rating": [5], "text": ["It is light."]})
    >>> read_reviews(frame)
    <Reviews: 1 reviews by 1 users of 1 items, frame, ratings 1 to 5>
    """
    asked = SourceRequest(format, columns, rating_range, clip_ratings, max_bytes, titles)
    return gather(open_sources(source, asked, progress))


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
    paths = [source] if isinstance(source, str | os.PathLike) else source
    if not isinstance(paths, list | tuple) or not all(isinstance(path, str | os.PathLike) for path in paths):
        raise UsageError(
            f"reviews cannot be read from a {type(source).__name__}", fix="give a path, a list of paths, or a frame"
        )
    if not paths:
        raise UsageError("no file was given", fix="give at least one file with reviews")
    sizes = [check_file(path).stat().st_size for path in paths]
    for place, path in enumerate(paths):
        before, total = sum(sizes[:place]), sum(sizes)
        yield _open(path, asked, progress and _shifted(progress, before, total))


def _shifted(progress: OnProgress, before: int, total: int) -> OnProgress:
    return lambda done, _: progress(before + done, total)


def _open(path: PathLike, asked: SourceRequest, progress: OnProgress | None = None) -> OpenSource:
    place = check_file(path)
    if first_bytes(place).startswith(b"PAR1") or asked.format == "parquet":
        return read_parquet(place, asked)
    head = head_lines(place, max_bytes=asked.max_bytes)
    format = recognise(head, str(place)) if asked.format == "auto" else asked.format
    if not head:
        raise InputError("the file has no usable line", where=str(place), fix="give a file with reviews")
    if asked.columns and format in JSON_NAMES:
        format = "jsonl"
    if format not in ("csv", "beer"):
        refuse_strange(head[0], str(place))
        return _json(place, head, format, asked, progress)
    lines = read_lines(place, max_bytes=asked.max_bytes, progress=progress)
    if format == "csv":
        return _csv(lines, head, str(place), asked)
    scale = asked.scale(beer_scale(head))
    records = beer_records(lines, beer_scale(head).high, asked.check(str(place), scale))
    return OpenSource(str(place), format, scale, records, title_column=asked.title_column({"title": BEER_NAME}))


def _json(
    place: Path, head: Sequence[bytes], format: str, asked: SourceRequest, progress: OnProgress | None
) -> OpenSource:
    fields = JSON_NAMES.get(format)
    if fields is None:
        keys = list(dict.fromkeys(key for line in head for key in object_keys(line)))
        fields = resolve_columns(keys or REQUIRED, asked.columns, str(place))
    scale = asked.scale(KNOWN_SCALES.get(format))
    decoder = JsonLines.of(fields, asked.check(str(place), scale, splits="split" in fields))
    records = decoder.records(read_lines(place, max_bytes=asked.max_bytes, progress=progress))
    stretches = read_stretches(place, max_bytes=asked.max_bytes, progress=progress)
    return OpenSource(str(place), format, scale, records, stretches, decoder, asked.title_column(fields))


def _csv(lines: Iterator[Line], head: Sequence[bytes], name: str, asked: SourceRequest) -> OpenSource:
    rows = read_rows(lines, split_header(head[0])[0])
    header = next(rows)
    if header.fault:
        raise InputError(f"the header cannot be read ({header.fault})", where=name, fix="check the first line")
    names = [field.strip() for field in header.fields]
    chosen = resolve_columns(names, asked.columns, name)
    scale = asked.scale(None)
    check = asked.check(name, scale, splits="split" in chosen)
    order = [names.index(chosen[role]) if role in chosen else len(names) for role in ROLES]
    records = _csv_records(rows, len(names), order, check)
    return OpenSource(name, "csv", scale, records, title_column=asked.title_column(chosen))


def _csv_records(rows: Iterator[CsvRow], width: int, order: Sequence[int], check: Check) -> Iterator[Record]:
    for line, fields, fault in rows:
        if fault:
            yield Rejection(check.file, line, fault)
        elif len(fields) == width:
            fields.append("")  # the value of every column the file does not have
            yield check(line, *[fields[place] for place in order])
        elif len(fields) > 1 or not fields[0].isspace():
            yield Rejection(check.file, line, "number of fields differs from the header")
