"""The reasons of CARP: which viewpoint met which aspect, what each capsule made of it, and what was written of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from carp.archive import Archive
from carp.evidence import ReadableDocument, readable_sides
from carp.explain import Capsule, LogicUnit, MatchKind, Sentiment, Side
from carp.models.base import Prediction
from carp.models.carp import NEGATIVE, POSITIVE, Carp, Reading
from carp.questions import Detail, Question, as_batch, held_out

Array = NDArray[np.float64]
SENTIMENTS: tuple[Sentiment, Sentiment] = ("positive", "negative")


def capsule_reasons(
    model: Carp,
    archive: Archive,
    question: Question,
    device: torch.device,
    degree_scale: tuple[float, float],
    detail: Detail,
) -> tuple[float, dict[str, Any]]:
    """The rating of CARP, and its capsules, their logic units and all viewpoints and aspects."""
    found = answer(model, archive, question, device)
    shown = {name: tensor[0].double().cpu().numpy() for name, tensor in found.prediction.tensors.items()}
    coupling = shown["coupling"]
    moved = influences(model, found)
    prevailing = POSITIVE if shown["lengths"][POSITIVE] >= shown["lengths"][NEGATIVE] else NEGATIVE
    units = top_units(model, question, found, moved, coupling, prevailing, detail)
    viewpoints, aspects = all_sides(model, question, found, moved, coupling[prevailing], detail)
    matching: dict[MatchKind, list[Side]] = {
        sentiment: [side for unit in units if unit.sentiment == sentiment for side in (unit.viewpoint, unit.aspect)]
        for sentiment in SENTIMENTS
    }
    return float(found.prediction.rating[0]), {
        "positive": _capsule(shown, POSITIVE, degree_scale),
        "negative": _capsule(shown, NEGATIVE, degree_scale),
        "coupling_positive": _matrix(coupling[POSITIVE]),
        "coupling_negative": _matrix(coupling[NEGATIVE]),
        "units": units,
        "viewpoints": viewpoints,
        "aspects": aspects,
        "target": held_out(archive, question, matching),
    }


@dataclass(frozen=True)
class Answer:
    """What the model made of one pair."""

    prediction: Prediction
    user: Reading  # one document each
    item: Reading


@torch.no_grad()
def answer(model: Carp, archive: Archive, question: Question, device: torch.device) -> Answer:
    batch = as_batch(archive, question, device)
    user = model.read_users(batch.user_words, batch.user_reviews)
    item = model.read_items(batch.item_words, batch.item_reviews)
    return Answer(
        model.score(batch.users, batch.items, user.viewpoints, item.viewpoints, own_ratings=batch.ratings), user, item
    )


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


def _capsule(shown: dict[str, Array], s: int, scale: tuple[float, float]) -> Capsule:
    degree = float(shown["degrees"][s])
    return Capsule(float(shown["lengths"][s]), degree, degree / scale[s] if scale[s] else 0.0)


def _matrix(values: Array) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(float(v) for v in row) for row in values)


def top_units(
    model: Carp,
    question: Question,
    found: Answer,
    moved: tuple[Array, Array],  # as `influences` gives it
    coupling: Array,  # [2, M, M]
    prevailing: int,
    detail: Detail,
) -> tuple[LogicUnit, ...]:
    """The units each capsule listens to most: more of the prevailing sentiment, which comes first.

    Of the sentences with a viewpoint's top phrases, a unit shows those that pull the rating most in its direction.
    """
    user, item = moved
    heard = _listening(coupling[prevailing])
    wanted = [(prevailing, detail.prevailing_units), (1 - prevailing, detail.other_units)]
    units = []
    for s, number in wanted:
        direction = 1.0 if s == POSITIVE else -1.0
        order = np.argsort(-coupling[s].ravel(), kind="stable")[:number]
        for x, y in zip(*np.unravel_index(order, coupling[s].shape), strict=True):
            viewpoint = _sides(model, question.user_document, found.user, direction * user[:, :, y], detail)[x]
            aspect = _sides(model, question.item_document, found.item, direction * item[:, x, :], detail)[y]
            viewpoint = replace(viewpoint, name=f"viewpoint {x + 1}", weight=float(heard[0][x]))
            aspect = replace(aspect, name=f"aspect {y + 1}", weight=float(heard[1][y]))
            pos, neg = float(coupling[POSITIVE, x, y]), float(coupling[NEGATIVE, x, y])
            units.append(LogicUnit(viewpoint, aspect, pos, neg, SENTIMENTS[s]))
    return tuple(units)


def all_sides(
    model: Carp,
    question: Question,
    found: Answer,
    moved: tuple[Array, Array],
    coupling: Array,  # [M, M], of the prevailing sentiment
    detail: Detail,
) -> tuple[tuple[Side, ...], tuple[Side, ...]]:
    """Every viewpoint and every aspect, by the sentences that move the rating most through it, up or down."""
    user, item = moved
    weights = _listening(coupling)
    found_sides = (
        ("viewpoint", question.user_document, found.user, np.abs(user.sum(2)), weights[0]),
        ("aspect", question.item_document, found.item, np.abs(item.sum(1)), weights[1]),
    )
    viewpoints, aspects = (
        tuple(
            replace(side, name=f"{kind} {side.index}", weight=float(weight))
            for side, weight in zip(_sides(model, document, reading, pull, detail), heard, strict=True)
        )
        for kind, document, reading, pull, heard in found_sides
    )
    return viewpoints, aspects


def _listening(coupling: Array) -> tuple[Array, Array]:
    """The share of a capsule's coupling [M, M] that falls on each viewpoint, and on each aspect."""
    total = max(float(coupling.sum()), 1e-30)
    return coupling.sum(1) / total, coupling.sum(0) / total


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
