"""The end of a service: everybody is answered, at last with a refusal, and a second signal waits for nothing."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import pytest

from carp.errors import CarpError
from carp.serve import engine_pool, server
from carp.serve.engine_messages import EngineStarted, Loaded
from carp.serve.engine_pool import EnginePool
from carp.serve.log_lines import LogLines
from carp.serve.problems import Problem
from opened_door import answer_of, until
from played_engines import NO_PROCESS, OneEngine, settled
from served_models import PLACE

ASKED = b"GET /api/recommend?user=%s HTTP/1.1\r\nHost: localhost\r\n\r\n"
HALF = b"GET /health HTTP/1.1\r\n"
FOR_EVER = 1e6  # seconds
WATCHED, ENGINE = r"Metrics at port (\d+)", r'"engine started","process":(\d+)'


class PlayedService(server.Service):
    """A service with one engine that the test plays."""

    def __init__(self):
        self.said = io.StringIO()
        super().__init__(server.ServiceOptions(Path("model")), LogLines(self.said), lambda words: None)
        self.engine = OneEngine()
        self.pool.start = self.start
        self.listening = server.listen("127.0.0.1", 0)
        self.watched = server.listen("127.0.0.1", 0)
        self.writers = []

    async def start(self, model, results):
        self.pool.facts = Loaded("sum", "carp", b"{}")
        self.pool.take_news(EngineStarted(NO_PROCESS), [self.engine.door.detach()])

    async def connect(self, sent, listening=None):
        reader, writer = await asyncio.open_connection(*(listening or self.listening).getsockname())
        writer.write(sent)
        self.writers.append(writer)
        return reader

    def hang_up(self):
        for writer in self.writers:
            writer.close()

    async def one_at_work_and_one_waiting(self):
        first = await self.connect(ASKED % b"first")
        await until(lambda: self.engine.asked)
        second = await self.connect(ASKED % b"second")
        await until(lambda: len(self.pool.line) == 1)
        return first, second

    def cut_off(self):
        self.log.close()
        return next(json.loads(line) for line in self.said.getvalue().splitlines() if '"stopped"' in line)["cut_off"]


@pytest.fixture
def lived(monkeypatch):
    """Runs a test with a service that lives meanwhile."""
    monkeypatch.setattr(server.gc, "freeze", lambda: None)
    monkeypatch.setattr(server, "LOOK", 0.01)

    def run(test):
        async def everything():
            service = PlayedService()
            life = asyncio.create_task(service.live(service.listening, service.watched))
            await until(lambda: service.door is not None and service.pool.ready)
            await test(service, life)
            service.engine.line.close()
            return service

        return asyncio.run(everything())

    return run


@pytest.fixture
def own_garbage():
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


@pytest.mark.usefixtures("own_garbage")
def test_who_listens_never_looks_through_much_garbage_at_once(lived):
    """As a command it was to look after hundreds of thousands of objects, which took a quarter of a second."""
    gc.set_threshold(400_000)

    async def test(service, life):
        assert 0 < gc.get_threshold()[0] <= 2_000
        service._stop()
        await life

    lived(test)


def told_to_ask_again(head):
    return head.startswith(b"HTTP/1.1 503") and b"retry-after: " in head


def test_who_waits_too_long_is_told_so_during_a_stop_as_well(lived, monkeypatch):
    async def test(service, life):
        first, second = await service.one_at_work_and_one_waiting()
        service._stop()
        await until(lambda: service.pool.stopping)
        monkeypatch.setattr(engine_pool, "PATIENCE", -1.0)
        assert told_to_ask_again((await answer_of(second))[0])
        service.engine.may_answer.release()
        assert (await answer_of(first))[0].startswith(b"HTTP/1.1 200")
        service.hang_up()
        await life

    assert lived(test).cut_off() == 0


def test_before_the_last_call_of_a_stop_everybody_is_refused_in_words(lived, monkeypatch):
    async def test(service, life):
        monkeypatch.setattr(server, "LAST_ANSWERS", server.LAST_CALL)  # now, and not in 22 s
        clients = await service.one_at_work_and_one_waiting()
        service._stop()
        for reader in clients:
            assert told_to_ask_again((await answer_of(reader))[0])
        service.hang_up()
        await life

    assert lived(test).cut_off() == 0


def test_a_service_that_cannot_go_on_refuses_who_waits(lived):
    async def test(service, life):
        first, second = await service.one_at_work_and_one_waiting()
        service.pool._fail(CarpError("the process that loads the model ended"))
        assert told_to_ask_again((await answer_of(second))[0])
        service.engine.may_answer.release()
        assert (await answer_of(first))[0].startswith(b"HTTP/1.1 200"), "its engine is there, and answers"
        service.hang_up()
        with pytest.raises(CarpError, match="that loads the model ended"):
            await life

    assert lived(test).cut_off() == 0


def test_a_second_signal_waits_for_nobody_at_any_door(lived):
    async def test(service, life):
        clients = await service.one_at_work_and_one_waiting()
        halves = [await service.connect(HALF, listening) for listening in (service.listening, service.watched)]
        await until(lambda: len(service.door.connections) == 3)
        for _ in range(3):
            service._stop()
            await settled()
        for reader in (*clients, *halves):
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
        service.hang_up()
        await life

    assert lived(test).cut_off() == 2


def test_two_signals_before_there_is_a_door_end_the_service_when_there_is(monkeypatch):
    monkeypatch.setattr(server.gc, "freeze", lambda: None)

    async def everything():
        service = PlayedService()
        reader = await service.connect(HALF)
        service._stop()
        service._stop()
        await service.live(service.listening, service.watched)
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b"", "no 408: nobody waited for the other half"
        service.engine.line.close()

    asyncio.run(everything())


# ---- processes and threads that do not end by themselves


DEAF = "import signal; [signal.signal(n, signal.SIG_IGN) for n in (signal.SIGTERM, signal.SIGINT)]; signal.pause()"


class DeafLoaders(EnginePool):
    """A pool whose loaders hear nothing."""

    def _load(self, generation):
        generation.loader = subprocess.Popen([sys.executable, "-c", DEAF], process_group=0)


@pytest.mark.parametrize("impatient", [False, True])
def test_a_model_that_is_still_being_loaded_is_not_waited_for(impatient, tmp_path, monkeypatch):
    monkeypatch.setattr(engine_pool, "SETTLING", FOR_EVER)

    async def everything():
        pool = DeafLoaders(1, LogLines(None))
        await pool.start(tmp_path, None)
        if impatient:  # then whatever its processes are at
            pool.facts = Loaded("sum", "carp", b"{}")
            pool.kill()
        await pool.close()
        return pool._current.loader.returncode

    assert asyncio.run(everything()) == -signal.SIGKILL


def test_engines_of_a_model_that_was_replaced_are_ended_too(tmp_path, monkeypatch):
    """A thread waits for them, and the event loop would wait for the thread."""
    monkeypatch.setattr(engine_pool, "SETTLING", FOR_EVER)

    async def everything():
        pool = DeafLoaders(1, LogLines(None))
        await pool.start(tmp_path, None)
        before = pool._current
        pool.facts = Loaded("sum", "carp", b"{}")
        pool._retire(before)
        await settled()
        pool.kill()
        await pool.close()
        return before.loader.returncode

    assert asyncio.run(everything()) == -signal.SIGKILL


def test_a_fetch_that_does_not_end_keeps_no_service_from_ending(tmp_path):
    begun, never = threading.Event(), threading.Event()

    async def everything():
        pool = DeafLoaders(1, LogLines(None))
        fetching = SimpleNamespace(fetch=lambda served: begun.set() or never.wait())
        setattr(pool, "copies", fetching)  # noqa: B010 (nothing else is asked of it)
        await pool.start(tmp_path, None)
        pool.facts = Loaded("sum", "carp", b"{}")
        reloading = asyncio.create_task(pool.reload())
        await until(begun.is_set)
        pool.give_up(begun=True)
        with pytest.raises(Problem) as refused:
            await reloading
        pool.kill()
        await pool.close()
        return refused.value.status

    assert asyncio.run(everything()) == 503
    never.set()


SERVE = (
    "import sys; from carp.serve import engine_pool, server; from carp.cli.entry import main; "
    f"engine_pool.SETTLING = server.LAST_CALL = {FOR_EVER}; sys.exit(main(sys.argv[1:]))"
)


def test_a_second_signal_ends_the_process_with_an_engine_that_computes(bundle):
    """The engine is stopped in its work, so that it computes for as long as anybody waits for it."""
    words = ["serve", str(bundle), "--port", "0", "--workers", "1", "--metrics-port", "0"]
    service = subprocess.Popen([sys.executable, "-c", SERVE, *words], stderr=subprocess.PIPE, text=True)
    try:
        said, lines = "", iter(service.stderr.readline, "")
        while not all(found := [re.search(one, said) for one in (WATCHED, ENGINE, PLACE)]):
            said += next(lines)  # the log is written beside what is said, and may come later
        watched, engine, port = (int(one[1]) for one in found)
        os.kill(engine, signal.SIGSTOP)
        with contextlib.closing(asking(port)):
            while "carp_engines_busy 1\n" not in metrics(watched):
                pass
            service.terminate()
            assert next(line for line in lines if '"stopping"' in line)
            service.terminate()
            assert service.wait(60) == 0
    finally:
        service.kill()
        service.stderr.close()
    while is_there(engine):  # it was killed, and may take a moment to be gone
        pass


def asking(port):
    one = socket.create_connection(("127.0.0.1", port))
    one.sendall(ASKED % b"somebody")
    return one


def metrics(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        return answer.read().decode()


def is_there(process):
    try:
        return "Z" not in Path(f"/proc/{process}/stat").read_text().rpartition(")")[2]
    except OSError:
        return False
