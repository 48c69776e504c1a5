"""The service as processes: a model loaded once, workers forked from it, one port, and a clean end."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn

from carp.errors import CarpError, UsageError

if TYPE_CHECKING:
    from fastapi import FastAPI

PATIENCE = 5  # seconds for requests under way when the service is told to stop
EARLY = 2.0  # seconds after its start: a worker that ends so soon may do so again and again
MOST_EARLY = 5
ASIDE = 1.0  # seconds between looks at whether the parent still lives


def listen(host: str, port: int, sockets: int) -> list[socket.socket]:
    """Bound sockets, one for each worker where the system spreads connections over them, else one for all."""
    probe = _bound(host, port, shared=False)  # fails where anybody else has the port, even one who would share it
    address = probe.getsockname()
    spread = sockets > 1 and hasattr(socket, "SO_REUSEPORT") and sys.platform == "linux"
    if not spread:
        return [probe]
    probe.close()
    return [_bound(address[0], address[1], shared=True) for _ in range(sockets)]


def _bound(host: str, port: int, *, shared: bool) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        one = socket.socket(family, kind, protocol)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        one.bind(address)
        one.listen(1024)
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


def serve(app: FastAPI, sockets: list[socket.socket], workers: int) -> bool:
    """Answer until told to stop; False where the workers fail as soon as they begin."""
    if workers == 1:
        _answer(app, sockets[0], 0, parent=0)
        return True
    return _Family(app, sockets, workers).live()


def _answer(app: FastAPI, listening: socket.socket, row: int, parent: int) -> None:
    app.state.counters.row = row
    config = uvicorn.Config(
        app,
        log_level="error",
        access_log=False,
        server_header=False,
        lifespan="off",
        ws="none",
        timeout_graceful_shutdown=PATIENCE,
    )
    server = uvicorn.Server(config)

    def stop(*_: Any) -> None:  # uvicorn raises the signal once more at its end, and here that is no failure
        server.should_exit = True

    async def live() -> None:
        watch = asyncio.create_task(_outlive_no_parent(server, parent)) if parent else None
        await server.serve(sockets=[listening])
        if watch is not None:
            watch.cancel()

    with _signals(stop), asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        runner.run(live())


async def _outlive_no_parent(server: uvicorn.Server, parent: int) -> None:
    while os.getppid() == parent:
        await asyncio.sleep(ASIDE)
    server.should_exit = True


class _Family:
    """Workers and who looks after them: one that dies is replaced, and all end together."""

    def __init__(self, app: FastAPI, sockets: list[socket.socket], workers: int) -> None:
        self.app = app
        self.sockets = sockets
        self.workers = workers
        self.children: dict[int, tuple[int, float]] = {}  # process → its row, when it began
        self.stopping = False
        self.early = 0

    def live(self) -> bool:
        with _signals(self._stop):
            for row in range(self.workers):
                self._start(row)
            while self.children:
                self._bury(*_wait())
        return self.early <= MOST_EARLY

    def _start(self, row: int) -> None:
        parent = os.getpid()
        child = os.fork()
        if child:
            self.children[child] = (row, time.monotonic())
            return
        code = 1
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            _answer(self.app, self.sockets[row % len(self.sockets)], row, parent)
            code = 0
        except BaseException as error:
            print(f"carp serve: a worker failed ({type(error).__name__}: {error})", file=sys.stderr, flush=True)
        finally:
            os._exit(code)  # nothing of the parent's is to run a second time

    def _bury(self, child: int, code: int) -> None:
        row, began = self.children.pop(child, (-1, 0.0))
        if row < 0 or self.stopping:
            return
        print(f"carp serve: a worker ended (exit {code}); it is replaced", file=sys.stderr, flush=True)
        self.early += time.monotonic() - began < EARLY
        if self.early > MOST_EARLY:
            self._stop()
        else:
            self._start(row)

    def _stop(self, *_: Any) -> None:
        self.stopping = True
        for child in list(self.children):
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGTERM)


def _wait() -> tuple[int, int]:
    child, status = os.wait()
    return child, os.waitstatus_to_exitcode(status)


@contextlib.contextmanager
def _signals(stop: Any) -> Iterator[None]:
    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def count_workers(wanted: int | None) -> int:
    """As many as asked for, else as many as there are cores to run on."""
    if wanted is not None and wanted < 1:
        raise UsageError(f"{wanted} workers cannot serve", fix="give --workers 1 or more")
    if not hasattr(os, "fork"):
        return 1
    usable = getattr(os, "sched_getaffinity", None)
    return wanted or (len(usable(0)) if usable else os.cpu_count() or 1)


def open_model(model: Path, results: Path | None, workers: int) -> FastAPI:
    """Load a bundle for serving: on the CPU, one thread for each worker."""
    import torch

    import carp
    from carp.serve.routes import make_app

    torch.set_num_threads(1)  # also before the fork: threads do not survive it
    app = make_app(carp.load(model, device="cpu"), results, workers=workers, warm=True)
    gc.collect()
    gc.freeze()  # what is kept for good is not looked through again and again, nor copied into each worker by that
    return app
