"""The door: takes connections, up to a number; lets them read and begin in turn; closes without losing any."""

from __future__ import annotations

import asyncio
import ctypes
import os
import socket
import struct
import sys
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from email.utils import formatdate
from operator import itemgetter
from typing import Any

from carp.serve import request_reading
from carp.serve.connection_places import Places
from carp.serve.http_connection import HttpConnection
from carp.serve.log_lines import LogLines
from carp.serve.problems import Problem
from carp.serve.request_counts import OTHER
from carp.serve.request_ids import request_id
from carp.serve.request_reading import Asked

MOST_CONNECTIONS = 1_000
READ_AT_ONCE = 16_384  # bytes
STEPS_OF_A_ROUND = 500  # of reading, in each round of the event loop: about a millisecond
ACCEPTED_AT_ONCE = 32  # connections, before others have their turn
BEGUN_AT_ONCE = 8  # requests
BEGUN_IN_A_CROWD = 2  # requests, while more connections wait than are taken at once: the last of them may be a probe
URGENT = (b"/health", b"/healthz", b"/ready")  # who asks this waits behind nobody
LOOK = 0.25  # seconds between looks at whose time is over
TIME_TO_SPEAK = 1.0  # seconds in which who has just come makes room for nobody
REST = 0.05  # seconds in which nobody is taken, where the system has no descriptor left
TELL_AGAIN = 60.0  # seconds until the log says so once more
SENT_AWAY_AT_ONCE = 64  # connections whose time is over
LAST_CALL = 25.0  # seconds after which a stop closes what is still open
DROP_NEW = b"".join(  # a filter for a listening socket: drop what opens a connection, let through what belongs to one
    struct.pack("=HBBI", *code)
    for code in ((0x30, 0, 0, 13), (0x54, 0, 0, 0x12), (0x15, 0, 1, 0x02), (0x06, 0, 0, 0), (0x06, 0, 0, 0xFFFFFFFF))
)
SO_ATTACH_FILTER = 26


