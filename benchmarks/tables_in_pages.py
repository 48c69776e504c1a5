"""Tables made of results, printed or written where a page has a place for them: <!-- NAME --> and <!-- /NAME -->."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping
from pathlib import Path

Tables = Mapping[str, str]  # by the names of their places


def page_with(page: str, tables: Tables) -> str:
    """The page with every table in its place."""
    for name, table in tables.items():
        place = re.search(f"(?<=<!-- {name} -->\n).*?(?=<!-- /{name} -->)", page, re.DOTALL)
        if place is None:
            raise SystemExit(f"the page has no place for the table {name}: <!-- {name} --> and <!-- /{name} -->")
        page = f"{page[: place.start()]}\n{table}\n\n{page[place.end() :]}"
    return page


def print_or_write(description: str | None, tables_of: Callable[[Path], Tables]) -> None:
    """The command line of a script that makes tables: RESULTS [--write PAGE]."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--write", type=Path)
    given = parser.parse_args()
    tables = tables_of(given.results)
    if given.write:
        given.write.write_text(page_with(given.write.read_text("utf-8"), tables), encoding="utf-8")
        return
    for name, table in tables.items():
        print(f"{name}\n\n{table}\n")
