"""What every request passes: an id, a limit on its body, headers that keep the browser strict, and its count."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

from carp.serve.problems import PROBLEM, Problem, problem_document
from carp.serve.request_counts import OTHER, Counters

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

LARGEST_BODY = 200_000  # bytes
POLICY = (
    "default-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "object-src 'none'"
)
HEADERS = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
]


class RequestMiddleware:
    """Stands inside the app's own error handling, so that no exception is ever shown by the framework."""

    def __init__(self, app: ASGIApp, counters: Counters) -> None:
        self.app = app
        self.counters = counters

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began = time.perf_counter()
        request_id = scope["request_id"] = os.urandom(8).hex()
        status = 0

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *HEADERS, (b"x-request-id", request_id.encode())]
            elif not message.get("more_body"):  # before it is sent: who has the answer finds it counted
                route = getattr(scope.get("route"), "path", OTHER)
                self.counters.count(route, status, time.perf_counter() - began)
            await send(message)

        try:
            if _announced(scope) > LARGEST_BODY:
                raise too_large()
            await self.app(scope, _limited(receive), answer)
        except Problem as problem:  # before the app, or where it could not answer itself
            if not status:
                await _send(answer, problem, request_id)
        except Exception as error:
            _log(request_id, error)
            if not status:
                await _send(answer, Problem(500, "the service failed to answer"), request_id)


def too_large() -> Problem:
    what = f"the body is larger than {LARGEST_BODY // 1000} kB"
    return Problem(413, what, fix="send fewer or shorter reviews", kind="too-large")


def _announced(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length":
            return int(value) if value.isdigit() else 0
    return 0


def _limited(receive: Receive) -> Receive:
    """The same body, refused once it has grown too large: a length need not be announced."""
    taken = 0

    async def take() -> Message:
        nonlocal taken
        message = await receive()
        taken += len(message.get("body", b""))
        if taken > LARGEST_BODY:
            raise too_large()
        return message

    return take


async def _send(send: Send, problem: Problem, request_id: str) -> None:
    body = problem_document(problem, request_id)
    headers = [(b"content-type", PROBLEM.encode()), (b"content-length", str(len(body)).encode())]
    if problem.status_code == 413:
        headers.append((b"connection", b"close"))  # the rest of the body is not waited for
    await send({"type": "http.response.start", "status": problem.status_code, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _log(request_id: str, error: Exception) -> None:
    message = (str(error).splitlines() or [""])[0][:300]
    print(f"carp serve: request {request_id} failed ({type(error).__name__}: {message!r})", file=sys.stderr, flush=True)
    if os.environ.get("CARP_DEBUG") == "1":
        import traceback

        traceback.print_exception(error)
