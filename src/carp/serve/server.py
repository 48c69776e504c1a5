"""The service as processes: a door that listens, engines behind it, and a clean end."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import resource
import signal
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import carp
from carp.errors import CarpError, UsageError
from carp.scale.served_copies import ServedCopies
from carp.serve.access_control import AccessRules, RateLimit
from carp.serve.connection_places import KEPT_FOR_PROBES
from carp.serve.engine_pool import EnginePool
from carp.serve.front_door import LAST_CALL, MOST_CONNECTIONS, FrontDoor
from carp.serve.log_lines import LogLines
from carp.serve.problems import Problem
from carp.serve.request_counts import OTHER, Measure
from carp.shown_addresses import shown_address

if TYPE_CHECKING:
    from fastapi import FastAPI

BACKLOG = 1024
DESCRIPTORS_BESIDE = 64
DESCRIPTORS_OF_A_LOADER = 8  # with one more for each engine that it starts
MOST_WATCHING = 32  # connections at the port for metrics, which asks for no key
LAST_ANSWERS = 3.0  # seconds before the last call of a stop: whoever is not answered by then is refused, not cut off
NEW_BEFORE_A_LOOK = 1_000  # objects; the command that starts the service lets hundreds of thousands gather
LOOK = 1.0  # seconds between looks at who waits too long
FOR_OTHERS = 200.0  # requests a second for one address that is not this machine's


@dataclass(frozen=True)
class ServiceOptions:
    """What a service is started with."""

    model: Path
    results: Path | None = None
    workers: int = 1
    rules: AccessRules = field(default_factory=AccessRules)
    rate: float | None = None  # requests a second and address; None: only for addresses that are not this machine's
    connections: int = MOST_CONNECTIONS
    share: int | None = None  # connections of one client where all are taken; None: half of them
    waiting: int | None = None
    pictures: tuple[str, ...] = ()  # origins from which the page may load pictures
    copies: ServedCopies | None = None  # where the model is at an address, and `model` is a copy

    def __post_init__(self) -> None:
        self.limit()  # what is no rate is refused now, before anything is loaded

    @property
    def place(self) -> str:
        """Where the model is, as the user knows it, and as it may be shown."""
        return str(self.model) if self.copies is None else shown_address(self.copies.address)

    def limit(self) -> RateLimit:
        return RateLimit(FOR_OTHERS, spare_loopback=True) if self.rate is None else RateLimit(self.rate)


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; who connects before the service is there waits for it."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        one = socket.socket(family, kind, protocol)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind(address)
        one.listen(BACKLOG)
        one.setblocking(False)
        return one
    except (OSError, OverflowError) as error:
        raise _refusal(host, port, error) from error


def _refusal(host: str, port: int, error: Exception) -> CarpError:
    where = f"{host}:{port}"
    number = getattr(error, "errno", None)
    if number == errno.EADDRINUSE:
        return CarpError("this port is in use already", where=where, fix="choose another --port, or 0 for a free one")
    if number == errno.EACCES:
        return CarpError("this port may not be used", where=where, fix="choose a --port above 1023")
    if isinstance(error, socket.gaierror) or number == errno.EADDRNOTAVAIL:
        return CarpError("this machine has no such address", where=where, fix="use --host 127.0.0.1, or 0.0.0.0")
    return CarpError(f"the port cannot be opened ({error})", where=where, fix="choose another --host or --port")


def count_workers(wanted: int | None) -> int:
    """As many as asked for, else as many as there are cores to run on."""
    if wanted is not None and wanted < 1:
        raise UsageError(f"{wanted} workers cannot serve", fix="give --workers 1 or more")
    usable = getattr(os, "sched_getaffinity", None)
    return wanted or (len(usable(0)) if usable else os.cpu_count() or 1)


def run_service(
    options: ServiceOptions,
    address: tuple[str, int],
    *,
    metrics_port: int | None = None,
    say: Callable[[str], None],
    log: LogLines,
) -> None:
    """Listen, and answer until told to stop. `say` hears what a person at the terminal wants to know."""
    raise_descriptor_limit(count_descriptors(options, watched=metrics_port is not None))
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_live(options, address, metrics_port, say, log))


async def _live(
    options: ServiceOptions,
    address: tuple[str, int],
    metrics_port: int | None,
    say: Callable[[str], None],
    log: LogLines,
) -> None:
    service = Service(options, log, say)
    service.hear_signals()  # before it listens: whoever has connected is answered, also by a service that is to stop
    listening = listen(*address)
    metrics = None if metrics_port is None else listen(address[0], metrics_port)
    if metrics is not None:
        say(f"Metrics at port {metrics.getsockname()[1]}.")
    say(f"Loading {options.place} ...")
    await service.live(listening, metrics)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def count_descriptors(options: ServiceOptions, *, watched: bool) -> int:
    """What a service needs with all places taken while a newer model comes: there are twice the engines then."""
    places = options.connections + KEPT_FOR_PROBES + watched * (MOST_WATCHING + KEPT_FOR_PROBES)
    return places + 2 * (options.workers + DESCRIPTORS_OF_A_LOADER) + DESCRIPTORS_BESIDE


def raise_descriptor_limit(wanted: int) -> None:
    """Let this process open as many connections as it says it takes, as far as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))


