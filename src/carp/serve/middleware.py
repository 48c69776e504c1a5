"""What every request passes: an id, whether it may ask, headers that keep the browser strict, and a line in the log."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import carp
from carp.serve.access_control import OPEN_PATHS, AccessRules, RateLimit, client_of
from carp.serve.engine_messages import ANSWERED_BY, ASKED_BY
from carp.serve.log_lines import LogLines
from carp.serve.problems import PROBLEM, Problem, problem_document
from carp.serve.request_counts import CLIENT_LEFT, OTHER, Counters
from carp.serve.request_ids import request_id
from carp.serve.request_reading import LARGEST_BODY, too_large, too_many_parameters

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from carp.serve.engine_pool import Engine

POLICY = (
    "default-src 'self'; img-src 'self' data:{pictures}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "object-src 'none'"
)
HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"x-carp-version", carp.__version__.encode()),
]
ASKS_ENGINES = "/api/"
ASKS_NONE = "/api/about"


class RequestMiddleware:
    """Stands around the whole app, so that no exception is ever shown by the framework."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        engine: Engine,
        counters: Counters,
        rules: AccessRules,
        limit: RateLimit,
        log: LogLines,
        pictures: Sequence[str] = (),
    ) -> None:
        self.app = app
        policy = POLICY.format(pictures="".join(f" {origin}" for origin in pictures))
        self.headers = [(b"content-security-policy", policy.encode()), *HEADERS]
        self.engine = engine
        self.counters = counters
        self.rules = rules
        self.limit = limit
        self.log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        ANSWERED_BY.set(None)
        ASKED_BY.set(client_of((scope.get("client") or ("",))[0]))
        passage = _Passage(self, scope, send)
        try:
            if (refusal := self._refusal(scope)) is not None:
                raise refusal
            await self.app(passage.scope, receive, passage.send)
        except Problem as problem:
            await passage.refuse(problem)
        except asyncio.CancelledError:  # the client has gone
            passage.end(CLIENT_LEFT)
            raise
        except Exception as error:
            failure = Problem(500, "the service failed to answer")
            failure.inside = _told(error)
            await passage.refuse(failure)

    def _refusal(self, scope: Scope) -> Problem | None:
        path = scope["path"]
        if _announced(scope) > LARGEST_BODY:
            return too_large()
        if (refusal := self.rules.wrong_name(scope["headers"])) is not None:
            return refusal
        if path not in OPEN_PATHS and (refusal := self._not_let_in(scope, path)) is not None:
            return refusal
        return too_many_parameters(scope["query_string"])

    def _not_let_in(self, scope: Scope, path: str) -> Problem | None:
        """What is asked of all but probes."""
        if (refusal := self.limit.refusal((scope.get("client") or ("",))[0])) is not None:
            return refusal  # before the key is looked at: nobody tries many
        if (refusal := self.rules.wrong_key(scope["headers"])) is not None:
            return refusal
        if path.startswith(ASKS_ENGINES) and path != ASKS_NONE:
            return self.engine.refusal()  # before the request is looked at: a refusal costs next to nothing
        return None


class _Passage:
    """One request on its way through."""

    def __init__(self, middleware: RequestMiddleware, scope: Scope, send: Send) -> None:
        self.began = time.perf_counter()
        self.middleware = middleware
        self.method = scope["method"]
        # HEAD is answered like GET; the connection leaves the body out. Nobody here asks for cookies, and the framework
        # would read them all the same: Python before 3.11.10 and 3.12.6 takes time by the square of their length.
        method = "GET" if self.method == "HEAD" else self.method
        self.scope = {**scope, "method": method, "headers": [one for one in scope["headers"] if one[0] != b"cookie"]}
        self.client = (scope.get("client") or ("",))[0]
        self.id = self.scope["request_id"] = request_id(scope["headers"])
        self._send = send
        self.status = 0
        self.inside: str | None = None

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = [*message["headers"], *self.middleware.headers, (b"x-request-id", self.id.encode())]
            if (facts := ANSWERED_BY.get() or self.middleware.engine.facts) is not None:
                headers.append((b"x-carp-bundle", facts.bundle.encode()))
            message["headers"] = headers
        elif not message.get("more_body"):  # before it is sent: who has the answer finds it counted
            self.end(self.status)
            if self.method == "HEAD":
                message = {**message, "body": b""}
        await self._send(message)

    async def refuse(self, problem: Problem) -> None:
        self.inside = problem.inside
        if self.status:
            return
        body = problem_document(problem, self.id)
        given = {"content-type": PROBLEM, "content-length": str(len(body)), **problem.headers}
        if problem.status == 413:
            given["connection"] = "close"  # the rest of the body is not waited for
        headers = [(name.encode(), value.encode()) for name, value in given.items()]
        await self.send({"type": "http.response.start", "status": problem.status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body})

    def end(self, status: int) -> None:
        seconds = time.perf_counter() - self.began
        route = getattr(self.scope.get("route"), "path", OTHER)
        self.middleware.counters.count(route, status, seconds)
        self.middleware.log.write(
            "request",
            id=self.id,
            method=self.method if self.method.isalpha() else OTHER,
            route=route,
            status=status,
            ms=round(1000 * seconds, 2),
            client=self.client,
            error=self.inside or self.scope.get("inside"),
        )


def _announced(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length":
            return int(value) if value.isdigit() else 0
    return 0


def _told(error: Exception) -> str:
    import traceback

    if os.environ.get("CARP_DEBUG") == "1":
        return "".join(traceback.format_exception(error))
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:300]}"
