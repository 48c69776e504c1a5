"""Where results go: refusing before the work what could only be refused after it."""

from __future__ import annotations

import os
from pathlib import Path

from carp.errors import StorageError, UsageError


def check_new_folder(path: Path, kind: str, overwrite: bool) -> None:
    """Refuse before the work what could only be refused after it."""
    from carp.storage import MANIFEST, bring_back, disk_errors, read_json, refuse_existing

    with disk_errors(path):
        bring_back(path)
        refuse_existing(path, overwrite)
        if (path / MANIFEST).is_file():
            manifest = read_json(path / MANIFEST)
            found = manifest.get("kind") if isinstance(manifest, dict) else None
            if found != kind:
                what = f"this is a {found}, which no {kind} replaces"
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
        raise StorageError("a file stands where a folder is needed", where=str(parent), fix="choose another --out")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise StorageError("writing is not allowed here", where=str(parent), fix="choose a folder you may write to")