class Service:
    """The door, the engines and the app between them."""

    def __init__(self, options: ServiceOptions, log: LogLines, say: Callable[[str], None]) -> None:
        self.options = options
        self.log = log
        self.say = say
        self.began = time.monotonic()
        self.pool = EnginePool(options.workers, log, options.waiting)
        self.pool.copies = options.copies
        self.door: FrontDoor | None = None
        self._told = asyncio.Event()  # that the model is there or cannot be, or that the service is to stop
        self._wanted_to_stop = False
        self._at_once = False  # somebody is impatient
        self._reloads: set[asyncio.Future[None]] = set()

    def hear_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        loop.add_signal_handler(signal.SIGHUP, self._reload)

    async def live(self, listening: socket.socket, metrics: socket.socket | None) -> None:
        loop = asyncio.get_running_loop()
        self.pool.changed = self._told.set
        options = self.options
        await self.pool.start(options.model, options.results)
        from carp.serve.routes import app_for, watching_app  # here, while the other process imports torch

        app = app_for(
            self.pool,
            rules=options.rules,
            limit=options.limit(),
            log=self.log,
            metrics_here=metrics is None,
            pictures=options.pictures,
        )
        app.openapi()  # now, while nobody waits: it takes as long as a hundred answers
        app.state.counters.measures = self.measures
        doors = [self._open(app, listening, options.connections, options.share)]
        self.door = doors[0]
        if metrics is not None:
            watching = watching_app(self.pool, app.state.counters, options.rules, self.log)
            doors.append(self._open(watching, metrics, MOST_WATCHING))
        gc.collect()
        gc.freeze()  # what is here for good is not looked through again and again
        gc.set_threshold(NEW_BEFORE_A_LOOK)  # of what is new, little at a time: nobody is answered meanwhile
        await self._work(listening, loop)
        await self._end(doors)

    def _open(self, app: FastAPI, listening: socket.socket, most: int, share: int | None = None) -> FrontDoor:
        door = FrontDoor(app, self.log, most=most, share=share)
        counters = app.state.counters if hasattr(app.state, "counters") else None
        if counters is not None:
            door.count_refusal = lambda status, seconds: counters.count(OTHER, status, seconds)
        door.common_headers = self._headers
        door.listen(listening)
        return door

    def _headers(self) -> bytes:
        lines = [f"x-carp-version: {carp.__version__}"]
        if self.pool.facts is not None:
            lines.append(f"x-carp-bundle: {self.pool.facts.bundle}")
        return "".join(f"{line}\r\n" for line in lines).encode()

    async def _work(self, listening: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        """Say when the service is ready; then let go of those who wait too long, until it is over."""
        said = False
        while not self._wanted_to_stop and self.pool.failure is None:
            if self.pool.ready and not said:
                said = True
                self._say_ready(listening)
            await self._look(loop)

    async def _look(self, loop: asyncio.AbstractEventLoop, patience: float = LOOK) -> None:
        """Wait until something is told, but not for long; then let go of those who wait too long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await self._told.wait()
        self._told.clear()
        self.pool.let_go(loop.time())

    def _say_ready(self, listening: socket.socket) -> None:
        host, port = listening.getsockname()[:2]
        number = self.options.workers
        shown = f"[{host}]" if ":" in host else host
        self.log.write("ready", seconds=round(time.monotonic() - self.began, 2), engines=number)
        self.say(
            f"Serving {self.options.place} at http://{shown}:{port}/ with {number} worker{'s' * (number > 1)}. "
            "Press Ctrl-C to stop."
        )

    def _stop(self) -> None:
        """Hear a signal that asks for the end; one that comes after the first asks for it at once."""
        if self._wanted_to_stop:
            self._at_once = True
            self.pool.kill()
        self._wanted_to_stop = True
        self._told.set()

    def _reload(self) -> None:
        """Take the model again that is at its place now; SIGHUP asks for it."""
        task = asyncio.ensure_future(self._reloaded())
        self._reloads.add(task)
        task.add_done_callback(self._reloads.discard)

    async def _reloaded(self) -> None:
        before = self.pool.facts
        try:
            facts = await self.pool.reload()
            if facts is before:
                already = "that is being served already, and is not loaded again"
                self.say(f"{self.options.place}: this is the model ({facts.bundle[:12]}) {already}.")
            else:
                self.say(f"Serving {self.options.place} as it is now ({facts.bundle[:12]}).")
        except Problem as problem:
            self.say(f"The model is not loaded again: {problem.detail}.")
        except CarpError as error:
            self.say(f"The model is not loaded again, and the one of before goes on: {error}")

    async def _end(self, doors: Sequence[FrontDoor]) -> None:
        self.pool.stopping = True
        self.log.write("stopping", waiting=len(self.pool.line))
        lost = await self._close(doors)
        await self.pool.close()
        self.log.write("stopped", cut_off=lost, seconds=round(time.monotonic() - self.began, 2))
        if self.pool.failure is not None:
            raise self.pool.failure

    async def _close(self, doors: Sequence[FrontDoor]) -> int:
        """Answer everybody who is here, at last with a refusal, and close; how many were cut off.

        Nobody is answered where the end is wanted at once, or was wanted so before there were doors.
        """
        loop = asyncio.get_running_loop()
        closing = asyncio.gather(*(door.close(LAST_CALL) for door in doors))
        closing.add_done_callback(lambda _: self._told.set())
        end = loop.time() + LAST_CALL - LAST_ANSWERS
        while not closing.done() and not self._at_once:
            late = loop.time() >= end
            if late or self.pool.failure is not None:  # after a failure no engine comes for those who wait
                self.pool.give_up(begun=late)
            await self._look(loop, LOOK if late else min(LOOK, end - loop.time()))
        if self._at_once:
            closing.cancel()
            with suppress(asyncio.CancelledError):
                await closing
            closing = asyncio.gather(*(door.close(patience=0) for door in doors))
        return sum(await closing)

    def measures(self) -> list[Measure]:
        """What the parts of the service are at, for /metrics."""
        pool, door = self.pool, self.door
        rows: list[tuple[str, str, str, Any]] = [
            ("carp_workers", "gauge", "Engines that are asked for.", pool.engines),
            ("carp_engines_alive", "gauge", "Engines that are there.", pool.alive),
            ("carp_engines_busy", "gauge", "Engines that compute right now.", pool.working),
            ("carp_engine_restarts_total", "counter", "Engines that ended and were replaced.", pool.restarts),
            ("carp_swaps_total", "counter", "Times that the model was replaced by a newer one.", pool.swaps),
            ("carp_engine_seconds_total", "counter", "Seconds that engines have computed.", pool.busy_seconds),
            ("carp_ready", "gauge", "1 where requests are answered.", pool.ready),
            ("carp_queue_length", "gauge", "Requests that wait for an engine.", len(pool.line)),
            ("carp_queue_limit", "gauge", "Requests that may wait; more are refused with 503.", pool.line.most),
            ("carp_abandoned_total", "counter", "Requests whose client left before an engine began.", pool.abandoned),
            ("carp_cache_hits_total", "counter", "Explanations that were kept from before.", pool.hits),
            ("carp_cache_misses_total", "counter", "Explanations that were computed.", pool.misses),
            ("carp_log_lines_dropped_total", "counter", "Lines of the log that nobody took.", self.log.dropped),
            ("carp_uptime_seconds", "gauge", "Seconds since the start.", time.monotonic() - self.began),
        ]
        if door is not None:
            rows += [
                ("carp_connections", "gauge", "Open connections.", len(door.connections)),
                ("carp_connections_limit", "gauge", "Connections that may be open.", door.connections.most),
                ("carp_connections_evicted_total", "counter", "Connections closed to make room.", door.evicted),
            ]
        return [(name, kind, what, float(value)) for name, kind, what, value in rows]
