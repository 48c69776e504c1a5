"""Rows as one Parquet file, however many there are: memory holds one block of them at a time."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from carp.storage import disk_errors

ROWS_AT_ONCE = 5_000
OF_THE_SYSTEM = re.compile(r"\(os error (\d+)\)")  # how polars says that the system refused something


def write_parquet(rows: Iterator[dict[str, Any]], kinds: dict[str, str], file: BinaryIO) -> int:
    """Write the rows, whose columns are of polars' types of these names; how many there were.

    Blocks are kept beside the file until they are joined: nothing there can add rows to a Parquet file, and joining
    reads block after block.
    """
    import polars

    schema = {name: getattr(polars, kind) for name, kind in kinds.items()}
    beside = Path(file.name).parent
    with disk_errors(beside), _refusals(), tempfile.TemporaryDirectory(dir=beside, prefix=".parquet-") as folder:
        count, parts = 0, []
        for number in itertools.count():
            block = list(itertools.islice(rows, ROWS_AT_ONCE))
            if not block and number:
                break
            parts.append(Path(folder) / f"{number:08}.parquet")
            polars.DataFrame(block, schema=schema).write_parquet(parts[-1])
            count += len(block)
        polars.scan_parquet(parts).sink_parquet(file, row_group_size=ROWS_AT_ONCE)
    return count


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    """Raise what the system refused as Python does: polars tells it in the words of another error."""
    import polars

    try:
        yield
    except polars.exceptions.PolarsError as error:
        refused = OF_THE_SYSTEM.search(str(error))
        if refused is None:
            raise
        number = int(refused[1])
        raise OSError(number, os.strerror(number)) from error
