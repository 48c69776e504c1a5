"""The framework's own refusals, made the same problem documents as all others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from carp.errors import CarpError
from carp.serve.problems import LONGEST_ECHO, PROBLEM, Problem, echo, problem_document, problem_of

MOST_TOLD = 10  # faults that an answer lists
FAULTS = {
    "missing": "is missing",
    "extra_forbidden": "is not known",
    "string_type": "must be text",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a number",
    "date_parsing": "must be a day, as 2026-01-31",
    "date_from_datetime_parsing": "must be a day, as 2026-01-31",
    "literal_error": "is none of the words that are known",
    "list_type": "must be a list",
    "string_too_short": "must not be empty",
    "string_pattern_mismatch": "must not be empty",
    "string_unicode": "holds half a character",
    "model_attributes_type": "must be an object of named fields",
    "dict_type": "must be an object of named fields",
    "greater_than_equal": "is too small",
    "less_than_equal": "is too large",
    "string_too_long": "is too long",
    "too_short": "holds too little",
    "too_long": "holds too much",
}


def validation_problem(errors: Sequence[Mapping[str, Any]]) -> Problem:
    """What is wrong with which field, by name; values are not repeated."""
    if any(error["type"] == "json_invalid" for error in errors):
        return Problem(400, "the body is not JSON")
    faults, more = dict[str, str](), ""
    for error in errors:
        place = [str(part) for part in error["loc"] if part not in ("body", "query", "path")]
        name = ".".join(place) or "the body"
        faults.setdefault(name[:LONGEST_ECHO], FAULTS.get(error["type"], str(error["msg"]).lower()))
        if len(faults) > MOST_TOLD:
            faults.popitem()
            more = f"; and others: these are the first {MOST_TOLD}"
            break
    detail = "; ".join(f"{name} {fault}" for name, fault in faults.items()) + more
    return Problem(422, detail, fix="see /docs for the fields and their types", kind="fields", fields=faults)


def answer_problem(request: Request, problem: Problem) -> Response:
    body = problem_document(problem, request.scope.get("request_id", ""))
    request.scope["inside"] = problem.inside  # for the log
    return Response(body, problem.status, headers=problem.headers, media_type=PROBLEM)


def install(app: FastAPI) -> None:
    """Make the app answer its refusals by problem documents."""

    async def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, Problem)
        return answer_problem(request, error)

    async def unknown(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return answer_problem(request, _framework_problem(request, error))

    async def mendable(request: Request, error: Exception) -> Response:
        assert isinstance(error, CarpError)
        return answer_problem(request, problem_of(error))

    async def misunderstood(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return answer_problem(request, validation_problem(error.errors()))

    app.add_exception_handler(Problem, refused)
    app.add_exception_handler(HTTPException, unknown)
    app.add_exception_handler(CarpError, mendable)
    app.add_exception_handler(RequestValidationError, misunderstood)


def _framework_problem(request: Request, error: HTTPException) -> Problem:
    details = {
        400: "the body cannot be read",
        404: f"there is nothing at {echo(request.url.path)}",
        405: f"{request.method} is not possible at {echo(request.url.path)}",
    }
    detail = details.get(error.status_code, str(error.detail))
    return Problem(error.status_code, detail, headers=dict(error.headers or {}))
