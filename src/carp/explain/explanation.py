"""Why a rating was predicted: an Explanation is plain data, ready to be shown as text, page or JSON.

Every model that explains fills the two sides: what it listened to in the person's reviews and in the thing's. Models
with capsules also say how the sides met and whether that speaks for or against; the others leave that open.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Sentiment = Literal["positive", "negative"]
Tone = Literal["praise", "complaint"]
WeightsAre = Literal["listening", "sentences"]  # what a profile weighs a person's viewpoints by
LITTLE = 0.02  # of the rating range: texts that move a rating by less than this are no reason
MatchKind = Literal["positive", "negative", "matched"]  # of marks in the held-out review


@dataclass(frozen=True)
class Mark:
    """A stretch of characters to highlight in a text.

    `own` phrases belong to one viewpoint (aspect) alone, `shared` ones to several;
    `positive` and `negative` underline the parts of the held-out review that the named logic units match, `matched`
    those that match the sentences of a model which says nothing of for and against.
    """

    start: int
    end: int
    kind: Literal["own", "shared", "positive", "negative", "matched"]
    weight: float = 0.0


@dataclass(frozen=True)
class Sentence:
    """A sentence of somebody's review that stands for a viewpoint or an aspect."""

    text: str
    marks: tuple[Mark, ...]
    user: str | None  # None where the writer is a newcomer whose reviews were pasted
    item: str | None
    rating: float | None  # what the writer gave in that review
    title: str | None = field(default=None, kw_only=True)  # of the item, if it is known
    tone: Tone | None = field(default=None, kw_only=True)  # None where it says neither clearly, or nobody has asked


def opposed_to(sentiment: Sentiment | None, sentences: Iterable[Sentence]) -> int:
    """How many sentences clearly say the opposite of what they are shown as."""
    if sentiment is None:
        return 0
    opposite: Tone = "complaint" if sentiment == "positive" else "praise"
    return sum(one.tone == opposite for one in sentences)


@dataclass(frozen=True)
class Side:
    """One viewpoint of the person or one aspect of the thing, by its best sentences and phrases.

    In models without capsules it is what they have in that place: an attention, a pointer, an aspect.
    """

    index: int  # 1-based, as in the paper's g_{x,y}
    sentences: tuple[Sentence, ...]
    phrases: tuple[str, ...]  # best first
    weight: float | None = None  # how much the model listens to this side; None where it does not say
    name: str = ""  # what the reader calls it: "strings, set, change", "viewpoint 1", "local attention"
    sentiment: Sentiment | None = None  # what it is shown as, where it speaks for the thing or against it
    opposed: int = 0  # of its sentences: those that clearly say the opposite of that


@dataclass(frozen=True)
class LogicUnit:
    """A viewpoint that met an aspect, and how much each capsule listens to the pair."""

    viewpoint: Side
    aspect: Side
    positive: float  # coupling coefficient c_pos of the pair
    negative: float
    sentiment: Sentiment  # the capsule for which it is listed


@dataclass(frozen=True)
class Capsule:
    """How likely the person holds a sentiment (length) and to what extent (degree)."""

    length: float  # ‖o_s‖ in (0, 1)
    degree: float  # r_s, as the model uses it
    relative_degree: float  # r_s over the largest |r_s| of the training pairs, as the paper shows it


@dataclass(frozen=True)
class TargetReview:
    """What the person really wrote about the thing, which no model has seen."""

    text: str
    rating: float
    marks: tuple[Mark, ...]


PartKind = Literal["mean", "person", "thing", "writing", "aspect", "other words", "name", "width", "scale"]


@dataclass(frozen=True)
class Part:
    """One of the amounts that a rating is the sum of."""

    kind: PartKind
    name: str  # as a reader calls it
    amount: float  # on the scale of the data


@dataclass(frozen=True)
class EarlierCase:
    """Something the person rated before, of which people write much as they do of this thing."""

    item: str
    rating: float  # that the person gave
    likeness: float  # of the two things' texts, from 0 to 1
    title: str | None = None


@dataclass(frozen=True)
class AspectFinding:
    """What is written about one aspect of the thing, and what that does to the rating."""

    aspect: str
    amount: float  # that it adds to the rating, or takes away, on the scale of the data
    by_itself: float  # of the amount: what the words do for everybody
    by_taste: float  # of the amount: what they do for this person
    sentences: tuple[Sentence, ...]  # praise where the amount is above 0, complaints where it is below
    turned: bool = False  # the person's taste turns praise into a reason against, or a complaint into one for it
    viewpoint: str | None = None  # what this person writes about that the aspect meets most
    own_sentences: tuple[Sentence, ...] = ()  # of the person, about that


