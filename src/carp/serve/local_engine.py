"""A service without other processes: one thread answers call after call. For replicas on Ray, tests and docs."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from carp.recommender import Recommender
from carp.serve.answer_service import AnswerService
from carp.serve.engine_calls import CallAnswerer
from carp.serve.engine_messages import ANSWERED_BY, Call, Loaded, Refused, problem_again
from carp.serve.problems import Problem, no_room

MOST_WAITING = 128  # requests, with the one that is being answered


class NoOtherModel(NamedTuple):
    """Why another model is not loaded when it is asked for, and what to do instead."""

    what: str
    fix: str


OF_PYTHON = NoOtherModel(
    "this service was given its model in Python, and cannot load another one", "serve a saved model with carp serve"
)


class LocalEngine:
    """Answers as an engine does, in this process. What asks for no computing is answered meanwhile."""

    def __init__(
        self,
        recommender: Recommender,
        results: Path | None = None,
        bundle: str = "",
        no_other_model: NoOtherModel = OF_PYTHON,
        most_waiting: int = MOST_WAITING,
    ) -> None:
        self.most_waiting = most_waiting
        self._waiting = 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="engine")
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
        """Why no request can be taken now, if none can."""
        return no_room("too many requests are waiting", 1) if self._waiting >= self.most_waiting else None

    async def reload(self) -> Loaded:
        raise Problem(409, self._no_other_model.what, fix=self._no_other_model.fix, kind="cannot-answer")

    async def ask(self, kind: str, *asked: Any) -> bytes:
        """The answer as JSON; raises the problem where there is none. Nothing is computed for who left before that."""
        if (refusal := self.refusal()) is not None:
            raise refusal
        ANSWERED_BY.set(self.facts)
        self._waiting += 1
        try:
            call = Call(kind, [list(asked)])
            reply = await asyncio.get_running_loop().run_in_executor(self._thread, self._answerer.reply, call)
        finally:
            self._waiting -= 1
        answer = reply.answers[0]
        if isinstance(answer, Refused):
            problem = problem_again(answer)
            problem.inside = reply.failures[0]
            raise problem
        return answer
