"""Answers as bytes on a connection, and whether its client takes them."""

from __future__ import annotations

import asyncio
import fcntl
import http
import struct
import termios
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from carp.serve.problems import PROBLEM, Problem, problem_document

if TYPE_CHECKING:
    from starlette.types import Message

    from carp.serve.front_door import FrontDoor
    from carp.serve.request_reading import Asked

STATUS_LINES = {one.value: f"HTTP/1.1 {one.value} {one.phrase}\r\n".encode() for one in http.HTTPStatus}
STRETCH = 65_536  # bytes of an answer that are to be taken before its time begins anew


class Outgoing:
    """What is written to a client, and since when it has not taken it.

    What the system keeps for the client counts as not taken: it keeps some hundred kilobytes, or megabytes.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._written = 0
        self._wanted = 0  # bytes that are to be taken before the time begins anew
        self._since = 0.0

    def write(self, data: bytes) -> None:
        self._written += len(data)
        self._transport.write(data)

    @property
    def all_sent(self) -> bool:
        """Whether nothing is left that the system has not accepted."""
        return not self._transport.get_write_buffer_size()

    def waits_since(self, now: float) -> float:
        """When the stretch of bytes began that the client has to take next."""
        taken = self._written - self._transport.get_write_buffer_size() - self._unacknowledged()
        if taken >= self._wanted:
            self._wanted = min(taken + STRETCH, self._written)
            self._since = now
        return self._since

    def _unacknowledged(self) -> int:
        """Bytes that the system has accepted and the client's has not; 0 where the system does not say."""
        with suppress(OSError, ValueError, AttributeError):
            number = self._transport.get_extra_info("socket").fileno()
            return int(struct.unpack("i", fcntl.ioctl(number, termios.TIOCOUTQ, bytes(4)))[0])
        return 0


def refusal(door: FrontDoor, problem: Problem, request_id: str, *, with_body: bool) -> bytes:
    """The whole answer to what cannot be read any further."""
    body = problem_document(problem, request_id)
    headers = {"content-type": PROBLEM, "content-length": str(len(body)), "connection": "close"}
    headers |= problem.headers | {"x-request-id": request_id}
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items()).encode("latin-1")
    parts = [STATUS_LINES[problem.status], door.date_header(), door.common_headers(), head, b"\r\n"]
    return b"".join([*parts, body] if with_body else parts)


class AppAnswer:
    """The app's answer to one request, as it is written."""

    def __init__(self, outgoing: Outgoing, asked: Asked, door: FrontDoor, asks_more: Callable[[], bool]) -> None:
        self.keep_alive = asked.keep_alive
        self.begun = self.complete = False
        self._door = door
        self._outgoing = outgoing
        self._asked = asked
        self._asks_more = asks_more
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
        self.begun = True
        self._outgoing.write(self._head + body)
        self._head = b""
        self.complete = not message.get("more_body", False)

    def _written_head(self, message: Message) -> bytes:
        parts = [STATUS_LINES[message["status"]], self._door.date_header()]
        self.keep_alive = self.keep_alive and (not self._door.stopping or self._asks_more())
        for name, value in message["headers"]:
            if name == b"connection" and value == b"close":
                self.keep_alive = False
                continue
            parts += [name, b": ", value, b"\r\n"]
        if not self.keep_alive:
            parts.append(b"connection: close\r\n")
        parts.append(b"\r\n")
        return b"".join(parts)
