"""What callers hand to a Recommender, made plain: ids, pairs, and splits of their own."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from carp.errors import UsageError
from carp.reviews.sources.addresses import is_address
from carp.reviews.split import SplitRow
from carp.reviews.split_by_time import TimeRule


def as_id(value: Any, kind: str = "user") -> str:
    """An id as the corpus has it: text as it is, a number or another single value as its text.

    >>> as_id("ann"), as_id(7), as_id(7.0), as_id(2.5)
    ('ann', '7', '7', '2.5')
    """
    if isinstance(value, str):
        return str(value)
    if value is None or isinstance(value, bool) or not _is_scalar(value):
        raise UsageError(f"{value!r:.80} is no id of {_article(kind)}", fix="give one text or number")
    if isinstance(value, float | np.floating):
        number = float(value)
        if math.isnan(number):
            raise UsageError(f"the {kind} is missing (not a number)", fix="leave this pair out, or give its id")
        if number.is_integer():  # frames with gaps turn 12 into 12.0
            return str(int(number))
    return str(value)


def as_pairs(pairs: Any, items: Any = None) -> list[tuple[str, str]]:
    """Pairs of ids from pairs, from a frame or mapping with the columns user and item, or from two columns.

    >>> as_pairs([("ann", 1), ("bob", 2)]), as_pairs(["ann", "bob"], [1, 2])
    ([('ann', '1'), ('bob', '2')], [('ann', '1'), ('bob', '2')])
    """
    if items is not None:
        users, things = list(pairs), list(items)
        if len(users) != len(things):
            what = f"there are {len(users)} users and {len(things)} items"
            raise UsageError(what, fix="give two columns of the same length")
        return [(as_id(user, "user"), as_id(item, "item")) for user, item in zip(users, things, strict=True)]
    if _is_table(pairs):
        return as_pairs(*(_column(pairs, role) for role in ("user", "item")))
    return [_pair(place, pair) for place, pair in enumerate(pairs)]


def as_split(split: Any) -> Path | str | list[SplitRow] | TimeRule | None:
    """A split of the caller's own: a file or its address, `time`, a frame or mapping with user,
    item and split, or three columns.

    >>> as_split("time"), as_split("split.csv")
    (TimeRule(since=None), PosixPath('split.csv'))
    """
    if split is None or isinstance(split, Path | TimeRule):
        return split
    if isinstance(split, str):
        return TimeRule.read(split) or (split if is_address(split) else Path(split))
    if _is_table(split):
        columns = [_column(split, role) for role in ("user", "item", "split")]
    else:
        columns = [list(column) for column in split]
    if len(columns) != 3 or len({len(column) for column in columns}) > 1:
        what = "the split is neither a file nor a frame nor three columns of the same length"
        raise UsageError(what, fix="give user, item and split, one row for each review")
    return [(as_id(user, "user"), as_id(item, "item"), str(part)) for user, item, part in zip(*columns, strict=True)]


def as_texts(reviews: str | Sequence[str]) -> list[str]:
    """The reviews of somebody: one text, or several."""
    return [reviews] if isinstance(reviews, str) else list(reviews)


def _pair(place: int, pair: Any) -> tuple[str, str]:
    if isinstance(pair, str) or not isinstance(pair, Iterable) or len(listed := list(pair)) != 2:
        raise UsageError(f"pair {place} is {pair!r:.80}", fix="give pairs of a user and an item")
    return as_id(listed[0], "user"), as_id(listed[1], "item")


def _is_scalar(value: Any) -> bool:
    """Whether a value stands for one thing: it can be a key, and it has no parts."""
    try:
        hash(value)
    except TypeError:
        return False
    return not isinstance(value, Iterable | Mapping)


def _is_table(value: Any) -> bool:
    return isinstance(value, Mapping) or hasattr(value, "columns")


def _column(table: Any, role: str) -> list[Any]:
    """The column of a frame or mapping that plays a role, found by the names that reading takes for it."""
    from carp.reviews.sources.recognition import guess_column

    names = list(table if isinstance(table, Mapping) else table.columns)
    found = guess_column(role, [str(name) for name in names])
    if found is None:
        listed = ", ".join(str(name) for name in names[:30]) or "none"
        raise UsageError(f"no column is recognised as {role}; the columns are {listed}", fix=f"name one of them {role}")
    return list(table[next(name for name in names if str(name) == found)])


def _article(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aeio" else f"a {kind}"
