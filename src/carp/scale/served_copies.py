"""Copies of a model at an address, for a service: another one whenever another model is there."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

from carp.scale.remote_folders import bring_here, folder_for_copies, sum_there


@dataclass(frozen=True)
class ServedCopies:
    """A folder of this machine with a copy of the model, and for a while with two, when one follows the other."""

    address: str
    folder: Path

    def fetch(self, served: str | None = None) -> Path | None:
        """A new copy; None where the model whose manifest has this sum is still the one at the address."""
        if served is not None and sum_there(self.address) == served:
            return None
        place = Path(mkdtemp(dir=self.folder)) / self.address.rstrip("/").rsplit("/", 1)[-1]
        try:
            return bring_here(self.address, place)
        except BaseException:
            self.let_go(place)
            raise

    def let_go(self, copy: Path) -> None:
        """Remove a copy that no process uses any more."""
        shutil.rmtree(copy.parent, ignore_errors=True)


@contextlib.contextmanager
def served_copies(address: str, shared: Path | None = None) -> Iterator[ServedCopies]:
    """Copies of a model at an address, all of which are removed in the end.

    Args:
        address: Where the model is.
        shared: A folder that all who read the copies see. None: this machine alone reads them.
    """
    with folder_for_copies(shared) as folder:
        yield ServedCopies(address, folder)
