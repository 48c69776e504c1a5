"""Of a thing's reviews, the sentences that matter to one person."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import torch

from carp.archive import Archive
from carp.capsules import answer, influences
from carp.explain import Sentence
from carp.models.carp import Carp
from carp.questions import Question


def summarise(model: Carp, archive: Archive, question: Question, device: torch.device, n: int) -> list[dict[str, Any]]:
    """The sentences that move this person's rating most, up or down, with the aspect through which they do so most.

    A sentence's weight is what its words move the balance of the two sentiments by, through all logic units together.
    """
    document = question.item_document
    if not len(document.words):
        return []
    moved = influences(model, answer(model, archive, question, device))[1][: len(document.words)].sum(1)  # [L, M]
    keys = list(dict.fromkeys(document.sentence))
    numbers = {key: number for number, key in enumerate(keys)}
    total = np.zeros((len(keys), moved.shape[1]))
    np.add.at(total, [numbers[key] for key in document.sentence], moved)
    strength = total.sum(1)
    rows = []
    for place in np.argsort(-np.abs(strength), kind="stable")[:n]:
        review, span = keys[place]
        source = document.sources[review]
        begin, end = source.sentences[span]
        sentence = Sentence(source.text[begin:end], (), source.user, source.item, source.rating)
        rows.append(
            {
                **{f.name: getattr(sentence, f.name) for f in fields(sentence)},
                "weight": float(abs(strength[place])),
                "aspect": int((np.sign(strength[place]) * total[place]).argmax()) + 1,
                "sentiment": "positive" if strength[place] >= 0 else "negative",
            }
        )
    return rows
