"""Of a thing's reviews, the sentences that matter to one person."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import torch

from carp.explain.capsule_reasons import Array, answer
from carp.explain.explanation import Sentence
from carp.explain.influence import lost_sentences, sentence_influence, unit_slopes
from carp.explain.question import Question
from carp.explain.selection import likeness
from carp.models.carp import Carp
from carp.training.fitted_corpus import FittedCorpus


def summarise(
    model: Carp, fitted: FittedCorpus, question: Question, device: torch.device, n: int
) -> list[dict[str, Any]]:
    """The sentences that move this person's rating most, up or down, with the aspect through which they do so most.

    A sentence's weight is what the balance of the two sentiments loses without it, through all logic units together;
    what was said before counts less, so that a summary does not repeat itself.
    """
    document = question.item_document
    if not len(document.words):
        return []
    found = answer(model, fitted, question, device)
    lost = (
        lost_sentences(model, found.user, question.user_document.sentence_numbers),
        lost_sentences(model, found.item, document.sentence_numbers),
    )
    moved = sentence_influence(*lost, unit_slopes(model, found.user, found.item)).item.sum(1)  # [T, M]
    strength = moved.sum(1)
    rows = []
    for place in _weightiest(np.abs(strength), likeness(document.words, document.sentence_numbers), n):
        review, span = document.sentences[place]
        source = document.sources[review]
        begin, end = source.sentences[span]
        sentence = Sentence(source.text[begin:end], (), source.user, source.item, source.rating)
        rows.append(
            {
                **{f.name: getattr(sentence, f.name) for f in fields(sentence)},
                "weight": float(abs(strength[place])),
                "aspect": int((np.sign(strength[place]) * moved[place]).argmax()) + 1,
                "sentiment": "positive" if strength[place] >= 0 else "negative",
            }
        )
    return rows


def _weightiest(weight: Array, alike: Array, n: int) -> list[int]:
    """The heaviest first, each counted for what it says that those before it did not."""
    news = np.ones(len(weight))
    chosen: list[int] = []
    while len(chosen) < min(n, len(weight)):
        worth = np.where(np.isin(np.arange(len(weight)), chosen), -1.0, weight * news)
        chosen.append(int(worth.argmax()))
        news = news * (1 - alike[chosen[-1]]) ** 2
    return sorted(chosen, key=lambda place: -weight[place])
