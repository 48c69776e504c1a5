"""Options and arguments shared by several commands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

import typer

from carp.errors import InputError, UsageError

NEWCOMER = "-"
MAX_SEED = 2**32 - 1

_ADDRESS = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+://")


class Address(str):
    """Where something lies that is not on this machine, such as s3://bucket/key."""

    __slots__ = ()

    @property
    def name(self) -> str:
        return self.rstrip("/").rsplit("/", 1)[-1]


def place_of(text: str) -> Path | Address:
    """An address, or else a path."""
    return Address(text) if _ADDRESS.match(text) else Path(text)


Model = Annotated[
    Path, typer.Argument(metavar="MODEL", parser=place_of, help="A folder made by carp train, or its address.")
]
Out = Annotated[
    Path,
    typer.Option(
        "--out", metavar="PATH", parser=place_of, help="Folder to write, or an address. It must not exist yet."
    ),
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
        "--reviews", metavar="FILE", help="Reviews by a newcomer, separated by blank lines. - reads standard input."
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
