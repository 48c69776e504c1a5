"""The engines as the door sees them: lines to processes that compute, and the one line of requests before them."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from math import ceil
from pathlib import Path
from typing import Any, Protocol, cast

import msgspec

from carp.errors import CarpError, UsageError
from carp.serve.engine_messages import (
    Call,
    EngineStarted,
    FrameReader,
    Loaded,
    LoadFailed,
    News,
    Refused,
    Reply,
    frame,
    problem_again,
)
from carp.serve.log_lines import LogLines
from carp.serve.problems import Problem, no_room
from carp.serve.waiting_line import Waiting, WaitingLine

PATIENCE = 15.0  # seconds that a request may wait for an engine
WAITING_FOR_EACH = 128  # requests in the line for each engine
MAY_ALWAYS_WAIT = 64  # requests, however long they take
LONGEST_LINE = 3.0  # seconds that the line may take where more are waiting, as far as can be told
LONGEST_CALL = 60.0  # seconds: an engine that is at one call so long is ended and replaced
MOST_LOADERS = 4  # that are started in the life of a service
SETTLING = 10.0  # seconds for engines to end when the service does
TRIES = 2  # a request whose engine died is given to another one once; the second death may well be its fault
FDS = 16


class Engine(Protocol):
    """Whoever answers calls: the pool, or a service in this very process."""

    facts: Loaded | None

    @property
    def alive(self) -> int: ...

    @property
    def ready(self) -> bool: ...

    def refusal(self) -> Problem | None: ...

    async def ask(self, kind: str, *asked: Any) -> bytes: ...


class _Line(asyncio.Protocol):
    """The line to one engine, with what it is at."""

    def __init__(self, pool: EnginePool, process: int) -> None:
        self.pool = pool
        self.process = process
        self.taken: list[Waiting] = []
        self.since = 0.0  # when it was given what it is at
        self.hits = self.misses = 0
        self._frames = FrameReader()
        self._decoder = msgspec.msgpack.Decoder(Reply)
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one without saying so

    def give(self, taken: list[Waiting]) -> None:
        assert self._transport is not None
        self.taken = taken
        self.since = asyncio.get_running_loop().time()
        self._transport.write(frame(Call(taken[0].kind, [one.asked for one in taken])))

    def data_received(self, data: bytes) -> None:
        for one in self._frames.feed(data):
            reply = self._decoder.decode(one)
            self.hits, self.misses = reply.hits, reply.misses
            taken, self.taken = self.taken, []
            self.pool.take_reply(self, taken, reply)

    def connection_lost(self, error: Exception | None) -> None:
        self.pool.lose(self)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


class EnginePool:
    """Gives requests to engines, at most so many waiting; who leaves the line is not computed for."""

    def __init__(self, engines: int, log: LogLines, most_waiting: int | None = None) -> None:
        self.facts: Loaded | None = None
        self.stage = "starting"
        self.stopping = False
        self.failure: CarpError | None = None
        self.engines = engines
        self.line = WaitingLine(most_waiting or WAITING_FOR_EACH * engines)
        self.log = log
        self.abandoned = 0  # requests that left the line before they were computed
        self.restarts = 0
        self.busy_seconds = 0.0
        self.changed: Callable[[], None] = lambda: None  # called when the model is there, or cannot be
        self._mean = 0.005  # seconds of computing a request, lately
        self._lines: dict[int, _Line] = {}
        self._free: list[_Line] = []
        self._lost_hits = self._lost_misses = 0
        self._tries: dict[Waiting, int] = {}
        self._control: socket.socket | None = None
        self._loader: subprocess.Popen[bytes] | None = None
        self._loaders = 0
        self._again: Callable[[], Coroutine[Any, Any, None]] | None = None
        self._frames = FrameReader()
        self._news = msgspec.msgpack.Decoder[News](News)
        self._fds: list[int] = []
        self._closing = False
        self._kept: set[asyncio.Task[None]] = set()

    # ---- asking

    @property
    def ready(self) -> bool:
        return self.facts is not None and bool(self._lines) and not self.stopping

    @property
    def working(self) -> int:
        return sum(bool(line.taken) for line in self._lines.values())

    @property
    def alive(self) -> int:
        return len(self._lines)

    @property
    def hits(self) -> int:
        return self._lost_hits + sum(line.hits for line in self._lines.values())

    @property
    def misses(self) -> int:
        return self._lost_misses + sum(line.misses for line in self._lines.values())

    def refusal(self) -> Problem | None:
        """Why no request can be taken now, if none can."""
        if self.facts is None:
            return no_room(f"the model is still being loaded ({self.stage})", 2)
        slow = len(self.line) >= MAY_ALWAYS_WAIT and self._expected_wait() > LONGEST_LINE
        if self.line.full or slow:
            return no_room("too many requests are waiting", self.seconds_to_wait())
        return None

    def seconds_to_wait(self) -> int:
        """How long the line will take, as far as can be told."""
        return max(1, min(60, ceil(self._expected_wait())))

    def _expected_wait(self) -> float:
        return len(self.line) * self._mean / max(1, len(self._lines))

    async def ask(self, kind: str, *asked: Any) -> bytes:
        """The answer of an engine as JSON; raises the problem where there is none."""
        if (refusal := self.refusal()) is not None:
            raise refusal
        loop = asyncio.get_running_loop()
        one = Waiting(kind, list(asked), loop.time(), loop.create_future())
        self.line.add(one)
        self._give()
        try:
            return await one.answer
        except asyncio.CancelledError:
            self.abandoned += self.line.leave(one)
            raise

    def _give(self) -> None:
        while self._free and (taken := self.line.take()):
            self._free.pop().give(taken)

    def take_reply(self, line: _Line, taken: list[Waiting], reply: Reply) -> None:
        self._free.append(line)
        self._give()
        self.busy_seconds += reply.seconds
        self._mean += 0.05 * (reply.seconds / max(1, len(taken)) - self._mean)
        for one, answer, failure in zip(taken, reply.answers, reply.failures, strict=True):
            self._tries.pop(one, None)
            if one.answer.done():
                continue
            if isinstance(answer, Refused):
                problem = problem_again(answer)
                problem.inside = failure
                one.answer.set_exception(problem)
            else:
                one.answer.set_result(answer)

    def let_go(self, now: float) -> None:
        """Refuse those who have waited too long already, and end engines that are at one call for ever."""
        for line in self._lines.values():
            if line.taken and now - line.since > LONGEST_CALL:
                self.log.write("engine hangs", process=line.process, kind=line.taken[0].kind)
                with suppress(ProcessLookupError):
                    os.kill(line.process, signal.SIGKILL)
        for one in self.line.older_than(now - PATIENCE):
            self.line.leave(one)
            if not one.answer.done():
                one.answer.set_exception(no_room("no engine came to answer this in time", self.seconds_to_wait()))

    # ---- engines

    async def start(self, model: Path, results: Path | None) -> None:
        """Start the loader, which says what it does and hands over an engine after the other."""
        self._again = lambda: self.start(model, results)
        self._loaders += 1
        self._frames, self._fds = FrameReader(), []
        self._control, theirs = socket.socketpair()
        words = [str(theirs.fileno()), str(model), str(results or ""), str(self.engines)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self._loader = subprocess.Popen(
            [sys.executable, "-m", "carp.serve.engine_process", *words],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            env=environment,
        )
        theirs.close()
        self._control.setblocking(False)
        asyncio.get_running_loop().add_reader(self._control.fileno(), self._hear)

    def _hear(self) -> None:
        assert self._control is not None
        try:
            data, fds, _, _ = socket.recv_fds(self._control, 65536, FDS)
        except BlockingIOError:
            return
        except OSError:
            data, fds = b"", []
        if not data:
            self._loader_gone()
            return
        self._fds += fds
        for one in self._frames.feed(data):
            self.take_news(self._news.decode(one), self._fds)

    def take_news(self, news: News, sockets: list[int]) -> None:
        """Hear what the loader says; the line to a new engine is the first of the sockets that came with it."""
        if isinstance(news, EngineStarted):
            self._keep(self._join(news.process, socket.socket(fileno=sockets.pop(0))))
        elif isinstance(news, Loaded):
            self.facts = news
        elif isinstance(news, LoadFailed):
            kind = UsageError if news.exit_code == UsageError.exit_code else CarpError
            self._fail(kind(news.what, where=news.where, fix=news.fix))
        else:
            self.stage = news.stage
            self.log.write("loading", stage=news.stage)

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._kept.add(task)
        task.add_done_callback(self._kept.discard)

    async def _join(self, process: int, connection: socket.socket) -> None:
        connection.setblocking(False)
        line = _Line(self, process)
        await asyncio.get_running_loop().create_connection(lambda: line, sock=connection)
        self._lines[process] = line
        self._free.append(line)
        self.log.write("engine started", process=process)
        for old in list(self._lines.values())[: -self.engines]:  # of a loader that died
            old.close()
        self._give()
        self.changed()

    def lose(self, line: _Line) -> None:
        """An engine ended: what it was at goes to another one."""
        self._lines.pop(line.process, None)
        if line in self._free:
            self._free.remove(line)
        self._lost_hits, self._lost_misses = self._lost_hits + line.hits, self._lost_misses + line.misses
        if self._closing:
            return
        self.restarts += 1
        self.log.write("engine ended", process=line.process, replaced=True)
        again = []
        for one in line.taken:
            self._tries[one] = self._tries.get(one, 1) + 1
            if one.answer.done():
                self._tries.pop(one)
            elif self._tries[one] > TRIES:
                self._tries.pop(one)
                one.answer.set_exception(Problem(500, "the service failed to answer"))
            else:
                again.append(one)
        self.line.put_back(again)
        self._give()

    def _loader_gone(self) -> None:
        assert self._control is not None
        asyncio.get_running_loop().remove_reader(self._control.fileno())
        self._control.close()
        self._control = None
        if self._closing or self.failure is not None:
            return
        if self.facts is not None and self._again is not None and self._loaders < MOST_LOADERS:
            self.log.write("loader ended", replaced=True)  # its engines go on until there are others
            self._keep(self._again())
        else:
            self._fail(CarpError("the process that loads the model ended", fix="see the messages above"))

    def _fail(self, error: CarpError) -> None:
        self.failure = error
        self.changed()

    async def close(self) -> None:
        """End the engines and wait for them."""
        self._closing = True
        for line in list(self._lines.values()):
            line.close()
        if self._control is not None:
            asyncio.get_running_loop().remove_reader(self._control.fileno())
            self._control.close()
        if self._loader is not None:
            await asyncio.to_thread(self._wait_for, self._loader, list(self._lines))

    def _wait_for(self, loader: subprocess.Popen[bytes], engines: list[int]) -> None:
        try:
            loader.wait(SETTLING)
        except subprocess.TimeoutExpired:
            for process in (*engines, loader.pid):
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            loader.wait()