class FrontDoor:
    """All connections of a service, on one event loop."""

    def __init__(self, app: Any, log: LogLines, *, most: int = MOST_CONNECTIONS, share: int | None = None) -> None:
        self.app = app
        self.log = log
        self.loop = asyncio.get_running_loop()
        self.now = self.loop.time
        self.stopping = False
        self.connections = Places(most, share)
        self.evicted = 0
        self.cut_off = 0  # requests that a stop left without an answer
        self.held = 0  # bytes of bodies that have not been answered yet
        self.buffer = memoryview(bytearray(READ_AT_ONCE))
        self.common_headers: Callable[[], bytes] = lambda: b""
        self.count_refusal: Callable[[int, float], None] = lambda status, seconds: None
        self._waiting: deque[HttpConnection] = deque()  # whose request is complete
        self._reading: OrderedDict[HttpConnection, None] = OrderedDict()  # who has bytes that nobody has read yet
        self._steps = 0  # of reading, in this round
        self._next_round: asyncio.Handle | None = None
        self._listening: list[socket.socket] = []
        self._joining: set[asyncio.Task[Any]] = set()
        self._sweeper = self.loop.create_task(self._sweep())
        self._pumping = False
        self._crowded = False
        self._date = (0, b"")
        self._tell_of_rest = 0.0  # when the log may say again that there is no room

    # ---- connections

    def listen(self, listening: socket.socket) -> None:
        self._listening.append(listening)
        self.loop.add_reader(listening.fileno(), self._accept, listening)

    def _accept(self, listening: socket.socket, most: int = ACCEPTED_AT_ONCE) -> int:
        """Take connections that wait; how many there were."""
        for taken in range(most):
            try:
                connection, _ = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return taken
            except OSError as error:  # no descriptor is left: somebody has to go first
                self._make_room_or_rest(listening, error)
                return taken
            connection.setblocking(False)
            task = self.loop.create_task(self.loop.connect_accepted_socket(lambda: HttpConnection(self), connection))
            self._joining.add(task)
            task.add_done_callback(self._joined)
        self._crowded = True
        return most

    def _make_room_or_rest(self, listening: socket.socket, error: OSError) -> None:
        """Where nobody can go, take nobody for a moment: who waits is announced in each round of the event loop."""
        if self.now() >= self._tell_of_rest:
            self._tell_of_rest = self.now() + TELL_AGAIN
            self.log.write("cannot accept", error=os.strerror(error.errno or 0))
        if not self._make_room() and listening in self._listening:  # else it is about to close
            self.loop.remove_reader(listening.fileno())
            self.loop.call_later(REST, self._accept_again, listening)

    def _accept_again(self, listening: socket.socket) -> None:
        if listening in self._listening:
            self.loop.add_reader(listening.fileno(), self._accept, listening)

    def _joined(self, task: asyncio.Task[Any]) -> None:
        self._joining.discard(task)
        if not task.cancelled():
            task.exception()  # the client has gone already

    def welcome(self, connection: HttpConnection) -> None:
        """Give a place to a connection; where there is none, it may ask what probes ask."""
        places = self.connections
        self._evict(places.seat(connection) if places.has_room(connection) else places.take_in(connection))

    def admits(self, connection: HttpConnection, address: bytes) -> bool:
        """Whether this may be asked: by who has a place everything, by others what probes ask, or if there is a place
        by now."""
        if not self.is_guest(connection) or is_urgent(address):
            return True
        if not self.connections.has_room(connection):
            return False
        self._evict(self.connections.seat(connection))
        return True

    def is_guest(self, connection: HttpConnection) -> bool:
        return connection in self.connections.guests

    def _evict(self, connection: HttpConnection | None) -> None:
        if connection is not None:
            self.evicted += 1
            connection.evict()

    def _make_room(self) -> bool:
        if (longest := self.connections.longest_quiet()) is None:
            return False
        self.connections.leave(longest)
        self._evict(longest)
        return True

    def make_room_for_body(self, client: str) -> bool:
        """Where bodies take more than they may together: whether a client that has more than half of that makes room
        for those of this one, by the bodies that have not arrived yet."""
        held = Counter[str]()
        for one in self.connections:
            held[one.client_key] += one.held
        greedy, most = max(held.items(), key=itemgetter(1), default=(client, 0))
        if greedy == client or most <= request_reading.MOST_HELD // 2:
            return False
        for one in list(self.connections):
            if self.held > request_reading.MOST_HELD and one.client_key == greedy and one.stage == "body" and one.held:
                one.refuse_body()
        return self.held <= request_reading.MOST_HELD

    def farewell(self, connection: HttpConnection) -> None:
        self.connections.leave(connection)
        self._reading.pop(connection, None)

    def note_stage(self, connection: HttpConnection) -> None:
        self.connections.note_stage(connection)

    def note_refusal(self, connection: HttpConnection, problem: Problem, asked: Asked | None) -> str:
        """Count and log a request that no app has seen; its id."""
        given = request_id(asked.headers if asked else ())
        seconds = self.now() - asked.began if asked else 0.0
        self.count_refusal(problem.status, seconds)
        self.log.write(
            "request",
            id=given,
            method=(asked.method if asked else "") or OTHER,
            route=OTHER,
            status=problem.status,
            ms=round(1000 * seconds, 2),
            detail=problem.detail,
            client=connection.client[0],
        )
        return given

    def date_header(self) -> bytes:
        second = int(time.time())
        if second != self._date[0]:
            self._date = second, f"date: {formatdate(second, usegmt=True)}\r\n".encode()
        return self._date[1]

    # ---- turns

    @property
    def may_read(self) -> bool:
        """Whether more is read in this round of the event loop."""
        return self._steps < STEPS_OF_A_ROUND

    def spend(self, steps: int) -> None:
        """Count what somebody has read."""
        self._steps += steps
        self._begin_round_soon()

    def read_later(self, connection: HttpConnection) -> None:
        """Let a connection read on when its turn comes."""
        self._reading[connection] = None
        self._begin_round_soon()

    def _begin_round_soon(self) -> None:
        if self._next_round is None:
            self._next_round = self.loop.call_soon(self._begin_round)

    def _begin_round(self) -> None:
        self._next_round = None
        self._steps = 0
        for _ in range(len(self._reading)):
            if not self.may_read:
                break
            self._reading.popitem(last=False)[0].read_on()  # who is not done stands at the end of the line

    def begin(self, connection: HttpConnection, address: bytes) -> None:
        """Let a request begin: at once where it is urgent, else a few in each round of the event loop."""
        if is_urgent(address):
            connection.start()
            return
        self._waiting.append(connection)
        if not self._pumping:
            self._pumping = True
            self.loop.call_soon(self._pump)

    def _pump(self) -> None:
        turns = BEGUN_IN_A_CROWD if self._crowded else BEGUN_AT_ONCE
        self._crowded = False
        while self._waiting and turns > 0:
            turns -= self._waiting.popleft().start()  # who has gone meanwhile takes nobody's turn
        self._pumping = bool(self._waiting)
        if self._pumping:
            self.loop.call_soon(self._pump)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(LOOK)
            now = self.now()
            for connection in self.connections:
                if connection.came < now - TIME_TO_SPEAK:
                    connection.note_heard()
            late = [connection for connection in list(self.connections) if connection.deadline < now]
            for number, connection in enumerate(late, 1):
                if connection.deadline < now:  # still: others had their turn in between
                    connection.expire()
                if number % SENT_AWAY_AT_ONCE == 0:
                    await asyncio.sleep(0)

    # ---- the end

    async def close(self, patience: float = LAST_CALL) -> int:
        """Take nobody new, answer everybody who is here, and close; how many requests were cut off."""
        self.stopping = True
        while self._listening:
            await self._close_listening(self._listening.pop())
        for connection in list(self.connections):
            connection.stop()
        end = self.now() + patience
        while (self.connections or self._joining) and self.now() < end:
            await asyncio.sleep(0.02)
        for connection in list(self.connections):
            connection.abort()
        self._sweeper.cancel()
        return self.cut_off

    async def _close_listening(self, listening: socket.socket) -> None:
        """Whoever has connected is taken before the socket closes, as closing would cut them off."""
        refuse_new(listening)
        self.loop.remove_reader(listening.fileno())
        for _ in range(3):  # a handshake that was under way ends in between
            while self._accept(listening):
                await asyncio.sleep(0)
            await asyncio.sleep(0.01)
        listening.close()


def is_urgent(address: bytes) -> bool:
    return address.partition(b"?")[0] in URGENT


def refuse_new(listening: socket.socket) -> bool:
    """Let a listening socket take no new connection and keep those that wait; False where the system cannot."""
    if sys.platform != "linux":
        return False
    codes = ctypes.create_string_buffer(DROP_NEW)
    program = struct.pack("HL", len(DROP_NEW) // 8, ctypes.addressof(codes))
    try:
        listening.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)
    except OSError:
        return False
    return True
