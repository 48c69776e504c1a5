"""Reviews become a corpus."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from carp.commands.options import AsJson, Out, Overwrite, key_values
from carp.commands.outputs import check_new_folder
from carp.commands.telling import naming, progress_bars, say, show_json

if TYPE_CHECKING:
    from carp.reviews.corpus import Corpus
    from carp.reviews.ledger import Ledger


def prepare(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Files with reviews, packed or not.")],
    out: Out,
    format: Annotated[str, typer.Option(help="amazon, amazon2023, yelp, beer, jsonl, csv or parquet.")] = "auto",
    min_reviews: Annotated[int, typer.Option(min=1, help="Users and items with fewer are dropped.")] = 5,
    rating_range: Annotated[
        tuple[float, float] | None, typer.Option(metavar="LOW HIGH", help="The scale of the ratings.")
    ] = None,
    clip_ratings: Annotated[bool, typer.Option("--clip-ratings", help="Move ratings outside it to its edge.")] = False,
    column: Annotated[
        list[str] | None, typer.Option(metavar="ROLE=NAME", help="Which column is user, item, rating, text, time.")
    ] = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Read reviews, clean them, and keep them as a corpus."""
    from carp.reviews.corpus import build_corpus
    from carp.reviews.formats import read_reviews
    from carp.reviews.statistics import dataset_statistics

    columns = key_values(column, "--column")
    check_new_folder(out, "corpus", overwrite)
    with progress_bars() as stage:
        reviews = read_reviews(
            list(files),
            format=format,
            columns=columns or None,
            rating_range=rating_range,
            clip_ratings=clip_ratings,
            progress=stage("reading"),
        )
        corpus = build_corpus(reviews, min_reviews=min_reviews, progress=stage("cutting into words"))
    with naming(", ".join(map(str, files))):
        statistics = dataset_statistics(corpus)  # before saving: a corpus without a word for the model is refused here
    corpus.save(out, overwrite=overwrite, ledger=reviews.ledger)
    _report_corpus(corpus, statistics, reviews.ledger, out, as_json)


def _report_corpus(corpus: Corpus, statistics: dict[str, float], ledger: Ledger, out: Path, as_json: bool) -> None:
    from carp.render.tables import command, corpus_text
    from carp.storage import folder_size

    size = folder_size(out)
    if as_json:
        about = {"out": str(out), "bytes": size, "fingerprint": corpus.fingerprint, "statistics": statistics}
        show_json({**about, "reasons": ledger.counts, **corpus.facts})
    else:
        print(corpus_text(corpus.facts, statistics, ledger, out, size))
        say(f"Next: {command('train', out, options=['--out', 'model'])}")
