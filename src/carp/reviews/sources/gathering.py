"""Records of one or several sources become columns, on one scale and with one ledger."""

from __future__ import annotations

from array import array

import numpy as np
from numpy.typing import NDArray

from carp.errors import InputError
from carp.reviews.rating_scale import RatingScale
from carp.reviews.sources.ledger import Ledger, Rejection, Reviews
from carp.reviews.sources.request import OpenSource


class Account:
    """What has been read so far, source by source: how much of it can be used, and on which scale it was rated."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.readings: list[OpenSource] = []
        self._unscaled: list[float] = []  # the ends of the ratings whose scale nothing tells

    @property
    def sources(self) -> list[str]:
        return [reading.name for reading in self.readings]

    @property
    def format(self) -> str:
        return "+".join(dict.fromkeys(reading.format for reading in self.readings))

    def settle(self, reading: OpenSource, ledger: Ledger, ratings: NDArray[np.float64]) -> None:
        """Close the account of one source; `ratings` are those accepted, or their ends."""
        if not ledger.accepted:
            raise _nothing_usable(reading, ledger)
        if reading.scale is None:
            self._unscaled += [float(ratings.min()), float(ratings.max())]
        self.ledger.absorb(ledger)
        self.readings.append(reading)

    def scale(self) -> RatingScale:
        scales = [reading.scale for reading in self.readings]
        known = {(scale.low, scale.high, scale.clip): scale for scale in scales if scale}
        where = ", ".join(self.sources[:3])
        if len(known) > 1:
            ranges = " and ".join(f"{low:g} to {high:g}" for low, high, _ in known)
            raise InputError(f"the files rate from {ranges}", where=where, fix="prepare them one at a time")
        stars = RatingScale(1, 5, clip=False, origin="all ratings lie from 1 to 5")
        scale = next(iter(known.values()), stars)
        if self._unscaled:
            low, high = min(self._unscaled), max(self._unscaled)
            if not (scale.contains(low) and scale.contains(high)):
                raise InputError(
                    f"the ratings run from {low:g} to {high:g}, and nothing says on which scale they were given",
                    where=where,
                    fix=f"say it with --rating-range LOW HIGH, perhaps --rating-range {low:g} {high:g}",
                )
        return scale


def mixed_splits() -> InputError:
    return InputError("some sources have a split column and others have none", fix="give all of them one")


class Gathered:
    """Columns that grow as sources are read."""

    def __init__(self) -> None:
        self.users: list[str] = []
        self.items: list[str] = []
        self.ratings = array("d")
        self.texts: list[str] = []
        self.times: list[int | None] = []
        self.splits: list[str | None] = []
        self.account = Account()
        self._same: dict[str, str] = {}

    def take(self, reading: OpenSource) -> None:
        ledger, begin, same = Ledger(), len(self.users), self._same.setdefault
        for record in reading.records:
            if isinstance(record, Rejection):
                ledger.reject(record)
                continue
            # Ids repeat, and one string for each is enough.
            self.users.append(same(record.user, record.user))
            self.items.append(same(record.item, record.item))
            self.ratings.append(record.rating)
            self.texts.append(record.text)
            self.times.append(record.time)
            self.splits.append(record.split)
        ledger.accept(len(self.users) - begin)
        self.account.settle(reading, ledger, np.array(self.ratings[begin:], dtype=np.float64))

    def finish(self) -> Reviews:
        splits = [split for split in self.splits if split is not None]
        if splits and len(splits) < len(self.splits):
            raise mixed_splits()
        return Reviews(
            users=self.users,
            items=self.items,
            ratings=np.array(self.ratings, dtype=np.float64),
            texts=self.texts,
            times=self.times,
            splits=splits or None,
            ledger=self.account.ledger,
            format=self.account.format,
            scale=self.account.scale(),
            sources=self.account.sources,
        )


def _nothing_usable(reading: OpenSource, ledger: Ledger) -> InputError:
    if not ledger.read:
        return InputError("there are no records", where=reading.name, fix="give a file with reviews")
    faults = "; ".join(f"line {first.line:,}: {reason}" for reason, first in list(ledger.first.items())[:3])
    if any("Python dict" in reason for reason in ledger.counts):
        fix = "convert the file to JSON lines with one JSON object a line"
    else:
        fix = f"check that its format is {reading.format}, or say which it is with --format"
    return InputError(f"none of the {ledger.read:,} records can be used ({faults})", where=reading.name, fix=fix)
