"""A stop answers all that a client had sent by then, also several requests at once, and has an end nevertheless."""

from __future__ import annotations

import asyncio
import contextlib
import json

import pytest

from carp.serve import http_connection
from carp.serve.front_door import READ_AT_ONCE
from opened_door import REQUEST, answer_of, until, with_door

SLOW = b"GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n"
CLOSES = b"connection: close"


async def stopping(opened, **options):
    """A stop that has begun, and has reached every connection."""
    closing = asyncio.create_task(opened.door.close(**options))
    await until(lambda: opened.door.stopping and not opened.door._listening)
    return closing


async def answers_until_closed(reader):
    """Whether each answer says that it is the last, and what was asked."""
    found = []
    while not found or not found[-1][0]:
        head, body = await answer_of(reader)
        assert head.startswith(b"HTTP/1.1 200 ")
        found.append((CLOSES in head, json.loads(body)[2]))
    assert await reader.read() == b""
    return found


@pytest.mark.parametrize("number", [1, 5, http_connection.MOST_PIPELINED + 5, 3 * READ_AT_ONCE // len(REQUEST)])
def test_requests_that_were_sent_at_once_are_all_answered_though_the_service_stops_at_the_first(number):
    async def test(opened):
        reader, writer = await opened.connect(SLOW + b"".join(REQUEST % n for n in range(number)))
        await until(lambda: opened.app.begun == 1)
        closing = await stopping(opened)
        opened.app.go_on.set()
        found = await answers_until_closed(reader)
        writer.close()
        assert [asked for _, asked in found] == ["", *(f"n={n}" for n in range(number))]
        assert [last for last, _ in found] == [False] * number + [True]
        assert await closing == 0

    with_door(test)


def test_a_request_that_had_begun_when_the_service_stopped_is_answered():
    async def test(opened):
        whole = REQUEST % 2
        reader, writer = await opened.connect(SLOW + REQUEST % 1 + whole[:20])
        await until(lambda: opened.app.begun == 1)
        closing = await stopping(opened)
        opened.app.go_on.set()
        answers = [await answer_of(reader) for _ in range(2)]
        assert not any(CLOSES in head for head, _ in answers)
        writer.write(whole[20:])
        assert await answers_until_closed(reader) == [(True, "n=2")]
        writer.close()
        assert await closing == 0

    with_door(test)


@pytest.mark.parametrize("length", [0, 11, 1_000])
def test_a_client_that_always_has_the_next_request_under_way_does_not_hold_up_a_stop(length):
    async def test(opened):
        request = (REQUEST % 1).replace(b"/some", b"/" + b"x" * length)
        reader, writer = await opened.connect(SLOW)
        await until(lambda: opened.app.begun == 1)

        async def ask_on():
            with contextlib.suppress(ConnectionError):
                while True:
                    writer.write(10 * request)
                    await writer.drain()
                    await asyncio.sleep(0)

        asking = asyncio.create_task(ask_on())
        closing = await stopping(opened)
        opened.app.go_on.set()
        heads = []
        while not heads or CLOSES not in heads[-1]:
            heads.append((await answer_of(reader))[0])
        asking.cancel()
        writer.close()
        assert await closing == 0
        return len(heads)

    assert with_door(test) > 1


def test_a_client_that_asks_several_things_in_the_moment_of_a_stop_is_answered():
    async def test(opened):
        reader, writer = await opened.connect(REQUEST % 0)
        await answer_of(reader)
        closing = await stopping(opened)
        writer.write(REQUEST % 1 + REQUEST % 2)
        assert await answers_until_closed(reader) == [(False, "n=1"), (True, "n=2")]
        writer.close()
        assert await closing == 0

    with_door(test)


@pytest.mark.parametrize("impatient", [False, True])
def test_every_request_that_a_stop_leaves_unanswered_is_counted(impatient):
    async def test(opened):
        _, writer = await opened.connect(SLOW + b"".join(REQUEST % n for n in range(5)))
        await until(lambda: opened.app.begun == 1)
        closing = await stopping(opened, patience=1_000.0 if impatient else 0.0)
        if impatient:
            for one in list(opened.door.connections):
                one.abort()
        assert await closing == 6
        writer.close()

    with_door(test)


def test_requests_behind_one_that_fails_are_counted_when_the_service_stops():
    async def test(opened):
        failing = b"GET /fail HTTP/1.1\r\nHost: localhost\r\n\r\n"
        reader, writer = await opened.connect(SLOW + failing + REQUEST % 1 + REQUEST % 2)
        await until(lambda: opened.app.begun == 1)
        closing = await stopping(opened)
        opened.app.go_on.set()
        assert CLOSES not in (await answer_of(reader))[0]
        assert (await answer_of(reader))[0].startswith(b"HTTP/1.1 500 ")
        writer.close()
        assert await closing == 2

    with_door(test)
