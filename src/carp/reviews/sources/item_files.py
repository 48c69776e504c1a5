"""Files and frames about things: their titles, categories, descriptions and pictures.

CSV, JSON lines and Parquet are read, with the columns of Amazon's metadata of 2014, 2018 and 2023, of Yelp's
businesses, and of files with usual names. Amazon's lines of 2014 are literals of Python and are read as such.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import msgspec

from carp.errors import InputError, UsageError, nearest
from carp.reviews.sources.frames import most_bytes, pandas_column, polars_rows, scan_parquet, table_errors
from carp.reviews.sources.item_fields import ItemCheck, ItemRecord, python_literal
from carp.reviews.sources.item_records import ItemText
from carp.reviews.sources.json_values import first_values, is_spread, json_lines_of
from carp.reviews.sources.ledger import Ledger, Rejection
from carp.reviews.sources.line_reading import (
    LINE_TOO_LONG,
    MAX_BYTES,
    CsvRow,
    Line,
    head_lines,
    line_fault,
    read_lines,
    read_rows,
)
from carp.reviews.sources.recognition import (
    guess_column,
    named_once,
    object_keys,
    refuse_strange,
    split_header,
)
from carp.reviews.sources.sheets import fitted, sheet_rows
from carp.reviews.sources.source_files import Reading, locate, opened
from carp.reviews.sources.unpacking import PARQUET, ZIP, SourceFile, first_bytes
from carp.reviews.split_parts import OnProgress

ITEM_ROLES = ("item", "title", "category", "description", "picture")
TOLD = ITEM_ROLES[1:]  # what is to be learned of a thing
DEPARTMENT = "main_category"  # Amazon's 2023 files name the department apart from the categories
ITEM_NAMES = {
    "item": "item itemid parentasin asin product productid business businessid sku beerid movieid hotelid id",
    "title": "title name itemtitle itemname producttitle productname businessname beername hotelname movietitle",
    "category": "categories category genres genre maincategory style",
    "description": "description desc about summary",
    "picture": "picture image imageurlhighres imageurl imurl images pictureurl photo thumbnail cover",
}
NAMED_STRANGERS = 3
Found = ItemRecord | Rejection


class OpenItems(NamedTuple):
    """A source of items that is ready to be read."""

    name: str
    columns: dict[str, str]  # role and its name in the file
    records: Iterator[Found]
    folder: Any = None  # with copies of files from elsewhere, to be kept until they are read


@dataclass(repr=False)
class Items:
    """What sources say of things, by the ids of the things. Of repeated ids the first text of each kind counts.

    `read_items` makes it, and `build_corpus` takes it.
    """

    texts: dict[str, ItemText] = field(default_factory=dict)
    ledger: Ledger = field(default_factory=Ledger)
    sources: list[str] = field(default_factory=list)
    columns: dict[str, str] = field(default_factory=dict)
    repeated: int = 0  # records of an id that was there before
    passed_over: int = 0  # records of things that nobody asked for
    strangers: list[str] = field(default_factory=list)  # the first of these things
    left_out: dict[str, int] = field(default_factory=dict)  # what could not be used of accepted records

    def __repr__(self) -> str:
        rejected = f", {self.ledger.rejected:,} records rejected" if self.ledger.rejected else ""
        return f"<Items: {len(self.texts):,} items with {', '.join(list(self.columns)[1:])}{rejected}>"

    def add(self, source: OpenItems, wanted: Container[str] | None) -> None:
        """Read a source. Of things that are not wanted nothing is kept."""
        ledger = Ledger()
        for record in source.records:
            if isinstance(record, Rejection):
                ledger.reject(record)
                continue
            ledger.accept()
            self._enter(record, wanted)
        if not ledger.accepted:
            raise _nothing_usable(source, ledger)
        self.ledger.absorb(ledger)
        self.sources.append(source.name)
        self.columns |= source.columns

    def _enter(self, record: ItemRecord, wanted: Container[str] | None) -> None:
        if wanted is not None and record.item not in wanted:
            self.passed_over += 1
            self.strangers += [record.item] if len(self.strangers) < NAMED_STRANGERS else []
            return
        for reason in record.left_out:
            self.left_out[reason] = self.left_out.get(reason, 0) + 1
        before = self.texts.get(record.item)
        self.repeated += before is not None
        self.texts[record.item] = record.text if before is None else _completed(before, record.text)


def _completed(text: ItemText, more: ItemText) -> ItemText:
    """The text, with what it lacks taken from another."""
    return ItemText(
        text.title or more.title,
        text.categories or more.categories,
        text.description or more.description,
        text.picture or more.picture,
    )


def read_items(source: Any, *, columns: Mapping[str, str] | None = None, max_bytes: int = MAX_BYTES) -> Items:
    """Read what is known of the items besides their reviews: titles, categories, descriptions, addresses of pictures.

    Args:
        source: A path, several paths, or a pandas or polars frame.
        columns: Which column is the item, title, category, description or picture, where their names do not say.
        max_bytes: The most bytes that one file may unpack to.

    Returns:
        The texts by item, with a ledger of every record that was refused. Give it to `build_corpus`.

    >>> import polars
    >>> read_items(polars.DataFrame({"asin": ["B01"], "title": ["Tube amp"], "category": ["Amps"]}))
    <Items: 1 items with title, category>
    """
    return gather_items(open_items(source, columns, max_bytes=max_bytes), None)


def gather_items(sources: Iterable[OpenItems], wanted: Container[str] | None) -> Items:
    """Read all sources, one after the other. Of things that are not wanted nothing is kept."""
    items = Items()
    for source in sources:
        items.add(source, wanted)
    return items


def open_items(
    source: Any,
    columns: Mapping[str, str] | None,
    *,
    max_bytes: int = MAX_BYTES,
    progress: OnProgress | None = None,
) -> list[OpenItems]:
    """Each source with its columns recognised, ready to be read."""
    check_item_columns(columns)
    library = type(source).__module__.partition(".")[0]
    if library == "pandas" and hasattr(source, "columns"):
        return [_pandas(source, columns)]
    if library == "polars" and hasattr(source, "lazy"):
        return [_table(source.lazy(), "polars frame", columns)]
    paths = [source] if isinstance(source, str | os.PathLike) else source
    if not isinstance(paths, list | tuple) or not all(isinstance(path, str | os.PathLike) for path in paths):
        raise UsageError(
            f"items cannot be read from a {type(source).__name__}", fix="give a path, a list of paths, or a frame"
        )
    folder = TemporaryDirectory(prefix="carp-")  # it is removed when nothing refers to it any longer
    how = Reading(Path(folder.name), max_bytes, keeps=True)
    files = [file for location in locate(paths) for file in opened(location, how)]
    return [_open(file, columns, max_bytes, progress)._replace(folder=folder) for file in files]


def check_item_columns(columns: Mapping[str, str] | None) -> None:
    for role in columns or {}:
        if role not in ITEM_ROLES:
            raise UsageError(f"there is no role {role!r} for a column of items", fix=nearest(role, ITEM_ROLES))


def _open(
    place: SourceFile, columns: Mapping[str, str] | None, max_bytes: int, progress: OnProgress | None
) -> OpenItems:
    first = b"" if place.dataset else first_bytes(place)
    if place.dataset or first.startswith(PARQUET):
        with table_errors(str(place), place):
            return _table(scan_parquet(place), str(place), columns, most_bytes(place), place)
    if first.startswith(ZIP):
        return _rows(sheet_rows(place), str(place), columns, sheet=True)
    head = head_lines(place, max_bytes=max_bytes)
    if not head:
        raise InputError("the file has no usable line", where=str(place), fix="give a file with items")
    refuse_strange(head[0], str(place))
    if head[0].lstrip().startswith((b"{", b"[")):
        if is_spread(head):
            head = [b"[", *first_values(place, max_bytes=max_bytes)]
        lines = json_lines_of(place, head, max_bytes=max_bytes, progress=progress)
        return _json(lines, head, str(place), columns)
    lines = read_lines(place, max_bytes=max_bytes, progress=progress)
    return _rows(read_rows(lines, split_header(head[0], ITEM_NAMES)[0]), str(place), columns, sheet=False)


def choose_item_columns(names: Sequence[str], columns: Mapping[str, str] | None, where: str) -> dict[str, str]:
    """Which column has which role: as asked for, or by the usual names.

    >>> choose_item_columns(["sku", "name", "price"], None, "items.csv")
    {'item': 'sku', 'title': 'name'}
    """
    asked = dict(columns or {})
    listed = ", ".join(name[:40] for name in names[:30]) or "none"
    for role, name in asked.items():
        if names.count(name) != 1:
            twice = "appears twice" if name in names else f"is not there; the columns are {listed}"
            fix = f"name another one with --item-column {role}=NAME"
            raise InputError(f"the column {name!r} for the {role} {twice}", where=where, fix=fix)
    free = [name for name in named_once(names) if name not in asked.values()]
    guessed = {role: asked.get(role) or guess_column(role, free, ITEM_NAMES) for role in ITEM_ROLES}
    chosen = {role: name for role, name in guessed.items() if name is not None}
    if "item" not in chosen:
        fix = "say which one it is with --item-column item=NAME"
        raise InputError(f"no column is recognised as the item's id; the columns are {listed}", where=where, fix=fix)
    if len(chosen) == 1:
        what = f"no column is recognised as {', '.join(TOLD[:-1])} or {TOLD[-1]}; the columns are {listed}"
        raise InputError(what, where=where, fix="say which one it is with --item-column title=NAME")
    return chosen


def _check_and_order(chosen: Mapping[str, str], names: Sequence[str], where: str) -> tuple[ItemCheck, list[str]]:
    """The check for these columns, and the names of its fields in the file; no name for a field that is not there."""
    category = chosen.get("category", "")
    department = DEPARTMENT if DEPARTMENT in names and category != DEPARTMENT else ""
    plain = [chosen.get(role, "") for role in ("item", "title", "category")]
    check = ItemCheck(where, lists_categories=category.lower().endswith("s"))
    return check, [*plain, department, chosen.get("description", ""), chosen.get("picture", "")]


def _json(lines: Iterator[Line], head: Sequence[bytes], name: str, columns: Mapping[str, str] | None) -> OpenItems:
    names = list(dict.fromkeys(key for line in head for key in _keys(line)))
    chosen = choose_item_columns(names, columns, name)
    check, fields = _check_and_order(chosen, names, name)
    return OpenItems(name, chosen, _json_records(lines, fields, check))


def _is_python(line: bytes) -> bool:
    return line.lstrip().startswith(b"{'")


def _keys(line: bytes) -> list[str]:
    if not _is_python(line):
        return object_keys(line)
    record = python_literal(line.decode("utf-8", "replace"))
    return [key for key in record if isinstance(key, str)] if isinstance(record, dict) else []


def _json_records(lines: Iterator[Line], fields: list[str], check: ItemCheck) -> Iterator[Found]:
    for number, line in lines:
        if line is None:
            yield Rejection(check.file, number, LINE_TOO_LONG)
        elif line and not line.isspace():
            record = _record(line)
            if isinstance(record, str):
                yield Rejection(check.file, number, record)
            else:
                yield check(number, *[record.get(name) if name else None for name in fields])


def _record(line: bytes) -> dict[str, Any] | str:
    """The object in a line, or why there is none."""
    if fault := line_fault(line):
        return fault
    if _is_python(line):
        record = python_literal(line.decode())
        return record if isinstance(record, dict) else "neither JSON nor a literal of Python"
    try:
        record = msgspec.json.decode(line)
    except RecursionError:
        return "JSON is nested too deeply"
    except ValueError:
        return "not valid JSON"
    return record if isinstance(record, dict) else "not a JSON object"


def _rows(rows: Iterator[CsvRow], name: str, columns: Mapping[str, str] | None, *, sheet: bool) -> OpenItems:
    header = next(rows, None)
    if header is None or header.fault:
        what = header.fault if header else "there is none"
        raise InputError(f"the header cannot be read ({what})", where=name, fix="check the first line")
    names = ["" if one is None else str(one).strip() for one in header.fields]
    chosen = choose_item_columns(names, columns, name)
    check, fields = _check_and_order(chosen, names, name)
    order = [names.index(one) if one else len(names) for one in fields]

    def records() -> Iterator[Found]:
        for line, values, fault in rows:
            if fault:
                yield Rejection(name, line, fault)
                continue
            values = fitted(values, len(names)) if sheet else values
            if len(values) == len(names):
                values.append("")
                yield check(line, *[values[place] for place in order])
            elif len(values) > 1 or not values[0].isspace():
                yield Rejection(name, line, "number of fields differs from the header")

    return OpenItems(name, chosen, records())


def _table(
    table: Any,
    name: str,
    columns: Mapping[str, str] | None,
    most: int | None = None,
    file: SourceFile | None = None,
) -> OpenItems:
    with table_errors(name, file):
        names = table.collect_schema().names()
    chosen = choose_item_columns(names, columns, name)
    check, fields = _check_and_order(chosen, names, name)
    there = list(dict.fromkeys(one for one in fields if one))
    rows = polars_rows(table.select(there), name, most, file)
    return OpenItems(name, chosen, _table_records(rows, there, fields, check))


def _pandas(frame: Any, columns: Mapping[str, str] | None) -> OpenItems:
    name, names = "pandas frame", [str(column) for column in frame.columns]
    chosen = choose_item_columns(names, columns, name)
    check, fields = _check_and_order(chosen, names, name)
    there = list(dict.fromkeys(one for one in fields if one))
    rows = zip(*(pandas_column(frame, names.index(one)) for one in there), strict=True)
    return OpenItems(name, chosen, _table_records(rows, there, fields, check))


def _table_records(
    rows: Iterable[Sequence[Any]], there: list[str], fields: list[str], check: ItemCheck
) -> Iterator[Found]:
    order = [there.index(one) if one else len(there) for one in fields]
    for number, row in enumerate(rows, start=1):
        values = (*row, None)
        yield check(number, *[values[place] for place in order])


def _nothing_usable(source: OpenItems, ledger: Ledger) -> InputError:
    if not ledger.read:
        return InputError("there are no records", where=source.name, fix="give a file with items")
    faults = "; ".join(f"line {first.line:,}: {reason}" for reason, first in list(ledger.first.items())[:3])
    fix = "check the column of ids, or say which one it is with --item-column item=NAME"
    return InputError(f"none of the {ledger.read:,} records can be used ({faults})", where=source.name, fix=fix)
