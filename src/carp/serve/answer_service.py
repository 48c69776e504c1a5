"""What the service answers, before it is HTTP: a recommender asked by name, with its memory."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import fields
from functools import cached_property, partial
from typing import Any

import msgspec
import numpy as np
import torch

from carp.answers import Recommendation
from carp.explain.batches import Swift
from carp.explain.explainer import explains
from carp.explain.explanation import Explanation
from carp.explain.profiles import (
    NO_CAPSULES,
    aspect_phrases,
    document_sides,
    person_profile,
    read_document,
    thing_profile,
    viewpoint_phrases,
)
from carp.explain.question import Question, known_pair
from carp.explain.summary import summarise
from carp.models.carp import NEGATIVE, POSITIVE, Carp
from carp.recommender import Recommender
from carp.serve.caches import LastUsed, RememberingCorpus, read_all
from carp.serve.id_search import Register, ReviewTexts
from carp.serve.one_line_reasons import plain_line, unit_line, verdict
from carp.serve.problems import Problem, echo

ANSWERS_KEPT = 2_000
PHRASES_KEPT = 50_000
WARMED = 3_000  # documents of each side made readable before the first request


def encode(value: Any) -> bytes:
    return msgspec.json.encode(value)


def explanation_fields(explanation: Explanation) -> dict[str, Any]:
    """What `Explanation.as_dict` says, without copying it: the encoder takes dataclasses as they are."""
    shown = {f.name: getattr(explanation, f.name) for f in fields(explanation)}
    return {**shown, "prevailing": explanation.prevailing}


class AnswerService:
    """Answers about people and things by their ids. Not for several threads at once."""

    def __init__(self, recommender: Recommender) -> None:
        self.recommender = copy.copy(recommender)  # with a corpus of its own; the caller's stays as it is
        self.fitted_corpus = RememberingCorpus.of(recommender.fitted_corpus)
        self.recommender._fitted_corpus = self.fitted_corpus
        self.model = recommender.model
        texts = ReviewTexts(self.fitted_corpus)
        self.users = Register(self.fitted_corpus, self.fitted_corpus.users, self.fitted_corpus.user, texts)
        self.items = Register(self.fitted_corpus, self.fitted_corpus.items, self.fitted_corpus.item, texts)
        self._answers: LastUsed[bytes] = LastUsed(ANSWERS_KEPT)
        self._phrases: LastUsed[list[tuple[str, ...]]] = LastUsed(PHRASES_KEPT)

    @cached_property
    def swift(self) -> Swift | None:
        """Explains from what is kept, where the model is CARP and its readings of all documents fit into memory."""
        if not isinstance(self.model, Carp) or self.recommender.device.type != "cpu":
            return None
        users = read_all(self.model, self.model.read_users, self.fitted_corpus.user_documents)
        items = read_all(self.model, self.model.read_items, self.fitted_corpus.item_documents)
        if users is None or items is None:
            return None
        self.recommender.__dict__["_sides"] = (users.viewpoints, items.viewpoints)  # read once, not twice
        return Swift(self.recommender, self.model, users, items)

    def warm(self) -> None:
        """Make now what the first requests would wait for."""
        for register in (self.users, self.items):
            register.warm()
            register.texts.warm()
        _ = self.swift, self.fitted_corpus.record_of_pair, self.fitted_corpus.item_means
        if self.model.separates:
            _ = self.recommender._sides
        if self.swift is not None:
            for kind, names in enumerate((self.fitted_corpus.users, self.fitted_corpus.items)):
                for number in range(min(WARMED, len(names))):
                    self.swift.side(kind, number).book.prepare()

    # ---- finding

    def search(self, register: Register, kind: str, words: str, limit: int, offset: int) -> dict[str, Any]:
        found = register.search(words, limit, offset)
        rows = [
            {
                "id": register.ids[place],
                "reviews": int(register.counts[place]),
                "mean": register.mean(place),
                "snippet": register.snippet(place, words, found.reviews.get(place)),
            }
            for place in found.places
        ]
        return {"total": found.total, "complete": found.complete, kind: rows}

    def user(self, name: str) -> int:
        return self._known(self.users, name, "user")

    def item(self, name: str) -> int:
        return self._known(self.items, name, "item")

    def _known(self, register: Register, name: str, kind: str) -> int:
        number = register.ids.index().get(name, -1)
        if number < 0:
            close = register.nearest(name)
            fix = f"did you mean {close}?" if close else f"search with /api/{kind}s?q="
            what = f"the model has never seen the {kind} {echo(name)}"
            raise Problem(404, what, fix=fix, kind="unknown-id", nearest=close)
        return number

    # ---- ratings

    def predict(self, pairs: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
        found = self.recommender.predict(pairs)
        rows = zip(pairs, found, found.notes, strict=True)
        return [{"user": user, "item": item, "rating": rating, "note": note} for (user, item), rating, note in rows]

    def recommend(self, user: str, n: int) -> dict[str, Any]:
        number = self.user(user)
        found = self.recommender.recommend(user, n)
        sides = self.recommender._sides[0][number : number + 1] if isinstance(self.model, Carp) else None
        phrases = self.phrases_of_user(number) if isinstance(self.model, Carp) else []
        return {"user": user, "recommendations": self._reasoned(number, found, sides, phrases)}

    @torch.no_grad()
    def _reasoned(
        self, user: int, found: list[Recommendation], viewpoints: torch.Tensor | None, phrases: list[tuple[str, ...]]
    ) -> list[dict[str, Any]]:
        """Recommendations with one line each: the unit that the longer capsule listens to most. A newcomer is -1."""
        lines = [plain_line(self.recommender.name, one.item_mean) for one in found]
        if isinstance(self.model, Carp) and viewpoints is not None and found:
            numbers = [self.item(one.item) for one in found]
            aspects = self.recommender._sides[1][torch.tensor(numbers)]
            shown = self.model.judge(self.model.pair(viewpoints.expand(len(found), -1, -1), aspects))
            coupling, lengths = shown["coupling"].cpu().numpy(), shown["lengths"].cpu().numpy()
            biases = self._biases(user, numbers)
            for row, number in enumerate(numbers):
                s = POSITIVE if lengths[row, POSITIVE] >= lengths[row, NEGATIVE] else NEGATIVE
                x, y = np.unravel_index(int(coupling[row, s].argmax()), coupling[row, s].shape)
                moved = found[row].rating - biases[row]
                lines[row] = unit_line(phrases[x], self.phrases_of_item(number)[y], moved)
        return [
            {"item": one.item, "rating": one.rating, "item_mean": one.item_mean, "reason": line}
            for one, line in zip(found, lines, strict=True)
        ]

    def _biases(self, user: int, items: list[int]) -> list[float]:
        """What the biases alone predict, in the range of the data."""
        stars = self.recommender.baseline(torch.full((len(items),), user), torch.tensor(items))
        return [self.fitted_corpus.own_rating(one) for one in stars.clamp(1, self.fitted_corpus.levels).tolist()]

    # ---- reasons

    def explain(self, pairs: Sequence[tuple[str, str]]) -> list[bytes | Exception]:
        """Explanations as JSON; what cannot be answered is a problem in its place."""
        answers: dict[tuple[str, str], bytes | Exception] = {}
        asked: dict[tuple[str, str], Question] = {}
        for pair in pairs:
            try:
                if (kept := self._answers.kept(pair)) is not None:
                    answers[pair] = kept
                else:
                    asked[pair] = self.question(*pair)
            except Problem as problem:
                answers[pair] = problem
        for pair, explanation in zip(asked, self._explained(list(asked.values())), strict=True):
            written = answers[pair] = encode(explanation_fields(explanation))
            self._answers.keep(pair, written)
        return [answers[pair] for pair in pairs]

    def explanation(self, user: str, item: str) -> Explanation:
        return self._explained([self.question(user, item)])[0]

    def question(self, user: str, item: str) -> Question:
        numbers = self.user(user), self.item(item)
        self._refuse_silent()
        return known_pair(self.fitted_corpus, *numbers)

    def _explained(self, questions: Sequence[Question]) -> list[Explanation]:
        swift = self.swift
        able = [question for question in questions if swift is not None and swift.can(question)]
        quick = iter(swift.explain(able) if swift is not None and able else [])
        chosen = set(map(id, able))
        return [next(quick) if id(one) in chosen else self.recommender._explain(one, {}) for one in questions]

    def _refuse_silent(self) -> None:
        if not explains(type(self.model)):
            what = f"the model {self.recommender.name} gives ratings without reasons"
            raise Problem(409, what, fix="serve a model that explains, as carp does", kind="cannot-answer")

    def compare(self, user: str, first: str, second: str) -> dict[str, Any]:
        if first == second:
            raise Problem(422, "first and second are the same item", fix="name two different items", kind="fields")
        self.user(user)
        numbers = [self.item(first), self.item(second)]
        rows = self.predict([(user, first), (user, second)])
        reasons = [self.explanation(user, one) if explains(type(self.model)) else None for one in (first, second)]
        span = self.fitted_corpus.scale.high - self.fitted_corpus.scale.low
        shown = [
            {
                "item": row["item"],
                "rating": row["rating"],
                "item_mean": self.items.mean(number),
                "explanation": None if reason is None else explanation_fields(reason),
            }
            for row, number, reason in zip(rows, numbers, reasons, strict=True)
        ]
        ratings = [(row["item"], row["rating"]) for row in rows]
        return {"user": user, "items": shown, "verdict": verdict(user, ratings, span, reasons)}

    def summary(self, user: str, item: str, n: int) -> dict[str, Any]:
        question = self.question(user, item)
        if isinstance(self.model, Carp):
            sentences = summarise(self.model, self.fitted_corpus, question, self.recommender.device, n)
            return {"user": user, "item": item, "sentences": sentences, "notes": []}
        reasons = self.explanation(user, item)
        rows = [
            {**_named(sentence), "weight": side.weight, "aspect": side.index, "sentiment": None}
            for side in reasons.aspects
            for sentence in side.sentences
        ]
        note = NO_CAPSULES.format(name=self.recommender.name)
        return {"user": user, "item": item, "sentences": rows[:n], "notes": [note]}

    # ---- profiles

    def person(self, user: str) -> dict[str, Any]:
        self.user(user)
        profile = person_profile(self.recommender, user)
        return {f.name: getattr(profile, f.name) for f in fields(profile)}

    def thing(self, item: str) -> dict[str, Any]:
        self.item(item)
        profile = thing_profile(self.recommender, item, phrases=self.phrases_of_user)
        return {f.name: getattr(profile, f.name) for f in fields(profile)}

    def phrases_of_user(self, number: int) -> list[tuple[str, ...]]:
        return self._phrases_of(0, number)

    def phrases_of_item(self, number: int) -> list[tuple[str, ...]]:
        return self._phrases_of(1, number)

    def _phrases_of(self, kind: int, number: int) -> list[tuple[str, ...]]:
        """The phrases of every side of a person (0) or a thing (1)."""
        if self.swift is not None:
            return self.swift.side(kind, number).book.texts
        made = partial(viewpoint_phrases if kind == 0 else aspect_phrases, self.recommender, number)
        return self._phrases.get((kind, number), made)

    # ---- newcomers

    def newcomer(self, reviews: list[str], items: list[str] | None, explain: str | None, n: int) -> dict[str, Any]:
        if not self.model.separates:
            what = f"the model {self.recommender.name} cannot rate for somebody it has never seen"
            raise Problem(409, what, fix="serve a model that reads reviews, as carp does", kind="cannot-answer")
        if not any(review.strip() for review in reviews):
            raise Problem(422, "the reviews are empty", fix="write a few sentences", kind="unusable-input")
        reason = None
        if explain is not None:
            self.item(explain)
            self._refuse_silent()
            reason = explanation_fields(self.recommender.explain_for(reviews, explain))
        rated = self.recommender.predict_for(reviews, items or [])
        rows = zip(items or [], rated, rated.notes, strict=True)
        return {
            "predictions": [{"item": item, "rating": rating, "note": note} for item, rating, note in rows],
            "explanation": reason,
            "recommendations": self._recommend_for(reviews, n),
        }

    def _recommend_for(self, reviews: list[str], n: int) -> list[dict[str, Any]]:
        found = self.recommender.recommend_for(reviews, n)
        if not isinstance(self.model, Carp):
            return self._reasoned(-1, found, None, [])
        document = self.recommender._newcomer(reviews)
        reading = read_document(self.model.read_users, document, self.recommender.device)
        sides = document_sides(self.model, document, reading, sentences=0)
        return self._reasoned(-1, found, reading.viewpoints, [side.phrases for side in sides])


def _named(sentence: Any) -> dict[str, Any]:
    return {f.name: getattr(sentence, f.name) for f in fields(sentence)}
