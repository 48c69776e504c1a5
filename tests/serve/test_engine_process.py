"""The life of an engine between two calls."""

from __future__ import annotations

import gc
import socket
import threading
import weakref
from types import SimpleNamespace

import msgspec
import pytest

from carp.serve.engine_messages import Call, Reply, frame, receive_frame
from carp.serve.engine_process import STEPS_BETWEEN_LOOKS, answer_calls


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
    engine = threading.Thread(target=answer_calls, args=(line, answerer, readings))
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
