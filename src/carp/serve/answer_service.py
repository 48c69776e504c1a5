"""What the service answers, before it is HTTP: a recommender asked by name, with its memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from typing import Any

import msgspec
import numpy as np

from carp.answers import Recommendation
from carp.explain.explainer import explains
from carp.explain.explanation import Explanation
from carp.explain.kept_readings import LastUsed
from carp.explain.profiles import person_profile, summary_for, thing_profile
from carp.explain.question import Question, known_pair
from carp.recommender import Recommender
from carp.render.summed_telling import reason_line, told
from carp.render.wording import thing_name
from carp.reviews.readable import ReadableDocument
from carp.serve.audience import audience
from carp.serve.caches import RememberingCorpus
from carp.serve.id_search import Register, ReviewTexts
from carp.serve.one_line_reasons import plain_line, popular_line, unit_line, verdict
from carp.serve.owner_overview import OwnerOverview, overview_csv
from carp.serve.problems import Problem, echo
from carp.serve.thing_facts import ThingFacts

ANSWERS_KEPT = 2_000
WITH_FINDINGS = 10  # of a list of recommendations, whose reasons are looked for: each costs an explanation
WARMED = 3_000  # documents of each side that are made ready while nobody asks
Wishes = dict[str, Any]  # what may be asked of recommendations, by name
WARMED_AT_ONCE = 3  # of each side in one step: a request that comes meanwhile waits no longer than for these


def encode(value: Any) -> bytes:
    return msgspec.json.encode(value)


def explanation_fields(explanation: Explanation) -> dict[str, Any]:
    """What `Explanation.as_dict` says, without copying it, and the same in words.

    The encoder takes dataclasses as they are.
    """
    beside = {"prevailing": explanation.prevailing, "little_known": explanation.little_known}
    return {**_as_fields(explanation), **beside, "told": told(explanation)}


class AnswerService:
    """Answers about people and things by their ids. Not for several threads at once."""

    def __init__(self, recommender: Recommender) -> None:
        recommender.fitted_corpus.check_texts()  # a damaged model never takes the place of one that answers
        self.corpus = RememberingCorpus.of(recommender.fitted_corpus)
        # With a corpus of its own that remembers; the caller's stays as it is.
        guide = recommender.explainer.guide if recommender.explainer.reads_by_guide else None
        self.recommender = Recommender.of(replace(recommender.fitted_model, corpus=self.corpus), guide=guide)
        self.fitted, self.explainer = self.recommender.fitted_model, self.recommender.explainer
        self.model = self.fitted.model
        texts = ReviewTexts(self.corpus)
        self.users = Register(self.corpus, self.corpus.users, self.corpus.user, texts)
        titles = None if self.corpus.item_texts is None else self.corpus.item_texts.titles
        self.items = Register(self.corpus, self.corpus.items, self.corpus.item, texts, titles)
        self.facts = ThingFacts(self.corpus.item_texts)
        self.owner = OwnerOverview(self.corpus, lambda: self.explainer.guide, self.facts)
        self._answers: LastUsed[bytes] = LastUsed(ANSWERS_KEPT)
        self.hits = self.misses = 0  # explanations that were kept from before, and those that were not

    def warm(self, *, explain: bool = True) -> None:
        """Make now what the first requests would wait for long; what takes longer still is left to `warming`."""
        for register in (self.users, self.items):
            register.warm()
            register.texts.warm()
        _ = self.corpus.record_of_pair, self.corpus.item_means, self.recommender.advisor.taste
        if self.model.separates:
            _ = self.fitted.sides
        if explain and explains(type(self.model)):  # one for all engines: the first loads what every explanation needs
            self.explainer.explain([known_pair(self.corpus, 0, 0)])

    def warming(self) -> Iterator[None]:
        """Make ready what the owner asks first, then what is shown of people and things, a little at each step."""
        if self.explainer.reads_by_guide:
            yield from self.owner.warming()
        for most in range(WARMED_AT_ONCE, WARMED + 1, WARMED_AT_ONCE):
            self.explainer.prepare_sides(most)
            yield
            if most >= max(len(self.users.ids), len(self.items.ids)):
                return

    # ---- finding

    def search(
        self, register: Register, kind: str, words: str, limit: int, offset: int, category: str | None = None
    ) -> dict[str, Any]:
        allowed = None if category is None else self.facts.of_category(category, len(self.items.ids))
        found = register.search(words, limit, offset, allowed)
        rows = [
            {
                "id": register.ids[place],
                "title": register.title(place),
                "reviews": int(register.counts[place]),
                "mean": register.mean(place),
                "snippet": register.snippet(place, words, found.reviews.get(place)),
                "facts": self.facts.brief(place) if register is self.items else None,
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
        rows = zip(pairs, found, *found.intervals(), found.notes, strict=True)
        return [
            {"user": user, "item": item, "title": self.recommender.title(item), "rating": rating}
            | {"low": low, "high": high, "note": note}
            for (user, item), rating, low, high, note in rows
        ]

    def recommend(self, user: str, n: int, wishes: Wishes | None = None) -> dict[str, Any]:
        """Things that suit a person, with a reason each; what is popular for somebody nobody knows, with a note."""
        number = self.users.ids.index().get(user, -1)
        found = self.recommender.recommend(user, n, **self._known_things(wishes))
        rows = self._popular(found) if number < 0 else self._reasoned(number, number, found)
        return {"user": user, "recommendations": rows, "note": found.note}

    def _known_things(self, wishes: Wishes | None) -> dict[str, Any]:
        """What is wished for, where all things that it names are known."""
        for name in (wishes or {}).get("among") or []:
            self.item(name)
        return dict(wishes or {})

    def _popular(self, found: list[Recommendation]) -> list[dict[str, Any]]:
        """Recommendations to somebody of whom nothing is known, each with the number of its reviews."""
        counts = self.recommender.advisor.taste.of_item
        lines = [popular_line(int(counts[self.item(one.item)]), one.item_mean) for one in found]
        return self._rows(found, lines)

    def _reasoned(self, user: int, person: int | ReadableDocument, found: list[Recommendation]) -> list[dict[str, Any]]:
        """Recommendations with one line each: the meeting that counts most, or for the first ones of a model that adds
        up what it finds. A newcomer is user -1."""
        numbers = [self.item(one.item) for one in found]
        meetings = self.explainer.strongest_meetings(person, numbers)
        if meetings is None:
            given = explains(type(self.model))
            lines = [plain_line(self.fitted.name, one.item_mean, explains=given) for one in found]
            if self.model.explained_by == "sum":
                asked = [self._question_of(user, person, number) for number in numbers[:WITH_FINDINGS]]
                told = [reason_line(one) for one in self.explainer.explain(asked)]
                lines = [*told, *lines[len(told) :]]
        else:
            rows = zip(found, meetings, self._biases(user, numbers), strict=True)
            lines = [unit_line(met.viewpoint, met.aspect, one.rating - biases) for one, met, biases in rows]
        return self._rows(found, lines)

    def _question_of(self, user: int, person: int | ReadableDocument, item: int) -> Question:
        if isinstance(person, ReadableDocument):
            return Question(user, item, person, self.corpus.readable(self.corpus.item_documents, item))
        return known_pair(self.corpus, person, item)

    def _rows(self, found: list[Recommendation], reasons: list[str]) -> list[dict[str, Any]]:
        return [
            {"item": one.item, "title": one.title, "rating": one.rating, "item_mean": one.item_mean, "reason": reason}
            | {"facts": self.facts.brief(self.item(one.item))}
            for one, reason in zip(found, reasons, strict=True)
        ]

    def _biases(self, user: int, items: list[int]) -> list[float]:
        """What the biases alone predict, in the range of the data."""
        stars = self.fitted.biases_alone(np.full(len(items), user), np.array(items, np.int64))
        return [self.corpus.own_rating(one) for one in stars.tolist()]

    # ---- reasons

    def explain(self, pairs: Sequence[tuple[str, str]]) -> list[bytes | Exception]:
        """Explanations as JSON; what cannot be answered is a problem in its place."""
        answers: dict[tuple[str, str], bytes | Exception] = {}
        asked: dict[tuple[str, str], Question] = {}
        for pair in pairs:
            try:
                if (kept := self._answers.kept(pair)) is not None:
                    answers[pair] = kept
                    self.hits += 1
                else:
                    self.misses += 1
                    asked[pair] = self.question(*pair)
            except Problem as problem:
                answers[pair] = problem
        for pair, explanation in zip(asked, self.explainer.explain(list(asked.values())), strict=True):
            written = answers[pair] = encode(self._told(explanation))
            self._answers.keep(pair, written)
        return [answers[pair] for pair in pairs]

    def _told(self, explanation: Explanation) -> dict[str, Any]:
        """An explanation with what is known of its thing."""
        return {**explanation_fields(explanation), "facts": self.facts.whole(self.item(explanation.item))}

    def explanation(self, user: str, item: str) -> Explanation:
        return self.explainer.explain([self.question(user, item)])[0]

    def question(self, user: str, item: str) -> Question:
        numbers = self.user(user), self.item(item)
        self._refuse_silent()
        return known_pair(self.corpus, *numbers)

    def _refuse_silent(self) -> None:
        if not explains(type(self.model)):
            what = f"the model {self.fitted.name} gives ratings without reasons"
            raise Problem(409, what, fix="serve a model that explains, as carp does", kind="cannot-answer")

    def compare(self, user: str, first: str, second: str) -> dict[str, Any]:
        if first == second:
            raise Problem(409, "first and second are the same item", fix="name two different items", kind="same-item")
        self.user(user)
        numbers = [self.item(first), self.item(second)]
        rows = self.predict([(user, first), (user, second)])
        reasons = [self.explanation(user, one) if explains(type(self.model)) else None for one in (first, second)]
        span = self.corpus.scale.high - self.corpus.scale.low
        shown = [
            {
                "item": row["item"],
                "title": row["title"],
                "rating": row["rating"],
                "low": row["low"],
                "high": row["high"],
                "item_mean": self.items.mean(number),
                "facts": self.facts.whole(number),
                "explanation": None if reason is None else self._told(reason),
            }
            for row, number, reason in zip(rows, numbers, reasons, strict=True)
        ]
        ratings = [(thing_name(row["item"], row["title"]), row["rating"]) for row in rows]
        return {"user": user, "items": shown, "verdict": verdict(user, ratings, span, reasons)}

    def summary(self, user: str, item: str, n: int) -> dict[str, Any]:
        return _as_fields(summary_for(self.explainer, self.question(user, item), n))

    # ---- profiles

    def person(self, user: str) -> dict[str, Any]:
        return _as_fields(person_profile(self.explainer, self.user(user)))

    def thing(self, item: str) -> dict[str, Any]:
        number = self.item(item)
        return _as_fields(thing_profile(self.explainer, number)) | {"facts": self.facts.whole(number)}

    def audience(self, item: str, n: int) -> dict[str, Any]:
        """People whom a thing would suit."""
        rows = audience(self.recommender, self.users, self.item(item), n)
        return {"item": item, "title": self.recommender.title(item), "people": rows}

    # ---- for the owner

    def overview(self, since: str | None, until: str | None) -> dict[str, Any]:
        return self.owner.overview(since, until)

    def overview_table(self, since: str | None, until: str | None) -> bytes:
        return overview_csv(self.owner.overview(since, until)).encode()

    # ---- newcomers

    def newcomer(
        self,
        reviews: list[str],
        items: list[str] | None,
        explain: str | None,
        n: int,
        wishes: Wishes | None = None,
    ) -> dict[str, Any]:
        if not self.model.reads_documents:
            what = f"the model {self.fitted.name} cannot rate for somebody it has never seen"
            raise Problem(409, what, fix="serve a model that reads reviews, as carp does", kind="cannot-answer")
        if not any(review.strip() for review in reviews):
            raise Problem(409, "the reviews are empty", fix="write a few sentences", kind="cannot-answer")
        reason = None
        if explain is not None:
            self.item(explain)
            self._refuse_silent()
            reason = self._told(self.recommender.explain_for(reviews, explain))
        rated = self.recommender.predict_for(reviews, items or [])
        rows = zip(items or [], rated, *rated.intervals(), rated.notes, strict=True)
        return {
            "predictions": [
                {"item": item, "title": self.recommender.title(item), "rating": rating}
                | {"low": low, "high": high, "note": note}
                for item, rating, low, high, note in rows
            ],
            "explanation": reason,
            "recommendations": self._recommend_for(reviews, n, self._known_things(wishes)),
        }

    def _recommend_for(self, reviews: list[str], n: int, wishes: Wishes) -> list[dict[str, Any]]:
        found = self.recommender.recommend_for(reviews, n, **wishes)
        return self._reasoned(-1, self.recommender.newcomer(reviews), found)


def _as_fields(value: Any) -> dict[str, Any]:
    """A dataclass as the encoder takes it, without copying what it holds."""
    return {field.name: getattr(value, field.name) for field in fields(value)}
