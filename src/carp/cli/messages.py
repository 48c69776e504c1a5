"""How commands talk: results to standard output, everything else to standard error."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from carp.errors import CarpError


def say(words: str) -> None:
    print(words, file=sys.stderr)


def show_json(value: Any) -> None:
    from carp.render.console_tables import json_document

    print(json_document(value))


def coloured() -> bool:
    """Whether what is printed may have colours."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


@contextlib.contextmanager
def naming(place: str | Path) -> Iterator[None]:
    """Add a place to errors that do not have one."""
    try:
        yield
    except CarpError as error:
        error.where = error.where or str(place)
        raise


@contextlib.contextmanager
def progress_bars() -> Iterator[Callable[[str], Callable[[int, int], None]]]:
    """Progress bars for work that reports (done, total). Shown only in a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:

        def stage(name: str) -> Callable[[int, int], None]:
            task = progress.add_task(name, total=None)
            return lambda done, total: progress.update(task, completed=done, total=total)

        yield stage
