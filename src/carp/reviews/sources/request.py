"""What all formats share: what the caller asked for, and a source that is ready to be read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from carp.errors import UsageError, nearest
from carp.reviews.rating_scale import RatingScale
from carp.reviews.sources.json_lines import JsonLines
from carp.reviews.sources.ledger import Check, Record
from carp.reviews.sources.line_reading import MAX_BYTES, Stretch
from carp.reviews.sources.recognition import FORMATS, check_columns


class OpenSource(NamedTuple):
    """A source that is ready to be read."""

    name: str
    format: str
    scale: RatingScale | None  # None if only the ratings can tell
    records: Iterator[Record]
    # The same records in stretches of lines that can be decoded independently, if the format allows it.
    stretches: Iterator[Stretch] | None = None
    decoder: JsonLines | None = None


@dataclass(frozen=True)
class SourceRequest:
    """What the caller asked for."""

    format: str = "auto"
    columns: Mapping[str, str] | None = None
    rating_range: tuple[float, float] | None = None
    clip_ratings: bool = False
    max_bytes: int = MAX_BYTES

    def __post_init__(self) -> None:
        if self.format not in ("auto", *FORMATS):
            raise UsageError(f"there is no format {self.format!r}", fix=nearest(self.format, ("auto", *FORMATS)))
        check_columns(self.columns, self.format)
        self.scale(None)

    def scale(self, known: RatingScale | None) -> RatingScale | None:
        if self.rating_range is not None:
            low, high = self.rating_range
            return RatingScale(low, high, self.clip_ratings, "given by --rating-range")
        if known is not None and self.clip_ratings:
            return replace(known, clip=True)
        return known

    def check(self, file: str, scale: RatingScale | None, *, splits: bool = False) -> Check:
        return Check(file, scale, any_rating=self.clip_ratings, splits=splits)
