"""One HTTP/1.1 connection: requests are read within limits of size and time, and answered one after the other.

A request reaches the app when all of it has arrived. So a client that sends slowly costs a few kilobytes and its place,
which it loses to the next one where all places are taken; and no app ever sees half a request.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, cast

from carp.serve.access_control import client_of
from carp.serve.answer_writing import AppAnswer, Outgoing, refusal
from carp.serve.last_requests import LastRequests
from carp.serve.problems import Problem, no_room
from carp.serve.request_reading import Asked, RequestReader, too_many_bodies

if TYPE_CHECKING:
    from carp.serve.front_door import FrontDoor

MOST_LINGERING = 1_000_000  # bytes of a refused request that are read and thrown away, so that its answer is seen
MOST_PIPELINED = 16
SHORT = 1_024  # bytes of a new request that are read at once: it may be a probe's
BODY_OF_A_TURN = 20_000  # bytes: who sends more takes several turns, since reading them takes longer
# Seconds for each stage.
STAGES = {
    "idle": 30.0,  # between two requests
    "head": 10.0,  # from the connection, or a request's first byte, to the end of its headers
    "body": 20.0,
    "writing": 30.0,  # until the client has taken an answer, or a stretch of a long one
    "lingering": 2.0,
    "leaving": 2.0,  # an idle connection of a service that stops: who has just asked is still answered
}
REASONS = {
    "head": "the headers did not arrive in time",
    "body": "the body did not arrive in time",
    "writing": "the answer was not taken in time",
}
GO_ON = b"HTTP/1.1 100 Continue\r\n\r\n"


class HttpConnection(asyncio.BufferedProtocol):
    """Reads requests, hands them to the app, writes the answers."""

    def __init__(self, door: FrontDoor) -> None:
        self.door = door
        self.deadline = 0.0
        self.stage = ""
        self.came = door.now()
        self.heard = False  # something of it has been read, or it has had its time to speak
        self.client = ("", 0)
        self.client_key = ""  # what counts as one client
        self.server: tuple[str, int] | None = None
        self._transport: asyncio.Transport = None  # type: ignore[assignment]
        self._outgoing: Outgoing = None  # type: ignore[assignment]
        self._reader = RequestReader(door)
        self._last_requests: LastRequests = None  # type: ignore[assignment]
        self._unread = memoryview(b"")  # bytes that wait for their turn
        self._complete: deque[Asked] = deque()
        self._task: asyncio.Task[None] | None = None
        self._paused_reading = self._paused_writing = False
        self._thrown_away = 0
        self._over = False  # nothing more is answered

    # ---- of the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one without saying so
        self._outgoing = Outgoing(self._transport)
        self._last_requests = LastRequests(self._reader, self._transport)
        peer, own = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        self.client = (str(peer[0]), int(peer[1])) if isinstance(peer, tuple) else ("", 0)
        self.client_key = self._reader.client = client_of(self.client[0])
        self.server = (str(own[0]), int(own[1])) if isinstance(own, tuple) else None
        self.door.welcome(self)
        self._enter("head")

    def connection_lost(self, error: Exception | None) -> None:
        self.stage = "lost"
        self.door.farewell(self)
        self._complete.clear()
        self._unread = memoryview(b"")
        self._reader.close()
        if self._task is not None:
            self._task.cancel()  # what nobody waits for is not computed

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.door.buffer  # one for all: what is not read at once is copied

    def buffer_updated(self, number: int) -> None:
        if self._over or self._reader.ended:
            self._throw_away(number)
            return
        if self.stage in ("idle", "leaving"):
            self._enter("head")
        self._unread = self.door.buffer[:number]
        self._read(at_once=number <= SHORT and not self._reader.begun and not self.answering)
        if self._unread:
            self._unread = memoryview(bytes(self._unread))
            self._pause_reading()
        self._go_on_reading()

    def eof_received(self) -> bool:
        return False  # the client has gone: close

    def pause_writing(self) -> None:
        self._paused_writing = True

    def resume_writing(self) -> None:
        self._paused_writing = False
        if self.stage == "writing":
            self._next()

    # ---- reading

    def read_on(self) -> None:
        """Take a turn at reading what has arrived."""
        self._read()
        self._go_on_reading()

    def _read(self, *, at_once: bool = False) -> None:
        """Read what has arrived while it is this connection's turn."""
        while self._unread and self._reads and (at_once or self.door.may_read):
            size = self._reader.next_piece()
            piece, self._unread = self._unread[:size], self._unread[size:]
            self.door.spend(self._reader.read(piece))
            self.note_heard()
            self._last_requests.note_read(len(piece), completed=bool(self._reader.complete))
            self._complete.extend(self._reader.complete)
            self._reader.complete.clear()
            if not self.answering:
                self._next()

    @property
    def _reads(self) -> bool:
        """Whether another request is read now: not while enough wait that the client has sent already."""
        return not self._over and not self._reader.ended and len(self._complete) <= MOST_PIPELINED

    def _go_on_reading(self) -> None:
        """Ask for another turn, or for more bytes."""
        if self._over or self._reader.ended:
            self._unread = memoryview(b"")
        elif not self._reads:
            return
        elif self._unread:
            self.door.read_later(self)
        else:
            self._resume_reading()

    def _pause_reading(self) -> None:
        if not self._paused_reading:
            self._paused_reading = True
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        if self._paused_reading and not self._transport.is_closing():
            self._paused_reading = False
            self._transport.resume_reading()

    def _throw_away(self, number: int) -> None:
        if self.stage != "lingering":
            self._pause_reading()
            return
        self._thrown_away += number
        if self._thrown_away > MOST_LINGERING:
            self._transport.abort()

    def note_heard(self) -> None:
        """From now on this may leave for others while it asks nothing."""
        if not self.heard:
            self.heard = True
            self.door.note_stage(self)

    @property
    def held(self) -> int:
        return self._reader.held

    # ---- requests

    @property
    def answering(self) -> bool:
        return self.stage in ("waiting", "answering", "writing")

    def asks_more(self) -> bool:
        """Whether, of a service that stops, this client is to have another answer after the one that is written now."""
        self._last_requests.begin(len(self._unread))
        return bool(self._complete) or self._reader.refusal is not None or not self._reader.last

    def _enter(self, stage: str) -> None:
        self.stage = stage
        self.deadline = self.door.now() + STAGES[stage] if stage in STAGES else float("inf")
        self.door.note_stage(self)

    def _next(self) -> None:
        """Begin with the next request that is complete, or wait for one."""
        if self._over:
            self._linger()
        elif self._complete:
            self._begin(self._complete[0])
        elif self._reader.refusal is not None:
            self.refuse(self._reader.refusal, self._reader.incoming)
        elif self._reader.last:
            self._linger()
        else:
            self._wait_for_request()

    def _begin(self, asked: Asked) -> None:
        if not self.door.admits(self, asked.url):
            self._complete.popleft()
            self.refuse(no_room("too many connections are open", 1), asked)
            return
        self._enter("waiting")
        self.door.begin(self, asked.url)

    def _wait_for_request(self) -> None:
        reader = self._reader
        if reader.begun or self._unread:
            stage = "head" if reader.in_head else "body"
        else:
            reader.release()
            stage = "leaving" if self.door.stopping else "idle"
        if stage != self.stage:  # else its time goes on
            self._enter(stage)
        if reader.waits_for_word:
            reader.waits_for_word = False
            self._outgoing.write(GO_ON)
        if self._paused_reading:
            self._go_on_reading()

    def start(self) -> int:
        """Answer the request whose turn it is; how many turns that takes, 0 where nobody waits for it any more."""
        if self.stage != "waiting" or not self._complete:
            return 0
        self._enter("answering")
        asked = self._complete.popleft()
        self._task = self.door.loop.create_task(self._answer(asked))
        return 1 + len(asked.body) // BODY_OF_A_TURN

    async def _answer(self, asked: Asked) -> None:
        if self.door.is_guest(self):
            asked.keep_alive = False
        answer = AppAnswer(self._outgoing, asked, self.door, self.asks_more)
        try:
            await self.door.app(asked.scope(self.server, self.client), answer.receive, answer.send)
        except asyncio.CancelledError:
            if self.stage != "lost":
                raise
            return
        except Exception as error:
            self.door.log.write("failed", error=type(error).__name__, client=self.client[0])
        self._task = None
        self._reader.release(len(asked.body))  # now: who always has the next request under way is never idle
        if not answer.begun:
            self.refuse(Problem(500, "the service failed to answer"), asked)
        elif not answer.complete or not answer.keep_alive:
            self._linger()
        elif self._paused_writing:
            self._wait_until_taken()
        else:
            self._next()

    def _wait_until_taken(self) -> None:
        self._enter("writing")
        self.deadline = self._outgoing.waits_since(self.door.now()) + STAGES["writing"]

    # ---- ends

    def refuse(self, problem: Problem, asked: Asked | None) -> None:
        """Answer what cannot be read any further, and close."""
        request_id = self.door.note_refusal(self, problem, asked)
        with_body = asked is None or asked.method != "HEAD"
        self._outgoing.write(refusal(self.door, problem, request_id, with_body=with_body))
        self._linger()

    def _linger(self) -> None:
        """Close for writing, and read on for a moment: what is unread at a close would take the answer with it."""
        if self._transport.is_closing():
            return
        first, self._over = not self._over, True
        if self.door.stopping:
            self.door.cut_off += len(self._complete)
        self._enter("lingering")
        self._complete.clear()
        self._unread = memoryview(b"")
        self._reader.release()
        self._resume_reading()
        if not self._transport.can_write_eof():
            self._transport.close()
        elif first:
            self._transport.write_eof()

    def stop(self) -> None:
        """The service stops: whoever has asked is answered, whoever is about to ask as well."""
        if self.stage == "idle" or (self.stage == "head" and not self._reader.begun and not self._unread):
            self._enter("leaving")

    def expire(self) -> None:
        """The time for this stage is over."""
        if self.stage in ("head", "body") and (self._reader.begun or self._unread):
            self.refuse(Problem(408, REASONS[self.stage]), self._reader.incoming)
        elif self.stage != "writing" and self._outgoing.all_sent:
            self._transport.close()
        else:
            self._cut_off_unless_taken()

    def _cut_off_unless_taken(self) -> None:
        """An answer that its client takes bit by bit has more time, whatever follows it."""
        now = self.door.now()
        end = self._outgoing.waits_since(now) + STAGES["writing"]
        if self.stage == "idle" or end <= now:
            self.door.log.write("closed", reason=REASONS["writing"], client=self.client[0])
            self._transport.abort()
        else:
            self.deadline = end if self.stage == "writing" else now + STAGES["lingering"]

    def refuse_body(self) -> None:
        """Make room for the bodies of others."""
        self.refuse(too_many_bodies(), self._reader.incoming)

    def evict(self) -> None:
        """Make room for another connection."""
        self.door.log.write("closed", reason="its place was needed", stage=self.stage, client=self.client[0])
        self._transport.abort()

    def abort(self) -> None:
        if not self._transport.is_closing():
            self.door.cut_off += len(self._complete) + (self.stage in ("answering", "writing"))
        self._transport.abort()
