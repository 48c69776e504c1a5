"""Checks of --out, made before the work rather than after it."""

from __future__ import annotations

import os
from pathlib import Path

from carp.errors import StorageError, UsageError

PAGES = {".html": "html", ".htm": "html", ".json": "json"}  # what explanations and profiles are written as


def check_new_folder(path: Path, kind: str, overwrite: bool) -> None:
    """Refuse an output folder that could not be written in the end."""
    from carp.storage import (
        MANIFEST,
        bring_back,
        disk_errors,
        read_json,
        real_place,
        refuse_existing,
        refuse_mount_point,
    )

    with disk_errors(path):
        bring_back(path)
        refuse_existing(path, overwrite, "choose another --out", "add --overwrite")
        if (path / MANIFEST).is_file():
            manifest = read_json(path / MANIFEST)
            found = manifest.get("kind") if isinstance(manifest, dict) else None
            if found != kind:
                what = f"this is a {found}, and a {kind} would replace it"
                raise UsageError(what, where=str(path), fix="choose another --out")
        refuse_mount_point(real_place(path))
        check_may_write(real_place(path))


def format_of(out: Path | None, given: str | None, endings: dict[str, str]) -> str:
    """The format of a result: as given, else by the ending of the file, else text; another ending is refused.

    >>> format_of(Path("a.html"), None, {".html": "html"}), format_of(None, None, {})
    ('html', 'text')
    """
    ending = "" if out is None else out.suffix.lower()
    if given is not None or ending in ("", ".txt", ".text"):
        return given or "text"
    if ending not in endings:
        known = ", ".join(sorted(endings))
        fix = f"end its name in {known} or .txt, or name what it is to hold with --format"
        raise UsageError(f"nothing here writes {ending} files", where=str(out), fix=fix)
    return endings[ending]


def check_new_file(path: Path, overwrite: bool) -> None:
    if path.is_dir():
        raise UsageError("this is a folder", where=str(path), fix="give the path of a file with --out")
    if path.exists() and not overwrite:
        raise UsageError("this already exists", where=str(path), fix="choose another --out, or add --overwrite")
    check_may_write(path)


def check_may_write(path: Path, option: str = "--out") -> None:
    """Refuse a place where nothing could be written in the end."""
    parent = path.absolute().parent
    while not parent.exists() and parent != parent.parent:
        parent = parent.parent
    if not parent.is_dir():
        what = "this is a file, and a folder is needed here"
        raise StorageError(what, where=str(parent), fix=f"choose another {option}")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise StorageError("you may not write here", where=str(parent), fix="choose a folder you may write to")
