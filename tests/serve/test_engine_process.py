"""The processes that compute: what they are started with, and what they do between two calls."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
import threading
import weakref
from types import SimpleNamespace

import msgspec
import pytest
import torch

from carp.errors import CarpError
from carp.serve.engine_messages import Call, Reply, frame, receive_frame
from carp.serve.engine_pool import EnginePool
from carp.serve.engine_process import EARLY, MOST_EARLY, STEPS_BETWEEN_LOOKS, _Family, _load, answer_calls
from carp.serve.log_lines import LogLines


@pytest.fixture
def own_garbage():
    """What a process does with its garbage is as before when the test is over."""
    yield
    gc.unfreeze()
    gc.enable()


class Ring:
    """Garbage that only a look finds: it refers to itself."""

    def __init__(self):
        self.itself = self


class KeepingAnswerer:
    """Keeps something of each call, as memories of answers do, and leaves a ring behind."""

    def __init__(self):
        self.service = SimpleNamespace(warming=lambda: iter(()))
        self.kept, self.rings = [], []

    def reply(self, call):
        assert not gc.isenabled(), "no look in the middle of a call"
        self.kept.append([call.kind])
        self.rings.append(weakref.ref(Ring()))
        return Reply([b"{}"], 0.0, 0, 0, [None])


@pytest.mark.usefixtures("own_garbage")
def test_garbage_is_looked_for_between_calls_and_what_is_kept_is_not_looked_through_again():
    door, line = socket.socketpair()
    answerer = KeepingAnswerer()
    readings = SimpleNamespace(take=lambda: True)
    engine = threading.Thread(target=answer_calls, args=(line, answerer, readings, bytearray(1)))
    engine.start()
    for _ in range(3 * STEPS_BETWEEN_LOOKS):
        door.sendall(frame(Call("users", [[]])))
        assert msgspec.msgpack.decode(receive_frame(door), type=Reply).answers == [b"{}"]
    door.close()
    engine.join()
    seen = 2 * STEPS_BETWEEN_LOOKS  # at least: what came last may be looked at next time
    assert not any(ring() for ring in answerer.rings[:seen])
    young = {id(one) for one in gc.get_objects()}  # without what is frozen
    assert not any(id(one) in young for one in answerer.kept[:seen])


@pytest.mark.parametrize(("sees_a_card", "gradients"), [(False, 1), (True, 0)])
def test_the_loader_takes_no_gradient_where_that_would_keep_its_engines_from_taking_any(
    sees_a_card, gradients, bundle, monkeypatch
):
    taken = []
    grad = torch.autograd.grad
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: sees_a_card)
    monkeypatch.setattr(torch.autograd, "grad", lambda *given, **named: taken.append(1) or grad(*given, **named))
    monkeypatch.setattr(torch, "set_num_threads", lambda number: None)
    monkeypatch.setattr(gc, "freeze", lambda: None)
    door, loader = socket.socketpair()
    with door, loader:
        _load(loader, bundle, None)
    assert len(taken) == gradients


def test_no_card_is_shown_to_the_processes_that_compute(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    started = []

    async def started_with():
        pool = EnginePool(1, LogLines(None))
        monkeypatch.setattr("subprocess.Popen", lambda words, **named: started.append(named["env"]))
        await pool.start(tmp_path, None)
        await pool.close()

    asyncio.run(started_with())
    assert started[0]["CUDA_VISIBLE_DEVICES"] == ""


def test_a_loader_whose_door_has_gone_does_not_load_the_model(tmp_path):
    door, loader = socket.socketpair()
    door.close()
    with loader, pytest.raises(BrokenPipeError):
        _load(loader, tmp_path / "nothing", None)


class Engines:
    """A family of real processes, and the end of each one's line."""

    def __init__(self, reply, take=lambda: True):
        self.door, loader = socket.socketpair()
        answerer = SimpleNamespace(service=SimpleNamespace(warming=lambda: iter(())), reply=reply, results_folder=None)
        self.family = _Family(loader, answerer, SimpleNamespace(take=take))
        self.family.start()

    def end_of_newest(self):
        """Ask the newest engine for something, and wait for its end."""
        _, handles, _, _ = socket.recv_fds(self.door, 65_536, 1)
        with socket.socket(fileno=handles[0]) as line:
            with contextlib.suppress(BrokenPipeError):  # it may have ended already
                line.sendall(frame(Call("users", [[]])))
            os.waitid(os.P_PID, [*self.family.children][-1], os.WEXITED | os.WNOWAIT)
        self.family._replace_the_dead()

    def close(self):
        for child in self.family.children:
            os.kill(child, 9)
            os.waitpid(child, 0)
        for end in (self.door, self.family.door):
            end.close()


def test_a_request_that_ends_engines_does_not_end_the_service_however_often_it_is_made():
    engines = Engines(lambda call: os._exit(3))
    for _ in range(2 * MOST_EARLY):
        engines.end_of_newest()
    assert len(engines.family.children) == 1, "each was replaced"
    engines.close()


def _fails():
    raise OSError("cannot begin")


def test_engines_that_end_as_soon_as_they_are_there_end_the_service():
    engines = Engines(None, _fails)
    for _ in range(MOST_EARLY):
        engines.end_of_newest()
    with pytest.raises(CarpError, match="stopped as soon as it started"):
        engines.end_of_newest()
    engines.close()


def test_an_engine_that_lived_for_a_while_ends_the_row_of_those_that_did_not():
    engines = Engines(None, _fails)
    for _ in range(2):
        for _ in range(MOST_EARLY):
            engines.end_of_newest()
        newest, engine = [*engines.family.children.items()][-1]
        engines.family.children[newest] = engine._replace(began=engine.began - 2 * EARLY)
        engines.end_of_newest()
    assert len(engines.family.children) == 1
    engines.close()
