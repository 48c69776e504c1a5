"""What all formats share: what the caller asked for, and a source that is ready to be read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from carp.errors import UsageError, nearest
from carp.reviews.rating_scale import RatingScale
from carp.reviews.sources.encodings import check_encoding
from carp.reviews.sources.json_lines import JsonLines
from carp.reviews.sources.ledger import Check, Record, TitleColumn
from carp.reviews.sources.line_reading import MAX_BYTES, Stretch
from carp.reviews.sources.recognition import FORMATS, check_columns
from carp.reviews.sources.source_files import Reading


class OpenSource(NamedTuple):
    """A source that is ready to be read."""

    name: str
    format: str
    scale: RatingScale | None  # None if only the ratings can tell
    records: Iterator[Record]
    # The same records in stretches of lines that can be decoded independently, if the format allows it.
    stretches: Iterator[Stretch] | None = None
    decoder: JsonLines | None = None
    title_column: TitleColumn | None = None  # if reviews name their thing
    columns: Mapping[str, str] = {}  # role and its name in the source
    encoding: str | None = None  # if it is not UTF-8


@dataclass(frozen=True)
class SourceRequest:
    """What the caller asked for."""

    format: str = "auto"
    columns: Mapping[str, str] | None = None
    rating_range: tuple[float, float] | None = None
    clip_ratings: bool = False
    max_bytes: int = MAX_BYTES
    titles: bool = True  # whether names of things in the reviews are taken as their titles
    encoding: str | None = None  # of the files; None looks at them
    markup: bool = False  # whether tags of HTML in texts are left as they are

    def __post_init__(self) -> None:
        if self.format not in ("auto", *FORMATS):
            raise UsageError(f"there is no format {self.format!r}", fix=nearest(self.format, ("auto", *FORMATS)))
        check_columns(self.columns, self.format)
        check_encoding(self.encoding)
        self.scale(None)
        if not self.titles and "title" in (self.columns or {}):
            raise UsageError(
                "a column is named for the title, and titles are not wanted", fix="leave out --no-titles or the column"
            )

    def scale(self, known: RatingScale | None) -> RatingScale | None:
        if self.rating_range is not None:
            low, high = self.rating_range
            return RatingScale(low, high, self.clip_ratings, "given by --rating-range")
        if known is not None and self.clip_ratings:
            return replace(known, clip=True)
        return known

    def reading(self, folder: Path) -> Reading:
        """How files are to be opened; copies go into the folder."""
        given = None if self.encoding is None else check_encoding(self.encoding) or "utf-8"
        return Reading(folder, self.max_bytes, given)

    def check(self, file: str, scale: RatingScale | None, *, splits: bool = False) -> Check:
        return Check(file, scale, any_rating=self.clip_ratings, splits=splits, titles=self.titles, markup=self.markup)

    def title_column(self, chosen: Mapping[str, str]) -> TitleColumn | None:
        """The column with the names of things among the chosen ones, if there is one and titles are wanted."""
        if not self.titles or "title" not in chosen:
            return None
        return TitleColumn(chosen["title"], guessed="title" not in (self.columns or {}))
