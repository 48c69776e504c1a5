"""A raw line, row or block becomes a Review, or a Rejection with its reason.

Reading goes through three steps: recognise what a file is from its first records, split it into records with
their line numbers (`files`), and check each record's fields here. Nothing a file contains stops the reading of
its other records; what makes the whole file useless is an InputError that says how to mend it.
"""

from __future__ import annotations

import csv
import os
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from carp.errors import InputError, UsageError, nearest
from carp.reviews.files import (
    LINE_TOO_LONG,
    MAX_BYTES,
    Line,
    Progress,
    Row,
    check_file,
    first_bytes,
    head_lines,
    line_fault,
    read_blocks,
    read_lines,
    read_rows,
)
from carp.reviews.ledger import Check, Ledger, RatingScale, Rejection, Review, Reviews, Unusable, number_of

FORMATS = ("amazon", "amazon2023", "yelp", "beer", "jsonl", "csv", "parquet")
BATCH_ROWS = 50_000

REQUIRED = ("user", "item", "rating", "text")
ROLES = (*REQUIRED, "time", "split")
USUAL_NAMES = {
    "user": "user userid reviewerid customer customerid reviewer author authorid username profilename",
    "item": "item itemid parentasin asin product productid business businessid sku beerid movieid hotelid",
    "rating": "rating stars overall score starrating",
    "text": "text review reviewtext comment reviewbody body content",
    "time": "time timestamp unixreviewtime date datetime reviewtime reviewdate",
    "split": "split",
}
# Amazon's 2023 files name the product twice: parent_asin is the one its variants share.
JSON_NAMES: dict[str, dict[str, str]] = {
    "amazon": {
        "user": "reviewerID",
        "item": "asin",
        "rating": "overall",
        "text": "reviewText",
        "time": "unixReviewTime",
    },
    "amazon2023": {
        "user": "user_id",
        "item": "parent_asin",
        "variant": "asin",
        "rating": "rating",
        "text": "text",
        "time": "timestamp",
    },
    "yelp": {"user": "user_id", "item": "business_id", "rating": "stars", "text": "text", "time": "date"},
}
KNOWN_SCALES = {
    "amazon": RatingScale(1, 5, clip=False, origin="Amazon's 1 to 5 stars"),
    "amazon2023": RatingScale(1, 5, clip=False, origin="Amazon's 1 to 5 stars"),
    "yelp": RatingScale(1, 5, clip=False, origin="Yelp's 1 to 5 stars"),
}
RATEBEER = RatingScale(4, 20, clip=True, origin="RateBeer's overall score, lower ones counted as 4")
BEERADVOCATE = RatingScale(1, 5, clip=False, origin="BeerAdvocate's overall score")
BEER_KEYS = {
    b"review/profilename": "user",
    b"beer/beerid": "item",
    b"review/overall": "rating",
    b"review/text": "text",
    b"review/time": "time",
}

_BEER_LINE = re.compile(rb"\s*((?:beer|review|user)/\w+)\s*:(.*)", re.DOTALL)
_JSON_ARRAY = re.compile(rb"\s*\[\s*(\{|$)")

Record = Review | Rejection
PathLike = str | os.PathLike[str]


class _Reading(NamedTuple):
    """A source that is ready to be read."""

    name: str
    format: str
    scale: RatingScale | None  # None: to be told from the ratings themselves
    records: Iterator[Record]


# Columns ------------------------------------------------------------------------------------------------------------


