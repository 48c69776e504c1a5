"""What tests of damage and failure share."""

from __future__ import annotations

from pathlib import Path

import pytest

from carp.storage import new_folder, write_bytes


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A sealed folder with a file, and another one deeper inside."""
    with new_folder(tmp_path / "thing", "thing") as partial:
        write_bytes(partial / "a.txt", b"content")
        write_bytes(partial / "deep" / "b.txt", b"content")
    return tmp_path / "thing"
