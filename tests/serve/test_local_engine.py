"""The engine in this very process, as a replica on Ray has it: what computes stops nothing else, and few may wait."""

from __future__ import annotations

import asyncio
import io
import sys
import threading

import pytest

from carp.serve.access_control import AccessRules
from carp.serve.engine_messages import Reply
from carp.serve.engine_process import bundle_sum
from carp.serve.local_engine import LocalEngine
from carp.serve.problems import Problem
from carp.serve.server import ServiceOptions


class Held:
    """Answers when the test lets it."""

    def __init__(self):
        self.begun, self.may_answer = threading.Event(), threading.Event()
        self.asked = []

    def reply(self, call):
        self.asked.append(call.asked[0][0])
        self.begun.set()
        self.may_answer.wait()
        return Reply([b"{}"], 0.0, 0, 0, [None])


@pytest.fixture
def held(recommender):
    engine, answerer = LocalEngine(recommender, most_waiting=3), Held()
    setattr(engine, "_answerer", answerer)  # noqa: B010 (nothing else is asked of it)
    yield engine, answerer
    answerer.may_answer.set()


async def asked(engine, count):
    asking = [asyncio.create_task(engine.ask("users", number)) for number in range(count)]
    await asyncio.sleep(0)
    return asking


def test_what_is_computed_does_not_keep_others_from_being_answered(held):
    engine, answerer = held

    async def everything():
        (one,) = await asked(engine, 1)
        while not answerer.begun.is_set():
            await asyncio.sleep(0)  # health would be answered here
        assert not one.done()
        answerer.may_answer.set()
        return await one

    assert asyncio.run(everything()) == b"{}"


def test_few_wait_and_others_are_told_when_to_ask_again(held):
    engine, answerer = held

    async def everything():
        asking = await asked(engine, 5)
        assert engine.refusal().status == 503
        answerer.may_answer.set()
        found = await asyncio.gather(*asking, return_exceptions=True)
        assert engine.refusal() is None
        return found

    found = asyncio.run(everything())
    assert found[:3] == [b"{}"] * 3
    for refused in found[3:]:
        assert isinstance(refused, Problem)
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")


def test_nothing_is_computed_for_who_left_before_their_turn(held):
    engine, answerer = held

    async def everything():
        asking = await asked(engine, 3)
        asking[1].cancel()
        await asyncio.sleep(0)
        assert engine.refusal() is None, "there is room again"
        answerer.may_answer.set()
        await asyncio.gather(*asking, return_exceptions=True)

    asyncio.run(everything())
    assert answerer.asked == [0, 2]


def test_a_replica_lets_pages_load_pictures_from_where_the_owner_says_and_asks_for_the_key(bundle, monkeypatch):
    from starlette import testclient

    from carp.scale.ray_cluster import this_carp
    from carp.serve.ray_replicas import ReplicaOrder, replica_app

    monkeypatch.setattr(sys, "stderr", io.StringIO())  # where a replica writes its log
    rules = AccessRules.of("127.0.0.1", ["testserver"], b"a-key-of-many-characters")
    options = ServiceOptions(bundle, rules=rules, pictures=("https://images.example",))
    app = replica_app(ReplicaOrder(options, bundle_sum(bundle), this_carp()))
    client = testclient.TestClient(app)
    assert client.get("/health").status_code == 200
    assert client.get("/api/about").status_code == 401
    answer = client.get("/", headers={"authorization": "Bearer a-key-of-many-characters"})
    assert "img-src 'self' data: https://images.example;" in answer.headers["content-security-policy"]
