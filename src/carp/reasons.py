"""From a model's tensors to an Explanation: which viewpoint met which aspect, and what was written of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from carp.archive import Archive
from carp.errors import UsageError
from carp.evidence import ReadableDocument, matching_marks, readable_sides
from carp.explain import Capsule, Explanation, LogicUnit, Mark, Sentiment, Side, TargetReview
from carp.models.base import Prediction, RatingModel
from carp.models.carp import NEGATIVE, POSITIVE, Carp, Reading
from carp.reviews.split import TRAIN

Array = NDArray[np.float64]
SENTIMENTS: tuple[Sentiment, Sentiment] = ("positive", "negative")


@dataclass(frozen=True)
class Detail:
    """How much of the reasons is shown; the paper's example study is the default."""

    prevailing_units: int = 2
    other_units: int = 1
    top_phrases: int = 30
    sentences: int = 2


@dataclass(frozen=True)
class Question:
    """A pair with the documents that answer for it."""

    user: int  # -1: a newcomer
    item: int
    user_document: ReadableDocument
    item_document: ReadableDocument
    record: int = -1  # the pair's own review, if it was written


def explainable(model: RatingModel, name: str) -> Carp:
    if not isinstance(model, Carp):
        raise UsageError(f"the model {name} gives ratings without reasons", mend="train carp or carp-ra to explain")
    return model


def known_pair(archive: Archive, user: int, item: int) -> Question:
    """A pair of the corpus; its own review never speaks for it."""
    record = archive.record_of_pair.get((user, item), -1)
    return Question(
        user,
        item,
        archive.readable(archive.user_documents, user, leave_out=record),
        archive.readable(archive.item_documents, item, leave_out=record),
        record,
    )


@dataclass(frozen=True)
class Answer:
    """What the model made of one pair."""

    prediction: Prediction
    user: Reading  # one document each
    item: Reading


@torch.no_grad()
def answer(model: Carp, archive: Archive, question: Question, device: torch.device) -> Answer:
    def tensors(document: ReadableDocument) -> tuple[torch.Tensor, torch.Tensor]:
        words = document.words if len(document.words) else np.zeros(1, np.int32)
        review = document.review if len(document.review) else np.full(1, -1, np.int32)
        return torch.from_numpy(words)[None].to(device), torch.from_numpy(review)[None].to(device)

    user = model.read_users(*tensors(question.user_document))
    item = model.read_items(*tensors(question.item_document))
    own = None
    if question.record >= 0 and archive.part[question.record] == TRAIN:
        own = torch.tensor([float(archive.rating[question.record])], device=device)
    users = torch.tensor([question.user], device=device)
    items = torch.tensor([question.item], device=device)
    return Answer(model.score(users, items, user.viewpoints, item.viewpoints, own_ratings=own), user, item)


def influences(model: Carp, found: Answer) -> tuple[Array, Array]:
    """How much each word of the two documents moves the rating through each logic unit: [Lu, M, M], [Li, M, M].

    A viewpoint is the attention's mean of its words, so what a word adds to it is attn·(p − v). That, times the
    slope of the balance of sentiments at the logic unit, is the word's pull upwards (or, negative, downwards).
    """
    viewpoints, aspects = found.user.viewpoints, found.item.viewpoints
    units = model.pair(viewpoints, aspects).detach().requires_grad_()
    balance = model.judge(units)["balance"].sum()
    slope = torch.autograd.grad(balance, units)[0][0].view(*viewpoints.shape[1:2] * 2, -1)  # [M, M, 2k]
    difference, product = slope.chunk(2, -1)
    if model.config.logic_unit == "product first":
        difference, product = product, difference
    v, a = viewpoints[0].unsqueeze(1), aspects[0].unsqueeze(0)  # [M, 1, k], [1, M, k]
    user = torch.einsum("lxk,xyk->lxy", _added(found.user), difference + a * product)
    item = torch.einsum("lyk,xyk->lxy", _added(found.item), v * product - difference)
    return user.detach().double().cpu().numpy(), item.detach().double().cpu().numpy()


def _added(reading: Reading) -> torch.Tensor:
    return reading.attention[0].unsqueeze(-1) * (reading.contextual[0] - reading.viewpoints[0])


