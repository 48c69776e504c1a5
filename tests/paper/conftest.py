"""What the tests of the paper's equations share."""

from __future__ import annotations

from types import ModuleType

import pytest

import slow_carp


@pytest.fixture(scope="module", autouse=True)
def one_thread(single_thread):
    """Tiny models: see `single_thread`."""


@pytest.fixture(scope="session")
def twin() -> ModuleType:
    return slow_carp
