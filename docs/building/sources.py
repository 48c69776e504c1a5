"""What the sources say of a dataclass' fields: kind, default, and the comment or docstring that stands beside them."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import io
import tokenize
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Field:
    name: str
    kind: str
    default: str
    comment: str


def fields_of(kind: type) -> list[Field]:
    """The fields of a dataclass and of those it extends, in order.

    >>> from carp.answers import Recommendation
    >>> [field.name for field in fields_of(Recommendation)]
    ['item', 'rating', 'item_mean', 'title']
    """
    found: dict[str, Field] = {}
    for one in reversed([one for one in kind.__mro__ if dataclasses.is_dataclass(one)]):
        found.update({field.name: field for field in _written_fields(one)})
    return list(found.values())


def _written_fields(kind: type) -> list[Field]:
    source = inspect.cleandoc("\n" + inspect.getsource(kind))
    lines = source.splitlines()
    comments = _comments(source)
    found = []
    for node in ast.parse(source).body[0].body:  # type: ignore[attr-defined]
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        assert node.end_lineno is not None
        default = "" if node.value is None else ast.unparse(node.value)
        comment = comments.get(node.end_lineno, "")
        below = node.end_lineno
        while comment and below < len(lines) and lines[below].strip().startswith("#") and "----" not in lines[below]:
            comment += " " + lines[below].strip().lstrip("# ")
            below += 1
        found.append(Field(node.target.id, ast.unparse(node.annotation), default, comment))
    return found


def _comments(source: str) -> dict[int, str]:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {token.start[0]: token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT}


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
