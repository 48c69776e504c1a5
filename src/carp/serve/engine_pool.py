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
from carp.scale.served_copies import ServedCopies
from carp.serve.engine_messages import (
    ANSWERED_BY,
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
from carp.serve.engine_process import bundle_sum
from carp.serve.log_lines import LogLines
from carp.serve.problems import Problem, no_room
from carp.serve.waiting_line import Waiting, WaitingLine

PATIENCE = 15.0  # seconds that a request may wait for an engine
WAITING_FOR_EACH = 128  # requests in the line for each engine
MAY_ALWAYS_WAIT = 64  # requests, however long they take
LONGEST_LINE = 3.0  # seconds that the line may take where more are waiting, as far as can be told
LONGEST_CALL = 60.0  # seconds: an engine that is at one call so long is ended and replaced
MOST_DEATHS = 3  # of loaders, in the life of a service
SETTLING = 10.0  # seconds for engines to end when the service does
TRIES = 2  # a request whose engine died is given to another one once; the second death may well be its fault
FDS = 16
# Engines compute on the processor. Where torch sees a card, taking a gradient starts threads for it, and no process
# that is forked afterwards can take one.
NO_CARDS = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "", "ROCR_VISIBLE_DEVICES": ""}


class Engine(Protocol):
    """Whoever answers calls: the pool, or a service in this very process."""

    facts: Loaded | None

    @property
    def alive(self) -> int: ...

    @property
    def ready(self) -> bool: ...

    def refusal(self) -> Problem | None: ...

    async def ask(self, kind: str, *asked: Any) -> bytes: ...

    async def reload(self) -> Loaded: ...


class _Generation:
    """The engines of one model as it was loaded, and the loader they come from."""

    def __init__(self) -> None:
        self.facts: Loaded | None = None
        self.lines: dict[int, _Line] = {}
        self.control: socket.socket | None = None
        self.loader: subprocess.Popen[bytes] | None = None
        self.frames = FrameReader()
        self.fds: list[int] = []
        self.retired = False  # its engines end when they have answered
        self.complete: asyncio.Future[None] | None = None  # of a generation that is to replace another
        self.model: Path | None = None  # where it is loaded from

    def hang_up(self) -> None:
        """Let the loader replace no engine any more and end with the last one."""
        if self.control is not None:
            asyncio.get_running_loop().remove_reader(self.control.fileno())
            self.control.close()
            self.control = None


class _Line(asyncio.Protocol):
    """The line to one engine, with what it is at."""

    def __init__(self, pool: EnginePool, generation: _Generation, process: int) -> None:
        self.pool = pool
        self.generation = generation
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

    def eof_received(self) -> None:
        self.pool.ask_no_more(self)

    def connection_lost(self, error: Exception | None) -> None:
        # A line that ends in an error held a request that its engine had not read, as Linux tells.
        self.pool.lose(self, begun=error is None)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


