"""What the sources say of a dataclass' fields: kind, default, and the comment that stands beside each."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import io
import tokenize
from dataclasses import dataclass


@dataclass(frozen=True)
class WrittenField:
    """A field of a dataclass as its source has it."""

    name: str
    kind: str
    default: str
    comment: str


def fields_of(kind: type) -> list[WrittenField]:
    """The fields of a dataclass and of those it extends, in order.

    >>> from carp.answers import Recommendation
    >>> [field.name for field in fields_of(Recommendation)]
    ['item', 'rating', 'item_mean', 'title']
    """
    found: dict[str, WrittenField] = {}
    for one in reversed([one for one in kind.__mro__ if dataclasses.is_dataclass(one)]):
        found.update({field.name: field for field in _written_fields(one)})
    return list(found.values())


def _written_fields(kind: type) -> list[WrittenField]:
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
        found.append(WrittenField(node.target.id, ast.unparse(node.annotation), default, comment))
    return found


def _comments(source: str) -> dict[int, str]:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {token.start[0]: token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT}
