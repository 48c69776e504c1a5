"""What may be asked: every field by name and type; whatever else is given is refused."""

from __future__ import annotations

import re
from datetime import date
from itertools import islice
from typing import Annotated, Any, Literal, LiteralString

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

MOST_PAIRS = 1_000
MOST_REVIEWS = 500
MOST_ROWS = 200
MOST_UNKNOWN = 20  # names in an object of a body that are looked at; one is enough for a refusal
# Characters. All of a body together may not be larger than `http_connection.LARGEST_BODY`.
LONGEST_ID = 500
LONGEST_REVIEW = 200_000
# In an address all is text. A number is written as in JSON, and not in one of the other ways that Python reads.
WHOLE = re.compile(r"-?(0|[1-9][0-9]*)(\.0+)?")
NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")

Id = Annotated[str, StringConstraints(min_length=1, max_length=LONGEST_ID)]
# Something that is no space. The spaces are named, since \S means other ones in each language that reads this.
WRITTEN = r"[^\t-\r \u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff]"
Review = Annotated[str, StringConstraints(min_length=1, max_length=LONGEST_REVIEW, pattern=WRITTEN)]


def _whole(given: Any) -> Any:
    """JSON has one kind of number: 3.0 is a whole one."""
    _check_written(given, WHOLE, "int_parsing")
    return int(given) if isinstance(given, float) and given.is_integer() else given


def _number(given: Any) -> Any:
    return _check_written(given, NUMBER, "float_parsing")


def _day(given: Any) -> Any:
    return _check_written(given, DAY, "date_parsing")


def _check_written(given: Any, form: re.Pattern[str], fault: LiteralString) -> Any:
    if isinstance(given, str) and not form.fullmatch(given):
        raise PydanticCustomError(fault, "is written otherwise")
    return given


WholeNumber, Number, Day = (BeforeValidator(check) for check in (_whole, _number, _day))


class _Query(BaseModel):
    """Of an address: numbers arrive as text."""

    model_config = ConfigDict(extra="forbid")


class _Body(BaseModel):
    """Of a JSON body: a number is a number.

    Lists are looked at up to their first fault, and names that are not known up to the first few: there may be many.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _with_few_unknown(cls, given: Any) -> Any:
        if not isinstance(given, dict) or len(given) <= len(cls.model_fields) + MOST_UNKNOWN:
            return given
        unknown = islice((name for name in given if name not in cls.model_fields), MOST_UNKNOWN)
        return {name: given[name] for name in (*cls.model_fields, *unknown) if name in given}


class Search(_Query):
    q: Annotated[str, Field(max_length=500)] = ""
    limit: Annotated[int, Field(ge=1, le=MOST_ROWS), WholeNumber] = 20
    offset: Annotated[int, Field(ge=0, le=10_000_000), WholeNumber] = 0


class ThingSearch(Search):
    category: Annotated[Id | None, Field(description="find things of this category alone")] = None


class CategorySearch(_Query):
    q: Annotated[str, Field(max_length=500)] = ""
    limit: Annotated[int, Field(ge=1, le=MOST_ROWS), WholeNumber] = 50


class AudienceQuery(_Query):
    n: Annotated[int, Field(ge=1, le=50), WholeNumber] = 8


class PeriodQuery(_Query):
    """Days from the first to the last, both included."""

    since: Annotated[date | None, Field(description="the first day, as 2026-01-31"), Day] = None
    until: Annotated[date | None, Field(description="the last day"), Day] = None

    def days(self) -> tuple[str | None, str | None]:
        since, until = (None if day is None else day.isoformat() for day in (self.since, self.until))
        return since, until


class Nothing(_Query):
    """No field at all."""


class PairQuery(_Query):
    user: Id
    item: Id


class _Wishes(BaseModel):
    """What may be asked of recommendations besides their number: as on the command line."""

    by: Annotated[Literal["taste", "rating"], Field(description="what suits the person, or the rating alone")] = "taste"
    diversity: Annotated[
        float | None,
        Field(ge=0, le=1, description="the higher, the fewer things that many people have; usually 0.3"),
        Number,
    ] = None
    among: Annotated[
        list[Id] | None,
        Field(min_length=1, max_length=MOST_PAIRS, fail_fast=True, description="choose from these things alone"),
    ] = None
    min_reviews: Annotated[
        int, Field(ge=0, le=2**31, description="leave out things with fewer training reviews"), WholeNumber
    ] = 0
    category: Annotated[Id | None, Field(description="choose from the things of this category alone")] = None

    def wishes(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _Wishes.model_fields}


class RecommendQuery(_Query, _Wishes):
    user: Id
    n: Annotated[int, Field(ge=1, le=MOST_ROWS), WholeNumber] = 10


class CompareQuery(_Query):
    user: Id
    first: Id
    second: Id


class SummaryQuery(_Query):
    user: Id
    n: Annotated[int, Field(ge=1, le=50), WholeNumber] = 8


class ResultsQuery(_Query):
    section: Annotated[int, Field(ge=0, le=100_000), WholeNumber] | None = None


class Pair(_Body):
    user: Id
    item: Id


def _either_way(schema: dict[str, Any]) -> None:
    """Say in the schema what the check below says: a pair, or pairs."""
    known = {name: one["anyOf"][0] for name, one in schema.pop("properties").items()}
    ways = (("user", "item"), ("pairs",))
    schema["oneOf"] = [
        {
            "type": "object",
            "properties": {name: known[name] for name in way},
            "required": list(way),
            "additionalProperties": False,
        }
        for way in ways
    ]
    for unneeded in ("type", "additionalProperties"):
        schema.pop(unneeded, None)


class Predict(_Body):
    """One pair by `user` and `item`, or several by `pairs`."""

    model_config = ConfigDict(json_schema_extra=_either_way)

    user: Id | None = None
    item: Id | None = None
    pairs: Annotated[list[Pair], Field(min_length=1, max_length=MOST_PAIRS, fail_fast=True)] | None = None

    @model_validator(mode="after")
    def _one_way(self) -> Predict:
        given = self.model_fields_set
        if given not in ({"user", "item"}, {"pairs"}) or None in (getattr(self, name) for name in given):
            raise ValueError("give both user and item, or pairs")
        return self

    def asked(self) -> list[tuple[str, str]]:
        if self.pairs is not None:
            return [(pair.user, pair.item) for pair in self.pairs]
        return [(str(self.user), str(self.item))]


class Newcomer(_Body, _Wishes):
    reviews: Annotated[list[Review], Field(min_length=1, max_length=MOST_REVIEWS, fail_fast=True)]
    items: Annotated[list[Id], Field(max_length=MOST_PAIRS, fail_fast=True)] | None = None
    explain: Id | None = None
    n: Annotated[int, Field(ge=1, le=MOST_ROWS), WholeNumber] = 10
