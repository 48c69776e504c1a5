"""Files that hold a key: who else may read one has the key."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from carp.errors import UsageError

OTHERS, GROUP_AND_OTHERS = 0o007, 0o077


def read_secret(path: Path, most: int, *, of_a_group: bool = False) -> bytes:
    """At most so many bytes of a file that nobody else may use; the errors of the system are the caller's.

    Args:
        path: The file.
        most: How many bytes are read.
        of_a_group: Whether the group of a file that belongs to another user may read it. Those that run containers
            hand over keys in that way.
    """
    with path.open("rb") as file:
        facts, content = os.fstat(file.fileno()), file.read(most)
    by_group = of_a_group and facts.st_uid != os.getuid()
    if stat.S_IMODE(facts.st_mode) & (OTHERS if by_group else GROUP_AND_OTHERS):
        fix = f"chmod {'640' if by_group else '600'} {path}"
        raise UsageError("others may read this key", where=str(path), fix=fix)
    return content
