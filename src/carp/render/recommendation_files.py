"""Recommendations for everybody as a Parquet file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import BinaryIO

from carp.answers import Recommendation


def recommendations_parquet(everybody: Iterable[tuple[str, Sequence[Recommendation]]], file: BinaryIO) -> None:
    """A row for each recommendation: user, rank, item, rating, the item's average and its title."""
    import polars

    columns: dict[str, list[object]] = {
        name: [] for name in ("user", "rank", "item", "rating", "item_average", "title")
    }
    for user, found in everybody:
        for rank, one in enumerate(found, 1):
            row = (user, rank, one.item, one.rating, one.item_mean, one.title)
            for column, value in zip(columns.values(), row, strict=True):
                column.append(value)
    kinds = [polars.String, polars.Int32, polars.String, polars.Float64, polars.Float64, polars.String]
    frame = polars.DataFrame(columns, schema=dict(zip(columns, kinds, strict=True)))
    frame.write_parquet(file)
