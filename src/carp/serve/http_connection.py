"""One HTTP/1.1 connection: requests are read within limits of size and time, and answered one after the other.

A request reaches the app when all of it has arrived. So a client that sends slowly costs a few kilobytes and its place,
which it loses to the next one where all places are taken; and no app ever sees half a request.
"""

from __future__ import annotations

import asyncio
import http
from collections import deque
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote

import httptools

from carp.serve.problems import PROBLEM, Problem, no_room, problem_document

if TYPE_CHECKING:
    from starlette.types import Message

    from carp.serve.front_door import FrontDoor

LARGEST_HEAD = 65_536  # bytes of request line and headers together
MOST_HEADERS = 100
LARGEST_BODY = 1_200_000  # bytes
MOST_HELD = 64_000_000  # bytes of bodies of all connections together
MOST_LINGERING = 1_000_000  # bytes of a refused request that are read and thrown away, so that its answer is seen
MOST_PIPELINED = 16
BODY_OF_A_TURN = 20_000  # bytes: who sends more takes several turns, since reading them takes longer
# Seconds for each stage.
STAGES = {
    "idle": 30.0,  # between two requests
    "head": 10.0,  # from the connection, or a request's first byte, to the end of its headers
    "body": 20.0,
    "writing": 30.0,  # until the client has taken an answer
    "lingering": 2.0,
    "leaving": 2.0,  # an idle connection of a service that stops: who has just asked is still answered
}
QUIET = ("idle", "head", "body", "leaving", "lingering")  # stages in which the service owes nothing
REASONS = {
    "head": "the headers did not arrive in time",
    "body": "the body did not arrive in time",
    "writing": "the answer was not taken in time",
}
STATUS_LINES = {one.value: f"HTTP/1.1 {one.value} {one.phrase}\r\n".encode() for one in http.HTTPStatus}


class Asked:
    """A request as it arrived."""

    __slots__ = ("body", "headers", "keep_alive", "method", "url", "version")

    def __init__(self) -> None:
        self.url = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.body = bytearray()
        self.method = ""
        self.version = "1.1"
        self.keep_alive = False


