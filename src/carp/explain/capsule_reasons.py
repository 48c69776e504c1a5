"""The reasons of CARP: which viewpoint met which aspect, what each capsule made of it, and what was written of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from carp.explain.explanation import Capsule, LogicUnit, MatchKind, Sentiment, Side
from carp.explain.influence import SentenceInfluence, Slopes, lost_sentences, sentence_influence, unit_slopes
from carp.explain.phrases import PhraseBook, phrase_book, weightiest_sides
from carp.explain.question import Detail, Question, as_batch, held_out
from carp.explain.selection import Reason, choose_reasons
from carp.models.base import Prediction
from carp.models.carp import NEGATIVE, POSITIVE, Carp, DocumentReading
from carp.reviews.readable import ReadableDocument
from carp.training.fitted_corpus import FittedCorpus

Array = NDArray[np.float64]
SENTIMENTS: tuple[Sentiment, Sentiment] = ("positive", "negative")


def capsule_reasons(
    model: Carp,
    fitted: FittedCorpus,
    question: Question,
    device: torch.device,
    degree_scale: tuple[float, float],
    detail: Detail,
) -> tuple[float, dict[str, Any]]:
    """The rating of CARP, and its capsules, their logic units and all viewpoints and aspects."""
    found = answer(model, fitted, question, device)
    documents = question.user_document, question.item_document
    sides = [
        HeardSide.of(model, document, reading, detail)
        for document, reading in zip(documents, (found.user, found.item), strict=True)
    ]
    slopes = unit_slopes(model, found.user, found.item)
    shown = {name: tensor[0].double().cpu().numpy() for name, tensor in found.prediction.tensors.items()}
    return float(found.prediction.rating[0]), told(fitted, question, shown, sides, slopes, degree_scale, detail)


@dataclass(frozen=True, eq=False)
class HeardSide:
    """What the reasons need of one document, whatever it is paired with."""

    reading: DocumentReading
    book: PhraseBook
    lost: torch.Tensor  # [S, M, k] of the viewpoints, without each sentence

    @classmethod
    def of(cls, model: Carp, document: ReadableDocument, reading: DocumentReading, detail: Detail) -> HeardSide:
        attention = reading.attention[0].double().cpu().numpy()[: len(document.words)]
        book = phrase_book(document, attention, window=model.config.window, top_phrases=detail.top_phrases)
        return cls(reading, book, lost_sentences(model, reading, document.sentence_numbers))


def told(
    fitted: FittedCorpus,
    question: Question,
    shown: dict[str, Array],
    sides: Sequence[HeardSide],
    slopes: Slopes,
    degree_scale: tuple[float, float],
    detail: Detail,
) -> dict[str, Any]:
    """One pair's reasons, by the names of an Explanation's fields."""
    coupling = shown["coupling"]
    prevailing = POSITIVE if shown["lengths"][POSITIVE] >= shown["lengths"][NEGATIVE] else NEGATIVE
    pulls = sentence_influence(sides[0].lost, sides[1].lost, slopes)
    units = top_units(sides, pulls, coupling, prevailing, detail)
    viewpoints, aspects = all_sides(sides, pulls, coupling[prevailing], detail)
    matching: dict[MatchKind, list[Side]] = {
        sentiment: [side for unit in units if unit.sentiment == sentiment for side in (unit.viewpoint, unit.aspect)]
        for sentiment in SENTIMENTS
    }
    return {
        "positive": _capsule(shown, POSITIVE, degree_scale),
        "negative": _capsule(shown, NEGATIVE, degree_scale),
        "coupling_positive": _matrix(coupling[POSITIVE]),
        "coupling_negative": _matrix(coupling[NEGATIVE]),
        "units": units,
        "viewpoints": viewpoints,
        "aspects": aspects,
        "target": held_out(fitted, question, matching),
    }


@dataclass(frozen=True)
class Answer:
    """What the model made of one pair."""

    prediction: Prediction
    user: DocumentReading  # one document each
    item: DocumentReading


@torch.no_grad()
def answer(model: Carp, fitted: FittedCorpus, question: Question, device: torch.device) -> Answer:
    batch = as_batch(fitted, question, device)
    user = model.read_users(batch.user_words, batch.user_reviews)
    item = model.read_items(batch.item_words, batch.item_reviews)
    return Answer(
        model.score(batch.users, batch.items, user.viewpoints, item.viewpoints, own_ratings=batch.ratings), user, item
    )


def added(reading: DocumentReading) -> torch.Tensor:
    return reading.attention[0].unsqueeze(-1) * (reading.contextual[0] - reading.viewpoints[0])


def _capsule(shown: dict[str, Array], s: int, scale: tuple[float, float]) -> Capsule:
    degree = float(shown["degrees"][s])
    return Capsule(float(shown["lengths"][s]), degree, degree / scale[s] if scale[s] else 0.0)


def _matrix(values: Array) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(float(v) for v in row) for row in values)


def top_units(
    sides: Sequence[HeardSide],
    pulls: SentenceInfluence,
    coupling: Array,  # [2, M, M]
    prevailing: int,
    detail: Detail,
) -> tuple[LogicUnit, ...]:
    """The units each capsule listens to most: more of the prevailing sentiment, which comes first.

    The sentences are those that pull the rating most in the direction of the sentiment; each unit shows those of them
    that pull most through it.
    """
    user, item = sides
    heard = _listening(coupling[prevailing])
    units = []
    for s, number in [(prevailing, detail.prevailing_units), (1 - prevailing, detail.other_units)]:
        alike = user.book.alike, item.book.alike
        for x, y, reason in unit_reasons(pulls, alike, coupling[s], s, number, detail.sentences):
            viewpoint = user.book.side(x, [user.book.document.sentences[j] for j in reason.user])
            aspect = item.book.side(y, [item.book.document.sentences[j] for j in reason.item])
            viewpoint = replace(viewpoint, name=f"viewpoint {x + 1}", weight=float(heard[0][x]))
            aspect = replace(aspect, name=f"aspect {y + 1}", weight=float(heard[1][y]))
            pos, neg = float(coupling[POSITIVE, x, y]), float(coupling[NEGATIVE, x, y])
            units.append(LogicUnit(viewpoint, aspect, pos, neg, SENTIMENTS[s]))
    return tuple(units)


def unit_reasons(
    pulls: SentenceInfluence,
    alike: tuple[Array, Array],
    coupling: Array,  # [M, M] of the sentiment
    sentiment: int,
    units: int,
    sentences: int,
) -> list[tuple[int, int, Reason]]:
    """The logic units a capsule listens to most, most first, each with the reason that pulls most through it."""
    direction = 1.0 if sentiment == POSITIVE else -1.0
    user, item = direction * pulls.user, direction * pulls.item
    order = np.argsort(-coupling.ravel(), kind="stable")[:units]
    left = choose_reasons(
        user.sum((1, 2)), item.sum((1, 2)), direction * pulls.together, alike, reasons=len(order), sentences=sentences
    )
    found = []
    for x, y in zip(*np.unravel_index(order, coupling.shape), strict=True):
        through = [float(user[list(one.user), x, y].sum() + item[list(one.item), x, y].sum()) for one in left]
        found.append((int(x), int(y), left.pop(int(np.argmax(through)))))
    return found


def all_sides(
    sides: Sequence[HeardSide],
    pulls: SentenceInfluence,
    coupling: Array,  # [M, M], of the prevailing sentiment
    detail: Detail,
) -> tuple[tuple[Side, ...], tuple[Side, ...]]:
    """Every viewpoint and every aspect, by the sentences that move the rating most through it, up or down."""
    moved = np.abs(pulls.user.sum(2)), np.abs(pulls.item.sum(1))  # [S, M]
    viewpoints, aspects = (
        tuple(
            replace(one, name=f"{kind} {one.index}", weight=float(weight))
            for one, weight in zip(
                weightiest_sides(side.book, shown_sentences=detail.sentences, moved=pull), heard, strict=True
            )
        )
        for kind, side, pull, heard in zip(("viewpoint", "aspect"), sides, moved, _listening(coupling), strict=True)
    )
    return viewpoints, aspects


def _listening(coupling: Array) -> tuple[Array, Array]:
    """The share of a capsule's coupling [M, M] that falls on each viewpoint, and on each aspect."""
    total = max(float(coupling.sum()), 1e-30)
    return coupling.sum(1) / total, coupling.sum(0) / total