def _plain_name(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


def _guess_column(role: str, names: Sequence[str]) -> str | None:
    plain = {_plain_name(name): name for name in reversed(names)}
    return next((plain[usual] for usual in USUAL_NAMES[role].split() if usual in plain), None)


def resolve_columns(names: Sequence[str], columns: Mapping[str, str] | None, where: str) -> dict[str, str]:
    """Which column plays which role: as asked for, else by the usual names.

    >>> resolve_columns(["customer", "sku", "stars", "comment"], {"item": "sku"}, "reviews.csv")
    {'user': 'customer', 'item': 'sku', 'rating': 'stars', 'text': 'comment'}
    """
    listed = ", ".join(name[:40] for name in names[:30]) or "none"
    chosen: dict[str, str] = {}
    free = [name for name in names if name not in (columns or {}).values()]
    for role in ROLES:
        asked = (columns or {}).get(role)
        if asked is not None and asked not in names:
            raise InputError(
                f"there is no column {asked!r} for the {role}; the columns are {listed}",
                where=where,
                mend=f"name one of them with --column {role}=NAME",
            )
        name = asked or _guess_column(role, free)
        if name is not None:
            chosen[role] = name
    missing = [role for role in REQUIRED if role not in chosen]
    if missing:
        raise InputError(
            f"no column is recognised as {' or '.join(missing)}; the columns are {listed}",
            where=where,
            mend=f"say which one it is with {' '.join(f'--column {role}=NAME' for role in missing)}",
        )
    twice = [name for name in chosen.values() if names.count(name) > 1]
    if twice:
        raise InputError(f"the column {twice[0]!r} appears twice", where=where, mend="rename one of them")
    return chosen


def _check_columns(columns: Mapping[str, str] | None, format: str) -> None:
    if not columns:
        return
    for role in columns:
        if role not in ROLES:
            raise UsageError(f"there is no role {role!r} for a column", mend=nearest(role, ROLES))
    if len(set(columns.values())) < len(columns):
        raise UsageError("one column cannot play two roles", mend="name a different column for each role")
    if format in (*JSON_NAMES, "beer"):
        raise UsageError(
            f"the format {format} has its own names for columns", mend=f"leave out --format {format} or --column"
        )


# Recognising --------------------------------------------------------------------------------------------------------


def detect_format(path: PathLike) -> str:
    """The format of a file, told by its first records and never by its name."""
    place = check_file(path)
    if first_bytes(place).startswith(b"PAR1"):
        return "parquet"
    return _recognise(head_lines(place), str(place))


def _recognise(head: Sequence[bytes], where: str) -> str:
    if not head:
        raise InputError("the file has no content", where=where, mend="give a file with reviews")
    _refuse_strange(head[0], where)
    fields = _split_header(head[0])[1]
    recognised = sum(_guess_column(role, fields) is not None for role in REQUIRED)
    if recognised >= 3:
        return "csv"
    for line in head:
        if keys := _object_keys(line):
            return _recognise_object(keys)
    if any(_BEER_LINE.match(line) for line in head):
        return "beer"
    if head[0].lstrip().startswith(b"{"):
        return "amazon" if b"'reviewerID'" in head[0] else "jsonl"
    if b"\0" not in head[0] and (len(fields) >= 4 or (recognised and len(fields) > 1)):
        return "csv"
    raise InputError(
        f"the format is not recognised; the file begins with {_shortened(head[0])}",
        where=where,
        mend=f"say it with --format; the formats are {', '.join(FORMATS)}",
    )


def _shortened(line: bytes) -> str:
    text = line[:200].decode("utf-8", "backslashreplace")
    return repr(text[:60] + ("…" if len(text) > 60 else ""))


def _refuse_strange(first: bytes, where: str) -> None:
    if _JSON_ARRAY.match(first):
        raise InputError(
            "this is one JSON array; reviews are read from JSON lines, one object a line",
            where=where,
            mend="convert it, for instance with: jq -c '.[]' FILE > reviews.jsonl",
        )
    if first.strip() == b"{":
        raise InputError(
            "this is JSON spread over several lines; reviews are read from JSON lines, one object a line",
            where=where,
            mend="convert it, for instance with: jq -c . FILE > reviews.jsonl",
        )
    if first.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InputError(
            "the file is written in UTF-16", where=where, mend="convert it with: iconv -f UTF-16 -t UTF-8 FILE > NEW"
        )
    if first[257:262] == b"ustar":
        raise InputError("this is a tar archive", where=where, mend="unpack it with tar -x and give the file inside")


def _object_keys(line: bytes) -> list[str]:
    try:
        value = msgspec.json.decode(line)
    except (ValueError, RecursionError):
        return []
    return list(value) if isinstance(value, dict) else []


def _recognise_object(keys: Iterable[str]) -> str:
    names = set(keys)
    if {"reviewerID", "asin"} <= names:
        return "amazon"
    if {"user_id", "business_id", "stars"} <= names:
        return "yelp"
    if {"user_id", "rating"} <= names and names & {"parent_asin", "asin"}:
        return "amazon2023"
    return "jsonl"


def _split_header(line: bytes) -> tuple[str, list[str]]:
    """The delimiter under which the header says most, and the names it gives."""
    text = line.decode("utf-8", "replace")[:20_000]
    best: tuple[tuple[int, int], str, list[str]] = ((-1, -1), ",", [])
    for delimiter in (",", "\t", ";", "|"):
        try:
            fields = [field.strip() for field in next(csv.reader([text], delimiter=delimiter), [])]
        except csv.Error:
            continue
        merit = sum(_guess_column(role, fields) is not None for role in ROLES), len(fields)
        if merit > best[0]:
            best = (merit, delimiter, fields)
    return best[1], best[2]


# Reading ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Asked:
    """What the caller asked for."""

    format: str = "auto"
    columns: Mapping[str, str] | None = None
    rating_range: tuple[float, float] | None = None
    clip_ratings: bool = False
    max_bytes: int = MAX_BYTES

    def __post_init__(self) -> None:
        if self.format not in ("auto", *FORMATS):
            raise UsageError(f"there is no format {self.format!r}", mend=nearest(self.format, ("auto", *FORMATS)))
        _check_columns(self.columns, self.format)
        self.scale(None)

    def scale(self, known: RatingScale | None) -> RatingScale | None:
        if self.rating_range is not None:
            low, high = self.rating_range
            return RatingScale(low, high, self.clip_ratings, "given by --rating-range")
        if known is not None and self.clip_ratings:
            return replace(known, clip=True)
        return known

    def check(self, file: str, scale: RatingScale | None, *, splits: bool = False) -> Check:
        return Check(file, scale, any_rating=self.clip_ratings, splits=splits)


def _open(path: PathLike, asked: _Asked, progress: Progress | None = None) -> _Reading:
    place = check_file(path)
    if first_bytes(place).startswith(b"PAR1") or asked.format == "parquet":
        return _parquet(place, asked)
    head = head_lines(place, max_bytes=asked.max_bytes)
    format = _recognise(head, str(place)) if asked.format == "auto" else asked.format
    if not head:
        raise InputError("the file has no usable line", where=str(place), mend="give a file with reviews")
    if asked.columns and format in JSON_NAMES:
        format = "jsonl"
    lines = read_lines(place, max_bytes=asked.max_bytes, progress=progress)
    if format == "csv":
        return _csv(lines, head, str(place), asked)
    if format == "beer":
        scale = asked.scale(_beer_scale(head))
        records = _beer_records(lines, _beer_scale(head).high, asked.check(str(place), scale))
        return _Reading(str(place), format, scale, records)
    _refuse_strange(head[0], str(place))
    return _json(lines, head, format, str(place), asked)


def _json(lines: Iterator[Line], head: Sequence[bytes], format: str, name: str, asked: _Asked) -> _Reading:
    fields = JSON_NAMES.get(format)
    if fields is None:
        keys = list(dict.fromkeys(key for line in head for key in _object_keys(line)))
        fields = resolve_columns(keys or REQUIRED, asked.columns, name)
    scale = asked.scale(KNOWN_SCALES.get(format))
    check = asked.check(name, scale, splits="split" in fields)
    return _Reading(name, format, scale, _json_records(lines, _json_decoder(fields), check))


def _json_decoder(fields: Mapping[str, str]) -> Callable[[bytes], Any]:
    """Decodes the named fields alone; what the file lacks reads as None."""
    absent = {role: None for role in (*ROLES, "variant") if role not in fields}
    try:
        kind = msgspec.defstruct(
            "Record", [(role, Any, None) for role in fields], rename=dict(fields), namespace=absent, gc=False
        )
    except ValueError as error:
        raise UsageError(f"a column cannot be used ({error})", mend="rename it in the file") from None
    return msgspec.json.Decoder(kind).decode


def _json_records(lines: Iterator[Line], decode: Callable[[bytes], Any], check: Check) -> Iterator[Record]:
    for number, line in lines:
        if line is None:
            yield Rejection(check.file, number, LINE_TOO_LONG)
        elif line and not line.isspace():
            try:
                record = decode(line)
            except (ValueError, RecursionError) as error:
                yield Rejection(check.file, number, _json_fault(line, error))
                continue
            item = record.variant if record.item is None else record.item
            yield check(number, record.user, item, record.rating, record.text, record.time, record.split)


def _json_fault(line: bytes, error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "JSON is nested too deeply"
    if isinstance(error, msgspec.ValidationError):
        return "a number is too large" if "out of range" in str(error) else "not a JSON object"
    if fault := line_fault(line):
        return fault
    return "not valid JSON but a Python dict" if line.lstrip().startswith(b"{'") else "not valid JSON"


def _csv(lines: Iterator[Line], head: Sequence[bytes], name: str, asked: _Asked) -> _Reading:
    rows = read_rows(lines, _split_header(head[0])[0])
    header = next(rows)
    if header.fault:
        raise InputError(f"the header cannot be read ({header.fault})", where=name, mend="check the first line")
    names = [field.strip() for field in header.fields]
    chosen = resolve_columns(names, asked.columns, name)
    scale = asked.scale(None)
    check = asked.check(name, scale, splits="split" in chosen)
    order = [names.index(chosen[role]) if role in chosen else len(names) for role in ROLES]
    return _Reading(name, "csv", scale, _csv_records(rows, len(names), order, check))


def _csv_records(rows: Iterator[Row], width: int, order: Sequence[int], check: Check) -> Iterator[Record]:
    for line, fields, fault in rows:
        if fault:
            yield Rejection(check.file, line, fault)
        elif len(fields) == width:
            fields.append("")  # stands for every column the file lacks
            yield check(line, *[fields[place] for place in order])
        elif len(fields) > 1 or not fields[0].isspace():
            yield Rejection(check.file, line, "number of fields differs from the header")


def _beer_scale(head: Sequence[bytes]) -> RatingScale:
    for line in head:
        match = _BEER_LINE.match(line)
        if match and match[1].lower() == b"review/overall":
            score, _, out_of = match[2].decode("utf-8", "replace").partition("/")
            try:
                return RATEBEER if number_of(out_of or score) > 5 else BEERADVOCATE
            except Unusable:
                continue
    return RATEBEER


def _beer_records(lines: Iterator[Line], out_of: float, check: Check) -> Iterator[Record]:
    for block in read_blocks(lines):
        start = block[0][0]
        try:
            fields = _beer_fields(block)
            rating = _beer_rating(fields.get("rating"), out_of)
        except Unusable as fault:
            yield Rejection(check.file, start, str(fault))
            continue
        yield check(start, fields.get("user"), fields.get("item"), rating, fields.get("text"), fields.get("time"), None)


def _beer_fields(block: Iterable[Line]) -> dict[str, str]:
    """The fields that are used. Only their bytes have to be UTF-8: names of beers are often in older encodings."""
    parts: dict[str, list[bytes]] = {}
    current: list[bytes] | None = None
    for _, line in block:
        if line is None:
            raise Unusable(LINE_TOO_LONG)
        match = _BEER_LINE.match(line)
        if match is None:
            if current is None:
                raise Unusable("line is not of the form key: value")
            current.append(line)
            continue
        role = BEER_KEYS.get(match[1].lower(), "")
        if role in parts and role:
            raise Unusable(f"{role} appears twice in the block")
        current = parts[role] = [match[2].strip()]
    parts.pop("", None)
    for lines in parts.values():
        for line in lines:
            if fault := line_fault(line):
                raise Unusable(fault)
    return {role: b"\n".join(lines).decode() for role, lines in parts.items()}


def _beer_rating(value: str | None, out_of: float) -> float:
    if value is None:
        raise Unusable("rating is missing")
    score, slash, highest = value.partition("/")
    if slash and number_of(highest) != out_of:
        raise Unusable(f"rating is not out of {out_of:g}")
    return number_of(score)


# Tables -------------------------------------------------------------------------------------------------------------


@contextmanager
def _table_errors(name: str) -> Iterator[None]:
    import polars

    try:
        yield
    except (polars.exceptions.PolarsError, polars.exceptions.PanicException, OSError) as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(
            f"the table cannot be read ({first[:200]})", where=name, mend="check that it is a whole Parquet file"
        ) from None


def _parquet(place: Path, asked: _Asked) -> _Reading:
    import polars

    with _table_errors(str(place)):
        return _polars(polars.scan_parquet(place), str(place), "parquet", asked)


def _polars(table: Any, name: str, format: str, asked: _Asked) -> _Reading:
    import polars

    with _table_errors(name):
        schema = table.collect_schema()
        chosen = resolve_columns(schema.names(), asked.columns, name)
        columns = []
        for role, column in chosen.items():
            values = polars.col(column).alias(role)
            # Dates beyond Python's calendar exist in tables; whole seconds hold them all.
            dated = role == "time" and isinstance(schema[column], polars.Datetime | polars.Date)
            columns.append(values.dt.epoch("s") if dated else values)
        table = table.select(columns)
    scale = asked.scale(None)
    check = asked.check(name, scale, splits="split" in chosen)
    return _Reading(name, format, scale, _table_records(_polars_rows(table, name), list(chosen), check))


def _polars_rows(table: Any, name: str) -> Iterator[Sequence[Any]]:
    with _table_errors(name):
        if hasattr(table, "collect_batches"):
            batches = table.collect_batches(chunk_size=BATCH_ROWS, maintain_order=True)
        else:
            batches = [table.collect()]
        for batch in batches:
            yield from batch.iter_rows()


def _pandas(frame: Any, asked: _Asked) -> _Reading:
    name = "pandas frame"
    names = [str(column) for column in frame.columns]
    chosen = resolve_columns(names, asked.columns, name)
    columns = []
    for column in chosen.values():
        values = frame.iloc[:, names.index(column)].astype(object)
        columns.append(values.where(values.notna(), None).tolist())
    scale = asked.scale(None)
    check = asked.check(name, scale, splits="split" in chosen)
    return _Reading(name, "frame", scale, _table_records(zip(*columns, strict=True), list(chosen), check))


def _table_records(rows: Iterable[Sequence[Any]], roles: Sequence[str], check: Check) -> Iterator[Record]:
    order = [roles.index(role) if role in roles else len(roles) for role in ROLES]
    for number, row in enumerate(rows, start=1):
        values = (*row, None)
        yield check(number, *[values[place] for place in order])


# What callers use ---------------------------------------------------------------------------------------------------


def iterate_reviews(
    path: PathLike,
    *,
    format: str = "auto",
    columns: Mapping[str, str] | None = None,
    rating_range: tuple[float, float] | None = None,
    clip_ratings: bool = False,
    max_bytes: int = MAX_BYTES,
    progress: Progress | None = None,
) -> Iterator[Record]:
    """The records of one file as they come, each a Review or a Rejection, in little memory."""
    return _open(path, _Asked(format, columns, rating_range, clip_ratings, max_bytes), progress).records


def read_reviews(
    source: Any,
    *,
    format: str = "auto",
    columns: Mapping[str, str] | None = None,
    rating_range: tuple[float, float] | None = None,
    clip_ratings: bool = False,
    max_bytes: int = MAX_BYTES,
    progress: Progress | None = None,
) -> Reviews:
    """Read a file, several files, or a pandas or polars frame.

    >>> import polars
    >>> frame = polars.DataFrame({"user": ["ann"], "item": [7], "rating": [5], "text": ["It is light."]})
    >>> read_reviews(frame)
    <Reviews: 1 reviews by 1 users of 1 items, frame, ratings 1 to 5>
    """
    asked = _Asked(format, columns, rating_range, clip_ratings, max_bytes)
    gathered = _Gathered()
    for reading in _readings(source, asked, progress):
        gathered.take(reading)
    return gathered.finish()


def _readings(source: Any, asked: _Asked, progress: Progress | None) -> Iterator[_Reading]:
    library = type(source).__module__.partition(".")[0]
    if library in ("pandas", "polars") and hasattr(source, "columns" if library == "pandas" else "lazy"):
        yield _pandas(source, asked) if library == "pandas" else _polars(source.lazy(), "polars frame", "frame", asked)
        return
    paths = [source] if isinstance(source, str | os.PathLike) else source
    if not isinstance(paths, list | tuple) or not all(isinstance(path, str | os.PathLike) for path in paths):
        raise UsageError(
            f"reviews cannot be read from a {type(source).__name__}", mend="give a path, a list of paths, or a frame"
        )
    if not paths:
        raise UsageError("no file was given", mend="give at least one file with reviews")
    sizes = [check_file(path).stat().st_size for path in paths]
    for place, path in enumerate(paths):
        before, total = sum(sizes[:place]), sum(sizes)
        yield _open(path, asked, progress and _shifted(progress, before, total))


def _shifted(progress: Progress, before: int, total: int) -> Progress:
    return lambda done, _: progress(before + done, total)


class _Gathered:
    """Columns that grow as sources are read."""

    def __init__(self) -> None:
        self.users: list[str] = []
        self.items: list[str] = []
        self.ratings = array("d")
        self.texts: list[str] = []
        self.times: list[int | None] = []
        self.splits: list[str | None] = []
        self.ledger = Ledger()
        self.readings: list[_Reading] = []
        self.unscaled = array("d")
        self._same: dict[str, str] = {}

    def take(self, reading: _Reading) -> None:
        ledger, begin, same = Ledger(), len(self.users), self._same.setdefault
        for record in reading.records:
            if isinstance(record, Rejection):
                ledger.reject(record)
                continue
            # Ids repeat, and one string for each is enough.
            self.users.append(same(record.user, record.user))
            self.items.append(same(record.item, record.item))
            self.ratings.append(record.rating)
            self.texts.append(record.text)
            self.times.append(record.time)
            self.splits.append(record.split)
        ledger.accept(len(self.users) - begin)
        if not ledger.accepted:
            raise _nothing_usable(reading, ledger)
        if reading.scale is None:
            self.unscaled.extend(self.ratings[begin:])
        self.ledger.absorb(ledger)
        self.readings.append(reading)

    def finish(self) -> Reviews:
        splits = [split for split in self.splits if split is not None]
        if splits and len(splits) < len(self.splits):
            raise InputError("some sources have a split column and others have none", mend="give all of them one")
        return Reviews(
            users=self.users,
            items=self.items,
            ratings=np.array(self.ratings, dtype=np.float64),
            texts=self.texts,
            times=self.times,
            splits=splits or None,
            ledger=self.ledger,
            format="+".join(dict.fromkeys(reading.format for reading in self.readings)),
            scale=self._scale(),
            sources=[reading.name for reading in self.readings],
        )

    def _scale(self) -> RatingScale:
        known = {(scale.low, scale.high, scale.clip): scale for _, _, scale, _ in self.readings if scale}
        where = ", ".join(reading.name for reading in self.readings[:3])
        if len(known) > 1:
            ranges = " and ".join(f"{low:g} to {high:g}" for low, high, _ in known)
            raise InputError(f"the files rate from {ranges}", where=where, mend="prepare them one at a time")
        stars = RatingScale(1, 5, clip=False, origin="all ratings lie from 1 to 5")
        scale = next(iter(known.values()), stars)
        if self.unscaled:
            low, high = min(self.unscaled), max(self.unscaled)
            if not (scale.contains(low) and scale.contains(high)):
                raise InputError(
                    f"the ratings run from {low:g} to {high:g}, and nothing says on which scale they were given",
                    where=where,
                    mend=f"say it with --rating-range LOW HIGH, perhaps --rating-range {low:g} {high:g}",
                )
        return scale


def _nothing_usable(reading: _Reading, ledger: Ledger) -> InputError:
    if not ledger.read:
        return InputError("there are no records", where=reading.name, mend="give a file with reviews")
    faults = "; ".join(f"line {first.line:,}: {reason}" for reason, first in list(ledger.first.items())[:3])
    if any("Python dict" in reason for reason in ledger.counts):
        mend = "convert the file to JSON lines with one JSON object a line"
    else:
        mend = f"check that its format is {reading.format}, or say which it is with --format"
    return InputError(f"none of the {ledger.read:,} records can be used ({faults})", where=reading.name, mend=mend)
