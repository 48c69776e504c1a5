"""Folders that are checked as a whole, and signed as they were checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from carp.errors import StorageError
from carp.storage.sealed_folders import opened_folder
from carp.storage.signatures import MANIFEST, write_signature
from carp.storage.written_files import json_of


def check_folder(path: Path | str, kind: str, *, contents: bool = True) -> dict[str, Any]:
    """The manifest of a folder whose files are all there and unaltered; anything else is an error."""
    with opened_folder(path, kind) as folder:
        if contents:
            folder.check_all()
        return folder.manifest


def check_signed(path: Path, kind: str, key_file: Path) -> None:
    """Refuse a folder that was not signed with a key, or is not as it was when it was signed."""
    with opened_folder(path, kind, key_file) as folder:
        folder.check_all()


def sign_folder(path: Path, kind: str, key_file: Path) -> None:
    """Sign a sealed folder: the manifest that its files were checked against, whatever stands in its place by now."""
    with opened_folder(path, kind, unsigned=True) as folder:
        folder.check_all()
        write_signature(path, folder.manifest_bytes, key_file)


def kind_of(path: Path) -> str:
    """What kind of folder this says it is."""
    manifest = json_of((path / MANIFEST).read_bytes(), path) if (path / MANIFEST).is_file() else None
    kind = manifest.get("kind") if isinstance(manifest, dict) else None
    if not isinstance(kind, str):
        raise StorageError("this is neither a model nor a corpus", where=str(path), fix="give a folder made by carp")
    return kind