class HttpConnection(asyncio.Protocol):
    """Reads requests, hands them to the app, writes the answers."""

    def __init__(self, door: FrontDoor) -> None:
        self.door = door
        self.deadline = 0.0
        self.stage = ""
        self.client = ("", 0)
        self.server: tuple[str, int] | None = None
        self._transport: asyncio.Transport = None  # type: ignore[assignment]
        self._parser: Any = httptools.HttpRequestParser(self)
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)  # what follows is ignored, not an error
        self._incoming: Asked | None = None
        self._in_head = True
        self._head_bytes = 0
        self._refusal: Problem | None = None
        self._complete: deque[Asked] = deque()
        self._task: asyncio.Task[None] | None = None
        self._paused_reading = self._paused_writing = False
        self._thrown_away = 0
        self._last = False
        self._held = 0  # bytes of bodies

    # ---- of the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one without saying so
        peer, own = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        self.client = (str(peer[0]), int(peer[1])) if isinstance(peer, tuple) else ("", 0)
        self.server = (str(own[0]), int(own[1])) if isinstance(own, tuple) else None
        if self.door.welcome(self):
            self._enter("head")
        else:
            self.refuse(Problem(503, "too many connections are open", headers={"retry-after": "1"}, kind="no-room"))

    def connection_lost(self, error: Exception | None) -> None:
        self.stage = "lost"
        self.door.farewell(self)
        self._complete.clear()
        self._release()
        if self._task is not None:
            self._task.cancel()  # what nobody waits for is not computed
        self._parser = None

    def data_received(self, data: bytes) -> None:
        if self.stage == "lingering":
            self._thrown_away += len(data)
            if self._thrown_away > MOST_LINGERING:
                self._transport.abort()
            return
        if self.stage in ("idle", "leaving"):
            self._enter("head")
        try:
            self._feed(data)
        except httptools.HttpParserUpgrade:
            self._last = True  # the offer is not taken: the request is answered as it is, and nothing after it
        except httptools.HttpParserError:
            self._refusal = self._refusal or Problem(400, "this is not HTTP", fix="speak HTTP/1.1")
        if self._refusal is not None and not self.answering:
            self.refuse(self._refusal)

    def _feed(self, data: bytes) -> None:
        """Never more than a whole head beyond the limit reaches the parser, which keeps what is not complete."""
        view = memoryview(data)
        while view and self._refusal is None:
            part = view[: LARGEST_HEAD - self._head_bytes] if self._in_head else view
            if self._in_head:
                self._head_bytes += len(part)
            self._parser.feed_data(part)
            if self._in_head and self._head_bytes >= LARGEST_HEAD:
                self._refusal = self._too_large_head()
            view = view[len(part) :]

    def _too_large_head(self) -> Problem:
        limit = f"{LARGEST_HEAD // 1024} kB"
        if self._incoming is None or not self._incoming.headers:
            return Problem(414, f"the address is longer than {limit}")
        return Problem(431, f"the headers are larger than {limit}")

    def eof_received(self) -> bool:
        return False  # the client has gone: close

    def pause_writing(self) -> None:
        self._paused_writing = True

    def resume_writing(self) -> None:
        self._paused_writing = False
        if self.stage == "writing":
            self._next()

    # ---- of the parser

    def on_message_begin(self) -> None:
        self._incoming = Asked()
        self._in_head = True

    def on_url(self, url: bytes) -> None:
        if self._incoming is not None:
            self._incoming.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._incoming is None:
            return
        self._incoming.headers.append((name.lower(), value))
        if len(self._incoming.headers) > MOST_HEADERS:
            self._refusal = Problem(431, f"there are more than {MOST_HEADERS} headers")

    def on_headers_complete(self) -> None:
        asked = self._incoming
        if asked is None:
            return
        self._in_head = False
        self._head_bytes = 0
        asked.method = self._parser.get_method().decode("ascii")
        asked.version = self._parser.get_http_version()
        asked.keep_alive = asked.version != "1.0" and self._parser.should_keep_alive()
        given = dict(asked.headers)
        length = given.get(b"content-length", b"0")
        if length.isdigit() and int(length) > LARGEST_BODY:
            self._refusal = too_large()
        elif given.get(b"expect", b"").lower() == b"100-continue" and not self.answering:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if not self.answering:
            self._enter("body")

    def on_body(self, body: bytes) -> None:
        if self._incoming is None or self._refusal is not None:
            return
        self._incoming.body += body
        self._held += len(body)
        self.door.held += len(body)
        if len(self._incoming.body) > LARGEST_BODY:
            self._refusal = too_large()
        elif self.door.held > MOST_HELD:
            self._refusal = no_room("too many large requests arrive at once", 1)

    def on_message_complete(self) -> None:
        if self._incoming is None or self._refusal is not None:
            return
        self._complete.append(self._incoming)
        self._incoming = None
        self._in_head = True
        self._head_bytes = 0
        if not self.answering:
            self._next()
        elif len(self._complete) > MOST_PIPELINED and not self._paused_reading:
            self._paused_reading = True
            self._transport.pause_reading()

    # ---- requests

    @property
    def answering(self) -> bool:
        return self.stage in ("waiting", "answering", "writing")

    def _enter(self, stage: str) -> None:
        self.stage = stage
        self.deadline = self.door.now() + STAGES[stage] if stage in STAGES else float("inf")
        self.door.note_stage(self, quiet=stage in QUIET)

    def _release(self) -> None:
        self.door.held -= self._held
        self._held = 0

    def _next(self) -> None:
        """Begin with the next request that is complete, or wait for one."""
        if self._complete and not self._transport.is_closing():
            self._enter("waiting")
            self.door.begin(self, self._complete[0].url)
            return
        if self._paused_reading:
            self._paused_reading = False
            self._transport.resume_reading()
        if self._refusal is not None:
            self.refuse(self._refusal)
        elif self._incoming is not None:
            self._enter("head" if self._in_head else "body")
        else:
            self._release()
            self._enter("leaving" if self.door.stopping else "idle")

    def start(self) -> int:
        """Answer the request whose turn it is; how many turns that takes, 0 where nobody waits for it any more."""
        if self.stage != "waiting" or not self._complete:
            return 0
        self._enter("answering")
        asked = self._complete.popleft()
        self._task = self.door.loop.create_task(self._answer(asked))
        return 1 + len(asked.body) // BODY_OF_A_TURN

    async def _answer(self, asked: Asked) -> None:
        answer = _Answer(self._transport, asked, self.door)
        try:
            await self.door.app(self._scope(asked), answer.receive, answer.send)
        except asyncio.CancelledError:
            if self.stage != "lost":
                raise
            return
        except Exception as error:
            self.door.log.write("failed", error=type(error).__name__, client=self.client[0])
        self._task = None
        if not answer.complete or not answer.keep_alive or self._last:
            self._complete.clear()
            self._linger()
        elif self._paused_writing:
            self._enter("writing")
        else:
            self._next()

    def _scope(self, asked: Asked) -> dict[str, Any]:
        path, _, query = asked.url.partition(b"?")
        if not path.startswith(b"/"):  # a proxy's form of the address
            path = httptools.parse_url(asked.url).path or b"/"
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": asked.version,
            "server": self.server,
            "client": self.client,
            "scheme": "http",
            "method": asked.method,
            "root_path": "",
            "path": unquote(path.decode("latin-1")),
            "raw_path": path,
            "query_string": query.partition(b"#")[0],
            "headers": asked.headers,
            "state": {},
        }

    # ---- ends

    def refuse(self, problem: Problem) -> None:
        """Answer what cannot be read any further, and close."""
        request_id = self.door.note_refusal(self, problem)
        body = problem_document(problem, request_id)
        headers = {"content-type": PROBLEM, "content-length": str(len(body)), "connection": "close"}
        headers |= problem.headers | {"x-request-id": request_id}
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items()).encode("latin-1")
        self._transport.write(
            STATUS_LINES[problem.status] + self.door.date_header() + self.door.common_headers() + head + b"\r\n" + body
        )
        self._linger()

    def _linger(self) -> None:
        """Close for writing, and read on for a moment: what is unread at a close would take the answer with it."""
        if self._transport.is_closing():
            return
        self._enter("lingering")
        self._release()
        if self._paused_reading:
            self._paused_reading = False
            self._transport.resume_reading()
        if self._transport.can_write_eof():
            self._transport.write_eof()
        else:
            self._transport.close()

    def stop(self) -> None:
        """The service stops: whoever has asked is answered, whoever is about to ask as well."""
        if self.stage == "idle" or (self.stage == "head" and not self._begun):
            self._enter("leaving")

    @property
    def _begun(self) -> bool:
        """Whether a part of a request has arrived."""
        return self._incoming is not None or self._head_bytes > 0

    def expire(self) -> None:
        """The time for this stage is over."""
        if self.stage in ("head", "body") and self._begun:
            self.refuse(Problem(408, REASONS[self.stage]))
        elif self.stage == "writing":
            self.door.log.write("closed", reason=REASONS["writing"], client=self.client[0])
            self._transport.abort()
        else:
            self._transport.close()

    def evict(self) -> None:
        """Make room for another connection."""
        self.door.log.write("closed", reason="its place was needed", stage=self.stage, client=self.client[0])
        self._transport.abort()

    def abort(self) -> None:
        self._transport.abort()


