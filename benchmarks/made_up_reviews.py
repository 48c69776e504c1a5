"""Reviews of a small made-up shop, read from a file of lines: no library for frames is needed."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import carp


def write_shop(path: Path, *, people: int = 16, things: int = 8, seed: int = 2) -> None:
    records = carp.make_shop(people=people, things=things, reviews_per_person=6, seed=seed).records()
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


def shop_reviews(*, people: int = 16, things: int = 8, seed: int = 2) -> Any:
    """What `carp.read_reviews` makes of the shop."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "shop.jsonl"
        write_shop(path, people=people, things=things, seed=seed)
        return carp.read_reviews(path)
