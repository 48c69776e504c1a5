"""The command that predicts ratings of pairs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import carp
from carp.cli.messages import show_json
from carp.cli.options import AsJson, Model, Overwrite, Titles, key_values
from carp.cli.output_files import check_new_file
from carp.cli.places import new_place
from carp.errors import UsageError

if TYPE_CHECKING:
    from carp.answers import Predictions
    from carp.reviews.sources.pair_files import PairFile


def predict(
    model: Model,
    pairs: Annotated[
        str | None,
        typer.Argument(
            metavar="PAIRS", help="A file with the columns user and item, or anything else that carp prepare reads."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="PATH", parser=new_place, help="CSV file to write. Default: standard output."),
    ] = None,
    user: Annotated[str | None, typer.Option(help="One user, instead of a file.")] = None,
    item: Annotated[str | None, typer.Option(help="One item, instead of a file.")] = None,
    column: Annotated[
        list[str] | None, typer.Option(metavar="ROLE=NAME", help="Name the column for user or item.")
    ] = None,
    encoding: Annotated[
        str | None, typer.Option(metavar="NAME", help="Encoding of the file, such as cp1252. Default: look at it.")
    ] = None,
    titles: Titles = False,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Predict ratings for pairs of a user and an item, and where nine ratings of ten lie (low to high).

    Unknown users and items get an answer and a note.
    """
    from carp.render.console_tables import predictions_csv
    from carp.storage import write_bytes

    _refuse_unclear(pairs, user, item, out, overwrite)
    columns = key_values(column, "--column")
    asked = _asked(pairs, user, item, columns, encoding)
    recommender = carp.load(model)
    found = recommender.predict(asked.pairs)
    names = [recommender.title(item) for _, item in asked.pairs]
    written = predictions_csv(asked, found, names if titles else None)
    if out is not None:
        write_bytes(out, written.encode("utf-8", "replace"))
    if as_json:
        show_json(_document(asked, names, found, out))
    elif out is None:
        print(written, end="")
    else:
        noted = _noted(found)
        remark = f" {noted:,} have an unknown user or item; see the column note." if noted else ""
        print(f"{len(found):,} predictions are in {out}.{remark}")


def _refuse_unclear(pairs: str | None, user: str | None, item: str | None, out: Path | None, overwrite: bool) -> None:
    if (pairs is None) == (user is None and item is None) or (user is None) != (item is None):
        fix = "give a file of pairs, or both --user and --item"
        raise UsageError("it is not clear which pairs to predict", where="carp predict", fix=fix)
    if out is None:
        return
    if pairs is not None and out.exists() and Path(pairs).exists() and out.samefile(pairs):
        raise UsageError("--out is the file of pairs itself", where=str(out), fix="choose another --out")
    check_new_file(out, overwrite)


def _asked(
    pairs: str | None, user: str | None, item: str | None, columns: dict[str, str], encoding: str | None
) -> PairFile:
    from carp.reviews.sources.pair_files import PairFile, read_pairs

    if pairs is None:
        return PairFile([(str(user), str(item))], [], [[]])
    return read_pairs(pairs, columns=columns or None, encoding=encoding)


def _document(asked: PairFile, names: list[str | None], found: Predictions, out: Path | None) -> dict[str, Any]:
    rows = zip(asked.pairs, names, found, *found.intervals(), found.notes, strict=True)
    listed = [
        {"user": u, "item": i, "title": title, "rating": rating, "low": low, "high": high, "note": note}
        for (u, i), title, rating, low, high, note in rows
    ]
    return {"out": None if out is None else str(out), "noted": _noted(found), "predictions": listed}


def _noted(found: Predictions) -> int:
    return sum(note is not None for note in found.notes)
