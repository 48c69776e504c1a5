"""The engines as the door sees them: lines to processes that compute, and the one line of requests before them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from contextlib import suppress
from math import ceil
from pathlib import Path
from typing import Any, Protocol

import msgspec

from carp.errors import CarpError, UsageError
from carp.scale.served_copies import ServedCopies
from carp.serve.engine_generation import EngineLine, Generation
from carp.serve.engine_messages import (
    ANSWERED_BY,
    ASKED_BY,
    EngineStarted,
    Loaded,
    LoadFailed,
    News,
    Refused,
    Reply,
    problem_again,
)
from carp.serve.engine_process import bundle_sum
from carp.serve.log_lines import LogLines
from carp.serve.loose_threads import in_loose_thread
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
        self._current = Generation()  # whose engines are given requests
        self._generations = [self._current]  # all whose processes may still be there
        self._free: list[EngineLine] = []  # engines of the current generation that are at nothing
        self._lines: dict[int, EngineLine] = {}  # to the engines of all generations
        self._lost_hits = self._lost_misses = 0
        self._deaths = 0
        self._places: tuple[Path, Path | None] | None = None  # of the model and of results
        self._news = msgspec.msgpack.Decoder[News](News)
        self._closing = False
        self._given_up = False  # nobody is answered any more
        self._swapping = asyncio.Lock()
        self._kept: set[asyncio.Task[Any]] = set()
        self._reloading: set[asyncio.Task[Loaded]] = set()

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
        """Why no request of the client who asks can be taken now, if none can."""
        if self._given_up:
            return self._no_more()
        if self.facts is None:
            return no_room(f"the model is still being loaded ({self.stage})", 2)
        if self._crowded and not self.line.has_more_than(ASKED_BY.get()):
            return self._too_many()
        return None

    @property
    def _crowded(self) -> bool:
        slow = len(self.line) >= MAY_ALWAYS_WAIT and self._expected_wait() > LONGEST_LINE
        return self.line.full or slow

    def _too_many(self) -> Problem:
        return no_room("too many requests are waiting", self.seconds_to_wait())

    def _no_more(self) -> Problem:
        return no_room("the service stops", 2)

    def seconds_to_wait(self) -> int:
        """How long the line will take, as far as can be told."""
        return max(1, min(60, ceil(self._expected_wait())))

    def _expected_wait(self) -> float:
        return len(self.line) * self._mean / max(1, self.alive)

    async def ask(self, kind: str, *asked: Any) -> bytes:
        """The answer of an engine as JSON; raises the problem where there is none."""
        if (refusal := self.refusal()) is not None:
            raise refusal
        crowding = self.line.first_to_go() if self._crowded else None  # by somebody who has more than this client
        loop = asyncio.get_running_loop()
        one = Waiting(kind, list(asked), loop.time(), loop.create_future(), ASKED_BY.get())
        self.line.add(one, in_place_of=crowding)
        if crowding is not None:
            crowding.refuse(self._too_many())
        self._give()
        try:
            return await one.answer
        except asyncio.CancelledError:
            self.abandoned += self.line.leave(one)
            raise
        finally:
            ANSWERED_BY.set(one.answered_by)

    def _give(self) -> None:
        now = asyncio.get_running_loop().time()
        while self._free and (taken := self.line.take(now)):
            self._free.pop().give(taken)

    def take_reply(self, line: EngineLine, taken: list[Waiting], reply: Reply) -> None:
        if line.generation.retired:
            line.close()
        elif line.generation is self._current:
            self._free.append(line)
            self._give()
        self.busy_seconds += reply.seconds
        self._mean += 0.05 * (reply.seconds / max(1, len(taken)) - self._mean)
        for one, answer, failure in zip(taken, reply.answers, reply.failures, strict=True):
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
                line.kill()
        for one in self.line.older_than(now - PATIENCE):
            self._send_away(one, no_room("no engine came to answer this in time", self.seconds_to_wait()))

    def give_up(self, *, begun: bool) -> None:
        """Refuse all who wait and whoever comes: the service ends. Those that engines have begun with only if `begun`.

        Who waits for the model to be loaded again is refused with these.
        """
        self._given_up = True
        for one in list(self.line):
            self._send_away(one, self._no_more())
        if begun:
            for one in [one for line in self._lines.values() for one in line.taken]:
                one.refuse(self._no_more())
            for reloading in self._reloading:
                reloading.cancel()

    def _send_away(self, one: Waiting, problem: Problem) -> None:
        self.line.leave(one)
        one.refuse(problem)

    # ---- engines

    async def start(self, model: Path, results: Path | None) -> None:
        """Start the loader, which says what it does and hands over an engine after the other."""
        self._places = model, results
        self._current.model = model
        self._load(self._current)

    def _load(self, generation: Generation) -> None:
        assert self._places is not None
        control = generation.load(self._places[1], self.engines)
        asyncio.get_running_loop().add_reader(control.fileno(), self._hear, generation)

    def _hear(self, generation: Generation) -> None:
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

    def take_news(self, news: News, sockets: list[int], generation: Generation | None = None) -> None:
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

    async def _join(self, generation: Generation, process: int, connection: socket.socket) -> None:
        connection.setblocking(False)
        line = EngineLine(self, generation, process)
        await asyncio.get_running_loop().create_connection(lambda: line, sock=connection)
        self._lines[process] = generation.lines[process] = line
        self.log.write("engine started", process=process)
        if generation is self._current:
            self._free.append(line)
            self._give()
        elif len(generation.lines) >= self.engines and not generation.retired:
            self._take_over(generation)
        self.changed()

    def ask_no_more(self, line: EngineLine) -> None:
        """Its engine is about to end, or has ended."""
        if line in self._free:
            self._free.remove(line)

    def lose(self, line: EngineLine, *, begun: bool = True) -> None:
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
            one.deaths += begun
            if one.deaths >= TRIES:
                one.refuse(Problem(500, "the service failed to answer"))
            elif not one.answer.done():
                again.append(one)
        self.line.put_back(again)
        self._give()

    def _loader_gone(self, generation: Generation) -> None:
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
        reloading = self._keep(self._swap())
        self._reloading.add(reloading)
        reloading.add_done_callback(self._reloading.discard)
        try:
            return await asyncio.shield(reloading)  # who asked may leave meanwhile
        except asyncio.CancelledError:
            if self._given_up and reloading.cancelled():
                raise self._no_more() from None
            raise

    async def _swap(self, *, anyway: bool = False) -> Loaded:
        async with self._swapping:
            if self.facts is None or self._places is None:
                raise no_room("the model is still being loaded", 2)
            model = self._current.model if anyway else await self._model_now(self._places[0], self.facts)
            if model is None:
                return self.facts
            if self._closing:
                raise self._no_more()
            coming = Generation(model)
            coming.complete = asyncio.get_running_loop().create_future()
            self._generations.append(coming)
            self._load(coming)
            await coming.complete
            return self.facts

    async def _model_now(self, model: Path, facts: Loaded) -> Path | None:
        """Where the model of now is to be loaded from; None where it is the one that is served."""
        if self.copies is not None:
            # No end of the service waits for an answer from elsewhere.
            return await in_loose_thread(self.copies.fetch, facts.bundle)
        with suppress(OSError):  # the loader will say what is wrong
            if bundle_sum(model) == facts.bundle:
                return None
        return model

    def _of_the_address(self, said: str | None, generation: Generation) -> str | None:
        """What a loader says of its copy, said of the address that the copy is from."""
        return said if said is None or self.copies is None else said.replace(str(generation.model), self.copies.address)

    async def _replace_loader(self) -> None:
        try:
            with suppress(Problem):  # the service stops
                await self._swap(anyway=True)
        except CarpError as error:  # nobody would look after the engines that are left
            self._fail(error)

    def _take_over(self, generation: Generation) -> None:
        before, self._current = self._current, generation
        self._free = list(generation.lines.values())
        self.swaps += 1
        assert generation.facts is not None
        self.log.write("swapped", bundle=generation.facts.bundle)
        self._retire(before)
        self._give()
        if generation.complete is not None and not generation.complete.done():
            generation.complete.set_result(None)

    def _retire(self, generation: Generation) -> None:
        """Let the engines answer what they are at, and then end."""
        generation.retired = True
        generation.hang_up()
        for line in list(generation.lines.values()):
            if not line.taken:
                line.close()
        self._keep(self._see_off(generation))

    async def _see_off(self, generation: Generation) -> None:
        """Wait until nobody of a generation is left: until then its engines have files of their copy mapped."""
        if generation.loader is not None:
            await asyncio.to_thread(generation.wait, LONGEST_CALL + SETTLING)
        self._generations.remove(generation)
        if self.copies is not None and generation.model is not None and generation.model != self._current.model:
            await asyncio.to_thread(self.copies.let_go, generation.model)

    def _cannot(self, generation: Generation, error: CarpError) -> None:
        """A model cannot be served: at the start that is the end, later the one before goes on."""
        if generation.complete is None:
            self._fail(error)
        elif not generation.complete.done():
            self.log.write("swap failed", error=error.what)
            self._retire(generation)
            generation.complete.set_exception(error)

    async def close(self) -> None:
        """End the engines and wait for them. Nobody is to be answered any more."""
        self._closing = True
        for line in list(self._lines.values()):
            line.close()
        for generation in self._generations:
            generation.hang_up()
            generation.end_useless()
        started = [one for one in self._generations if one.loader is not None]
        await asyncio.gather(*(asyncio.to_thread(one.wait, SETTLING) for one in started))

    def kill(self) -> None:
        """End all processes now, whatever they are at."""
        self._closing = True
        for generation in self._generations:
            generation.kill()