def explain_question(
    model: Carp,
    archive: Archive,
    question: Question,
    device: torch.device,
    *,
    baseline: float | None,
    degree_scale: tuple[float, float],
    detail: Detail,
    notes: tuple[str, ...] = (),
) -> Explanation:
    found = answer(model, archive, question, device)
    shown = {name: tensor[0].double().cpu().numpy() for name, tensor in found.prediction.tensors.items()}
    units = top_units(model, question, found, shown["coupling"], shown["lengths"], detail)
    mean = archive.item_means[question.item]
    return Explanation(
        user=archive.users[question.user] if question.user >= 0 else None,
        item=archive.items[question.item],
        rating=archive.own_rating(float(np.clip(float(found.prediction.rating[0]), 1, archive.levels))),
        rating_range=(archive.scale.low, archive.scale.high),
        item_mean=None if np.isnan(mean) else archive.own_rating(float(mean)),
        baseline=None if baseline is None else archive.own_rating(baseline),
        positive=_capsule(shown, POSITIVE, degree_scale),
        negative=_capsule(shown, NEGATIVE, degree_scale),
        coupling_positive=_matrix(shown["coupling"][POSITIVE]),
        coupling_negative=_matrix(shown["coupling"][NEGATIVE]),
        units=units,
        target=_target(archive, question, units),
        notes=notes + _notes(archive, question),
    )


def _capsule(shown: dict[str, Array], s: int, scale: tuple[float, float]) -> Capsule:
    degree = float(shown["degrees"][s])
    return Capsule(float(shown["lengths"][s]), degree, degree / scale[s] if scale[s] else 0.0)


def _matrix(values: Array) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(float(v) for v in row) for row in values)


def top_units(
    model: Carp,
    question: Question,
    found: Answer,
    coupling: Array,  # [2, M, M]
    lengths: Array,  # [2]
    detail: Detail,
) -> tuple[LogicUnit, ...]:
    """The units each capsule listens to most: more of the prevailing sentiment, which comes first.

    Of the sentences with a viewpoint's top phrases, a unit shows those that pull the rating most in its direction.
    """
    user, item = influences(model, found)
    prevailing = POSITIVE if lengths[POSITIVE] >= lengths[NEGATIVE] else NEGATIVE
    wanted = [(prevailing, detail.prevailing_units), (1 - prevailing, detail.other_units)]
    units = []
    for s, number in wanted:
        direction = 1.0 if s == POSITIVE else -1.0
        order = np.argsort(-coupling[s].ravel(), kind="stable")[:number]
        for x, y in zip(*np.unravel_index(order, coupling[s].shape), strict=True):
            viewpoint = _sides(model, question.user_document, found.user, direction * user[:, :, y], detail)[x]
            aspect = _sides(model, question.item_document, found.item, direction * item[:, x, :], detail)[y]
            pos, neg = float(coupling[POSITIVE, x, y]), float(coupling[NEGATIVE, x, y])
            units.append(LogicUnit(viewpoint, aspect, pos, neg, SENTIMENTS[s]))
    return tuple(units)


def _sides(model: Carp, document: ReadableDocument, reading: Reading, influence: Array, detail: Detail) -> list[Side]:
    length = len(document.words)
    return readable_sides(
        document,
        reading.attention[0].double().cpu().numpy()[:length],
        window=model.config.window,
        top_phrases=detail.top_phrases,
        shown_sentences=detail.sentences,
        influence=influence[:length],
    )


def _target(archive: Archive, question: Question, units: tuple[LogicUnit, ...]) -> TargetReview | None:
    """The pair's own review, where it was held out: nothing in the explanation has seen it."""
    if question.record < 0 or archive.part[question.record] == TRAIN:
        return None
    source = archive.source(question.record)
    sides = {
        sentiment: [side for unit in units if unit.sentiment == sentiment for side in (unit.viewpoint, unit.aspect)]
        for sentiment in SENTIMENTS
    }
    marks: tuple[Mark, ...] = matching_marks(source.text, sides, archive.unseen_words(source.text))
    assert source.rating is not None
    return TargetReview(source.text, source.rating, marks)


def _notes(archive: Archive, question: Question) -> tuple[str, ...]:
    notes = []
    if question.record >= 0 and archive.part[question.record] == TRAIN:
        notes.append("this pair was trained on; its own review and rating are left out here")
    if not len(question.user_document.words):
        notes.append("the person's reviews hold no word the model knows: the viewpoints are empty")
    if not len(question.item_document.words):
        notes.append("the thing's reviews hold no word the model knows: the aspects are empty")
    return tuple(notes)
