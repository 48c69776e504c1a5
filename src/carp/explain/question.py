"""A pair that is asked about: its documents, as they are read and as a model is fed them, and its own review."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from carp.explain.explanation import MatchKind, Side, TargetReview
from carp.explain.phrases import matching_marks
from carp.models.batch import Batch
from carp.reviews.readable import ReadableDocument
from carp.reviews.split_parts import TRAIN
from carp.training.fitted_corpus import FittedCorpus


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

    def trained_on(self, fitted: FittedCorpus) -> bool:
        return self.record >= 0 and bool(fitted.part[self.record] == TRAIN)


def known_pair(fitted: FittedCorpus, user: int, item: int) -> Question:
    """A pair of the corpus; its own review never speaks for it."""
    record = fitted.record_of_pair.get((user, item), -1)
    return Question(
        user,
        item,
        fitted.readable(fitted.user_documents, user, leave_out=record),
        fitted.readable(fitted.item_documents, item, leave_out=record),
        record,
    )


def as_tensors(document: ReadableDocument) -> tuple[torch.Tensor, torch.Tensor]:
    """Words and reviews [1, L] of one document; an empty one is a single padding."""
    words = document.words if len(document.words) else np.zeros(1, np.int32)
    review = document.review if len(document.review) else np.full(1, -1, np.int32)
    return torch.from_numpy(words)[None], torch.from_numpy(review)[None]


def as_batch(fitted: FittedCorpus, question: Question, device: torch.device) -> Batch:
    """The question as a model is fed it; a training pair comes with its rating, for what leaves it out again."""
    trained = question.trained_on(fitted)
    return Batch(
        torch.tensor([question.user]),
        torch.tensor([question.item]),
        *as_tensors(question.user_document),
        *as_tensors(question.item_document),
        ratings=torch.tensor([float(fitted.rating[question.record])]) if trained else None,
        training=trained,
    ).to(device)


def held_out(fitted: FittedCorpus, question: Question, sides: dict[MatchKind, list[Side]]) -> TargetReview | None:
    """The pair's own review, where it was held out: nothing in the explanation has seen it."""
    if question.record < 0 or question.trained_on(fitted):
        return None
    source = fitted.source(question.record)
    assert source.rating is not None
    marks = matching_marks(source.text, sides, fitted.unseen_words(source.text))
    return TargetReview(source.text, source.rating, marks)
