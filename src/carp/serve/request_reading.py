"""The bytes of one connection become requests, within limits of size, and a piece at a time.

Some bytes take far longer to read than others: of a body in chunks of one byte each, every sixth takes a call. So bytes
are read in pieces, what a piece takes is counted in steps, and the door says who reads on, and when.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import httptools

from carp.serve.problems import Problem, no_room

if TYPE_CHECKING:
    from carp.serve.front_door import FrontDoor

LARGEST_HEAD = 65_536  # bytes of request line and headers together, and of headers that follow the body
MOST_HEADERS = 100
LARGEST_BODY = 1_200_000  # bytes
MOST_FRAMING = 262_144  # bytes of a body in chunks that are none of its content: sizes, extensions, ends of lines
MOST_HELD = 64_000_000  # bytes of bodies of all connections together
PIECE = 4_096  # bytes
# Of an address. The framework looks through all parameters for each name that it does not know.
MOST_PARAMETERS = 1_050  # a thousand things to choose among, and all else
MOST_NAMES = 50
NO_ADDRESS = "ask for a path, as GET /health, or for http:// with a host and a path"


class Asked:
    """A request as it arrived."""

    __slots__ = ("began", "body", "headers", "keep_alive", "method", "trailers", "url", "version")

    def __init__(self, began: float) -> None:
        self.began = began
        self.url = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.trailers = 0  # headers after the body: nobody asked for them, so they are counted and left out
        self.body = bytearray()
        self.method = ""
        self.version = "1.1"
        self.keep_alive = False

    def path_and_query(self) -> tuple[bytes, bytes]:
        """The path as it was written, and what follows its question mark; raises where the address has no path."""
        path, _, query = self.url.partition(b"?")
        if not path.startswith(b"/"):  # a proxy's form of the address
            parsed = httptools.parse_url(self.url)
            if not parsed.host:
                raise httptools.HttpParserInvalidURLError("there is no host")
            path = parsed.path or b"/"
        return path, query.partition(b"#")[0]

    def scope(self, server: tuple[str, int] | None, client: tuple[str, int]) -> dict[str, Any]:
        """The request in the form that apps take."""
        path, query = self.path_and_query()
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": self.version,
            "server": server,
            "client": client,
            "scheme": "http",
            "method": self.method,
            "root_path": "",
            "path": unquote(path.decode("latin-1")),
            "raw_path": path,
            "query_string": query,
            "headers": self.headers,
            "state": {},
        }


class RequestReader:
    """Reads requests from the pieces it is given, until one is refused or nothing may follow."""

    def __init__(self, door: FrontDoor) -> None:
        self.incoming: Asked | None = None  # the request that has begun and is not complete
        self.complete: list[Asked] = []  # since somebody took them
        self.refusal: Problem | None = None
        self.in_head = True
        self.waits_for_word = False  # the client sends its body when it is told to go on
        self.last = False  # no request may follow
        self.held = 0  # bytes of bodies
        self.client = ""  # what counts as one
        self._door = door
        self._steps = 0
        self._head_bytes = 0
        self._framing = self._since_body = 0
        self._length = 0  # of the body, where the headers say it
        self._parser: Any = httptools.HttpRequestParser(self)
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)  # what follows is ignored, not an error

    @property
    def begun(self) -> bool:
        """Whether a part of a request has arrived."""
        return self.incoming is not None or self._head_bytes > 0

    @property
    def ended(self) -> bool:
        return self.last or self.refusal is not None

    def next_piece(self) -> int:
        """How many bytes are read next: the parser keeps what is not complete, so it gets no more than the limit.

        A body whose length is known takes one step, however much of it there is.
        """
        if self.in_head:
            return min(PIECE, LARGEST_HEAD - self._head_bytes)
        known = 0 if self.incoming is None else self._length - len(self.incoming.body)
        return max(PIECE, known)

    def read(self, piece: memoryview) -> int:
        """Read a piece; how many steps that took."""
        self._steps = 1
        began_in_head, before = self.in_head, self.held
        if self.in_head:
            self._head_bytes += len(piece)
        try:
            self._parser.feed_data(piece)
        except httptools.HttpParserUpgrade:
            self.last = True  # the offer is not taken: the request is answered as it is, and nothing after it
        except httptools.HttpParserError:
            self.refusal = self.refusal or Problem(400, "this is not HTTP", fix="speak HTTP/1.1")
        if self.in_head:
            if self._head_bytes >= LARGEST_HEAD:
                self.refusal = self.refusal or self._too_large_head()
        elif not began_in_head:
            self._count_framing(len(piece), self.held - before)
        return self._steps

    def release(self, number: int | None = None) -> None:
        """So many bytes of the bodies that were held are no longer needed, or all."""
        number = self.held if number is None else number
        self._door.held -= number
        self.held -= number

    def close(self) -> None:
        self.release()
        self._parser = None  # it refers to this reader

    def _too_large_head(self) -> Problem:
        limit = f"{LARGEST_HEAD // 1024} kB"
        if self.incoming is None or not self.incoming.headers:
            return Problem(414, f"the address is longer than {limit}")
        return Problem(431, f"the headers are larger than {limit}")

    def _count_framing(self, fed: int, of_body: int) -> None:
        """Beside the bytes of a body come the sizes of its chunks; what comes after its last byte is headers again."""
        self._framing += fed - of_body
        self._since_body = 0 if of_body else self._since_body + fed
        if self._since_body >= LARGEST_HEAD:
            what = f"the headers after the body, or beside it, are larger than {LARGEST_HEAD // 1024} kB"
            self.refusal = self.refusal or Problem(431, what)
        elif self._framing > MOST_FRAMING:
            fix = "send larger chunks, or the body as a whole"
            what = "the body comes in too many small chunks"
            self.refusal = self.refusal or Problem(413, what, fix=fix, kind="too-large")

    # ---- of the parser

    def on_message_begin(self) -> None:
        self._steps += 1
        self.incoming = Asked(self._door.now())
        self.in_head = True

    def on_url(self, url: bytes) -> None:
        if self.incoming is not None:
            self.incoming.url += url
            self.incoming.method = self._parser.get_method().decode("ascii")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._steps += 1
        asked = self.incoming
        if asked is None or self.refusal is not None:
            return
        if self.in_head:
            asked.headers.append((name.lower(), value))
        else:
            asked.trailers += 1
        if len(asked.headers) > MOST_HEADERS or asked.trailers > MOST_HEADERS:
            self.refusal = Problem(431, f"there are more than {MOST_HEADERS} headers")

    def on_headers_complete(self) -> None:
        asked = self.incoming
        if asked is None:
            return
        self.in_head = False
        self._head_bytes = self._framing = self._since_body = 0
        asked.version = self._parser.get_http_version()
        asked.keep_alive = asked.version != "1.0" and self._parser.should_keep_alive()
        given = dict(asked.headers)
        length = given.get(b"content-length", b"0")
        self.waits_for_word = given.get(b"expect", b"").lower() == b"100-continue"
        self._length = int(length) if length.isdigit() else 0
        if self._length > LARGEST_BODY:
            self.refusal = self.refusal or too_large()
        try:
            asked.path_and_query()
        except httptools.HttpParserInvalidURLError:
            what = "the request does not say what it asks for"
            self.refusal = self.refusal or Problem(400, what, fix=NO_ADDRESS, kind="address")

    def on_body(self, body: bytes) -> None:
        self._steps += 1
        if self.incoming is None or self.refusal is not None:
            return
        self.incoming.body += body
        self.held += len(body)
        self._door.held += len(body)
        if len(self.incoming.body) > LARGEST_BODY:
            self.refusal = too_large()
        elif self._door.held > MOST_HELD and not self._door.make_room_for_body(self.client):
            self.refusal = too_many_bodies()

    def on_message_complete(self) -> None:
        if self.incoming is None or self.refusal is not None:
            return
        self.complete.append(self.incoming)
        self.incoming = None
        self.in_head = True
        self.waits_for_word = False
        self._head_bytes = 0


def too_many_parameters(query: bytes) -> Problem | None:
    """Refuse an address with more parameters, or more names of them, than any route takes."""
    if query.count(b"&") >= MOST_PARAMETERS:
        what = f"the address has more than {MOST_PARAMETERS:,} parameters"
    elif len({one.partition(b"=")[0] for one in query.split(b"&")}) > MOST_NAMES:
        what = f"the parameters of the address have more than {MOST_NAMES} names"
    else:
        return None
    return Problem(422, what, fix="see /docs for the parameters that each address takes", kind="fields")


def too_many_bodies() -> Problem:
    return no_room("too many large requests arrive at once", 1)


def too_large() -> Problem:
    what = f"the body is larger than {LARGEST_BODY / 1e6:g} MB"
    return Problem(413, what, fix="send fewer or shorter reviews", kind="too-large")
