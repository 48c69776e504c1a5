"""All sources together: one rating scale, one ledger, and their reviews in memory."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from carp.errors import InputError
from carp.reviews.rating_scale import RatingScale
from carp.reviews.sources.ledger import Ledger, Rejection, Review, Reviews, TitleColumn
from carp.reviews.sources.line_reading import NOT_UTF8
from carp.reviews.sources.request import OpenSource


class SourcesRead:
    """The sources read so far, with the ledger of their records and their rating scale."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self._sources: list[OpenSource] = []
        self._unscaled: list[float] = []  # lowest and highest ratings of sources without a known scale

    @property
    def sources(self) -> list[str]:
        return [source.name for source in self._sources]

    @property
    def format(self) -> str:
        return "+".join(dict.fromkeys(source.format for source in self._sources))

    @property
    def columns(self) -> dict[str, str]:
        """Which column has which role; of sources with different names, all of them."""
        names: dict[str, list[str]] = {}
        for source in self._sources:
            for role, name in source.columns.items():
                names.setdefault(role, []).append(name)
        return {role: " or ".join(dict.fromkeys(found)) for role, found in names.items()}

    @property
    def encodings(self) -> dict[str, str]:
        """The encodings of the sources that are not UTF-8."""
        return {source.name: source.encoding for source in self._sources if source.encoding not in (None, "utf-8")}

    @property
    def title_column(self) -> TitleColumn | None:
        """The column that names the things; of several sources with different ones, all of them."""
        found = [source.title_column for source in self._sources if source.title_column]
        if not found:
            return None
        return TitleColumn(", ".join(dict.fromkeys(one.name for one in found)), all(one.guessed for one in found))

    def add(self, source: OpenSource, ledger: Ledger, ratings: NDArray[np.float64]) -> None:
        """Add a source that has been read. Of its `ratings`, the lowest and the highest are enough."""
        if not ledger.accepted:
            raise _nothing_usable(source, ledger)
        if source.scale is None:
            self._unscaled += [float(ratings.min()), float(ratings.max())]
        self.ledger.absorb(ledger)
        self._sources.append(source)

    def scale(self) -> RatingScale:
        """The scale of all sources. InputError if they have different scales, or if it is not known."""
        scales = [source.scale for source in self._sources]
        known = {(scale.low, scale.high, scale.clip): scale for scale in scales if scale}
        where = ", ".join(self.sources[:3])
        if len(known) > 1:
            ranges = " and ".join(f"{low:g} to {high:g}" for low, high, _ in known)
            raise InputError(
                f"the files have different rating scales: {ranges}", where=where, fix="prepare them separately"
            )
        stars = RatingScale(1, 5, clip=False, origin="all ratings lie from 1 to 5")
        scale = next(iter(known.values()), stars)
        if self._unscaled:
            low, high = min(self._unscaled), max(self._unscaled)
            if not (scale.contains(low) and scale.contains(high)):
                raise InputError(
                    f"the ratings run from {low:g} to {high:g}, and their scale is not known",
                    where=where,
                    fix=f"give the scale with --rating-range LOW HIGH, for instance --rating-range {low:g} {high:g}",
                )
        return scale


def mixed_splits() -> InputError:
    return InputError(
        "some sources have a split column and others have none", fix="give all of them a split column, or none"
    )


def gather(sources: Iterable[OpenSource]) -> Reviews:
    """Read all sources, one after the other, and keep their reviews in memory."""
    read, reviews = SourcesRead(), list[Review]()
    for source in sources:
        ledger = Ledger()
        found = ledger.enter(source.records)
        read.add(source, ledger, np.array([review.rating for review in found], dtype=np.float64))
        reviews += found
    splits = [review.split for review in reviews if review.split is not None]
    if splits and len(splits) < len(reviews):
        raise mixed_splits()
    same: dict[str, str] = {}  # ids repeat, so keep one string for each
    return Reviews(
        users=[same.setdefault(review.user, review.user) for review in reviews],
        items=[same.setdefault(review.item, review.item) for review in reviews],
        ratings=np.array([review.rating for review in reviews], dtype=np.float64),
        texts=[review.text for review in reviews],
        times=[review.time for review in reviews],
        splits=splits or None,
        ledger=read.ledger,
        format=read.format,
        scale=read.scale(),
        sources=read.sources,
        titles=_titles(reviews),
        title_column=read.title_column,
        columns=read.columns,
        encodings=read.encodings,
    )


def _titles(reviews: list[Review]) -> list[str | None] | None:
    same: dict[str, str] = {}
    found = [None if review.title is None else same.setdefault(review.title, review.title) for review in reviews]
    return found if same else None


def _fault(first: Rejection) -> str:
    return f"line {first.line:,}: {first.reason}" + ("" if first.value is None else f", {first.value}")


def _nothing_usable(source: OpenSource, ledger: Ledger) -> InputError:
    if not ledger.read and source.format == "sql":
        return InputError("the query gives no rows", where=source.name, fix="check its conditions")
    if not ledger.read:
        return InputError("there are no records", where=source.name, fix="give a file with reviews")
    faults = "; ".join(map(_fault, list(ledger.first.values())[:3]))
    if any("Python dict" in reason for reason in ledger.counts):
        fix = "convert the file to JSON lines with one JSON object a line"
    elif NOT_UTF8 in ledger.counts:
        fix = "say in which encoding it is with --encoding, for instance --encoding cp1252"
    elif any("rating is not out of" in reason for reason in ledger.counts):
        fix = "give the scale with --rating-range LOW HIGH, for instance --rating-range 0 100 for per cent"
    else:
        fix = f"check that its format is {source.format}, or say which it is with --format"
    return InputError(f"none of the {ledger.read:,} records can be used ({faults})", where=source.name, fix=fix)
