"""Splits that hold out the latest reviews, as a shop would test: those of each person, or all from a day on."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime

import numpy as np
from numpy.typing import NDArray

from carp.errors import InputError, UsageError
from carp.reviews.split_parts import TEST, TRAIN, VALID

TIME = "time"
TEST_SHARE = 0.2
VALID_SHARE = 0.1
Records = NDArray[np.int64]


@dataclass(frozen=True)
class TimeRule:
    """Test is the latest fifth of each person's reviews, or, with a day, every review from that day on.

    Validation is a tenth of what is left, again the latest. Reviews without a date are for training.
    """

    since: date | None = None

    @classmethod
    def read(cls, text: str) -> TimeRule | None:
        """The rule of `time` or `time:2013-01-31`; None for every other text.

        >>> TimeRule.read("time:2013-01-31"), TimeRule.read("split.csv")
        (TimeRule(since=datetime.date(2013, 1, 31)), None)
        """
        name, colon, day = text.partition(":")
        if name != TIME:
            return None
        if not colon:
            return cls()
        try:
            return cls(date.fromisoformat(day))
        except ValueError:
            fix = "write time for each person's latest reviews, or a day, as in time:2013-01-31"
            raise UsageError(f"{day!r} is not a day", where="--split", fix=fix) from None

    def parts(self, user: NDArray[np.int32], time: NDArray[np.int64]) -> tuple[NDArray[np.int8], str]:
        """The part of every record, and the rule in words."""
        time = np.asarray(time)
        dated = np.flatnonzero(time >= 0) if len(time) == len(user) else np.zeros(0, np.int64)
        if not len(dated):
            raise InputError(
                "no review has a date, so none is the latest",
                where="--split time",
                fix="name the column with carp prepare --column time=NAME, or take the random split",
            )
        part = np.full(len(user), TRAIN, dtype=np.int8)
        if self.since is None:
            words = "the latest fifth of each person's reviews"
            part[_latest_of_each(user, time, dated)] = TEST
            left = dated[part[dated] == TRAIN]
            order = left[np.lexsort((-time[left], _later_ones(user, time, left)))]
        else:
            words = f"all reviews since {self.since.isoformat()}"
            part[_since(self.since, time, dated)] = TEST
            left = dated[part[dated] == TRAIN]
            order = left[np.argsort(-time[left], kind="stable")]
        part[order[: round(VALID_SHARE * int((part == TRAIN).sum()))]] = VALID
        undated = len(user) - len(dated)
        return part, f"by time, {words}" + (f"; {undated:,} without a date are for training" if undated else "")


def _latest_of_each(user: NDArray[np.int32], time: NDArray[np.int64], dated: Records) -> Records:
    """A fifth of each person's dated reviews: at least one, unless it is the only one."""
    counts = np.bincount(user[dated])
    tested = np.minimum(np.maximum(np.round(TEST_SHARE * counts), 1), counts - 1)
    return dated[_later_ones(user, time, dated) < tested[user[dated]]]


def _later_ones(user: NDArray[np.int32], time: NDArray[np.int64], records: Records) -> Records:
    """How many of these records are later ones of the same person. Of one moment, the next in the file is later."""
    order = np.lexsort((records, time[records], user[records]))
    ends = np.cumsum(np.bincount(user[records]))
    later = np.empty(len(records), np.int64)
    later[order] = ends[user[records[order]]] - 1 - np.arange(len(records))
    return later


def _since(day: date, time: NDArray[np.int64], dated: Records) -> Records:
    midnight = datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()
    found = dated[time[dated] >= midnight]
    if not 0 < len(found) < len(dated):
        first, last = (datetime.fromtimestamp(int(t), UTC).date() for t in (time[dated].min(), time[dated].max()))
        what = f"{'all reviews are' if len(found) else 'no review is'} from {day.isoformat()} or later"
        raise InputError(what, where="--split time", fix=f"give a day after {first} and up to {last}")
    return found
