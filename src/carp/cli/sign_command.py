"""The command that signs a folder, or checks its signature."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from carp.cli.messages import say
from carp.cli.places import changed_folder, secret_path


def sign(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", parser=changed_folder, help="A model or a corpus, or its address.")
    ],
    key_file: Annotated[
        Path,
        typer.Option(metavar="FILE", parser=secret_path, help="The key: 32 bytes or more, which nobody else may read."),
    ],
    check: Annotated[bool, typer.Option("--check", help="Check the signature instead of writing one.")] = False,
) -> None:
    """Sign a model or a corpus with a key, or check its signature. With CARP_KEY_FILE, only signed ones are loaded."""
    from carp.storage import check_signed, kind_of, sign_folder, sole_writer

    kind = kind_of(folder)
    if check:
        check_signed(folder, kind, key_file)
        say(f"{folder}: this {kind} was signed with this key, and every file is as it was.")
        return
    with sole_writer(folder) as place:
        sign_folder(place, kind, key_file)
    say(f"{folder}: signed. Whoever has the key can check it: CARP_KEY_FILE={key_file}")
