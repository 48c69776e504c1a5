"""What makes a record a review, and a ledger of all records that were rejected."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from functools import lru_cache
from numbers import Integral, Real
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from carp.reviews.rating_scale import RatingScale
from carp.reviews.sources.markup import unescape, without_markup
from carp.reviews.sources.ratings import read_rating
from carp.reviews.split_parts import PARTS, SPLIT_NAMES
from carp.storage import write_bytes

KEPT_REJECTIONS = 100_000  # the list of what a file of tiny lines holds must not be many times as large as the file
MAX_TEXT = 200_000
MAX_ID = 1_000
MAX_TITLE = 1_000
SHOWN = 60  # characters of a value that are shown
_DATE_FORMATS = ("%B %d, %Y", "%b %d, %Y", "%m %d, %Y", "%m/%d/%Y", "%d.%m.%Y")  # with dots the day comes first


class Unusable(Exception):
    """Why one record cannot be used, and the value that is to blame, if there is one."""

    def __init__(self, reason: str, value: Any = None) -> None:
        super().__init__(reason)
        self.value = value


class Review(msgspec.Struct, frozen=True, gc=False):
    """One person's words about one thing, with the rating as it is in the file."""

    user: str
    item: str
    rating: float
    text: str
    time: int | None = None  # seconds since 1970
    split: str | None = None  # train, valid or test, if the data has a split of its own
    title: str | None = None  # of the thing, if the review says it


