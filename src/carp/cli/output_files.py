"""Checks of --out, made before the work rather than after it."""

from __future__ import annotations

import os
from pathlib import Path

from carp.errors import StorageError, UsageError


def check_new_folder(path: Path, kind: str, overwrite: bool) -> None:
    """Refuse an output folder that could not be written in the end."""
    from carp.storage import MANIFEST, bring_back, disk_errors, read_json, refuse_existing

    with disk_errors(path):
        bring_back(path)
        refuse_existing(path, overwrite)
        if (path / MANIFEST).is_file():
            manifest = read_json(path / MANIFEST)
            found = manifest.get("kind") if isinstance(manifest, dict) else None
            if found != kind:
                what = f"this is a {found}, and a {kind} would replace it"
                raise UsageError(what, where=str(path), fix="choose another --out")
        check_may_write(path)


def check_new_file(path: Path, overwrite: bool) -> None:
    if path.is_dir():
        raise UsageError("this is a folder", where=str(path), fix="give the path of a file with --out")
    if path.exists() and not overwrite:
        raise UsageError("this already exists", where=str(path), fix="choose another --out, or add --overwrite")
    check_may_write(path)


def check_may_write(path: Path) -> None:
    parent = path.absolute().parent
    while not parent.exists() and parent != parent.parent:
        parent = parent.parent
    if not parent.is_dir():
        raise StorageError("this is a file, and a folder is needed here", where=str(parent), fix="choose another --out")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise StorageError("you may not write here", where=str(parent), fix="choose a folder you may write to")
