"""The engines of one model as it was loaded, the lines to them, and the loader that they come from."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

import msgspec

from carp.serve.engine_messages import Call, FrameReader, Loaded, Reply, frame

if TYPE_CHECKING:
    from carp.serve.waiting_line import Waiting

# Engines compute on the processor. Where torch sees a card, taking a gradient starts threads for it, and no process
# that is forked afterwards can take one.
NO_CARDS = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "", "ROCR_VISIBLE_DEVICES": ""}


class Generation:
    """The engines of one model as it was loaded, and the loader they come from."""

    def __init__(self, model: Path | None = None) -> None:
        self.facts: Loaded | None = None
        self.lines: dict[int, EngineLine] = {}
        self.control: socket.socket | None = None
        self.loader: subprocess.Popen[bytes] | None = None
        self.frames = FrameReader()
        self.fds: list[int] = []
        self.retired = False  # its engines end when they have answered
        self.complete: asyncio.Future[None] | None = None  # of a generation that is to replace another
        self.model = model  # where it is loaded from

    def load(self, results: Path | None, engines: int) -> socket.socket:
        """Start the loader; the door's end of the socket on which it says what it does."""
        self.control, theirs = socket.socketpair()
        words = [str(theirs.fileno()), str(self.model), str(results or ""), str(engines)]
        self.loader = subprocess.Popen(
            [sys.executable, "-m", "carp.serve.engine_process", *words],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            env={**os.environ, "OMP_NUM_THREADS": "1", **NO_CARDS},
            process_group=0,  # its own, so that it can be ended together with all that it has forked
        )
        theirs.close()
        self.control.setblocking(False)
        return self.control

    def hang_up(self) -> None:
        """Let the loader replace no engine any more and end with the last one."""
        if self.control is not None:
            asyncio.get_running_loop().remove_reader(self.control.fileno())
            self.control.close()
            self.control = None

    def end_useless(self) -> None:
        """End the processes that work for nobody, where nobody is to be answered any more."""
        if self.facts is None:
            self.kill()  # it is still loading
        for line in self.lines.values():
            if line.taken:
                line.kill()

    def kill(self) -> None:
        """End all of its processes now, whatever they are at."""
        if self.loader is not None and self.loader.poll() is None:  # else its number may be another's by now
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.loader.pid, signal.SIGKILL)
        for line in list(self.lines.values()):
            line.kill()

    def wait(self, patience: float) -> None:
        """Wait until its processes have ended, and end them where that takes too long."""
        assert self.loader is not None
        try:
            self.loader.wait(patience)
        except subprocess.TimeoutExpired:
            self.kill()
            self.loader.wait()


class LineOwner(Protocol):
    """Who hears of what happens on the lines to engines."""

    def take_reply(self, line: EngineLine, taken: list[Waiting], reply: Reply) -> None: ...

    def ask_no_more(self, line: EngineLine) -> None: ...

    def lose(self, line: EngineLine, *, begun: bool = True) -> None: ...


class EngineLine(asyncio.Protocol):
    """The line to one engine, with what it is at."""

    def __init__(self, owner: LineOwner, generation: Generation, process: int) -> None:
        self.owner = owner
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
            self.owner.take_reply(self, taken, reply)

    def eof_received(self) -> None:
        self.owner.ask_no_more(self)

    def connection_lost(self, error: Exception | None) -> None:
        # A line that ends in an error held a request that its engine had not read, as Linux tells.
        self.owner.lose(self, begun=error is None)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def kill(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(self.process, signal.SIGKILL)
