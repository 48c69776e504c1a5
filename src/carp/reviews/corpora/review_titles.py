"""Titles of things that stand in their reviews: the first one counts, and reviews that say another are counted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from carp.reviews.corpora.cleaning import Origin
from carp.reviews.corpora.records import NameColumn, RecordColumns

if TYPE_CHECKING:
    from carp.reviews.sources.ledger import TitleColumn

MOST_DIFFERING = 0.5  # share of the things; a column that differs more often is not about the things


class ReviewTitles(NamedTuple):
    """The titles of some things, as their reviews say them."""

    titles: list[str]  # empty where no review says one
    column: TitleColumn | None = None
    differing_items: int = 0  # items whose reviews do not agree
    differing_reviews: int = 0  # reviews that say another title than the first of their item
    refused: bool = False  # the column was guessed, and is about something else

    def facts(self) -> dict[str, Any]:
        """What to note of them; nothing if no column names the things."""
        if self.column is None:
            return {}
        noted = {"column": self.column.name, "taken": not self.refused}
        return {"titles": {**noted, "items": self.differing_items, "reviews": self.differing_reviews}}


def titles_in_reviews(origin: Origin, records: RecordColumns, items: Sequence[str]) -> ReviewTitles:
    """The titles that the reviews give these items. Every review that was read counts."""
    if records.title is None or origin.title_column is None:
        return ReviewTitles([""] * len(items))
    place = {name: number for number, name in enumerate(records.item.names)}
    numbers = np.array([place[name] for name in items], np.int64)
    found = _first_titles(records.item, records.title)
    several = int((found.named[numbers] > 1).sum())
    differing = int((found.others[numbers] > 0).sum())
    column = origin.title_column
    refused = column.guessed and differing > MOST_DIFFERING * several
    names = records.title.names
    titles = [names[title] if title >= 0 and not refused else "" for title in found.title[numbers].tolist()]
    return ReviewTitles(titles, column, differing, int(found.others[numbers].sum()), refused)


class _FirstTitles(NamedTuple):
    title: NDArray[np.int64]  # [items] number of the first title, -1 where there is none
    named: NDArray[np.int64]  # [items] reviews that give a title
    others: NDArray[np.int64]  # [items] reviews that give another title than the first


def _first_titles(item: NameColumn, title: NameColumn) -> _FirstTitles:
    empty = title.names.index("") if "" in title.names else -1
    given = np.flatnonzero(title.number != empty)
    items, titles = item.number[given], title.number[given].astype(np.int64)
    first = np.full(len(item.names), -1, np.int64)
    first[items[::-1]] = titles[::-1]  # the last write to a place stays
    named = np.bincount(items, minlength=len(item.names))
    others = np.bincount(items[titles != first[items]], minlength=len(item.names))
    return _FirstTitles(first, named, others)
