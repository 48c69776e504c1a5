"""Options for reading reviews: the same for a new corpus and for an update."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Annotated

import typer

from carp.errors import UsageError

if TYPE_CHECKING:
    from carp.reviews.corpora.cleaning import DaysKept
    from carp.reviews.sources.databases import SqlQuery

Files = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FILE...",
        help="Files of reviews, folders, patterns such as 'reviews/*.csv', addresses such as s3://bucket/key, or - "
        "for standard input. Files may be packed with gzip, zstd or zip.",
    ),
]
Format = Annotated[
    str, typer.Option(help="amazon, amazon2023, yelp, beer, jsonl, csv, parquet or xlsx. auto looks at the file.")
]
Columns = Annotated[
    list[str] | None,
    typer.Option(metavar="ROLE=NAME", help="Name the column for user, item, rating, text, time, split or title."),
]
Encoding = Annotated[
    str | None, typer.Option(metavar="NAME", help="Encoding of the files, such as cp1252. Default: look at them.")
]
Sql = Annotated[
    str | None,
    typer.Option(metavar="QUERY", help="Read the reviews by a query to --database instead of from files."),
]
Database = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="A file of SQLite or DuckDB, or an address, postgresql://user@host/name."),
]
Since = Annotated[
    str | None, typer.Option(metavar="DAY", help="Leave out reviews before this day, such as 2016-01-01.")
]
Until = Annotated[str | None, typer.Option(metavar="DAY", help="Leave out reviews after this day, such as 2017-12-31.")]
NoTitles = Annotated[
    bool, typer.Option("--no-titles", help="Do not take names of items in the reviews as their titles.")
]


def source_of(files: list[str] | None, sql: str | None, database: str | None, command: str) -> list[str] | SqlQuery:
    """The files, or the query to a database; never both."""
    from carp.reviews.sources.databases import SqlQuery

    if (sql is None) != (database is None):
        where, other = ("--sql", "--database") if database is None else ("--database", "--sql")
        raise UsageError(f"{where} needs {other}", where=command, fix=f"give {other} too")
    if sql is None or database is None:
        if not files:
            fix = "give files of reviews, or --sql with --database"
            raise UsageError("there is nothing to read", where=command, fix=fix)
        return files
    if files:
        fix = "give files or --sql, and read the others separately"
        raise UsageError("files and a query cannot be mixed", where=command, fix=fix)
    return SqlQuery(sql, database)


def days_kept(since: str | None, until: str | None) -> DaysKept | None:
    """The days whose reviews are wanted; None where all are."""
    from carp.reviews.corpora.cleaning import DaysKept

    if since is None and until is None:
        return None
    first, last = _day(since, "--since"), _day(until, "--until")
    if first is not None and last is not None and last < first:
        raise UsageError("the last day is before the first", where="--until", fix="exchange the two")
    return DaysKept(first, last)


def _day(text: str | None, option: str) -> date | None:
    try:
        return None if text is None else date.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{text!r} is not a day", where=option, fix="write it as in 2016-01-31") from None
