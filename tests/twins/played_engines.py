"""Engines of the service that a test plays."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading

import msgspec

from carp.serve.engine_messages import Call, EngineStarted, Loaded, Refused, Reply, frame, receive_frame
from carp.serve.engine_pool import EnginePool
from carp.serve.log_lines import LogLines

NO_PROCESS = 10_000_000  # no system gives a process so large a number


class OneEngine:
    """An engine at the other end of a socket, which answers when the test lets it."""

    def __init__(self, seconds: float = 0.01) -> None:
        self.seconds = seconds  # that it says an answer took
        self.door, self.line = socket.socketpair()
        self.asked: list[Call] = []
        self.may_answer = threading.Semaphore(0)
        self.thread = threading.Thread(target=self.live, daemon=True)
        self.thread.start()

    def live(self) -> None:
        with contextlib.suppress(OSError):  # a test that is over may have closed the line
            self._answer()

    def _answer(self) -> None:
        while (asked := receive_frame(self.line)) is not None:
            call = msgspec.msgpack.decode(asked, type=Call)
            self.asked.append(call)
            self.may_answer.acquire()
            if call.kind == "die" or any("deadly" in one for one in call.asked):
                self.line.close()
                return
            answers = [Refused(404, "no", None, "", {}) if "no" in one else str(one).encode() for one in call.asked]
            self.line.sendall(frame(Reply(answers, self.seconds, 1, 2, [None] * len(answers))))


class KilledEngine:
    """An engine that was killed and whose line is still open: it reads nothing any more."""

    def __init__(self) -> None:
        self.door, self.line = socket.socketpair()

    def end(self) -> None:
        self.line.close()


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def join(pool: EnginePool, engine: OneEngine | KilledEngine) -> None:
    """Let an engine be one of a pool's, under the next number."""
    joined = asyncio.Event()
    pool.changed = joined.set
    pool.take_news(EngineStarted(NO_PROCESS + pool.alive + pool.restarts), [engine.door.detach()])
    await joined.wait()


async def pool_of(*engines: OneEngine | KilledEngine, most: int = 8) -> EnginePool:
    pool = EnginePool(len(engines), LogLines(None), most)
    pool.facts = Loaded("sum", "carp", b"{}")
    for engine in engines:
        await join(pool, engine)
    return pool
