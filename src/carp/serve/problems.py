"""Whatever goes wrong is answered by a problem document (RFC 9457) that says what happened and how to fix it.

Nothing in it comes from the inside of the machine: no traceback, no path. The id finds the request in the log.
"""

from __future__ import annotations

from typing import Any

import msgspec

from carp.errors import CarpError, DamagedError, InputError, StorageError, UnknownIdError, UsageError

PROBLEM = "application/problem+json"
LONGEST_ECHO = 80  # characters of what was given that an answer repeats
TITLES = {
    400: "The request cannot be read",
    401: "This service asks for a key",
    403: "This is for the machine itself",
    404: "There is nothing here",
    405: "This cannot be asked in that way",
    408: "The request did not arrive in time",
    409: "This model cannot answer that",
    413: "The request is too large",
    414: "The address is too long",
    421: "This service does not answer to that name",
    422: "The request is not understood",
    429: "Too many requests from one place",
    431: "The headers are too large",
    500: "The service failed",
    503: "The service has no room for this now",
}
FIXES = {
    400: "send a JSON object with the fields that /docs lists",
    401: "send the key as Authorization: Bearer KEY",
    404: "see /docs for what can be asked",
    405: "see /docs for the method that each address takes",
    408: "send the whole request at once",
    414: "ask with shorter values",
    429: "ask again after the seconds that Retry-After names",
    431: "send fewer or shorter headers",
    500: "try again; if it stays, report the id with what the service wrote to its log",
    503: "ask again after the seconds that Retry-After names",
}


class Problem(Exception):
    """An answer that is a refusal. `fix` says how to ask so that it is none."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        fix: str | None = None,
        kind: str = "",
        headers: dict[str, str] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.fix = fix
        self.kind = kind
        self.headers = headers or {}
        self.more = more
        self.inside: str | None = None  # what the log says of it, and no answer


def no_room(detail: str, seconds: int) -> Problem:
    """The service cannot take this now; `seconds` says when to ask again."""
    return Problem(503, detail, kind="no-room", headers={"retry-after": str(seconds)})


def echo(text: str) -> str:
    """What was given, short enough to repeat.

    >>> echo("x" * 200)[-5:]
    "xxx…'"
    """
    return repr(text if len(text) <= LONGEST_ECHO else text[:LONGEST_ECHO] + "…")


def problem_document(problem: Problem, request_id: str) -> bytes:
    status = problem.status
    kind = problem.kind or TITLES.get(status, "problem").lower().replace(" ", "-")
    fix = problem.fix or FIXES.get(status)
    written = {
        "type": f"urn:carp:{kind}",
        "title": TITLES.get(status, "The request was refused"),
        "status": status,
        "detail": problem.detail.encode("utf-8", "replace").decode(),
        "fix": fix.encode("utf-8", "replace").decode() if fix else None,
        "id": request_id,
        **problem.more,
    }
    return msgspec.json.encode(written)


def problem_of(error: CarpError) -> Problem:
    """An error that the user can fix, as a refusal. Its `where` is left out: it may be a place on the disk."""
    if isinstance(error, UnknownIdError):
        return Problem(404, error.what, fix=error.fix, kind="unknown-id")
    if isinstance(error, InputError | UsageError):
        return Problem(409, error.what, fix=error.fix, kind="cannot-answer")
    if isinstance(error, DamagedError | StorageError):
        return Problem(500, "the files of the service cannot be read", fix="see the log of the service")
    return Problem(500, "the service failed to answer")