class Rejection(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One record that could not be used, and why."""

    file: str
    line: int  # where the record starts, from 1; in frames and Parquet files the row
    reason: str
    value: str | None = None  # the beginning of what is to blame, if there is anything

    @classmethod
    def of(cls, file: str, line: int, reason: str, value: Any = None) -> Rejection:
        """A rejection that shows the beginning of the value that caused it."""
        return cls(file, line, reason, None if value is None else shown_value(value))


Record = Review | Rejection


class TitleColumn(NamedTuple):
    """The column of the reviews that names the thing."""

    name: str
    guessed: bool  # by its name, and not asked for


@dataclass(slots=True)
class Ledger:
    """Every record that was read is either accepted, or rejected with a reason.

    >>> ledger = Ledger()
    >>> ledger.accept()
    >>> ledger.reject(Rejection("reviews.json", 2, "text is missing"))
    >>> print(ledger.summary())
    2 read, 1 accepted, 1 rejected
      1 × text is missing (first: reviews.json line 2)
    """

    read: int = 0
    accepted: int = 0
    rejections: list[Rejection] = field(default_factory=list)  # only the first KEPT_REJECTIONS; `counts` has all
    counts: dict[str, int] = field(default_factory=dict)
    first: dict[str, Rejection] = field(default_factory=dict)

    @property
    def rejected(self) -> int:
        return sum(self.counts.values())

    def accept(self, count: int = 1) -> None:
        self.read += count
        self.accepted += count

    def reject(self, rejection: Rejection) -> None:
        self.read += 1
        self.counts[rejection.reason] = self.counts.get(rejection.reason, 0) + 1
        self.first.setdefault(rejection.reason, rejection)
        if len(self.rejections) < KEPT_REJECTIONS:
            self.rejections.append(rejection)

    def enter(self, records: Iterable[Record]) -> list[Review]:
        """Count every record, and return those that are reviews."""
        reviews: list[Review] = []
        for record in records:
            if isinstance(record, Rejection):
                self.reject(record)
            else:
                reviews.append(record)
        self.accept(len(reviews))
        return reviews

    def absorb(self, other: Ledger) -> None:
        """Add the ledger of another source to this one."""
        self.read += other.read
        self.accepted += other.accepted
        self.rejections.extend(other.rejections[: max(0, KEPT_REJECTIONS - len(self.rejections))])
        for reason, count in other.counts.items():
            self.counts[reason] = self.counts.get(reason, 0) + count
            self.first.setdefault(reason, other.first[reason])

    def summary(self, reasons: int = 20) -> str:
        """A few lines to print: the totals, then the reasons, most frequent first."""
        lines = [f"{self.read:,} read, {self.accepted:,} accepted, {self.rejected:,} rejected"]
        ranked = sorted(self.counts.items(), key=lambda entry: -entry[1])
        for reason, count in ranked[:reasons]:
            first = self.first[reason]
            value = "" if first.value is None else f", {first.value}"
            lines.append(f"  {count:,} × {reason} (first: {first.file} line {first.line:,}{value})")
        if len(ranked) > reasons:
            lines.append(f"  and {len(ranked) - reasons:,} more reasons")
        return "\n".join(lines)

    def save(self, path: str | Path) -> None:
        """JSON lines: the totals first, then one object for each rejection that was kept."""
        totals = {"read": self.read, "accepted": self.accepted, "rejected": self.rejected}
        head = {**totals, "listed": len(self.rejections), "reasons": self.counts}
        rows = [json.dumps(head, ensure_ascii=False).encode()]
        rows.extend(msgspec.json.encode(rejection) for rejection in self.rejections)
        write_bytes(Path(path), b"\n".join(rows) + b"\n")


def shown_value(value: Any) -> str:
    """A value as it is shown in a sentence, in one line and not too long.

    >>> shown_value("eleven"), shown_value([1, 2]), shown_value("x" * 100)[-5:]
    ("'eleven'", '[1, 2]', "xxx…'")
    """
    if isinstance(value, bytes):
        value = value[: 4 * SHOWN].decode("utf-8", "backslashreplace")
    if isinstance(value, str):
        return repr(value[:SHOWN] + ("…" if len(value) > SHOWN else ""))
    if isinstance(value, int | list | dict | tuple) and sys.getsizeof(value) > 4 * SHOWN:
        return f"a {type(value).__name__}"
    text = repr(value)
    return text[:SHOWN] + ("…" if len(text) > SHOWN else "")


def identifier(value: Any, role: str) -> str:
    if type(value) is not str:
        value = _name_of(value, role)
    if not value or value.isspace():
        raise Unusable(f"{role} is empty")
    if len(value) > MAX_ID:
        raise Unusable(f"{role} is longer than {MAX_ID:,} characters", value)
    return _unicode(value, role)


def _name_of(value: Any, role: str) -> str:
    if _is_missing(value):
        raise Unusable(f"{role} is missing")
    if isinstance(value, bool) or not isinstance(value, str | float | Real):
        raise Unusable(f"{role} is neither text nor a number", value)
    if isinstance(value, float) and value.is_integer():  # in frames with missing values, 12 has become 12.0
        value = int(value)
    try:
        return str(value)
    except ValueError:  # Python does not print integers with thousands of digits
        raise Unusable(f"{role} is longer than {MAX_ID:,} characters") from None


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _unicode(value: str, role: str) -> str:
    if not (value.isascii() or is_unicode(value)):
        raise Unusable(f"{role} is not valid Unicode", value)
    return value


def number_of(value: Any, highest: float = 5.0) -> float:
    """The number of a rating as it is written. A rating that says what it is out of must say the highest one."""
    if value is None or (isinstance(value, str) and not value.strip()):
        raise Unusable("rating is missing")
    found = read_rating(value)
    if found is None:
        raise Unusable("rating is not a number", value)
    if found.out_of is not None and found.out_of != highest:
        raise Unusable(f"rating is not out of {highest:g}", value)
    return found.value


def _words(value: Any, *, markup: bool) -> str:
    if type(value) is not str:
        if _is_missing(value):
            raise Unusable("text is missing")
        if not isinstance(value, str):
            raise Unusable("text is not a string", value)
    if len(value) > MAX_TEXT:
        raise Unusable(f"text is longer than {MAX_TEXT:,} characters", value)
    value = (unescape(value) if "&" in value else value) if markup else without_markup(value)
    return "" if value.isspace() else _unicode(value, "text")


def title_of(value: Any) -> str | None:
    """The title of a thing in one line, or None if this is none: titles are optional.

    >>> title_of("  Black &amp;\\n Tan "), title_of(1984), title_of("  "), title_of(["Black"])
    ('Black & Tan', '1984', None, None)
    """
    if value is None:
        return None
    if type(value) is not str:
        try:
            value = _name_of(value, "title")
        except Unusable:
            return None
    line = " ".join(unescape(value).split())
    if not line or len(line) > MAX_TITLE or not (line.isascii() or is_unicode(line)):
        return None
    return line


def is_unicode(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _part(value: Any) -> str:
    if _is_missing(value) or (isinstance(value, str) and not value.strip()):
        raise Unusable("split is missing")
    part = SPLIT_NAMES.get(value.strip().lower()) if isinstance(value, str) else None
    if part is None:
        raise Unusable("split is not train, valid or test", value)
    return PARTS[part]


def seconds(value: Any) -> int | None:
    """Seconds since 1970, from a number, a date or a text. None if it is no time: time is optional.

    >>> seconds(1393545600), seconds(1393545600000), seconds("2014-02-28"), seconds("28.02.2014"), seconds("soon")
    (1393545600, 1393545600, 1393545600, 1393545600, None)
    >>> seconds("March 13, 2012"), seconds("03/13/2012")
    (1331596800, 1331596800)
    """
    if type(value) is int and 0 <= value < 10**11:  # what most files have
        return value
    try:
        if isinstance(value, str):
            return _seconds_of_text(value.strip()) if 0 < len(value) < 64 else None
        if isinstance(value, datetime):
            return int((value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp())
        if isinstance(value, date):
            return int(datetime(value.year, value.month, value.day, tzinfo=UTC).timestamp())
        whole = int(value) if isinstance(value, int | float | Integral) and not isinstance(value, bool) else None
    except (ValueError, OverflowError):
        return None
    # Seconds reach 10^11 in the year 5138. Larger numbers must be milli-, micro- or nanoseconds.
    for size, divisor in ((10**11, 1), (10**14, 10**3), (10**17, 10**6), (10**20, 10**9)):
        if whole is not None and abs(whole) < size:
            return whole // divisor
    return None


@lru_cache(maxsize=100_000)
def _seconds_of_text(value: str) -> int | None:
    if value.isdecimal():
        return seconds(int(value))
    try:
        return seconds(datetime.fromisoformat(value))
    except ValueError:
        for form in _DATE_FORMATS:
            try:
                return seconds(datetime.strptime(value, form))
            except ValueError:
                continue
    return None


class Check:
    """Turn the fields of one record into a Review or a Rejection."""

    def __init__(
        self,
        file: str,
        scale: RatingScale | None,
        *,
        any_rating: bool,
        splits: bool,
        titles: bool = True,
        markup: bool = False,
    ) -> None:
        self.file = file
        self.splits = splits
        self.titles = titles
        self.markup = markup
        self.low, self.high = -math.inf, math.inf
        self.out_of = 5.0 if scale is None else scale.high
        if scale is not None and not any_rating:
            # As in the paper, low beer scores count as the lowest. Scores above the highest do not exist.
            self.low, self.high = (0.0 if scale.clip else scale.low), scale.high

    def __call__(
        self, line: int, user: Any, item: Any, rating: Any, text: Any, time: Any, split: Any, title: Any = None
    ) -> Review | Rejection:
        try:
            who, what = identifier(user, "user"), identifier(item, "item")
            number = rating if type(rating) is float and math.isfinite(rating) else number_of(rating, self.out_of)
            if not self.low <= number <= self.high:
                raise Unusable(f"rating lies outside {self.low:g} to {self.high:g}", rating)
            part = _part(split) if self.splits else None
            named = title_of(title) if self.titles else None
            return Review(who, what, number, _words(text, markup=self.markup), seconds(time), part, named)
        except Unusable as fault:
            return Rejection.of(self.file, line, str(fault), fault.value)


@dataclass(repr=False)
class Reviews:
    """Reviews as columns of equal length, in the order of reading."""

    users: list[str]
    items: list[str]
    ratings: NDArray[np.float64]  # as in the source; `scale` maps them to stars
    texts: list[str]
    times: list[int | None]
    splits: list[str] | None
    ledger: Ledger
    format: str
    scale: RatingScale | None
    sources: list[str]
    titles: list[str | None] | None = None  # of the thing of each review, if the reviews say it
    title_column: TitleColumn | None = None
    columns: dict[str, str] = field(default_factory=dict)  # role and its name in the source
    encodings: dict[str, str] = field(default_factory=dict)  # of files that are not UTF-8

    def __len__(self) -> int:
        return len(self.users)

    def __repr__(self) -> str:
        people, things = len(set(self.users)), len(set(self.items))
        facts: list[Any] = [f"{len(self):,} reviews by {people:,} users of {things:,} items", self.format]
        if self.scale is not None:
            facts.append(f"ratings {self.scale.low:g} to {self.scale.high:g}")
        if self.ledger.rejected:
            facts.append(f"{self.ledger.rejected:,} record{'s' * (self.ledger.rejected != 1)} rejected")
        return f"<Reviews: {', '.join(facts)}>"
