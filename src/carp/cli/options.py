"""Options and arguments shared by several commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from carp.cli.places import changed_folder, new_corpus, new_model, new_path, sealed_folder, text_or_file
from carp.errors import InputError, UsageError

NEWCOMER = "-"
MAX_SEED = 2**32 - 1

Model = Annotated[
    Path, typer.Argument(metavar="MODEL", parser=sealed_folder, help="A folder made by carp train, or its address.")
]
ChangedModel = Annotated[
    Path, typer.Argument(metavar="MODEL", parser=changed_folder, help="A folder made by carp train, or its address.")
]
CorpusFolder = Annotated[
    Path,
    typer.Argument(metavar="CORPUS", parser=sealed_folder, help="A folder made by carp prepare, or its address."),
]
NEW_FOLDER = "Folder to write, or an address. It must not exist yet."
OutCorpus = Annotated[Path, typer.Option("--out", metavar="PATH", parser=new_corpus, help=NEW_FOLDER)]
OutModel = Annotated[Path, typer.Option("--out", metavar="PATH", parser=new_model, help=NEW_FOLDER)]
OutFile = Annotated[
    Path | None,
    typer.Option("--out", metavar="PATH", parser=new_path, help="File to write. Default: standard output."),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what is at --out.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as one JSON document.")]
Titles = Annotated[bool, typer.Option("--titles", help="Add a column with the titles of the items to the CSV.")]
Engine = Annotated[
    Literal["here", "ray"], typer.Option(help="Where the work is done: on this machine, or on a Ray cluster.")
]
RayAddress = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="With --engine ray: the cluster to join. Default: one on this machine."),
]
Newcomer = Annotated[
    str | None,
    typer.Option(
        "--reviews",
        metavar="FILE",
        parser=text_or_file,
        help="Reviews by a newcomer, separated by blank lines. - reads standard input.",
    ),
]


def check_engine(engine: str, address: str | None) -> None:
    """Refuse an address for an engine that has none."""
    if address is not None and engine != "ray":
        raise UsageError("an address is for the engine ray", where="--ray-address", fix="add --engine ray")


def key_values(given: list[str] | None, option: str) -> dict[str, str]:
    """`key=value` strings as a mapping. If a key is repeated, the last one counts."""
    pairs = [text.partition("=") for text in given or []]
    for (key, equals, _), text in zip(pairs, given or [], strict=True):
        if not key.strip() or not equals:
            raise UsageError(f"{text!r} is not of the form key=value", where=option, fix=f"write {option} key=value")
    return {key.strip(): value.strip() for key, _, value in pairs}


def newcomer_reviews(user: str, file: str | None) -> list[str] | None:
    """The reviews of a newcomer, or None if the user is one the model knows."""
    if file is None and user != NEWCOMER:
        return None
    if file is None or user != NEWCOMER:
        what = "the user - means a newcomer, who needs --reviews" if file is None else "--reviews is for a newcomer"
        raise UsageError(what, where="USER", fix="give both - as the user and --reviews FILE, or neither")
    from carp.render.console_tables import read_newcomer

    return read_newcomer(file)


def read_ids(file: Path) -> list[str]:
    """The ids in a file, one a line; blank lines do not count."""
    try:
        lines = file.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"cannot be read ({error})", where=str(file), fix="give a UTF-8 file, one id a line"
        ) from error
    found = [line.strip() for line in lines if line.strip()]
    if not found:
        raise InputError("there is no id in it", where=str(file), fix="write one id a line")
    return found
