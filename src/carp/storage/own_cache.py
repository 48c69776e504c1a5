"""The user's own folder for what can be made again at any time."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def own_cache() -> Path:
    """The folder, made where it is missing. One that others may write to is refused: what lies in it is trusted."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or _home() / ".cache") / "carp"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    facts = folder.stat()
    if facts.st_uid != os.getuid():
        raise OSError(f"the cache folder {folder} belongs to another user")
    if stat.S_IMODE(facts.st_mode) & 0o022:
        raise OSError(f"others may write to the cache folder {folder}: chmod 700 it")
    return folder


def _home() -> Path:
    """Containers run as users that no file of the system names, and who may have no $HOME."""
    try:
        return Path.home()
    except RuntimeError as error:
        raise OSError("this user has no home folder for a cache: set $XDG_CACHE_HOME") from error
