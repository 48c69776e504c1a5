"""Connections on real sockets, before a small app: limits, patience, order, and an end that loses nobody."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket

import pytest

from carp.serve import http_connection, request_reading
from carp.serve.front_door import (
    ACCEPTED_AT_ONCE,
    BEGUN_AT_ONCE,
    BEGUN_IN_A_CROWD,
    SENT_AWAY_AT_ONCE,
    refuse_new,
)
from carp.serve.request_reading import RequestReader
from opened_door import REQUEST, answer_of, asking_at_once, most_in_a_round, until, waiting, with_door


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET /" + b"a" * 70_000, b"414"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Long: " + b"a" * 3_000_000, b"431"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 200 + b"\r\n", b"431"),
        (b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1900000\r\n\r\n" + b"a" * 900_000, b"413"),
        (
            b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
            + 260 * (b"1388\r\n%5000d\r\n" % 1),
            b"413",
        ),
        (b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\na", b"400"),
        (b"\x16\x03\x01\x02\x00", b"400"),
    ],
)
def test_what_is_too_large_or_no_http_is_answered_and_closed(sent, status):
    async def test(opened):
        received = await opened.asked(sent)
        head, _, body = received.partition(b"\r\n\r\n")
        assert head.split()[1] == status
        assert b"connection: close" in head
        assert opened.app.begun == 0
        problem = json.loads(body)
        assert [problem["id"]] == [line["id"] for line in opened.logged() if line["event"] == "request"]
        assert problem["fix"]

    with_door(test)


def test_a_long_header_is_not_kept_while_it_grows(monkeypatch):
    """Whatever a client sends before its headers end, the service holds no more than its limit of it."""
    fed = []

    async def test(opened):
        reader, writer = await opened.connect(b"GET / HTTP/1.1\r\nX: ")
        with contextlib.suppress(ConnectionError):
            for _ in range(200):
                writer.write(b"a" * 65536)
                await writer.drain()
        with contextlib.suppress(ConnectionError):
            assert b" 431 " in await reader.read()
        writer.close()

    original = RequestReader.read
    monkeypatch.setattr(RequestReader, "read", lambda self, piece: fed.append(len(piece)) or original(self, piece))
    with_door(test)
    assert sum(fed) <= request_reading.LARGEST_HEAD


@pytest.mark.parametrize(
    ("stage", "sent"),
    [
        ("head", b"GET / HTTP/1.1\r\nHost: loc"),
        ("head", b"GE"),
        ("body", b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nhalf"),
    ],
)
def test_a_client_that_sends_too_slowly_is_told_and_closed(monkeypatch, stage, sent):
    monkeypatch.setitem(http_connection.STAGES, stage, 0.05)

    async def test(opened):
        received = await opened.asked(sent)
        assert received.startswith(b"HTTP/1.1 408 ")
        assert opened.app.begun == 0
        assert [line["detail"] for line in opened.logged()] == [http_connection.REASONS[stage]]

    with_door(test)


@pytest.mark.parametrize(("stage", "sent"), [("head", b""), ("idle", REQUEST % 1)])
def test_a_client_that_says_nothing_is_closed(monkeypatch, stage, sent):
    monkeypatch.setitem(http_connection.STAGES, stage, 0.05)
    received = with_door(lambda opened: opened.asked(sent))
    assert received.count(b"HTTP/1.1") == bool(sent)


def test_a_client_that_does_not_take_its_answers_is_cut_off(monkeypatch):
    monkeypatch.setitem(http_connection.STAGES, "writing", 0.05)

    async def test(opened):
        large = REQUEST.replace(b"/some", b"/" + b"x" * 30_000)
        _, writer = await opened.connect()
        writer.transport.pause_reading()
        with contextlib.suppress(ConnectionError):
            for n in range(3_000):
                writer.write(large % n)
                await writer.drain()
        await until(lambda: not opened.door.connections)
        writer.close()
        assert "the answer was not taken in time" in [line.get("reason") for line in opened.logged()]

    with_door(test)


def test_requests_sent_at_once_are_answered_in_order():
    async def test(opened):
        reader, writer = await opened.connect(b"".join(REQUEST % n for n in range(60)))
        found = [json.loads((await answer_of(reader))[1])[2] for _ in range(60)]
        writer.close()
        return found

    assert with_door(test) == [f"n={n}" for n in range(60)]


def test_a_request_may_come_in_any_pieces():
    whole = (
        b"POST /some HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    )

    async def test(opened):
        reader, writer = await opened.connect()
        for n in range(len(whole)):
            writer.write(whole[n : n + 1])
            await writer.drain()
        _, body = await answer_of(reader)
        writer.close()
        return json.loads(body)

    assert with_door(test) == ["POST", "/some", "", 5]


def test_a_body_is_asked_for_when_the_client_waits_for_that():
    async def test(opened):
        head = b"POST /some HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n"
        reader, writer = await opened.connect(head)
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"abc")
        _, body = await answer_of(reader)
        writer.close()
        return json.loads(body)[3]

    assert with_door(test) == 3


def test_head_has_the_headers_and_no_body():
    received = with_door(lambda opened: opened.asked(b"HEAD /some HTTP/1.0\r\nHost: localhost\r\n\r\n"))
    assert b"content-length: 24" in received
    assert received.endswith(b"\r\n\r\n")


def test_an_offer_to_change_the_protocol_is_not_taken():
    sent = b"GET /some HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\r\n"
    received = with_door(lambda opened: opened.asked(sent))
    assert received.startswith(b"HTTP/1.1 200 ")


def test_an_app_that_fails_costs_its_own_connection_alone():
    async def test(opened):
        assert (await opened.asked(b"GET /fail HTTP/1.1\r\nHost: x\r\n\r\n")).startswith(b"HTTP/1.1 500 ")
        return await opened.asked(b"GET /some HTTP/1.0\r\nHost: x\r\n\r\n")

    assert with_door(test).startswith(b"HTTP/1.1 200 ")


def test_who_leaves_is_not_worked_for_any_longer():
    async def test(opened):
        clients = await waiting(opened, 30)
        for _, writer in clients:
            writer.close()
        await until(lambda: opened.app.left == 30)
        assert not opened.door.connections

    with_door(test)


def test_a_probe_behind_a_crowd_is_taken_before_the_crowd_is_answered():
    crowd = [REQUEST % n for n in range(10 * ACCEPTED_AT_ONCE)]

    async def test(opened):
        with asking_at_once(opened, [*crowd, b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"]):
            await until(lambda: opened.app.begun > len(crowd))
        return opened.app.begun_before_health

    assert with_door(test, most=500) <= 2 * 10 * BEGUN_IN_A_CROWD


def test_a_large_body_takes_the_turns_of_several_requests(monkeypatch):
    """Reading one takes so long that health would wait for eight of them."""
    monkeypatch.setattr(http_connection, "BODY_OF_A_TURN", 100)
    large = b"POST /some HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n" + bytes(1000)

    async def most_begun(opened, requests):
        return await most_in_a_round(opened, requests, lambda: opened.app.begun)

    assert with_door(lambda opened: most_begun(opened, [large] * 20)) == 1
    assert with_door(lambda opened: most_begun(opened, [REQUEST % 1] * 20)) == BEGUN_AT_ONCE


def test_many_whose_time_is_over_are_sent_away_a_few_at_a_time(monkeypatch):
    monkeypatch.setitem(http_connection.STAGES, "head", 0.0)
    refused = []

    async def test(opened):
        opened.door.count_refusal = lambda status, seconds: refused.append(status)
        begun = [b"GET / HTTP/1.1\r\nX: "] * (3 * SENT_AWAY_AT_ONCE)
        return await most_in_a_round(opened, begun, lambda: len(refused))

    assert with_door(test, most=500) <= SENT_AWAY_AT_ONCE
    assert set(refused) == {408}


def test_where_all_places_are_taken_the_longest_quiet_one_goes():
    async def test(opened):
        slow = [await opened.connect(b"GET / HTTP/1.1\r\nX: ") for _ in range(5)]
        await until(lambda: len(opened.door.connections) == 5)
        received = await opened.asked(b"GET /some HTTP/1.0\r\nHost: x\r\n\r\n")
        assert received.startswith(b"HTTP/1.1 200 ")
        with contextlib.suppress(ConnectionError):
            assert await slow[0][0].read() == b"", "who came first and sent nothing whole lost its place"
        assert opened.door.evicted == 1
        for _, writer in slow:
            writer.close()

    with_door(test, most=5)


def test_where_all_places_are_being_answered_the_next_one_is_told_so():
    async def test(opened):
        busy = await waiting(opened, 5)
        received = await opened.asked(REQUEST % 1)
        assert received.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 1" in received
        opened.app.go_on.set()
        for reader, writer in busy:
            assert (await answer_of(reader))[0].startswith(b"HTTP/1.1 200 ")
            writer.close()

    with_door(test, most=5)


def test_a_stop_answers_everything_that_was_sent_and_everybody_who_connected():
    async def test(opened):
        asked = await waiting(opened, 20)
        idle = [await opened.connect(REQUEST % n) for n in range(5)]
        for reader, _ in idle:
            await answer_of(reader)
        late = [socket.create_connection(("127.0.0.1", opened.port)) for _ in range(10)]  # nobody has taken them yet
        for n, one in enumerate(late):
            one.sendall(REQUEST % n)
            one.setblocking(False)
        closing = asyncio.create_task(opened.door.close())
        await asyncio.sleep(0)
        for n, (_, writer) in enumerate(idle):
            writer.write(REQUEST % n)
        heads = [(await answer_of(reader))[0] for reader, _ in idle]
        for one in late:
            reader, writer = await asyncio.open_connection(sock=one)
            heads.append((await answer_of(reader))[0])
            writer.close()
        opened.app.go_on.set()
        for reader, writer in asked:
            heads.append((await answer_of(reader))[0])
            writer.close()
        for _, writer in idle:
            writer.close()
        assert all(head.startswith(b"HTTP/1.1 200 ") and b"connection: close" in head for head in heads)
        assert len(heads) == 35
        assert await closing == 0
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", opened.port))

    with_door(test)


def test_a_stop_does_not_wait_for_ever_and_says_how_many_it_cut_off():
    async def test(opened):
        _, writer = await opened.connect(b"GET /wait HTTP/1.1\r\nHost: x\r\n\r\n")
        await until(lambda: opened.app.begun == 1)
        assert await opened.door.close(patience=0.05) == 1
        writer.close()

    with_door(test)


def test_a_listening_socket_can_refuse_the_new_and_keep_those_who_wait():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        waiting = socket.create_connection(listening.getsockname())
        waiting.sendall(b"asked")
        if not refuse_new(listening):
            pytest.skip("this system has no filters for sockets")
        with socket.socket() as late:
            late.settimeout(0.1)
            with pytest.raises(TimeoutError):
                late.connect(listening.getsockname())
        taken, _ = listening.accept()
        assert taken.recv(5) == b"asked"
        for one in (taken, waiting):
            one.close()


def test_bodies_of_all_connections_together_have_a_limit_too(monkeypatch):
    monkeypatch.setattr(request_reading, "MOST_HELD", 250_000)
    half = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n\r\n" + b"a" * 100_000

    async def test(opened):
        slow = [await opened.connect(half) for _ in range(2)]
        await until(lambda: opened.door.held == 200_000)
        assert (await opened.asked(half)).startswith(b"HTTP/1.1 503 ")
        slow[0][1].close()
        await until(lambda: opened.door.held == 100_000)
        received = await opened.asked(half.replace(b"HTTP/1.1", b"HTTP/1.0").replace(b"200000", b"100000"))
        assert json.loads(received.partition(b"\r\n\r\n")[2])[3] == 100_000
        slow[1][1].close()
        await until(lambda: opened.door.held == 0)

    with_door(test)


def test_a_client_whose_bodies_take_most_of_the_room_makes_room_for_those_of_others(monkeypatch):
    monkeypatch.setattr(request_reading, "MOST_HELD", 250_000)
    clients = iter(["many", "many", "many", "other"])
    monkeypatch.setattr(http_connection, "client_of", lambda address: next(clients))
    begun = b"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 100000\r\n\r\n" + b"a" * 80_000

    async def test(opened):
        slow = []
        for number in (1, 2, 3):
            slow.append(await opened.connect(begun))
            await until(lambda: opened.door.held == number * 80_000)  # noqa: B023 (it is awaited in this very round)
        assert (await opened.asked(begun + b"a" * 20_000)).startswith(b"HTTP/1.1 200 ")
        slow[2][1].write(b"a" * 20_000)
        assert [(await reader.read())[9:12] for reader, _ in slow] == [b"503", b"503", b"200"]

    with_door(test)


def test_a_body_is_held_until_its_request_is_answered_though_the_next_one_has_begun():
    async def test(opened):
        reader, _ = await opened.connect(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhelloPOST / HTTP")
        assert (await answer_of(reader))[1].endswith(b"5]")
        await until(lambda: not opened.door.held)

    with_door(test)
