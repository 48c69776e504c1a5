"""A store in memory: what lies there, after each step of some work, and put there again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import fsspec
import pytest

Files = dict[str, bytes]  # by their names below a place
STEPS = ("pipe_file", "put_file", "cp_file", "rm_file")


def files_below(root: str) -> Files:
    system = fsspec.filesystem("memory")
    return {one.removeprefix(f"{root}/"): system.cat_file(one) for one in system.find(root)}


def states_below(root: str, system: Any, work: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> list[Files]:
    """What is there before and after each step of some work: a killed command leaves one of these."""
    seen = [files_below(root)]

    def watched(step: Callable[..., object]) -> Callable[..., object]:
        def taken(*given: Any) -> object:
            found = step(*given)
            seen.append(files_below(root))
            return found

        return taken

    with monkeypatch.context() as watching:
        for name in STEPS:
            watching.setattr(system, name, watched(getattr(system, name)))
        work()
    return seen


def let_be_below(root: str, system: Any, state: Files) -> None:
    """Let this lie there, and nothing else in the store."""
    system.store.clear()
    for name, content in state.items():
        system.pipe_file(f"{root}/{name}", content)
