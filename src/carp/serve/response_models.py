"""What is answered: the fields of every answer by name and type, as /openapi.json describes them.

Answers are written by the engines from plain data and are not copied through these; tests hold the two to each other.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any, Literal, get_type_hints

from pydantic import BaseModel, Field, create_model

from carp.explain.explanation import Explanation, Mark, Sentence, Sentiment, Side, Tone, WeightsAre
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


class FactsShown(BaseModel):
    """What is known of a thing besides its reviews."""

    categories: list[str]
    picture: str | None = Field(description="the address of a picture, which the service never fetches")


class AllFactsShown(FactsShown):
    description: str | None


class RecommendedItem(BaseModel):
    item: str
    title: str | None
    rating: float
    item_mean: float | None
    reason: str
    facts: FactsShown | None


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
    facts: FactsShown | None


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
    Explanation,
    "ExplainAnswer",
    prevailing=(Sentiment | None, ...),
    little_known=(bool, ...),
    told=(Told, ...),
    facts=(AllFactsShown | None, ...),
)


class NewcomerAnswer(BaseModel):
    predictions: list[ItemRating]
    explanation: ExplainAnswer | None  # type: ignore[valid-type]
    recommendations: list[RecommendedItem]


class ComparedItem(BaseModel):
    item: str
    title: str | None
    rating: float
    low: float | None
    high: float | None
    item_mean: float | None
    facts: AllFactsShown | None
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
    facts: AllFactsShown | None


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


class PersonSuited(BaseModel):
    user: str
    rating: float
    usual: float | None = Field(description="what this person gives on average")
    reviews: int
    writes_about: list[str]


class AudienceAnswer(BaseModel):
    item: str
    title: str | None
    people: list[PersonSuited]


class CategoryShown(BaseModel):
    name: str
    things: int


class CategoriesAnswer(BaseModel):
    total: int
    categories: list[CategoryShown]


class AspectLine(BaseModel):
    name: str
    reviews: int = Field(description="of those read, how many say so")
    share: float
    sentences: list[Sentence]


class ThingLine(BaseModel):
    item: str
    title: str | None
    facts: FactsShown | None
    reviews: int
    mean: float | None
    why: str
    sentences: list[Sentence]


class PersonLine(BaseModel):
    user: str
    item: str = Field(description="what they reviewed last")
    title: str | None
    reviews: int
    mean: float | None
    last: str = Field(description="the day of their last review")
    why: str
    sentences: list[Sentence]


class DatesShown(BaseModel):
    first: str
    last: str
    undated: int


class OverviewAnswer(BaseModel):
    reviews: int
    held_back: int = Field(description="reviews that test the model and are not counted here")
    read: int = Field(description="reviews whose sentences were read")
    mean: float | None
    dates: DatesShown | None = Field(description="null where no review has a date")
    praised: list[AspectLine]
    complained: list[AspectLine]
    most_reviewed: list[ThingLine]
    at_risk: list[ThingLine]
    loved_by_few: list[ThingLine]
    left: list[PersonLine] | None = Field(description="null where no review has a date")


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
    described: bool = Field(description="whether categories, descriptions or pictures of things are known")
    dated: bool = Field(description="whether reviews have dates")


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
