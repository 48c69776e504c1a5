"""The shape of the house: few modules at the top, one meaning for one name, and every room behind its own door."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src" / "carp"
FILES = sorted(SOURCE.rglob("*.py"))
MOST_AT_THE_TOP = 10
SPECIAL = {"__init__", "__main__"}
CHECKS = ("isinstance", "issubclass")


def name_of(path):
    return path.relative_to(SOURCE).as_posix()


def test_at_most_ten_modules_stand_at_the_top():
    assert len(list(SOURCE.glob("*.py"))) <= MOST_AT_THE_TOP


def test_no_module_or_package_name_occurs_twice():
    modules = [path.stem for path in FILES if path.stem not in SPECIAL]
    packages = [path.parent.name for path in FILES if path.stem == "__init__" and path.parent != SOURCE]
    assert not [name for name, times in Counter(modules + packages).items() if times > 1]


def test_no_public_class_name_occurs_twice():
    names = [
        node.name
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]
    assert not [name for name, times in Counter(names).items() if times > 1]


@pytest.mark.parametrize("path", [path for path in FILES if path.stem == "__init__"], ids=name_of)
def test_every_package_says_what_lives_there(path):
    words = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    assert len(words.split(".")) > 2, "a package says what lives there, what comes in and what goes out"


def carp_checks(tree):
    """Places that ask whether something is a Carp."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id not in CHECKS:
            continue
        if any(isinstance(part, ast.Name) and part.id == "Carp" for part in ast.walk(node.args[1])):
            yield node.lineno


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_only_models_and_kernels_ask_whether_a_model_is_carp(path):
    if path.relative_to(SOURCE).parts[0] in ("models", "kernels"):
        pytest.skip("models and kernels may know CARP")
    assert not list(carp_checks(ast.parse(path.read_text("utf-8"))))


def own_names(tree):
    """What a module defines under a private name: functions, classes, attributes and variables."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def foreign_privates(tree):
    """Private members and names of other modules that this one uses."""
    own = set(own_names(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr) and node.attr not in own:
            yield f"line {node.lineno}: .{node.attr}"
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("carp"):
            yield from (f"line {node.lineno}: {alias.name}" for alias in node.names if is_private(alias.name))


def is_private(name):
    return name.startswith("_") and not name.startswith("__") and name not in LIBRARIES


# Documented members of libraries that happen to begin with an underscore.
LIBRARIES = {"_replace", "_asdict", "_fields", "_fields_", "_softmax_backward_data", "_exit", "_as_parameter_"}


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_no_module_uses_anothers_private_members(path):
    assert not list(foreign_privates(ast.parse(path.read_text("utf-8"))))
