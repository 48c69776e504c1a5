"""Tables of the reference, from what the sources say of a dataclass' fields."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any

from carp.cli.written_fields import fields_of


def cell(text: str) -> str:
    """Text that is safe in a cell of a table.

    >>> cell("a | b")
    'a \\\\| b'
    """
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


def code(text: str) -> str:
    return f"`{text}`" if text else ""


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    names = list(header)
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def resolve(path: str) -> Any:
    """An object by its dotted path."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def fields_table(path: str) -> str:
    """The fields of a dataclass as a table, for a page of the reference."""
    rows = [[code(one.name), code(one.kind), cell(one.comment)] for one in fields_of(resolve(path))]
    return table(("field", "type", "meaning"), rows)
