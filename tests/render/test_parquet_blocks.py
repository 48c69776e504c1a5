"""Rows as one Parquet file: all of them, in order, and never many in memory."""

from __future__ import annotations

import weakref

import polars as pl
import pytest

from carp.render import parquet_blocks
from carp.render.everybody_files import write_rows

KINDS = {"user": "String", "rank": "Int32", "rating": "Float64"}


class Row(dict):
    """A row that can be watched."""

    __hash__ = object.__hash__  # type: ignore[assignment]


def rows(count, alive=None):
    for number in range(count):
        row = Row(user=f"person {number}", rank=number % 3, rating=None if number % 5 else number / 2)
        if alive is not None:
            alive.add(weakref.ref(row, alive.discard))
            assert len(alive) <= 2 * parquet_blocks.ROWS_AT_ONCE
        yield row


@pytest.mark.parametrize("count", [0, 1, 7, 8, 20])
def test_all_rows_are_there_in_order_whatever_the_blocks(count, tmp_path, monkeypatch):
    monkeypatch.setattr(parquet_blocks, "ROWS_AT_ONCE", 8)
    assert write_rows(rows(count), KINDS, tmp_path / "all.parquet") == count
    found = pl.read_parquet(tmp_path / "all.parquet")
    assert found.to_dicts() == [dict(row) for row in rows(count)]
    assert found.schema == {"user": pl.String, "rank": pl.Int32, "rating": pl.Float64}
    assert [file.name for file in tmp_path.iterdir()] == ["all.parquet"]


def test_no_more_than_a_block_of_rows_is_held(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet_blocks, "ROWS_AT_ONCE", 10)
    assert write_rows(rows(200, alive=set()), KINDS, tmp_path / "all.parquet") == 200


def test_rows_that_fail_leave_nothing_behind(tmp_path):
    def failing():
        yield from rows(3)
        raise ValueError("the model failed")

    with pytest.raises(ValueError, match="the model failed"):
        write_rows(failing(), KINDS, tmp_path / "all.parquet")
    assert not list(tmp_path.iterdir())
