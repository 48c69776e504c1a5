"""A door on a free port before a small app, for tests of connections."""

from __future__ import annotations

import asyncio
import contextlib
import io
import itertools
import json
import socket
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, TypeVar

from carp.serve.front_door import FrontDoor
from carp.serve.log_lines import LogLines

T = TypeVar("T")
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
REQUEST = b"GET /some?n=%d HTTP/1.1\r\nHost: localhost\r\n\r\n"
HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
LARGE = 1_000_000  # bytes of the answer to /large


class SmallApp:
    """Answers with what it was asked; to /wait when the test says so, to /large with a large answer."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.begun = 0
        self.begun_before_health: int | None = None
        self.left = 0
        self.seen: list[list[tuple[bytes, bytes]]] = []  # the headers of each request

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = (await receive())["body"]
        self.begun += 1
        self.seen.append(scope["headers"])
        if scope["path"] == "/health":
            self.begun_before_health = self.begun - 1
        if scope["path"] == "/wait":
            try:
                await self.go_on.wait()
            except asyncio.CancelledError:
                self.left += 1
                raise
        if scope["path"] == "/fail":
            raise RuntimeError("an app that fails")
        said = json.dumps([scope["method"], scope["path"], scope["query_string"].decode(), len(body)]).encode()
        if scope["path"] == "/large":
            said = b"-" * LARGE
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(said))]})
        await send({"type": "http.response.body", "body": said})


class Opened:
    """A door on a free port of this machine."""

    def __init__(self, most: int = 100, share: int | None = None) -> None:
        self.app = SmallApp()
        self.said = io.StringIO()
        self.log = LogLines(self.said)
        self.door = FrontDoor(self.app, self.log, most=most, share=share)
        self.listening = socket.create_server(("127.0.0.1", 0), backlog=500)
        self.listening.setblocking(False)
        self.listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16_384)  # or the system takes large answers
        self.port = self.listening.getsockname()[1]
        self.door.listen(self.listening)

    async def connect(self, sent: bytes = b"") -> Streams:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(sent)
        return reader, writer

    def connect_deaf(self, sent: bytes) -> socket.socket:
        """A client that sends, and takes next to nothing of what comes back."""
        one = socket.socket()
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_048)
        one.connect(("127.0.0.1", self.port))
        one.sendall(sent)
        return one

    async def asked(self, sent: bytes) -> bytes:
        """All that comes back until the service closes."""
        reader, writer = await self.connect(sent)
        received = await reader.read()
        writer.close()
        return received

    def logged(self) -> list[dict[str, Any]]:
        self.log.close()
        return [json.loads(line) for line in self.said.getvalue().splitlines()]


def with_door(test: Callable[[Opened], Awaitable[T]], **options: Any) -> T:
    async def everything() -> T:
        opened = Opened(**options)
        try:
            return await test(opened)
        finally:
            opened.app.go_on.set()
            await opened.door.close(patience=0)

    return asyncio.run(everything())


async def until(condition: Callable[[], object]) -> None:
    """Let the loop run until something is so; what never is fails by the test's own end."""
    while not condition():
        await asyncio.sleep(0.001)


async def answer_of(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    return head, await reader.readexactly(length)


async def waiting(opened: Opened, number: int) -> list[Streams]:
    """Clients whose requests have begun and do not end."""
    clients = [await opened.connect(b"GET /wait HTTP/1.1\r\nHost: x\r\n\r\n") for _ in range(number)]
    await until(lambda: opened.app.begun == number)
    return clients


@contextlib.contextmanager
def asking_at_once(opened: Opened, requests: Iterable[bytes]) -> Iterator[None]:
    """All have connected and asked before the door looks up once."""
    with contextlib.ExitStack() as stack:
        for request in requests:
            one = stack.enter_context(socket.create_connection(("127.0.0.1", opened.port)))
            one.sendall(request)
        yield


async def most_in_a_round(
    opened: Opened, requests: list[bytes], count: Callable[[], int], until_all: Callable[[], object] | None = None
) -> int:
    """Requests that come at once, until all are counted: how many were at most in one round of the event loop."""
    loop, counts = asyncio.get_running_loop(), [count()]

    def look() -> None:
        counts.append(count())
        loop.call_soon(look)

    loop.call_soon(look)
    with asking_at_once(opened, requests):
        await until(until_all or (lambda: counts[-1] == len(requests)))
    return max(after - before for before, after in itertools.pairwise(counts))