class EnginePool:
    """Gives requests to engines, at most so many waiting; who leaves the line is not computed for."""

    def __init__(self, engines: int, log: LogLines, most_waiting: int | None = None) -> None:
        self.stage = "starting"
        self.stopping = False
        self.failure: CarpError | None = None
        self.engines = engines
        self.line = WaitingLine(most_waiting or WAITING_FOR_EACH * engines)
        self.log = log
        self.abandoned = 0  # requests that left the line before they were computed
        self.restarts = 0
        self.swaps = 0
        self.busy_seconds = 0.0
        self.copies: ServedCopies | None = None  # where the model is at an address
        self.changed: Callable[[], None] = lambda: None  # called when the model is there, or cannot be
        self._mean = 0.005  # seconds of computing a request, lately
        self._current = _Generation()  # whose engines are given requests
        self._coming: _Generation | None = None
        self._free: list[_Line] = []  # engines of the current generation that are at nothing
        self._lines: dict[int, _Line] = {}  # to the engines of all generations
        self._lost_hits = self._lost_misses = 0
        self._tries: dict[Waiting, int] = {}
        self._deaths = 0
        self._places: tuple[Path, Path | None] | None = None  # of the model and of results
        self._news = msgspec.msgpack.Decoder[News](News)
        self._closing = False
        self._swapping = asyncio.Lock()
        self._kept: set[asyncio.Task[Any]] = set()

    @property
    def facts(self) -> Loaded | None:
        return self._current.facts

    @facts.setter
    def facts(self, facts: Loaded | None) -> None:
        self._current.facts = facts

    # ---- asking

    @property
    def ready(self) -> bool:
        return self.facts is not None and bool(self._current.lines) and not self.stopping

    @property
    def working(self) -> int:
        return sum(bool(line.taken) for line in self._lines.values())

    @property
    def alive(self) -> int:
        return len(self._current.lines)

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
        return len(self.line) * self._mean / max(1, self.alive)

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
        finally:
            ANSWERED_BY.set(one.answered_by)

    def _give(self) -> None:
        while self._free and (taken := self.line.take()):
            self._free.pop().give(taken)

    def take_reply(self, line: _Line, taken: list[Waiting], reply: Reply) -> None:
        if line.generation.retired:
            line.close()
        elif line.generation is self._current:
            self._free.append(line)
            self._give()
        self.busy_seconds += reply.seconds
        self._mean += 0.05 * (reply.seconds / max(1, len(taken)) - self._mean)
        for one, answer, failure in zip(taken, reply.answers, reply.failures, strict=True):
            self._tries.pop(one, None)
            one.answered_by = line.generation.facts
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
        self._places = model, results
        self._current.model = model
        self._load(self._current)

    def _load(self, generation: _Generation) -> None:
        assert self._places is not None
        model, results = generation.model, self._places[1]
        generation.control, theirs = socket.socketpair()
        words = [str(theirs.fileno()), str(model), str(results or ""), str(self.engines)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", **NO_CARDS}
        generation.loader = subprocess.Popen(
            [sys.executable, "-m", "carp.serve.engine_process", *words],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            env=environment,
        )
        theirs.close()
        generation.control.setblocking(False)
        asyncio.get_running_loop().add_reader(generation.control.fileno(), self._hear, generation)

    def _hear(self, generation: _Generation) -> None:
        assert generation.control is not None
        try:
            data, fds, _, _ = socket.recv_fds(generation.control, 65536, FDS)
        except BlockingIOError:
            return
        except OSError:
            data, fds = b"", []
        if not data:
            self._loader_gone(generation)
            return
        generation.fds += fds
        for one in generation.frames.feed(data):
            self.take_news(self._news.decode(one), generation.fds, generation)

    def take_news(self, news: News, sockets: list[int], generation: _Generation | None = None) -> None:
        """Hear what a loader says; the line to a new engine is the first of the sockets that came with it."""
        generation = generation or self._current
        if isinstance(news, EngineStarted):
            self._keep(self._join(generation, news.process, socket.socket(fileno=sockets.pop(0))))
        elif isinstance(news, Loaded):
            generation.facts = news
        elif isinstance(news, LoadFailed):
            kind = UsageError if news.exit_code == UsageError.exit_code else CarpError
            what, where, fix = (self._of_the_address(said, generation) for said in (news.what, news.where, news.fix))
            self._cannot(generation, kind(what or "", where=where, fix=fix))
        else:
            self.stage = news.stage
            self.log.write("loading", stage=news.stage)

    def _keep(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)
        self._kept.add(task)
        task.add_done_callback(self._kept.discard)
        return task

    async def _join(self, generation: _Generation, process: int, connection: socket.socket) -> None:
        connection.setblocking(False)
        line = _Line(self, generation, process)
        await asyncio.get_running_loop().create_connection(lambda: line, sock=connection)
        self._lines[process] = generation.lines[process] = line
        self.log.write("engine started", process=process)
        if generation is self._current:
            self._free.append(line)
            self._give()
        elif len(generation.lines) >= self.engines and not generation.retired:
            self._take_over(generation)
        self.changed()

    def ask_no_more(self, line: _Line) -> None:
        """Its engine is about to end, or has ended."""
        if line in self._free:
            self._free.remove(line)

    def lose(self, line: _Line, *, begun: bool = True) -> None:
        """An engine ended: what it was at goes to another one.

        Where it had not `begun`, it died of something else and the request is not to blame. A killed engine may keep
        its line open for a moment, and be given a request that it never reads.
        """
        self._lines.pop(line.process, None)
        line.generation.lines.pop(line.process, None)
        self.ask_no_more(line)
        self._lost_hits, self._lost_misses = self._lost_hits + line.hits, self._lost_misses + line.misses
        if self._closing or (line.generation.retired and not line.taken):
            return
        self.restarts += 1
        self.log.write("engine ended", process=line.process, replaced=True)
        again = []
        for one in line.taken:
            self._tries[one] = self._tries.get(one, 1) + begun
            if one.answer.done():
                self._tries.pop(one)
            elif self._tries[one] > TRIES:
                self._tries.pop(one)
                one.answer.set_exception(Problem(500, "the service failed to answer"))
            else:
                again.append(one)
        self.line.put_back(again)
        self._give()

    def _loader_gone(self, generation: _Generation) -> None:
        generation.hang_up()
        if generation.loader is not None:
            self._keep(asyncio.to_thread(generation.loader.wait))
        if self._closing or self.failure is not None:
            return
        ended = CarpError("the process that loads the model ended", fix="see the messages above")
        if generation is not self._current:
            self._cannot(generation, ended)
        elif self.facts is not None and self._deaths < MOST_DEATHS:
            self._deaths += 1
            self.log.write("loader ended", replaced=True)  # its engines go on until there are others
            self._keep(self._replace_loader())
        else:
            self._fail(ended)

    def _fail(self, error: CarpError) -> None:
        self.failure = error
        self.changed()

    # ---- another model in its place

    async def reload(self) -> Loaded:
        """Load the model again from its place, and answer by it once all of its engines are there.

        Until then the engines of before answer; each answer is of one model. What cannot be loaded changes nothing.
        """
        return await asyncio.shield(self._keep(self._swap()))  # who asked may leave meanwhile

    async def _swap(self, *, anyway: bool = False) -> Loaded:
        async with self._swapping:
            if self.facts is None or self._places is None:
                raise no_room("the model is still being loaded", 2)
            model = self._current.model if anyway else await self._model_now(self._places[0], self.facts)
            if model is None:
                return self.facts
            coming = self._coming = _Generation()
            coming.model = model
            coming.complete = asyncio.get_running_loop().create_future()
            try:
                self._load(coming)
                await coming.complete
            finally:
                self._coming = None
            return self.facts

    async def _model_now(self, model: Path, facts: Loaded) -> Path | None:
        """Where the model of now is to be loaded from; None where it is the one that is served."""
        if self.copies is not None:
            return await asyncio.to_thread(self.copies.fetch, facts.bundle)
        with suppress(OSError):  # the loader will say what is wrong
            if bundle_sum(model) == facts.bundle:
                return None
        return model

    def _of_the_address(self, said: str | None, generation: _Generation) -> str | None:
        """What a loader says of its copy, said of the address that the copy is from."""
        return said if said is None or self.copies is None else said.replace(str(generation.model), self.copies.address)

    async def _replace_loader(self) -> None:
        try:
            await self._swap(anyway=True)
        except CarpError as error:  # nobody would look after the engines that are left
            self._fail(error)

    def _take_over(self, generation: _Generation) -> None:
        before, self._current = self._current, generation
        self._free = list(generation.lines.values())
        self.swaps += 1
        assert generation.facts is not None
        self.log.write("swapped", bundle=generation.facts.bundle)
        self._retire(before)
        self._give()
        if generation.complete is not None and not generation.complete.done():
            generation.complete.set_result(None)

    def _retire(self, generation: _Generation) -> None:
        """Let the engines answer what they are at, and then end."""
        generation.retired = True
        generation.hang_up()
        for line in list(generation.lines.values()):
            if not line.taken:
                line.close()
        self._keep(self._see_off(generation, list(generation.lines)))

    async def _see_off(self, generation: _Generation, engines: list[int]) -> None:
        """Wait until nobody of a generation is left: until then its engines have files of their copy mapped."""
        if generation.loader is not None:
            await asyncio.to_thread(self._wait_for, generation.loader, engines, LONGEST_CALL + SETTLING)
        if self.copies is not None and generation.model is not None and generation.model != self._current.model:
            await asyncio.to_thread(self.copies.let_go, generation.model)

    def _cannot(self, generation: _Generation, error: CarpError) -> None:
        """A model cannot be served: at the start that is the end, later the one before goes on."""
        if generation.complete is None:
            self._fail(error)
        elif not generation.complete.done():
            self.log.write("swap failed", error=error.what)
            self._retire(generation)
            generation.complete.set_exception(error)

    async def close(self) -> None:
        """End the engines and wait for them."""
        self._closing = True
        ours = [one for one in (self._current, self._coming) if one is not None]
        for line in list(self._lines.values()):
            line.close()
        for generation in ours:
            engines = list(generation.lines)
            generation.hang_up()
            if generation.loader is not None:
                await asyncio.to_thread(self._wait_for, generation.loader, engines)

    def _wait_for(self, loader: subprocess.Popen[bytes], engines: list[int], patience: float = SETTLING) -> None:
        try:
            loader.wait(patience)
        except subprocess.TimeoutExpired:
            for process in (*engines, loader.pid):
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            loader.wait()
