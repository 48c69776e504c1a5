"""Options and arguments that several commands take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from carp.errors import UsageError

NEWCOMER = "-"
MAX_SEED = 2**32 - 1

Model = Annotated[Path, typer.Argument(metavar="MODEL", help="A folder made by carp train.")]
Out = Annotated[Path, typer.Option("--out", help="Where the result goes; it must not exist yet.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what an earlier run left at --out.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on standard output, nothing else there.")]
Newcomer = Annotated[
    str | None,
    typer.Option("--reviews", metavar="FILE", help="What a newcomer wrote, reviews apart by blank lines; - is stdin."),
]


def key_values(given: list[str] | None, option: str) -> dict[str, str]:
    """`key=value` strings as a mapping; the last of a key wins."""
    pairs = [text.partition("=") for text in given or []]
    for (key, equals, _), text in zip(pairs, given or [], strict=True):
        if not key.strip() or not equals:
            raise UsageError(f"{text!r} is not of the form key=value", where=option, fix=f"write {option} key=value")
    return {key.strip(): value.strip() for key, _, value in pairs}


def newcomer_reviews(user: str, file: str | None) -> list[str] | None:
    """What a newcomer wrote; None where the user is one the model knows."""
    if file is None and user != NEWCOMER:
        return None
    if file is None or user != NEWCOMER:
        what = "the user - is a newcomer, who needs --reviews" if file is None else "--reviews is for a newcomer"
        raise UsageError(what, where="USER", fix="give - as the user together with --reviews FILE, or neither")
    from carp.render.console_tables import read_newcomer

    return read_newcomer(file)
