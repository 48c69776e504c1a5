"""Workbooks of Excel: the rows of the first sheet that has any."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from typing import IO, Any
from xml.parsers import expat

from carp.errors import InputError, let_missing_memory_through
from carp.reviews.sources.line_reading import CsvRow
from carp.reviews.sources.unpacking import BOMB_RATIO, SourceFile, may_unpack_to

SHEET_RATIO = 4 * BOMB_RATIO  # the markup of a sheet repeats itself more than texts do
FIX = "open it in a spreadsheet and save it again, or save it as CSV"
WORKBOOK = "xl/workbook.xml"  # a zip archive with this member is a workbook of Excel
MOST_ROWS = 1_048_576  # that a sheet of Excel can have; a row may say that it is any number


def sheet_rows(file: SourceFile) -> Iterator[CsvRow]:
    """The rows of the first sheet that is not empty, with their numbers. Rows without a value are left out."""
    from openpyxl.reader.excel import ExcelReader

    try:
        _refuse_other_archives(file)
        with file.open() as content:
            reader = ExcelReader(content, read_only=True, data_only=True)
            reader.read()
            _refuse_disorder(reader, file)
            header: list[Any] | None = None
            for sheet in reader.wb.worksheets:
                for row in _rows_of(sheet, file):
                    if header is None:
                        header = _without_end(row.fields)
                        _refuse_more(reader.wb.worksheets, sheet, header, file)
                    yield row
                if header is not None:
                    return
    except InputError:
        raise
    except zipfile.BadZipFile as error:
        fix = "check it with `unzip -t`, or leave it out"
        raise InputError(f"the workbook or zip archive is damaged ({error})", where=str(file), fix=fix) from None
    except Exception as error:  # openpyxl lets through whatever its parsers say
        let_missing_memory_through(error)
        first = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
        raise InputError(f"the workbook cannot be read ({first})", where=str(file), fix=FIX) from None


def _rows_of(sheet: Any, file: SourceFile) -> Iterator[CsvRow]:
    sheet.reset_dimensions()  # what a sheet says of its size may be wrong, and rows would be lost
    for number, row in enumerate(sheet.iter_rows(values_only=True), start=1):
        if number > MOST_ROWS:
            raise InputError("the sheet has rows beyond the last one of Excel", where=str(file), fix=FIX)
        if any(value is not None for value in row):
            yield CsvRow(number, list(row))


def _refuse_more(sheets: list[Any], read: Any, header: list[Any], file: SourceFile) -> None:
    """Refuse a workbook that goes on in another sheet, as one with a sheet for each year: its rows would be lost."""
    for sheet in (one for one in sheets if one is not read):
        first = next(_rows_of(sheet, file), None)
        if first is not None and _without_end(first.fields) == header:
            what = f"the sheet {sheet.title!r} has the same columns as the sheet {read.title!r}, and only one is read"
            raise InputError(what, where=str(file), fix="bring them together in one sheet, or save each as CSV")


def _without_end(fields: list[Any]) -> list[Any]:
    """The values of a row without the empty ones at its end."""
    last = max(place for place, value in enumerate(fields) if value is not None)
    return fields[: last + 1]


def _refuse_other_archives(file: SourceFile) -> None:
    with zipfile.ZipFile(file.path) as archive:
        if WORKBOOK not in archive.namelist():
            what = "this is a zip archive inside an archive, of which only workbooks of Excel are read"
            raise InputError(what, where=str(file), fix="unpack the outer archive and give the files inside")
        size = sum(member.file_size for member in archive.infolist())
    if size > may_unpack_to(file, file.stat().st_size, ratio=SHEET_RATIO):
        raise InputError(
            f"the workbook unpacks to more than {SHEET_RATIO} times its size",
            where=str(file),
            fix="if you trust it, save it as CSV",
        )


def _refuse_disorder(reader: Any, file: SourceFile) -> None:
    """Refuse sheets whose rows do not rise: a row that comes after its place would be left out without a word.

    A workbook says itself where its sheets lie, so those are checked that openpyxl finds.
    """
    places = {relation.target for _, relation in reader.parser.find_sheets()}
    for place in places & set(reader.valid_files):
        with reader.archive.open(place) as content:
            if not _rows_rise(content):
                raise InputError("the rows of a sheet are not in their order", where=str(file), fix=FIX)


def _rows_rise(sheet: IO[bytes]) -> bool:
    last, rise = 0, True

    def begin(name: str, given: dict[str, str]) -> None:
        nonlocal last, rise
        if name.rpartition(" ")[2] == "row":
            number = int(float(given.get("r", last + 1)))
            last, rise = number, rise and number > last

    parser = expat.ParserCreate(namespace_separator=" ")
    parser.StartElementHandler = begin
    parser.ParseFile(sheet)
    return rise


def fitted(values: list[Any], width: int) -> list[Any]:
    """The values of a row as many as the header has: sheets leave out empty cells, or add some at the end."""
    longer = len(values) > width and all(value is None for value in values[width:])
    whole = values[:width] if longer else values + [None] * (width - len(values))
    return ["" if value is None else value for value in whole]
