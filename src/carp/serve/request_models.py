"""What may be asked: every field by name and type; whatever else is given is refused."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

MOST_PAIRS = 1_000
MOST_REVIEWS = 500
MOST_ROWS = 200

Id = Annotated[str, StringConstraints(min_length=1, max_length=2_000)]


class _Query(BaseModel):
    """Of an address: numbers arrive as text."""

    model_config = ConfigDict(extra="forbid")


class _Body(BaseModel):
    """Of a JSON body: a number is a number."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Search(_Query):
    q: Annotated[str, Field(max_length=500)] = ""
    limit: Annotated[int, Field(ge=1, le=MOST_ROWS)] = 20
    offset: Annotated[int, Field(ge=0, le=10_000_000)] = 0


class Nothing(_Query):
    """No field at all."""


class PairQuery(_Query):
    user: Id
    item: Id


class RecommendQuery(_Query):
    user: Id
    n: Annotated[int, Field(ge=1, le=MOST_ROWS)] = 10


class CompareQuery(_Query):
    user: Id
    first: Id
    second: Id


class SummaryQuery(_Query):
    user: Id
    n: Annotated[int, Field(ge=1, le=50)] = 8


class Pair(_Body):
    user: Id
    item: Id


class Predict(_Body):
    """One pair by `user` and `item`, or several by `pairs`."""

    user: Id | None = None
    item: Id | None = None
    pairs: Annotated[list[Pair], Field(min_length=1, max_length=MOST_PAIRS)] | None = None

    @model_validator(mode="after")
    def _one_way(self) -> Predict:
        alone = self.user is not None and self.item is not None
        if alone == (self.pairs is not None) or (self.user is None) != (self.item is None):
            raise ValueError("give both user and item, or pairs")
        return self

    def asked(self) -> list[tuple[str, str]]:
        if self.pairs is not None:
            return [(pair.user, pair.item) for pair in self.pairs]
        return [(str(self.user), str(self.item))]


class Newcomer(_Body):
    reviews: Annotated[list[str], Field(min_length=1, max_length=MOST_REVIEWS)]
    items: Annotated[list[Id], Field(max_length=MOST_PAIRS)] | None = None
    explain: Id | None = None
    n: Annotated[int, Field(ge=1, le=MOST_ROWS)] = 10
