"""What several unit tests share."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

import carp
from carp.reviews.corpora.corpus import build_corpus


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a corpus small enough to run grids on; its name is one that has published figures."""
    folder = tmp_path_factory.mktemp("corpora") / "musical-instruments"
    shop = carp.make_shop(people=20, things=10, reviews_per_person=7, seed=1)
    build_corpus(carp.read_reviews(shop.frame()), min_reviews=1).save(folder)
    return folder


@pytest.fixture
def call_script(monkeypatch: pytest.MonkeyPatch) -> Callable[..., object]:
    """Runs a script as if it were typed with these words; gives its exit code."""

    def call(script: ModuleType, *words: object) -> object:
        monkeypatch.setattr(sys, "argv", [f"{script.__name__}.py", *map(str, words)])
        try:
            script.main()
        except SystemExit as ended:
            return ended.code
        return 0

    return call
