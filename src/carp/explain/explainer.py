"""From a model's tensors to an Explanation: what the model listened to on both sides, and what was written there.

CARP also says which viewpoint met which aspect, and whether that speaks for or against. The other models that explain
give their `Attention`, which says what was listened to and no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from carp.errors import UsageError
from carp.explain.capsule_reasons import capsule_reasons
from carp.explain.explanation import Explanation, Side
from carp.explain.phrases import readable_sides
from carp.explain.question import Detail, Question, as_batch, held_out
from carp.models import REGISTRY, model_class
from carp.models.base import Prediction, RatingModel
from carp.models.carp import Carp
from carp.reviews.readable import ReadableDocument
from carp.training.fitted_corpus import FittedCorpus

SHARE_MARKED = 0.1  # of the words a model without capsules listens to: the paper's 30 phrases of 300 words


def explains(kind: type[RatingModel]) -> bool:
    return issubclass(kind, Carp) or kind.explain is not RatingModel.explain


def explainable(model: RatingModel, name: str) -> RatingModel:
    if not explains(type(model)):
        able = ", ".join(sorted(other for other in REGISTRY if explains(model_class(other))))
        raise UsageError(f"the model {name} gives ratings without reasons", fix=f"train one that explains: {able}")
    return model


def explain_question(
    model: RatingModel,
    fitted: FittedCorpus,
    question: Question,
    device: torch.device,
    *,
    baseline: float | None,
    degree_scale: tuple[float, float],
    detail: Detail,
    notes: tuple[str, ...] = (),
    name: str = "carp",
) -> Explanation:
    if isinstance(model, Carp):
        rating, reasons = capsule_reasons(model, fitted, question, device, degree_scale, detail)
    else:
        rating, reasons = _heard(model, fitted, question, device, detail)
    return make_explanation(fitted, question, rating, reasons, baseline=baseline, notes=notes, name=name)


def make_explanation(
    fitted: FittedCorpus,
    question: Question,
    rating: float,
    reasons: dict[str, Any],
    *,
    baseline: float | None,
    name: str,
    notes: tuple[str, ...] = (),
) -> Explanation:
    """What a model said of a pair, with what is known of the pair without a model."""
    mean = fitted.item_means[question.item]
    return Explanation(
        user=fitted.users[question.user] if question.user >= 0 else None,
        item=fitted.items[question.item],
        rating=fitted.own_rating(float(np.clip(rating, 1, fitted.levels))),
        rating_range=(fitted.scale.low, fitted.scale.high),
        item_mean=None if np.isnan(mean) else fitted.own_rating(float(mean)),
        baseline=None if baseline is None else fitted.own_rating(baseline),
        notes=notes + _notes(fitted, question),
        model=name,
        **reasons,
    )


@torch.no_grad()
def _heard(
    model: RatingModel, fitted: FittedCorpus, question: Question, device: torch.device, detail: Detail
) -> tuple[float, dict[str, Any]]:
    """The rating of a model without capsules, and what it listened to."""
    batch = as_batch(fitted, question, device)
    prediction: Prediction = model(batch)
    heard = model.explain(batch, prediction)
    assert heard is not None, "who has no reasons is refused before"
    viewpoints, aspects = (
        _named(_heard_sides(document, words[0].double().cpu().numpy(), heard.window, detail), names, weights)
        for document, words, names, weights in (
            (question.user_document, heard.user_words, heard.user_names, heard.user_weights),
            (question.item_document, heard.item_words, heard.item_names, heard.item_weights),
        )
    )
    return float(prediction.rating[0]), {
        "positive": None,
        "negative": None,
        "coupling_positive": (),
        "coupling_negative": (),
        "units": (),
        "viewpoints": viewpoints,
        "aspects": aspects,
        "target": held_out(fitted, question, {"matched": [*viewpoints, *aspects]}),
        "meaning": heard.meaning,
    }


def _heard_sides(document: ReadableDocument, attention: NDArray[np.float64], window: int, detail: Detail) -> list[Side]:
    attention = attention[: len(document.words)]
    if len(attention) > 1:  # where no word is listened to more than another, none stands out
        attention = attention * (np.ptp(attention, axis=0) > 1e-9)
    return readable_sides(
        document,
        attention,
        window=window,
        top_phrases=detail.top_phrases,
        top_share=SHARE_MARKED,
        shown_sentences=detail.sentences,
    )


def _named(sides: list[Side], names: Sequence[str], weights: torch.Tensor | None) -> tuple[Side, ...]:
    shares = [1 / len(sides)] * len(sides) if weights is None else weights[0].tolist()
    return tuple(
        replace(side, name=name, weight=float(share)) for side, name, share in zip(sides, names, shares, strict=True)
    )


def _notes(fitted: FittedCorpus, question: Question) -> tuple[str, ...]:
    notes = []
    if question.trained_on(fitted):
        notes.append("this pair was trained on: its own review is left out here, but the model has learned from it")
    if not len(question.user_document.words):
        notes.append("the person's reviews hold no word the model knows: the person's side is empty")
    if not len(question.item_document.words):
        notes.append("the thing's reviews hold no word the model knows: the thing's side is empty")
    return tuple(notes)
