"""Which reviews stay, and how many are dropped for which reason."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from carp.errors import InputError
from carp.reviews.corpora.copied_texts import DROP, KEEP, NO_WORD_MARK, repeats_of_one_person
from carp.reviews.corpora.records import NO_TIME

if TYPE_CHECKING:
    from carp.reviews.corpora.records import RecordColumns
    from carp.reviews.rating_scale import RatingScale
    from carp.reviews.sources.ledger import Ledger, TitleColumn

FORMAT = 1
DAY = 86_400  # seconds
Places = NDArray[np.int64]


class Origin(Protocol):
    """Where reviews come from, and what happened to every record there."""

    @property
    def sources(self) -> list[str]: ...
    @property
    def format(self) -> str: ...
    @property
    def ledger(self) -> Ledger: ...
    @property
    def title_column(self) -> TitleColumn | None: ...
    @property
    def columns(self) -> dict[str, str]: ...
    @property
    def encodings(self) -> dict[str, str]: ...


class DaysKept(NamedTuple):
    """Reviews from a day on and up to a day, both included; None: no bound."""

    since: date | None = None
    until: date | None = None

    def keeps(self, time: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which times, in seconds since 1970, are of these days.

        >>> DaysKept(date(1970, 1, 2), date(1970, 1, 2)).keeps(np.array([NO_TIME, 86_399, 86_400, 172_799, 172_800]))
        array([False, False,  True,  True, False])
        """
        first = np.iinfo(np.int64).min if self.since is None else _begins(self.since)
        end = np.iinfo(np.int64).max if self.until is None else _begins(self.until) + DAY
        kept: NDArray[np.bool_] = (time != NO_TIME) & (time >= first) & (time < end)
        return kept


def _begins(day: date) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp())


class CorpusRules(NamedTuple):
    """What can be chosen when a corpus is made."""

    min_reviews: int = 5  # users and items with fewer reviews are dropped
    levels: int = 5  # ratings are mapped to 1 to this many stars
    copies: str = DROP  # exact copies by one person are dropped, or stay in one part of a split, or are kept as any
    core_first: bool = False  # take the core before reviews without a word go, so that it may no longer be one
    plain_words: bool = False  # a word is a run of letters and digits, whatever the script
    days: DaysKept | None = None  # reviews of other days, and without a date, are left out


AS_IN_PAPER = {"copies": KEEP, "core_first": True, "plain_words": True}


def sources_of(origin: Origin) -> str:
    return ", ".join(map(str, origin.sources)) or "the reviews given"


def kept_records(
    origin: Origin, records: RecordColumns, rules: CorpusRules
) -> tuple[NDArray[np.int64], dict[str, int]]:
    """The records to keep, and how many were dropped for each reason.

    Where days are given, reviews of other days go first. Reviews without a word go. If a person reviewed a thing
    several times, the latest review stays. Of one text by one person the first review stays, unless the rules say
    otherwise. Then users and items with too few reviews go.
    """
    user, item = records.user.number.astype(np.int64), records.item.number.astype(np.int64)
    if not (records.mark != NO_WORD_MARK).any():
        fix = "check that the column of texts is the right one"
        raise InputError("no review has a word in it", where=sources_of(origin), fix=fix)

    def with_words(among: Places) -> Places:
        worded: Places = among[records.mark[among] != NO_WORD_MARK]
        return worded

    def latest(among: Places) -> Places:
        return among[last_of_each_pair(user[among], item[among], records.time[among])]

    def originals(among: Places) -> Places:
        return among[~repeats_of_one_person(user[among], records.mark[among], records.time[among])]

    def core(among: Places) -> Places:
        kept = among[in_k_core(user[among], item[among], rules.min_reviews)]
        if not len(kept):
            raise _nothing_left(origin, user[among], item[among], rules.min_reviews)
        return kept

    steps = {"wordless": with_words, "duplicates": latest, "copies": originals, "k_core": core}
    names = ["duplicates", "k_core", "wordless"] if rules.core_first else list(steps)
    kept, dropped = np.arange(len(user)), dict.fromkeys(steps, 0)
    if rules.days is not None:
        kept = _of_days(origin, records.time, rules.days)
        dropped["days"] = len(user) - len(kept)
    for name in names:
        left = kept if name == "copies" and rules.copies != DROP else steps[name](kept)
        kept, dropped[name] = left, len(kept) - len(left)
    return kept, dropped


