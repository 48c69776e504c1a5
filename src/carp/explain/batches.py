"""Explanations of CARP for several pairs at once, from what is kept of every document.

The reasons are those of `capsule_reasons`: what does not depend on the pair is made once, and the pairs are judged
together.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from carp.explain.capsule_reasons import Array, HeardSide, told
from carp.explain.explainer import make_explanation
from carp.explain.explanation import Explanation
from carp.explain.influence import slopes_at
from carp.explain.question import Detail, Question
from carp.models.carp import Carp, DocumentReading
from carp.recommender import Recommender
from carp.serve.caches import LastUsed, Readings

SIDES_KEPT = 6_000


class Swift:
    """Explains pairs whose documents are whole: those that were trained on leave a review out, and are not for here."""

    def __init__(self, recommender: Recommender, model: Carp, users: Readings, items: Readings) -> None:
        self.recommender = recommender
        self.model = model
        self.fitted_corpus = recommender.fitted_corpus
        self.readings = (users, items)
        self.detail = Detail()
        positive, negative = recommender.facts["degree_scale"]
        self.degree_scale = (float(positive), float(negative))
        self._sides: LastUsed[HeardSide] = LastUsed(SIDES_KEPT)

    def can(self, question: Question) -> bool:
        """Whether both documents have words, and are whole."""
        read = question.user >= 0 and not question.trained_on(self.fitted_corpus)
        return read and len(question.user_document.words) > 0 and len(question.item_document.words) > 0

    def side(self, kind: int, owner: int) -> HeardSide:
        """What is kept of a person (0) or a thing (1)."""

        def made() -> HeardSide:
            documents = (self.fitted_corpus.user_documents, self.fitted_corpus.item_documents)[kind]
            document = self.fitted_corpus.readable(documents, owner)
            reading = self.readings[kind].of(owner)
            return HeardSide.of(self.model, document, self._empty(kind) if reading is None else reading, self.detail)

        return self._sides.get((kind, owner), made)

    def _empty(self, kind: int) -> DocumentReading:
        like = self.readings[kind]
        return DocumentReading(like.viewpoints[:1] * 0, like.attention[None, :0], like.contextual[None, :0])

    def explain(self, questions: Sequence[Question]) -> list[Explanation]:
        model, fitted = self.model, self.fitted_corpus
        users = torch.tensor([question.user for question in questions])
        items = torch.tensor([question.item for question in questions])
        viewpoints, aspects = self.readings[0].viewpoints[users], self.readings[1].viewpoints[items]
        with torch.enable_grad():
            units = model.pair(viewpoints, aspects).detach().requires_grad_()
            judged = model.judge(units)
            gradient = torch.autograd.grad(judged["balance"].sum(), units)[0]  # pairs do not meet
        shown = {name: tensor.detach().double().numpy() for name, tensor in judged.items()}
        with torch.no_grad():
            ratings = model.combine(judged["balance"].detach(), users, items, None).tolist()
            baselines = self.recommender.baseline(users, items).clamp(1, fitted.levels).tolist()
            explanations = []
            for row, question in enumerate(questions):
                sides = self.side(0, question.user), self.side(1, question.item)
                slopes = slopes_at(model, gradient[row], viewpoints[row], aspects[row])
                own: dict[str, Array] = {name: values[row] for name, values in shown.items()}
                reasons = told(fitted, question, own, sides, slopes, self.degree_scale, self.detail)
                name, baseline = self.recommender.name, baselines[row]
                explanations.append(
                    make_explanation(fitted, question, ratings[row], reasons, baseline=baseline, name=name)
                )
        return explanations
