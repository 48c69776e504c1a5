"""The command that turns files of reviews into a corpus."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from carp.cli.messages import progress_bars, say, show_json
from carp.cli.options import AsJson, Engine, OutCorpus, Overwrite, RayAddress, check_engine, key_values
from carp.cli.output_files import check_new_folder
from carp.cli.reading_options import (
    Columns,
    Database,
    Encoding,
    Files,
    Format,
    NoTitles,
    Since,
    Sql,
    Until,
    days_kept,
    source_of,
)
from carp.errors import UsageError

if TYPE_CHECKING:
    from carp.reviews.corpora.preparation import Prepared
    from carp.reviews.corpora.worker_pool import TaskPool


def prepare(
    files: Files = None,
    *,
    out: OutCorpus,
    format: Format = "auto",
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
    column: Columns = None,
    encoding: Encoding = None,
    sql: Sql = None,
    database: Database = None,
    since: Since = None,
    until: Until = None,
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
    no_titles: NoTitles = False,
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
    given = source_of(files, sql, database, "carp prepare")
    asked = SourceRequest(format, columns or None, rating_range, clip_ratings, titles=not no_titles, encoding=encoding)
    asked = replace(asked, markup=as_in_paper)
    days = days_kept(since, until)
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
        if undated := _undated(prepared.facts["columns"], out):
            say(
                f"{undated:,} of {int(prepared.statistics['ratings']):,} reviews have no date that can be read. "
                "These can: 2024-04-25, 25.04.2024, April 25, 2024, 04/25/2024 with the month first, and seconds "
                "since 1970."
            )
        say(f"Next: {command('train', out, options=['--out', 'model'])}")


def _undated(columns: dict[str, str], out: Path) -> int:
    """Reviews without a date, where a column is said to hold dates."""
    import numpy as np

    if "time" not in columns:
        return 0
    return int((np.load(out / "time.npy", mmap_mode="r", allow_pickle=False) < 0).sum())