@dataclass(frozen=True)
class Meetings:
    """What each viewpoint that meets an aspect adds to the rating, on the scale of the data."""

    viewpoints: tuple[str, ...]
    aspects: tuple[str, ...]
    amounts: tuple[tuple[float, ...], ...]  # a row a viewpoint, a column an aspect


@dataclass(frozen=True)
class Reasons:
    """The part of an Explanation that is the model's own: what it listened to, and what it made of that."""

    viewpoints: tuple[Side, ...]  # all sides of the person, in the order of their index
    aspects: tuple[Side, ...]  # all sides of the thing
    target: TargetReview | None
    positive: Capsule | None = None  # None where the model has no capsules, as all that follows of them is empty
    negative: Capsule | None = None
    coupling_positive: tuple[tuple[float, ...], ...] = ()  # a row a viewpoint, a column an aspect
    coupling_negative: tuple[tuple[float, ...], ...] = ()
    units: tuple[LogicUnit, ...] = ()  # those of the prevailing sentiment first
    meaning: str = ""  # of being listened to, in a model without capsules
    parts: tuple[Part, ...] = ()  # which sum to the rating, in a model that is a sum
    findings: tuple[AspectFinding, ...] = ()  # the aspects that count most, in such a model
    cases: tuple[EarlierCase, ...] = ()
    meetings: Meetings | None = None
    texts_move: float | None = None  # how far the texts move the rating; None where the model does not say


@dataclass(frozen=True, repr=False)
class Explanation:
    """A predicted rating and its reasons."""

    user: str | None  # None for a newcomer
    item: str
    rating: float  # predicted, in the corpus' own range
    rating_range: tuple[float, float]
    item_mean: float | None  # average rating of the thing in training
    baseline: float | None  # what the biases alone predict
    positive: Capsule | None  # None where the model has no capsules, as all that follows of them is empty
    negative: Capsule | None
    coupling_positive: tuple[tuple[float, ...], ...]  # a row a viewpoint, a column an aspect
    coupling_negative: tuple[tuple[float, ...], ...]
    units: tuple[LogicUnit, ...]  # those of the prevailing sentiment first
    target: TargetReview | None = None
    notes: tuple[str, ...] = field(default=())  # what the reader must know: an unknown user, an empty document
    model: str = "carp"  # by the name of the registry
    viewpoints: tuple[Side, ...] = ()  # all sides of the person, in the order of their index
    aspects: tuple[Side, ...] = ()  # all sides of the thing
    meaning: str = ""  # of being listened to, in a model without capsules
    title: str | None = None  # of the item, if it is known
    low: float | None = None  # nine ratings of ten lie between low and high, where that is known
    high: float | None = None
    parts: tuple[Part, ...] = ()  # which sum to the rating, in a model that is a sum
    findings: tuple[AspectFinding, ...] = ()  # the aspects that count most, in such a model
    cases: tuple[EarlierCase, ...] = ()
    meetings: Meetings | None = None
    texts_move: float | None = None  # how far the texts move the rating; None where the model does not say

    @property
    def little_known(self) -> bool:
        """Whether the texts hardly move the rating, so that there is next to nothing to explain."""
        least = LITTLE * (self.rating_range[1] - self.rating_range[0])
        moved = self.moved_by_texts
        if moved is None or abs(moved) >= least:
            return False
        return all(abs(finding.amount) < least for finding in self.findings)

    @property
    def moved_by_texts(self) -> float | None:
        """How far the texts move the rating: by the model's own account or, with capsules, from the biases alone; None
        where neither is known."""
        if self.texts_move is not None or self.prevailing is None or self.baseline is None:
            return self.texts_move
        return self.rating - self.baseline

    @property
    def prevailing(self) -> Sentiment | None:
        """The sentiment of the longer capsule; None where there are no capsules."""
        if self.positive is None or self.negative is None:
            return None
        return "positive" if self.positive.length >= self.negative.length else "negative"

    def as_dict(self) -> dict[str, Any]:
        """The same as JSON-ready data.

        Returns:
            All fields by name, the prevailing sentiment, and whether the texts hardly move the rating.
        """
        return {**asdict(self), "prevailing": self.prevailing, "little_known": self.little_known}

    def __str__(self) -> str:
        from carp.render.terminal import explanation_text

        return explanation_text(self)

    __repr__ = __str__  # at a Python prompt too, an explanation shows itself

    def _repr_html_(self) -> str:
        from carp.render.html_page import explanation_fragment

        return explanation_fragment(self)
