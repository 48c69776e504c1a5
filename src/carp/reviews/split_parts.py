"""The parts of a split and their names, and the type of progress callbacks."""

from __future__ import annotations

from collections.abc import Callable

PARTS = ("train", "valid", "test")
TRAIN, VALID, TEST = range(3)
SPLIT_NAMES = {"train": TRAIN, "valid": VALID, "validation": VALID, "val": VALID, "dev": VALID, "test": TEST}

OnProgress = Callable[[int, int], None]  # done so far, and total
