"""A service without other processes: calls are answered where they are asked. For replicas on Ray, tests and docs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from carp.recommender import Recommender
from carp.serve.answer_service import AnswerService
from carp.serve.engine_calls import CallAnswerer
from carp.serve.engine_messages import ANSWERED_BY, Call, Loaded, Refused, problem_again
from carp.serve.problems import Problem


class NoOtherModel(NamedTuple):
    """Why another model is not loaded when it is asked for, and what to do instead."""

    what: str
    fix: str


OF_PYTHON = NoOtherModel(
    "this service was given its model in Python, and cannot load another one", "serve a saved model with carp serve"
)


class LocalEngine:
    """Answers as an engine does, in this process."""

    def __init__(
        self,
        recommender: Recommender,
        results: Path | None = None,
        bundle: str = "",
        no_other_model: NoOtherModel = OF_PYTHON,
    ) -> None:
        self._no_other_model = no_other_model
        service = AnswerService(recommender)
        service.explainer.keep_readings()
        self._answerer = CallAnswerer(service, results)
        self.facts: Loaded | None = Loaded(bundle, recommender.name, self._answerer.about())

    @property
    def alive(self) -> int:
        return 1

    @property
    def ready(self) -> bool:
        return True

    def refusal(self) -> Problem | None:
        return None

    async def reload(self) -> Loaded:
        raise Problem(409, self._no_other_model.what, fix=self._no_other_model.fix, kind="cannot-answer")

    async def ask(self, kind: str, *asked: Any) -> bytes:
        ANSWERED_BY.set(self.facts)
        reply = self._answerer.reply(Call(kind, [list(asked)]))
        answer = reply.answers[0]
        if isinstance(answer, Refused):
            problem = problem_again(answer)
            problem.inside = reply.failures[0]
            raise problem
        return answer
