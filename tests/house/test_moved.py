"""Who imports by an old name is told where it went."""

from __future__ import annotations

import importlib

import pytest

from carp.moved import MODULES, NAMES


@pytest.mark.parametrize("old", MODULES)
def test_an_old_module_says_where_it_is_now(old):
    with pytest.raises(ModuleNotFoundError, match=rf"carp\.{old} is carp\.{MODULES[old]} since"):
        importlib.import_module(f"carp.{old}")


@pytest.mark.parametrize("new", sorted(set(MODULES.values())))
def test_every_new_place_is_there(new):
    assert importlib.util.find_spec(f"carp.{new}") is not None


@pytest.mark.parametrize(
    ("package", "module", "name"),
    [(package, module, name) for package, held in NAMES.items() for module, names in held.items() for name in names],
)
def test_an_old_name_of_a_package_says_where_it_is_now(package, module, name):
    assert hasattr(importlib.import_module(module), name)
    with pytest.raises(ImportError, match=f"{name} is in {module} since"):
        exec(f"from {package} import {name}")


def test_names_nobody_ever_had_are_missing_as_usual():
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'carp\.nothing'"):
        importlib.import_module("carp.nothing")
    assert not hasattr(importlib.import_module("carp.explain"), "nothing")
