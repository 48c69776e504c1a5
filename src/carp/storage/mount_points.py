"""Folders at which a volume is mounted. They stay while it is mounted, so nothing can be put in their place."""

from __future__ import annotations

import os
from pathlib import Path

from carp.errors import StorageError


def refuse_mount_point(path: Path) -> None:
    """Refuse to replace a folder at which a volume is mounted, as containers have it: the system would not do it."""
    if is_mount_point(path):
        what = "a volume is mounted at this very folder, which can therefore not be replaced"
        fix = "mount the folder above it, and give the path of this folder in there"
        raise StorageError(what, where=str(path), fix=fix)


def is_mount_point(path: Path) -> bool:
    """Whether something is mounted at a folder, be it another folder of the same disk."""
    if not path.is_dir() or path.is_symlink():
        return False
    mounts = {_mount_of(path), _mount_of(path.absolute().parent)}
    return path.is_mount() or (len(mounts) == 2 and None not in mounts)


def _mount_of(folder: Path) -> str | None:
    """The number of the mount that a folder belongs to; None where the system does not say it as Linux does."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return None
    try:
        facts = Path(f"/proc/self/fdinfo/{handle}").read_text("ascii")
    except OSError:
        return None
    finally:
        os.close(handle)
    return next((line for line in facts.splitlines() if line.startswith("mnt_id:")), None)
