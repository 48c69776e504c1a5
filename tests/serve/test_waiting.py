"""The line before the engines: bounded, fair, and forgetful of those who left."""

from __future__ import annotations

import asyncio
import random
import socket
import sys

import pytest

from carp.serve.engine_pool import EnginePool
from carp.serve.log_lines import LogLines
from carp.serve.problems import Problem
from carp.serve.waiting_line import TOGETHER, Waiting, WaitingLine
from played_engines import NO_PROCESS, KilledEngine, OneEngine, pool_of, settled


def waiting(kind, began=0.0):
    return Waiting(kind, [], began, None)


def test_the_line_takes_so_many_and_no_more():
    line = WaitingLine(3)
    entries = [waiting("recommend") for _ in range(5)]
    assert [line.add(one) for one in entries] == [True, True, True, False, False]
    line.leave(entries[1])
    assert line.add(entries[3])
    assert [line.take() for _ in range(4)] == [[entries[0]], [entries[2]], [entries[3]], []]
    assert len(line) == 0


def test_nobody_waits_for_ever_behind_the_quick_ones():
    line = WaitingLine(1000)
    slow = waiting("recommend", began=0.0)
    line.add(slow)
    taken, now = [], 0.0
    while slow not in taken:
        now += 0.01
        assert now < 1, "later requests cannot keep an earlier one waiting"
        line.add(waiting("predict", began=now))
        taken = line.take()


def test_any_order_of_coming_leaving_and_taking_loses_and_doubles_nobody():
    for seed in range(30):
        drawn = random.Random(seed)
        line, here, taken, left = WaitingLine(40), [], [], []
        for step in range(400):
            act = drawn.random()
            if act < 0.55:
                one = waiting(drawn.choice(["predict", "explain", "recommend"]), step / 1000)
                if line.add(one):
                    here.append(one)
                else:
                    assert len(here) == 40
            elif act < 0.75 and here:
                one = here.pop(drawn.randrange(len(here)))
                assert line.leave(one)
                assert not line.leave(one), "who has left cannot leave again"
                left.append(one)
            else:
                some = line.take()
                assert len(some) <= TOGETHER.get(some[0].kind, 1) if some else not here
                assert len({one.kind for one in some}) <= 1
                taken += some
                here = [one for one in here if one not in some]
            assert len(line) == len(here)
        assert not set(taken) & set(left)
        assert len(set(taken)) == len(taken)


def test_answers_reach_those_who_asked_and_refusals_are_problems():
    async def everything():
        engine = OneEngine()
        pool = await pool_of(engine)
        engine.may_answer.release(10)
        found = await asyncio.gather(*(pool.ask("users", name) for name in ("a", "b", "no")), return_exceptions=True)
        await pool.close()
        return found, pool.hits, pool.misses

    (one, other, refused), hits, misses = asyncio.run(everything())
    assert (one, other) == (b"['a']", b"['b']")
    assert isinstance(refused, Problem)
    assert refused.status == 404
    assert (hits, misses) == (1, 2)


async def asked_of_one_engine(requests, most):
    engine = OneEngine()
    pool = await pool_of(engine, most=most)
    asking = [asyncio.create_task(pool.ask("recommend", str(n))) for n in range(requests)]
    await settled()
    return engine, pool, asking


def test_what_was_abandoned_is_not_computed():
    async def everything():
        engine, pool, asking = await asked_of_one_engine(50, most=100)
        for one in asking[1:49]:
            one.cancel()
        await settled()
        assert len(pool.line) == 1
        engine.may_answer.release(50)
        answers = await asyncio.gather(asking[0], asking[49])
        await pool.close()
        return answers, [call.asked for call in engine.asked], pool.abandoned

    answers, asked, abandoned = asyncio.run(everything())
    assert answers == [b"['0']", b"['49']"]
    assert asked == [[["0"]], [["49"]]]
    assert abandoned == 48


def test_a_full_line_is_answered_by_503_and_taken_up_again_when_there_is_room():
    async def everything():
        engine, pool, asking = await asked_of_one_engine(6, most=3)
        engine.may_answer.release(10)
        found = await asyncio.gather(*asking, return_exceptions=True)
        again = await pool.ask("recommend", "again")
        await pool.close()
        return found, again

    found, again = asyncio.run(everything())
    assert found[:4] == [b"['0']", b"['1']", b"['2']", b"['3']"], "one is computed, three wait"
    for refused in found[4:]:
        assert isinstance(refused, Problem)
        assert refused.status == 503
        assert int(refused.headers["retry-after"]) >= 1
    assert again == b"['again']"


