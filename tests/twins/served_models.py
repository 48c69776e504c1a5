"""A service of its own process, for as long as a test needs it."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PLACE = re.compile(r"http://[^/]+:(\d+)")


@contextlib.contextmanager
def served(model: Path | str) -> Iterator[tuple[Any, int]]:
    """The process that serves a model, and its port."""
    command = [sys.executable, "-m", "carp", "serve", str(model), "--port", "0", "--workers", "1", "--log", os.devnull]
    service = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert service.stderr is not None
    try:
        yield service, next(int(found[1]) for line in service.stderr if (found := PLACE.search(line)))
    finally:
        service.terminate()
        service.wait(60)
        service.stderr.close()