def _of_days(origin: Origin, time: Places, days: DaysKept) -> Places:
    kept: Places = np.flatnonzero(days.keeps(time))
    if len(kept):
        return kept
    dated = int((time != NO_TIME).sum())
    fix = "give other days" if dated else "name the column of dates with --column time=NAME"
    what = f"no review of {len(time):,} is of the days asked for ({dated:,} have a date)"
    raise InputError(what, where=sources_of(origin), fix=fix)


def last_of_each_pair(user: NDArray[np.int64], item: NDArray[np.int64], time: NDArray[np.int64]) -> NDArray[np.int64]:
    """Which records are the latest review of their thing by their person, in the order of the records.

    Of reviews without a date, and of one moment, the last in the file is the latest. Any date is later than none.
    """
    order = np.argsort(time, kind="stable")
    pair = (user * (item.max(initial=0) + 1) + item)[order]
    from_the_end = np.unique(pair[::-1], return_index=True)[1]
    return np.sort(order[len(pair) - 1 - from_the_end])


def in_k_core(user: NDArray[np.int64], item: NDArray[np.int64], minimum: int) -> NDArray[np.bool_]:
    """Which records are left after dropping users and items with fewer than `minimum`, until all have enough."""
    kept = np.ones(len(user), dtype=bool)
    while True:
        enough_by_user = np.bincount(user[kept], minlength=user.max(initial=0) + 1) >= minimum
        enough_of_item = np.bincount(item[kept], minlength=item.max(initial=0) + 1) >= minimum
        still = kept & enough_by_user[user] & enough_of_item[item]
        if still.sum() == kept.sum():
            return kept
        kept = still


def _nothing_left(origin: Origin, user: NDArray[np.int64], item: NDArray[np.int64], min_reviews: int) -> InputError:
    remaining = [f"{in_k_core(user, item, k).sum():,} at {k}" for k in (1, 2, 3) if k < min_reviews]
    return InputError(
        f"no review is left of {len(user):,} when users and items with fewer than {min_reviews} reviews are dropped",
        where=sources_of(origin),
        fix=f"lower --min-reviews ({', '.join(remaining)} would remain)" if remaining else "give more reviews",
    )


def refuse_single(origin: Origin, users: list[str], items: list[str]) -> None:
    for name, found in (("user", users), ("item", items)):
        if len(found) == 1:
            raise InputError(
                f"all reviews have the same {name}, {found[0]!r}: there is nothing to compare",
                where=sources_of(origin),
                fix=f"check that the column of {name}s is the right one, or give more reviews",
            )


def facts_of(
    origin: Origin, scale: RatingScale, ratings: NDArray[np.float64], dropped: dict[str, int], rules: CorpusRules
) -> dict[str, Any]:
    """Where the corpus comes from, and what was lost on the way: read = rejected + dropped + kept."""
    return {
        "format_version": FORMAT,
        "scale": scale.describe(ratings, rules.levels),
        "sources": list(origin.sources),
        "format": origin.format,
        "columns": origin.columns,
        "encodings": origin.encodings,
        "read": origin.ledger.read,
        "accepted": origin.ledger.accepted,
        "rejected": origin.ledger.rejected,
        "dropped": dropped,
        "levels": rules.levels,
        "min_reviews": rules.min_reviews,
        "scale_range": [scale.low, scale.high],
        **({} if rules.days is None else {"days": [None if day is None else str(day) for day in rules.days]}),
    }
