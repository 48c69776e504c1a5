"""Every public function says what it takes and what it gives back."""

from __future__ import annotations

import inspect

import pytest

import carp

CLASSES = (carp.Recommender, carp.Corpus, carp.Explanation)
FUNCTIONS = [getattr(carp, name) for name in carp.__all__ if inspect.isfunction(getattr(carp, name))]
METHODS = [
    inspect.unwrap(getattr(member, "__func__", member))
    for owner in CLASSES
    for name, member in vars(owner).items()
    if not name.startswith("_") and inspect.isfunction(getattr(member, "__func__", member))
]


@pytest.mark.parametrize("function", [*FUNCTIONS, *METHODS], ids=lambda function: function.__qualname__)
def test_a_public_function_documents_its_arguments_and_its_answer(function):
    words = inspect.getdoc(function) or ""
    taken = [name for name in inspect.signature(function).parameters if name not in ("self", "cls")]
    section = words.partition("Args:")[2].partition("Returns:")[0]
    assert not [name for name in taken if f"{name}:" not in section]
    answers = inspect.signature(function).return_annotation not in ("None", None, inspect.Signature.empty)
    assert ("Returns:" in words) == answers
