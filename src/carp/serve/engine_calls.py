"""Calls by name: what the door asks for, answered by the answer service as JSON or as a refusal."""

from __future__ import annotations

import contextlib
import os
import time
import traceback
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from carp.errors import CarpError
from carp.serve.answer_service import AnswerService, encode
from carp.serve.engine_messages import Call, Refused, Reply, refused
from carp.serve.problems import Problem, problem_of
from carp.serve.result_sections import ResultSections, holds_results
from carp.serve.service_info import about


class CallAnswerer:
    """Answers calls for one model. No exception leaves it."""

    def __init__(self, service: AnswerService, results: Path | None = None) -> None:
        self.service = service
        self.results_folder = results
        self._sections = cache(lambda: read_sections(results))
        self._alone: dict[str, Callable[..., Any]] = {
            "users": lambda *asked: service.search(service.users, "users", *asked),
            "items": lambda *asked: service.search(service.items, "items", *asked),
            "recommend": service.recommend,
            "newcomer": service.newcomer,
            "compare": service.compare,
            "person": service.person,
            "thing": service.thing,
            "audience": service.audience,
            "categories": service.facts.categories,
            "overview": service.overview,
            "overview_table": service.overview_table,
            "summary": service.summary,
            "results": self.results,
        }

    def about(self) -> bytes:
        """What is served, as JSON."""
        has_results = self.results_folder is not None and holds_results(self.results_folder)
        return encode({**about(self.service.recommender), "results": has_results})

    def prepare_results(self) -> None:
        """Make the report now, so that it is in the user's cache when somebody asks."""
        with contextlib.suppress(Problem):  # who asks for it is told
            self._sections()

    def results(self, section: int | None) -> dict[str, Any]:
        """The first sections of the results with the titles of all, or one section."""
        found = self._sections().first() if section is None else self._sections().one(section)
        if found is None:
            fix = "ask for /api/results without a number, and count its sections from 0"
            raise Problem(404, f"there is no section {section}", fix=fix, kind="no-results")
        return found

    def reply(self, call: Call) -> Reply:
        began = time.perf_counter()
        answers: list[bytes | Refused] = []
        failures: list[str | None] = []
        for one in self._answered(call):
            answers.append(_as_refused(one) if isinstance(one, Exception) else one)
            failures.append(_inside(one) if isinstance(one, Exception) else None)
        return Reply(answers, time.perf_counter() - began, self.service.hits, self.service.misses, failures)

    def _answered(self, call: Call) -> Sequence[bytes | Exception]:
        try:
            if call.kind == "explain":
                return self.service.explain([(user, item) for user, item in call.asked])
            if call.kind == "predict":
                return self._predicted(call.asked)
        except Exception as error:
            if len(call.asked) == 1:
                return [error]
            # One of them may be to blame: the others are answered.
            return [answer for asked in call.asked for answer in self._answered(Call(call.kind, [asked]))]
        return [self._answer_alone(call.kind, asked) for asked in call.asked]

    def _predicted(self, asked: list[list[Any]]) -> list[bytes | Exception]:
        rows = self.service.predict([(user, item) for pairs in asked for user, item in pairs])
        answers: list[bytes | Exception] = []
        for pairs in asked:
            answers.append(encode(rows[: len(pairs)]))
            rows = rows[len(pairs) :]
        return answers

    def _answer_alone(self, kind: str, asked: list[Any]) -> bytes | Exception:
        try:
            found = self._alone[kind](*asked)
            return found if isinstance(found, bytes) else encode(found)
        except Exception as error:
            return error


def read_sections(results: Path | None) -> ResultSections:
    """The sections of a folder of results, or a refusal that says how to have some."""
    fix = "start the service with --results and a folder made by carp bench"
    if results is None:
        raise Problem(404, "no results are served here", fix=fix, kind="no-results")
    try:
        return ResultSections(results)
    except CarpError as error:
        raise Problem(404, "the folder of results holds none that can be read", fix=fix, kind="no-results") from error


def _as_refused(error: Exception) -> Refused:
    if isinstance(error, Problem):
        return refused(error)
    if isinstance(error, CarpError):
        return refused(problem_of(error))
    return refused(Problem(500, "the service failed to answer"))


def _inside(error: Exception) -> str | None:
    """What the log says of a failure that the caller could not have avoided."""
    if isinstance(error, Problem) or (isinstance(error, CarpError) and problem_of(error).status != 500):
        return None
    if os.environ.get("CARP_DEBUG") == "1":
        return "".join(traceback.format_exception(error))
    place = traceback.extract_tb(error.__traceback__)[-1:]
    where = "".join(f" in {Path(one.filename).name}:{one.lineno}" for one in place)
    return f"{type(error).__name__}{where}: {(str(error).splitlines() or [''])[0][:300]}"
