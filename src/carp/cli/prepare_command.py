"""The command that turns files of reviews into a corpus."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from carp.cli.messages import progress_bars, say, show_json
from carp.cli.options import AsJson, Engine, Out, Overwrite, RayAddress, check_engine, key_values
from carp.cli.output_files import check_new_folder
from carp.errors import UsageError

if TYPE_CHECKING:
    from carp.reviews.corpora.cleaning import DaysKept
    from carp.reviews.corpora.preparation import Prepared
    from carp.reviews.corpora.worker_pool import TaskPool
    from carp.reviews.sources.databases import SqlQuery


def prepare(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE...",
            help="Files of reviews, folders, patterns such as 'reviews/*.csv', addresses such as s3://bucket/key, or - "
            "for standard input. Files may be packed with gzip, zstd or zip.",
        ),
    ] = None,
    *,
    out: Out,
    format: Annotated[
        str, typer.Option(help="amazon, amazon2023, yelp, beer, jsonl, csv, parquet or xlsx. auto looks at the file.")
    ] = "auto",
    min_reviews: Annotated[int, typer.Option(min=1, help="Drop users and items with fewer reviews.")] = 5,
    copies: Annotated[
        str | None,
        typer.Option(
            metavar="RULE",
            help="What to do with a text that one person put under several items: drop all but the first (the usual), "
            "group them on one side of every split, or keep them like any others.",
        ),
    ] = None,
    as_in_paper: Annotated[
        bool,
        typer.Option("--as-in-paper", help="Clean as the paper did: keep copies, and take out wordless reviews last."),
    ] = False,
    rating_range: Annotated[
        tuple[float, float] | None, typer.Option(metavar="LOW HIGH", help="Lowest and highest possible rating.")
    ] = None,
    clip_ratings: Annotated[
        bool, typer.Option("--clip-ratings", help="Move ratings outside the range to its nearest end.")
    ] = False,
    column: Annotated[
        list[str] | None,
        typer.Option(metavar="ROLE=NAME", help="Name the column for user, item, rating, text, time, split or title."),
    ] = None,
    encoding: Annotated[
        str | None, typer.Option(metavar="NAME", help="Encoding of the files, such as cp1252. Default: look at them.")
    ] = None,
    sql: Annotated[
        str | None,
        typer.Option(metavar="QUERY", help="Read the reviews by a query to --database instead of from files."),
    ] = None,
    database: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="A file of SQLite or DuckDB, or an address, postgresql://user@host/name."),
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="DAY", help="Leave out reviews before this day, such as 2016-01-01.")
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="DAY", help="Leave out reviews after this day, such as 2017-12-31.")
    ] = None,
    items: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help="Titles, categories, descriptions and pictures of the items. Repeatable."),
    ] = None,
    item_column: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ROLE=NAME", help="Name the column of --items for item, title, category, description or picture."
        ),
    ] = None,
    no_titles: Annotated[
        bool, typer.Option("--no-titles", help="Do not take names of items in the reviews as their titles.")
    ] = False,
    engine: Engine = "here",
    ray_address: RayAddress = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Read reviews, clean them and save them as a corpus."""
    from carp.reviews.corpora.preparation import prepare_corpus
    from carp.reviews.sources.request import SourceRequest

    columns = key_values(column, "--column")
    item_columns = key_values(item_column, "--item-column")
    if item_columns and not items:
        raise UsageError("there is no file about items", where="--item-column", fix="give it with --items FILE")
    check_new_folder(out, "corpus", overwrite)
    given = _given(files, sql, database)
    asked = SourceRequest(format, columns or None, rating_range, clip_ratings, titles=not no_titles, encoding=encoding)
    asked = replace(asked, markup=as_in_paper)
    days = _days(since, until)
    check_engine(engine, ray_address)
    with pool_on(engine, ray_address) as pool, progress_bars() as stage:
        prepared = prepare_corpus(
            given,
            out,
            asked,
            min_reviews=min_reviews,
            **_cleaning(copies, as_in_paper),
            days=days,
            items=items or (),
            item_columns=item_columns or None,
            overwrite=overwrite,
            pool=pool,
            reading=stage("reading"),
            cutting=stage("cutting into words"),
            reading_items=stage("reading about items") if items else None,
        )
    _report_corpus(prepared, out, as_json)


def _given(files: list[str] | None, sql: str | None, database: str | None) -> list[str] | SqlQuery:
    """The files, or the query to a database; never both."""
    from carp.reviews.sources.databases import SqlQuery

    if (sql is None) != (database is None):
        where, other = ("--sql", "--database") if database is None else ("--database", "--sql")
        raise UsageError(f"{where} needs {other}", where="carp prepare", fix=f"give {other} too")
    if sql is None or database is None:
        if not files:
            fix = "give files of reviews, or --sql with --database"
            raise UsageError("there is nothing to read", where="carp prepare", fix=fix)
        return files
    if files:
        fix = "give files or --sql, and prepare the others separately"
        raise UsageError("files and a query cannot be mixed", where="carp prepare", fix=fix)
    return SqlQuery(sql, database)


def _days(since: str | None, until: str | None) -> DaysKept | None:
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


def _cleaning(copies: str | None, as_in_paper: bool) -> dict[str, Any]:
    from carp.reviews.corpora.cleaning import AS_IN_PAPER
    from carp.reviews.corpora.copied_texts import DROP

    if as_in_paper and copies is not None:
        fix = "leave out --copies or --as-in-paper"
        raise UsageError("the paper's way of cleaning keeps copies", where="--copies", fix=fix)
    return dict(AS_IN_PAPER) if as_in_paper else {"copies": copies or DROP}


@contextlib.contextmanager
def pool_on(engine: str, address: str | None) -> Iterator[TaskPool | None]:
    """Who does the work elsewhere, if anybody should."""
    if engine == "here":
        yield None
        return
    from carp.scale.ray_cluster import connected

    with connected(address) as cluster:
        yield cluster


def _report_corpus(prepared: Prepared, out: Path, as_json: bool) -> None:
    from carp.render.console_tables import command, corpus_text
    from carp.storage import folder_size

    size, ledger, items = folder_size(out), prepared.ledger, prepared.items
    if as_json:
        about = {"out": str(out), "bytes": size, "fingerprint": prepared.fingerprint}
        reasons = {"reasons": ledger.counts, **({"item_reasons": items.counts} if items else {})}
        show_json({**about, "statistics": prepared.statistics, **reasons, **prepared.facts})
    else:
        if (other_days := prepared.facts["dropped"].get("days")) is not None:
            say(f"{other_days:,} reviews of other days or without a date were left out before anything else.")
        print(corpus_text(prepared.facts, prepared.statistics, ledger, out, size, items))
        say(f"Next: {command('train', out, options=['--out', 'model'])}")
