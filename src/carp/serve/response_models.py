"""What is answered: the fields of every answer by name and type, as /openapi.json describes them.

Answers are written by the engines from plain data and are not copied through these; tests hold the two to each other.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any, Literal, get_type_hints

from pydantic import BaseModel, Field, create_model

from carp.explain.explanation import Explanation, Mark, Sentiment, Side, Tone
from carp.explain.profiles import WeightsAre
from carp.render.summed_telling import Told


class PairRating(BaseModel):
    user: str
    item: str
    title: str | None
    rating: float
    low: float | None = Field(description="nine ratings of ten lie between low and high, where that is known")
    high: float | None
    note: str | None = Field(description="what the reader must know: an unknown person or thing")


class PredictAnswer(BaseModel):
    predictions: list[PairRating]


class ItemRating(BaseModel):
    item: str
    title: str | None
    rating: float
    low: float | None = Field(description="nine ratings of ten lie between low and high, where that is known")
    high: float | None
    note: str | None


class RecommendedItem(BaseModel):
    item: str
    title: str | None
    rating: float
    item_mean: float | None
    reason: str


class RecommendAnswer(BaseModel):
    user: str
    recommendations: list[RecommendedItem]
    note: str | None = Field(description="what the reader must know: an unknown person gets what is popular")


class FoundId(BaseModel):
    id: str
    title: str | None
    reviews: int
    mean: float | None
    snippet: str


class UsersAnswer(BaseModel):
    total: int
    complete: bool = Field(description="false where a query met so much that not all was looked at")
    users: list[FoundId]


class ItemsAnswer(BaseModel):
    total: int
    complete: bool
    items: list[FoundId]


def _all_fields(kind: type, name: str, **more: Any) -> type[BaseModel]:
    """A model of a dataclass in which every field is there, as in what is answered."""
    assert is_dataclass(kind)
    hints = get_type_hints(kind)
    given: dict[str, Any] = {one.name: (hints[one.name], ...) for one in fields(kind)}
    made: type[BaseModel] = create_model(name, **given, **more)
    return made


ExplainAnswer = _all_fields(
    Explanation, "ExplainAnswer", prevailing=(Sentiment | None, ...), little_known=(bool, ...), told=(Told, ...)
)


class NewcomerAnswer(BaseModel):
    predictions: list[ItemRating]
    explanation: ExplainAnswer | None  # type: ignore[valid-type]
    recommendations: list[RecommendedItem]


class ComparedItem(BaseModel):
    item: str
    title: str | None
    rating: float
    item_mean: float | None
    explanation: ExplainAnswer | None  # type: ignore[valid-type]


class CompareAnswer(BaseModel):
    user: str
    items: list[ComparedItem]
    verdict: str


class PersonAnswer(BaseModel):
    user: str
    reviews: int
    mean: float | None
    rating_range: tuple[float, float]
    viewpoints: list[Side]
    ratings: dict[str, int]
    model: str
    notes: list[str]
    weights_are: WeightsAre


class SharedViewpointShown(BaseModel):
    index: int
    phrases: list[str]


class OpinionShown(BaseModel):
    aspect: Side
    raters: int
    prevailing: int
    strength: float
    viewpoints: list[SharedViewpointShown]


class ThingAnswer(BaseModel):
    item: str
    title: str | None
    reviews: int
    mean: float | None
    rating_range: tuple[float, float]
    raters: int
    liked: list[OpinionShown]
    disliked: list[OpinionShown]
    ratings: dict[str, int]
    model: str
    notes: list[str]


class SummarySentenceShown(BaseModel):
    text: str
    marks: list[Mark]
    user: str | None
    item: str | None
    title: str | None
    rating: float | None
    weight: float | None
    aspect: int
    sentiment: Sentiment | None
    tone: Tone | None = Field(description="what it says, whatever the model makes of it")
    turned: bool = Field(description="whether this person's taste turns round what it says")


class SummaryAnswer(BaseModel):
    user: str
    item: str
    title: str | None
    sentences: list[SummarySentenceShown]
    notes: list[str]


class ExamplePair(BaseModel):
    user: str
    item: str


class AboutAnswer(BaseModel):
    model: str
    version: str
    users: int
    items: int
    reviews: int
    words: int
    rating_range: tuple[float, float]
    rating_step: float | None
    explains: bool
    capsules: bool
    newcomers: bool
    corpus: str | None
    example: ExamplePair | None
    mean: float
    results: bool


class ResultSection(BaseModel):
    title: str
    html: str


class ResultsAnswer(BaseModel):
    sections: list[ResultSection]


class HealthAnswer(BaseModel):
    status: Literal["ok"]


class ReadyAnswer(BaseModel):
    status: Literal["ready"]
    engines: int


class VersionAnswer(BaseModel):
    version: str
    model: str
    bundle: str = Field(description="the sha256 sum of the manifest of the model that is served")


class ProblemDocument(BaseModel):
    """A refusal (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    fix: str | None
    id: str = Field(description="finds the request in the log of the service")
    nearest: str | None = Field(default=None, description="the known id most like an unknown one")
    fields: dict[str, str] | None = Field(default=None, description="what is wrong with which field")
