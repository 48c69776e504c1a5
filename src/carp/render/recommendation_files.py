"""Recommendations for everybody as a Parquet file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, BinaryIO

from carp.answers import Recommendation
from carp.render.parquet_blocks import write_parquet

RECOMMENDED = {"user": "String", "rank": "Int32", "item": "String", "rating": "Float64", "item_average": "Float64"}
RECOMMENDED |= {"title": "String"}


def recommendations_parquet(everybody: Iterable[tuple[str, Sequence[Recommendation]]], file: BinaryIO) -> None:
    """A row for each recommendation: user, rank, item, rating, the item's average and its title."""
    write_parquet(_rows(everybody), RECOMMENDED, file)


def _rows(everybody: Iterable[tuple[str, Sequence[Recommendation]]]) -> Iterator[dict[str, Any]]:
    for user, found in everybody:
        for rank, one in enumerate(found, 1):
            told = user, rank, one.item, one.rating, one.item_mean, one.title
            yield dict(zip(RECOMMENDED, told, strict=True))