def test_what_an_engine_was_at_when_it_died_is_answered_by_another():
    async def everything():
        dying, other = OneEngine(), OneEngine()
        pool = await pool_of(other, dying)  # the last one is asked first
        asking = asyncio.create_task(pool.ask("recommend", "x"))
        await settled()
        dying.line.shutdown(socket.SHUT_RDWR)
        other.may_answer.release()
        found = await asking
        restarts = pool.restarts
        await pool.close()
        return found, restarts

    assert asyncio.run(everything()) == (b"['x']", 1)


def test_a_request_that_kills_its_engines_is_given_to_two_and_no_more():
    async def everything():
        engines = [OneEngine() for _ in range(3)]
        for engine in engines:
            engine.may_answer.release(5)
        pool = await pool_of(*engines)
        with pytest.raises(Problem) as refused:
            await pool.ask("die")
        alive = pool.alive
        await pool.close()
        return refused.value.status, alive

    assert asyncio.run(everything()) == (500, 1)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells that a line was closed with a request unread")
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_engines_that_were_killed_before_they_read_a_request_do_not_count_against_it(loop):
    async def everything():
        other, *killed = OneEngine(), KilledEngine(), KilledEngine(), KilledEngine()
        other.may_answer.release()
        pool = await pool_of(other, *killed)  # the last one is asked first
        asking = asyncio.create_task(pool.ask("recommend", "x"))
        await settled()
        for engine in reversed(killed):
            engine.end()
        found = await asking
        alive = pool.alive
        await pool.close()
        return found, alive

    with asyncio.Runner(loop_factory=pytest.importorskip(loop).new_event_loop) as runner:
        assert runner.run(everything()) == (b"['x']", 1)


def test_before_the_model_is_there_requests_are_told_when_to_ask_again():
    async def everything():
        pool = EnginePool(1, LogLines(None))
        assert not pool.ready
        with pytest.raises(Problem) as refused:
            await pool.ask("explain", "a", "b")
        return refused.value

    refused = asyncio.run(everything())
    assert (refused.status, refused.headers["retry-after"]) == (503, "2")
    assert "loaded" in refused.detail


def test_who_has_waited_too_long_is_let_go():
    async def everything():
        pool = await pool_of(OneEngine())
        asking = [asyncio.create_task(pool.ask("recommend", str(n))) for n in range(3)]
        await settled()
        pool.let_go(asyncio.get_running_loop().time() + 1000)
        found = await asyncio.gather(*asking[1:], return_exceptions=True)
        asking[0].cancel()
        await pool.close()
        return found

    assert [problem.status for problem in asyncio.run(everything())] == [503, 503]


def test_an_engine_that_is_at_one_call_for_ever_is_ended(monkeypatch):
    ended = []
    monkeypatch.setattr("carp.serve.engine_generation.os.kill", lambda process, number: ended.append(process))

    async def everything():
        pool = await pool_of(OneEngine(), OneEngine())
        asking = asyncio.create_task(pool.ask("recommend", "x"))
        await settled()
        now = asyncio.get_running_loop().time()
        pool.let_go(now)
        assert not ended
        pool.let_go(now + 1000)
        assert ended == [NO_PROCESS + 1], "the one that was asked, and no other"
        asking.cancel()
        await pool.close()

    asyncio.run(everything())


def test_where_answers_take_long_fewer_may_wait():
    async def everything():
        engine = OneEngine(seconds=10.0)
        pool = await pool_of(engine, most=1000)
        engine.may_answer.release()
        await pool.ask("recommend", "first")
        asking = [asyncio.create_task(pool.ask("recommend", str(n))) for n in range(100)]
        await settled()
        refused = [one.exception() for one in asking if one.done()]
        for one in asking:
            one.cancel()
        await pool.close()
        return refused

    refused = asyncio.run(everything())
    assert len(refused) == 100 - 1 - 64, "one is computed, 64 wait"
    assert {problem.status for problem in refused} == {503}
    assert {int(problem.headers["retry-after"]) > 1 for problem in refused} == {True}
