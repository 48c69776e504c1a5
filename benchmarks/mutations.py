"""What can be broken in a file of Python: statements left out, conditions turned, parts of them and flags dropped.

Each is one change of the source, small enough that a promise without a test shows.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeGuard

STRICT = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">"}
NOUGHT = {"O_RDONLY"}  # flags that are the number 0: nothing changes without them
Found = Iterator[tuple[ast.expr, str]]


@dataclass(frozen=True)
class Mutant:
    """A stretch of a file, from a column of a line to a column of another, and what stands there instead."""

    file: str
    line: int
    column: int
    last: int
    last_column: int
    what: str
    instead: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.what}"

    def applied_to(self, source: str) -> str:
        lines = source.encode().splitlines(keepends=True)  # columns count bytes
        begin, end = lines[self.line - 1][: self.column], lines[self.last - 1][self.last_column :]
        lines[self.line - 1 : self.last] = [begin + self.instead.encode() + end]
        return b"".join(lines).decode()


def left_out(file: str, source: str) -> Iterator[Mutant]:
    """One for each statement that can be left out: calls, checks that raise, and clean-ups."""
    for statement in _in_functions(source):
        if _can_go(statement):
            words = (ast.get_source_segment(source, statement) or "").split("\n")[0]
            yield _mutant(file, statement, words, "pass")


def turned(file: str, source: str) -> Iterator[Mutant]:
    """One for each way to turn a condition: always, never, without one of its parts or flags, with an edge moved."""
    for node in _in_functions(source):
        for find in FINDERS:
            for place, instead in find(node, source):
                words = " ".join((ast.get_source_segment(source, place) or "").split())
                yield _mutant(file, place, f"{words} → {instead} (column {place.col_offset})", instead)


def _in_functions(source: str) -> Iterator[ast.AST]:
    """All nodes inside of functions, each once: one of a function inside a function is found twice."""
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    yield from dict.fromkeys(one for function in functions for one in ast.walk(function))


def _mutant(file: str, node: ast.stmt | ast.expr, what: str, instead: str) -> Mutant:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return Mutant(file, node.lineno, node.col_offset, node.end_lineno, node.end_col_offset, what, instead)


def _can_go(statement: ast.AST) -> TypeGuard[ast.stmt]:
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Call)
    return isinstance(statement, ast.If) and _only_raises(statement)


def _only_raises(statement: ast.If) -> bool:
    return any(isinstance(part, ast.Raise) for part in statement.body)


def _conditions(node: ast.AST, source: str) -> Found:
    """Conditions that always hold, or never. A check that raises and never does is a statement left out."""
    tests = node.ifs if isinstance(node, ast.comprehension) else [node.test] if isinstance(node, IFS) else []
    for test in tests:
        yield test, "True"
        if not (isinstance(node, ast.If) and _only_raises(node)):
            yield test, "False"


def _parts(node: ast.AST, source: str) -> Found:
    """Conditions without one of the parts that `and` and `or` put together."""
    if isinstance(node, ast.BoolOp):
        word = " and " if isinstance(node.op, ast.And) else " or "
        for dropped in node.values:
            kept = [ast.get_source_segment(source, one) or "" for one in node.values if one is not dropped]
            yield node, f"({word.join(kept)})"


def _flags(node: ast.AST, source: str) -> Found:
    """Flags that are put together, without one of them."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr) and _is_constant(node.right):
        yield node, ast.get_source_segment(source, node.left) or ""
        if _is_constant(node.left) and _name(node.left) not in NOUGHT:
            yield node, ast.get_source_segment(source, node.right) or ""


def _is_constant(node: ast.expr) -> bool:
    return _name(node).isupper()


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _edges(node: ast.AST, source: str) -> Found:
    """Comparisons whose edge belongs to the other side, and those of three without one of the two."""
    if isinstance(node, ast.Compare):
        sides = [ast.get_source_segment(source, one) or "" for one in (node.left, *node.comparators)]
        signs = [SIGNS[type(sign)] for sign in node.ops]
        for place, sign in enumerate(node.ops):
            if type(sign) in STRICT:
                yield node, _written(sides, [*signs[:place], STRICT[type(sign)], *signs[place + 1 :]])
        if len(signs) == 2:
            yield node, _written(sides[:2], signs[:1])
            yield node, _written(sides[1:], signs[1:])


def _written(sides: list[str], signs: list[str]) -> str:
    return sides[0] + "".join(f" {sign} {side}" for sign, side in zip(signs, sides[1:], strict=True))


IFS = ast.If | ast.IfExp
SIGNS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Is: "is",
    ast.IsNot: "is not",
    ast.In: "in",
    ast.NotIn: "not in",
}
FINDERS: list[Callable[[ast.AST, str], Found]] = [_conditions, _parts, _flags, _edges]
