"""Whatever goes wrong is answered by a problem document (RFC 9457) that says what happened and how to fix it.

Nothing in it comes from the inside of the machine: no traceback, no path. The id finds the request in the log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from carp.errors import CarpError, DamagedError, InputError, StorageError, UnknownIdError, UsageError

PROBLEM = "application/problem+json"
LONGEST_ECHO = 80  # characters of what was given that an answer repeats
TITLES = {
    400: "The request cannot be read",
    404: "There is nothing here",
    405: "This cannot be asked in that way",
    409: "This model cannot answer that",
    413: "The request is too large",
    422: "The request is not understood",
    500: "The service failed",
    503: "The service is stopping",
}
FIXES = {
    400: "send a JSON object with the fields that /docs lists",
    404: "see /docs for what can be asked",
    405: "see /docs for the method that each address takes",
    500: "try again; if it stays, report the id with what the service wrote to its log",
}
FAULTS = {
    "missing": "is missing",
    "extra_forbidden": "is not known",
    "string_type": "must be text",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "list_type": "must be a list",
    "string_too_short": "must not be empty",
    "string_unicode": "holds half a character",
    "model_attributes_type": "must be an object of named fields",
    "dict_type": "must be an object of named fields",
    "too_short": "holds too little",
    "too_long": "holds too much",
}


class Problem(HTTPException):
    """An answer that is a refusal. `fix` says how to ask so that it is none."""

    def __init__(self, status: int, detail: str, *, fix: str | None = None, kind: str = "", **more: Any) -> None:
        super().__init__(status, detail)
        self.fix = fix
        self.kind = kind
        self.more = more


def echo(text: str) -> str:
    """What was given, short enough to repeat.

    >>> echo("x" * 200)[-5:]
    "xxx…'"
    """
    return repr(text if len(text) <= LONGEST_ECHO else text[:LONGEST_ECHO] + "…")


def problem_document(problem: HTTPException, request_id: str) -> bytes:
    status = problem.status_code
    kind = getattr(problem, "kind", "") or TITLES.get(status, "problem").lower().replace(" ", "-")
    fix = getattr(problem, "fix", None) or FIXES.get(status)
    written = {
        "type": f"urn:carp:{kind}",
        "title": TITLES.get(status, "The request was refused"),
        "status": status,
        "detail": str(problem.detail).encode("utf-8", "replace").decode(),
        "fix": fix.encode("utf-8", "replace").decode() if fix else None,
        "id": request_id,
        **getattr(problem, "more", {}),
    }
    return msgspec.json.encode(written)


def problem_of(error: CarpError) -> Problem:
    """An error that the user can fix, as a refusal. Its `where` is left out: it may be a place on the disk."""
    if isinstance(error, UnknownIdError):
        return Problem(404, error.what, fix=error.fix, kind="unknown-id")
    if isinstance(error, InputError):
        return Problem(422, error.what, fix=error.fix, kind="unusable-input")
    if isinstance(error, UsageError):
        return Problem(409, error.what, fix=error.fix, kind="cannot-answer")
    if isinstance(error, DamagedError | StorageError):
        return Problem(500, "the files of the service cannot be read", fix="see the log of the service")
    return Problem(500, "the service failed to answer")


def validation_problem(errors: Sequence[Mapping[str, Any]]) -> Problem:
    """What is wrong with which field, by name; values are not repeated."""
    if any(error["type"] == "json_invalid" for error in errors):
        return Problem(400, "the body is not JSON")
    faults: dict[str, str] = {}
    for error in errors:
        place = [str(part) for part in error["loc"] if part not in ("body", "query", "path")]
        name = ".".join(place) or "the body"
        faults.setdefault(name[:LONGEST_ECHO], FAULTS.get(error["type"], str(error["msg"]).lower()))
    detail = "; ".join(f"{name} {fault}" for name, fault in list(faults.items())[:10])
    return Problem(422, detail, fix="see /docs for the fields and their types", kind="fields", fields=faults)


def answer_problem(request: Request, problem: HTTPException) -> Response:
    body = problem_document(problem, request.scope.get("request_id", ""))
    return Response(body, problem.status_code, headers=getattr(problem, "headers", None), media_type=PROBLEM)


def install(app: FastAPI) -> None:
    """Make the app answer its refusals by problem documents."""

    async def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if not isinstance(error, Problem):
            error = _framework_problem(request, error)
        return answer_problem(request, error)

    async def mendable(request: Request, error: Exception) -> Response:
        assert isinstance(error, CarpError)
        return answer_problem(request, problem_of(error))

    async def misunderstood(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return answer_problem(request, validation_problem(error.errors()))

    app.add_exception_handler(HTTPException, refused)
    app.add_exception_handler(CarpError, mendable)
    app.add_exception_handler(RequestValidationError, misunderstood)


def _framework_problem(request: Request, error: HTTPException) -> HTTPException:
    details = {
        400: "the body cannot be read",
        404: f"there is nothing at {echo(request.url.path)}",
        405: f"{request.method} is not possible at {echo(request.url.path)}",
    }
    problem = Problem(error.status_code, details.get(error.status_code, str(error.detail)))
    problem.headers = error.headers
    return problem
