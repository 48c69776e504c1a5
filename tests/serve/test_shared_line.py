"""What requests of several clients do to each other: batches in which one is bad, and a line that one client fills."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

import pytest

from carp.serve import waiting_line
from carp.serve.engine_calls import CallAnswerer
from carp.serve.engine_messages import ASKED_BY, Call, Refused
from carp.serve.problems import Problem
from carp.serve.waiting_line import TOGETHER, Waiting, WaitingLine
from opened_door import until
from played_engines import OneEngine, join, pool_of, settled

# ---- batches


@pytest.mark.parametrize("kind", ["explain", "predict"])
def test_a_request_that_kills_engines_takes_nobody_along_that_it_was_given_with(kind):
    async def everything():
        engines = [OneEngine() for _ in range(3)]
        pool = await pool_of(engines[0], most=100)
        asking = [asyncio.create_task(pool.ask(kind, "first"))]
        await settled()
        asking += [asyncio.create_task(pool.ask(kind, "deadly" if n == 3 else n)) for n in range(TOGETHER[kind])]
        await settled()
        for engine in engines:
            engine.may_answer.release(100)
        for n in (1, 2):
            await until(lambda: pool.restarts == n)  # noqa: B023 (it is awaited in this very round)
            await join(pool, engines[n])
        found = await asyncio.gather(*asking, return_exceptions=True)
        await pool.close()
        return found, [len(call.asked) for engine in engines for call in engine.asked]

    found, sizes = asyncio.run(everything())
    assert sizes[:2] == [1, TOGETHER[kind]], "the first alone, then all others together"
    assert set(sizes[2:]) == {1}
    refused = [(place, one.status) for place, one in enumerate(found) if isinstance(one, Problem)]
    assert refused == [(4, 500)]


def test_those_whose_engine_was_killed_before_it_began_go_on_together():
    async def everything():
        engine, other = OneEngine(), OneEngine()
        pool = await pool_of(engine)
        asking = [asyncio.create_task(pool.ask("explain", n)) for n in range(5)]
        await settled()
        engine.may_answer.release()
        await until(lambda: len(engine.asked) == 2)
        pool.lose(next(iter(pool._lines.values())), begun=False)
        await join(pool, other)
        other.may_answer.release()
        found = await asyncio.gather(*asking)
        await pool.close()
        return found, [len(call.asked) for call in other.asked]

    assert asyncio.run(everything()) == ([b"[0]", b"[1]", b"[2]", b"[3]", b"[4]"], [4])


def test_a_pair_that_cannot_be_answered_leaves_the_others_of_its_batch_their_answers():
    def explain(pairs):
        if ("b", "bad") in pairs:
            raise RuntimeError("it cannot be explained")
        return [json.dumps(pair).encode() for pair in pairs]

    def predict(pairs):
        explain(pairs)
        return [{"item": item} for _, item in pairs]

    service = SimpleNamespace(
        explain=explain, predict=predict, users=None, items=None, hits=0, misses=0, facts=SimpleNamespace()
    )
    others = ("search", "recommend", "newcomer", "compare", "person", "thing", "audience", "overview", "summary")
    for name in (*others, "overview_table"):
        setattr(service, name, None)
    service.facts.categories = None
    answerer = CallAnswerer(service)
    explained = answerer.reply(Call("explain", [["a", "x"], ["b", "bad"], ["c", "y"]]))
    assert (explained.answers[0], explained.answers[2]) == (b'["a", "x"]', b'["c", "y"]')
    predicted = answerer.reply(Call("predict", [[["a", "x"], ["a", "z"]], [["b", "bad"]], [["c", "y"]]]))
    assert (predicted.answers[0], predicted.answers[2]) == (b'[{"item":"x"},{"item":"z"}]', b'[{"item":"y"}]')
    for reply in (explained, predicted):
        assert isinstance(reply.answers[1], Refused)
        assert reply.answers[1].status == 500
        assert [failure is None for failure in reply.failures] == [True, False, True]


# ---- clients


async def asked_by(pool, clients):
    """Requests of these clients in turn, and the answer or refusal of each so far."""
    asking = []
    for number, client in enumerate(clients):
        ASKED_BY.set(client)
        asking.append(asyncio.create_task(pool.ask("recommend", f"{client}{number}")))
        await settled()
    return asking


def asked_of_a_busy_engine(clients, most=4):
    """Which of the requests were answered, and which refused at once with when to ask again."""

    async def everything():
        engine = OneEngine()
        pool = await pool_of(engine, most=most)
        begun, *asking = await asked_by(pool, ["first", *clients])
        refused = [number for number, one in enumerate(asking) if one.done()]
        for number in refused:
            problem = asking[number].exception()
            assert problem.status == 503
            assert int(problem.headers["retry-after"]) >= 1
        engine.may_answer.release(100)
        answered = [number for number, one in enumerate(asking) if number not in refused and await one]
        await begun
        left = len(pool.line), pool.line._of_client
        await pool.close()
        assert left == (0, {})
        return answered, refused

    return asyncio.run(everything())


@pytest.mark.parametrize(
    ("clients", "refused"),
    [
        ("aaaaaa", [4, 5]),  # all from one address, as behind a proxy: who comes later is refused
        ("aaaab", [3]),  # who has most makes room, by what it asked last
        ("aaaabc", [2, 3]),
        ("aaaabcc", [2, 3, 6]),  # who would have as many as the others have gets no room from them
        ("aabbc", [1]),
        ("abcde", [4]),
    ],
)
def test_who_fills_the_line_makes_room_for_who_has_less_in_it(clients, refused):
    answered = [number for number in range(len(clients)) if number not in refused]
    assert asked_of_a_busy_engine(clients) == (answered, refused)


def test_nobody_waits_for_all_that_another_client_asked_at_once(monkeypatch):
    """Each of them may take seconds, and who has waited for fifteen is refused."""
    monkeypatch.setattr(waiting_line, "DUE_LATER", 0.0)  # what was asked is overdue as soon as the next is

    async def everything():
        engine = OneEngine()
        pool = await pool_of(engine, most=100)
        asking = await asked_by(pool, "a" * 50)
        engine.may_answer.release(3)  # so that it is at the fourth one
        await until(lambda: len(engine.asked) == 4)
        ASKED_BY.set("b")
        asking.append(asyncio.create_task(pool.ask("recommend", "b")))
        await settled()
        engine.may_answer.release(100)
        await asyncio.gather(*asking)
        await pool.close()
        return [call.asked for call in engine.asked].index([["b"]])

    assert asyncio.run(everything()) < 50


def test_clients_take_turns_in_the_line():
    line = WaitingLine(100)
    waiting = [Waiting("recommend", [n], 0.0, None, "many") for n in range(4)]
    waiting += [Waiting("recommend", ["one"], 1.0, None, "one"), Waiting("explain", ["other"], 2.5, None, "other")]
    assert all(line.add(one) for one in waiting)
    assert [line.take(now)[0].asked[0] for now in (0.5, 1.5, 2.0, 3.0, 4.0, 5.0)] == [0, 1, "one", 2, "other", 3]
    assert not line._last_turn


def test_the_requests_of_one_client_go_by_when_they_are_due_whenever_it_had_a_turn():
    for turn in (0.0, 0.2, 5.0):
        line = WaitingLine(100)
        waiting = [Waiting(kind, [], began, None) for began in (0.0, 0.1, 0.4) for kind in ("recommend", "compare")]
        waiting.append(Waiting("predict", [], 0.2, None))
        assert all(line.add(one) for one in waiting)
        assert [line.take(turn)[0].due for _ in waiting] == sorted(one.due for one in waiting)


def test_a_line_that_is_over_full_loses_nobody():
    """Who comes back from an engine that died has a place beside the others."""

    async def everything():
        engine, other = OneEngine(), OneEngine()
        pool = await pool_of(engine, most=2)
        asking = await asked_by(pool, "aaa")
        engine.line.close()
        await until(lambda: len(pool.line) == 3)
        asking += await asked_by(pool, "b")
        await join(pool, other)
        other.may_answer.release(100)
        found = await asyncio.gather(*asking, return_exceptions=True)
        await pool.close()
        return [one.status if isinstance(one, Problem) else one for one in found]

    assert asyncio.run(everything()) == [b"['a0']", b"['a1']", 503, b"['b0']"]


def test_an_app_tells_the_line_which_client_asks():
    """Addresses of one network of 64 bits are one client."""
    from starlette import testclient

    from carp.serve.routes import app_for

    seen = []

    class Seeing:
        facts, alive, ready = None, 1, True

        def refusal(self):
            return None

        async def ask(self, kind, *asked):
            seen.append(ASKED_BY.get())
            return b"{}"

    for address in ("192.0.2.7", "2001:db8:1:2:3::4", "::ffff:192.0.2.7"):
        testclient.TestClient(app_for(Seeing()), client=(address, 5)).get("/api/users")
    assert seen == ["192.0.2.7", "2001:db8:1:2::/64", "192.0.2.7"]
