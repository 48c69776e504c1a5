"""Explanations of CARP for several pairs at once, from readings and phrases that are kept.

The same as `carp.capsules` says of each pair alone; the tests hold the two together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from carp.capsules import SENTIMENTS, _added, _capsule, _listening, _matrix
from carp.explain import Explanation, LogicUnit, MatchKind, Side
from carp.models.carp import NEGATIVE, POSITIVE, Carp, Reading
from carp.questions import Detail, Question, held_out
from carp.reasons import _notes
from carp.recommender import Recommender
from carp.serve.memory import LastUsed, Readings
from carp.serve.phrasing import Phrasing

Array = NDArray[np.float64]
PHRASINGS_KEPT = 6_000


@dataclass(frozen=True)
class Found:
    """What the model made of one pair."""

    question: Question
    shown: dict[str, Array]
    rating: float
    baseline: float
    moved: tuple[Array, Array]  # [Lu, M, M], [Li, M, M]: what each word does to the rating through each logic unit
    phrasings: tuple[Phrasing, Phrasing]


class Swift:
    """Explains pairs whose documents are whole: those that were trained on leave a review out, and are not for here."""

    def __init__(self, recommender: Recommender, model: Carp, users: Readings, items: Readings) -> None:
        self.recommender = recommender
        self.model = model
        self.archive = recommender.archive
        self.readings = (users, items)
        self.detail = Detail()
        positive, negative = recommender.facts["degree_scale"]
        self.degree_scale = (float(positive), float(negative))
        self._phrasings: LastUsed[Phrasing] = LastUsed(PHRASINGS_KEPT)

    def can(self, question: Question) -> bool:
        """Whether both documents have words, and are whole."""
        read = question.user >= 0 and not question.trained_on(self.archive)
        return read and len(question.user_document.words) > 0 and len(question.item_document.words) > 0

    def explain(self, questions: Sequence[Question]) -> list[Explanation]:
        return [self._told(found) for found in self._asked(questions)]

    def phrasing(self, kind: int, owner: int) -> Phrasing:
        """The phrases of a person (0) or a thing (1)."""

        def made() -> Phrasing:
            documents = (self.archive.user_documents, self.archive.item_documents)[kind]
            document = self.archive.readable(documents, owner)
            reading = self.readings[kind].of(owner)
            attention = (
                np.zeros((0, self.model.config.viewpoints))
                if reading is None
                else reading.attention[0].double().numpy()
            )
            window, top = self.model.config.window, self.detail.top_phrases
            return Phrasing(document, attention, window=window, top_phrases=top)

        return self._phrasings.get((kind, owner), made)

    def _asked(self, questions: Sequence[Question]) -> list[Found]:
        model = self.model
        users = torch.tensor([question.user for question in questions])
        items = torch.tensor([question.item for question in questions])
        viewpoints, aspects = self.readings[0].viewpoints[users], self.readings[1].viewpoints[items]
        with torch.enable_grad():
            units = model.pair(viewpoints, aspects).detach().requires_grad_()
            judged = model.judge(units)
            slope = torch.autograd.grad(judged["balance"].sum(), units)[0]
        shown = {name: tensor.detach().double().numpy() for name, tensor in judged.items()}
        with torch.no_grad():
            ratings = model.combine(judged["balance"].detach(), users, items, None).tolist()
            baselines = self.recommender.baseline(users, items).clamp(1, self.archive.levels).tolist()
            found = []
            for row, question in enumerate(questions):
                pair = self.phrasing(0, question.user), self.phrasing(1, question.item)
                moved = self._moved(question, viewpoints[row], aspects[row], slope[row])
                own = {name: values[row] for name, values in shown.items()}
                found.append(Found(question, own, ratings[row], baselines[row], moved, pair))
        return found

    def _moved(
        self, question: Question, viewpoints: torch.Tensor, aspects: torch.Tensor, slope: torch.Tensor
    ) -> tuple[Array, Array]:
        user, item = self.readings[0].of(question.user), self.readings[1].of(question.item)
        assert isinstance(user, Reading)
        assert isinstance(item, Reading)
        m = self.model.config.viewpoints
        difference, product = slope.view(m, m, -1).chunk(2, -1)
        if self.model.config.logic_unit == "product first":
            difference, product = product, difference
        v, a = viewpoints.unsqueeze(1), aspects.unsqueeze(0)  # [M, 1, k], [1, M, k]
        by_user = torch.einsum("lxk,xyk->lxy", _added(user), difference + a * product)
        by_item = torch.einsum("lyk,xyk->lxy", _added(item), v * product - difference)
        return by_user.double().numpy(), by_item.double().numpy()

    def _told(self, found: Found) -> Explanation:
        archive, question, shown = self.archive, found.question, found.shown
        coupling, lengths = shown["coupling"], shown["lengths"]
        prevailing = POSITIVE if lengths[POSITIVE] >= lengths[NEGATIVE] else NEGATIVE
        heard = _listening(coupling[prevailing])
        units = self._units(found, heard, prevailing)
        matching: dict[MatchKind, list[Side]] = {
            sentiment: [side for unit in units if unit.sentiment == sentiment for side in (unit.viewpoint, unit.aspect)]
            for sentiment in SENTIMENTS
        }
        mean = archive.item_means[question.item]
        return Explanation(
            user=archive.users[question.user],
            item=archive.items[question.item],
            rating=archive.own_rating(float(np.clip(found.rating, 1, archive.levels))),
            rating_range=(archive.scale.low, archive.scale.high),
            item_mean=None if np.isnan(mean) else archive.own_rating(float(mean)),
            baseline=archive.own_rating(found.baseline),
            positive=_capsule(shown, POSITIVE, self.degree_scale),
            negative=_capsule(shown, NEGATIVE, self.degree_scale),
            coupling_positive=_matrix(coupling[POSITIVE]),
            coupling_negative=_matrix(coupling[NEGATIVE]),
            units=units,
            target=held_out(archive, question, matching),
            notes=_notes(archive, question),
            model=self.recommender.name,
            viewpoints=self._sides(found, 0, np.abs(found.moved[0].sum(2)), heard[0]),
            aspects=self._sides(found, 1, np.abs(found.moved[1].sum(1)), heard[1]),
        )

    def _units(self, found: Found, heard: tuple[Array, Array], prevailing: int) -> tuple[LogicUnit, ...]:
        coupling, (user, item) = found.shown["coupling"], found.moved
        wanted = [(prevailing, self.detail.prevailing_units), (1 - prevailing, self.detail.other_units)]
        units = []
        for s, number in wanted:
            direction = 1.0 if s == POSITIVE else -1.0
            for place in np.argsort(-coupling[s].ravel(), kind="stable")[:number].tolist():
                x, y = divmod(place, coupling.shape[2])
                viewpoint = self._side(found, 0, x, direction * user[:, x, y], heard[0])
                aspect = self._side(found, 1, y, direction * item[:, x, y], heard[1])
                pos, neg = float(coupling[POSITIVE, x, y]), float(coupling[NEGATIVE, x, y])
                units.append(LogicUnit(viewpoint, aspect, pos, neg, SENTIMENTS[s]))
        return tuple(units)

    def _sides(self, found: Found, kind: int, pull: Array, heard: Array) -> tuple[Side, ...]:
        return tuple(self._side(found, kind, x, pull[:, x], heard) for x in range(pull.shape[1]))

    def _side(self, found: Found, kind: int, x: int, influence: Array, heard: Array) -> Side:
        name = f"{('viewpoint', 'aspect')[kind]} {x + 1}"
        shown = self.detail.sentences
        return found.phrasings[kind].side(x, influence, shown=shown, name=name, weight=float(heard[x]))
