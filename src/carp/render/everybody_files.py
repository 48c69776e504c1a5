"""Predictions and explanations of everybody's best things as Parquet, a block of people at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from carp.recommender import Recommender
from carp.render.explanation_json import explanation_json
from carp.render.parquet_blocks import write_parquet
from carp.render.summed_telling import told

PREDICTED = {"user": "String", "rank": "Int32", "item": "String", "title": "String", "rating": "Float64"}
PREDICTED |= {"low": "Float64", "high": "Float64"}
EXPLAINED = {**PREDICTED, "summary": "String", "explanation": "String"}


def predicted_rows(recommender: Recommender, n: int) -> Iterator[dict[str, Any]]:
    """Each person's best things with their ratings, and where nine ratings of ten lie."""
    for user, found in recommender.recommend_all(n):
        rated = recommender.predict([(user, one.item) for one in found])
        for rank, (one, rating, low, high) in enumerate(zip(found, rated, *rated.intervals(), strict=True), 1):
            named = {"user": user, "rank": rank, "item": one.item, "title": one.title}
            yield {**named, "rating": rating, "low": low, "high": high}


def explained_rows(recommender: Recommender, n: int) -> Iterator[dict[str, Any]]:
    """The same with the reasons: in a sentence or two, and whole as the JSON that carp explain gives."""
    for row in predicted_rows(recommender, n):
        explanation = recommender.explain(row["user"], row["item"])
        yield {**row, "summary": told(explanation).summary, "explanation": explanation_json(explanation)}


def write_rows(rows: Iterator[dict[str, Any]], kinds: dict[str, str], file: Path) -> int:
    """Write the rows as one Parquet file; how many there were."""
    from carp.storage import new_file

    with new_file(file) as out:
        return write_parquet(rows, kinds, out)
