"""How many bytes the values of a table take, counted by polars before Python makes an object of any of them.

Parquet writes a value that is repeated once, so a small file may hold rows without end.
"""

from __future__ import annotations

from typing import Any

VALUE_BYTES = 8  # that a value counts besides its content


def row_bytes(batch: Any) -> Any:
    """The bytes of each row of a polars frame: texts, bytes and nested values with all that they hold."""
    import polars

    contents = [_content_bytes(polars.col(name), kind) for name, kind in batch.schema.items()]
    counted = [one.fill_null(0).alias(str(place)) for place, one in enumerate(contents) if one is not None]
    fixed = VALUE_BYTES * batch.width
    if not counted:
        return polars.repeat(fixed, batch.height, dtype=polars.Int64, eager=True)
    return batch.select(*counted).select((polars.sum_horizontal(polars.all()) + fixed).alias("bytes"))["bytes"]


def _content_bytes(values: Any, kind: Any) -> Any:
    """What the values of a column hold, null where there is no value; None if all take the same."""
    import polars

    if isinstance(kind, polars.Categorical | polars.Enum):
        values, kind = values.cast(polars.String), polars.String
    if kind == polars.String:
        return values.str.len_bytes().cast(polars.Int64)
    if kind == polars.Binary:
        return values.bin.size().cast(polars.Int64)
    if isinstance(kind, polars.Array):
        values, kind = values.arr.to_list(), polars.List(kind.inner)
    if isinstance(kind, polars.List):
        count = VALUE_BYTES * values.list.len().cast(polars.Int64)
        inside = _content_bytes(polars.element(), kind.inner)
        return count if inside is None else count + values.list.eval(inside.fill_null(0)).list.sum()
    if isinstance(kind, polars.Struct):
        found = [_content_bytes(values.struct.field(one.name), one.dtype) for one in kind.fields]
        fixed = polars.lit(VALUE_BYTES * len(kind.fields), dtype=polars.Int64)
        return polars.sum_horizontal(fixed, *[one.fill_null(0) for one in found if one is not None])
    return None