def too_large() -> Problem:
    what = f"the body is larger than {LARGEST_BODY / 1e6:g} MB"
    return Problem(413, what, fix="send fewer or shorter reviews", kind="too-large")


class _Answer:
    """The app's answer to one request, as it is written."""

    def __init__(self, transport: asyncio.Transport, asked: Asked, door: FrontDoor) -> None:
        self.keep_alive = asked.keep_alive
        self._door = door
        self.complete = False
        self._transport = transport
        self._asked = asked
        self._given = False
        self._head = b""

    async def receive(self) -> Message:
        if not self._given:
            self._given = True
            return {"type": "http.request", "body": bytes(self._asked.body), "more_body": False}
        await asyncio.get_running_loop().create_future()  # who leaves is told by cancelling
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._head = self._written_head(message)
            return
        body = b"" if self._asked.method == "HEAD" else message.get("body", b"")
        self._transport.write(self._head + body)
        self._head = b""
        self.complete = not message.get("more_body", False)

    def _written_head(self, message: Message) -> bytes:
        parts = [STATUS_LINES[message["status"]], self._door.date_header()]
        self.keep_alive = self.keep_alive and not self._door.stopping
        for name, value in message["headers"]:
            if name == b"connection" and value == b"close":
                self.keep_alive = False
                continue
            parts += [name, b": ", value, b"\r\n"]
        if not self.keep_alive:
            parts.append(b"connection: close\r\n")
        parts.append(b"\r\n")
        return b"".join(parts)
