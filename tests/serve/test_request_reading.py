"""Requests are read a bounded piece at a time, and what is refused on the way is answered, counted and logged."""

from __future__ import annotations

import contextlib
import json

import pytest

from carp.serve import http_connection
from carp.serve.front_door import STEPS_OF_A_ROUND, FrontDoor
from carp.serve.request_reading import LARGEST_HEAD, PIECE, RequestReader
from opened_door import HEALTH, asking_at_once, most_in_a_round, until, with_door

CHUNKED = b"POST /some HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
TINY = CHUNKED + b"1\r\n-\r\n" * 20_000 + b"0\r\n\r\n"
EMPTY_HEADERS = b"GET /some HTTP/1.1\r\nHost: localhost\r\n" + b"A:\r\n" * 98 + b"\r\n"


@pytest.fixture
def read(monkeypatch):
    """The pieces that are read, by their size and by the steps they took."""
    sizes, steps, original = [], [], RequestReader.read

    def noting(self, piece):
        sizes.append(len(piece))
        steps.append(original(self, piece))
        return steps[-1]

    monkeypatch.setattr(RequestReader, "read", noting)
    return sizes, steps


@pytest.mark.parametrize("beside", [b"0\r\nX: ", b"0;x=", b"5;x="])
def test_what_follows_a_body_or_stands_beside_it_is_not_kept_while_it_grows(read, beside):
    async def test(opened):
        reader, writer = await opened.connect(CHUNKED + b"2\r\n{}\r\n" + beside)
        with contextlib.suppress(ConnectionError):
            for _ in range(20):
                writer.write(b"a" * 65_536)
                await writer.drain()
        with contextlib.suppress(ConnectionError):
            assert b" 431 " in await reader.readline()
        writer.close()
        assert opened.app.begun == 0
        assert [line["status"] for line in opened.logged()] == [431]

    with_door(test)
    assert sum(read[0]) <= LARGEST_HEAD + 2 * PIECE


def test_headers_after_the_body_are_no_headers_of_a_request():
    trailed = b"X-Carp-Admin: reload\r\nAuthorization: Bearer a-key-of-many-characters\r\n"

    async def test(opened):
        sent = CHUNKED + b"2\r\n{}\r\n0\r\n" + trailed + b"\r\n" + b"GET /some HTTP/1.0\r\nHost: x\r\n\r\n"
        received = await opened.asked(sent)
        assert received.count(b"HTTP/1.1 200 ") == 2
        return opened.app.seen

    assert [{name for name, _ in one} for one in with_door(test)] == [{b"host", b"transfer-encoding"}, {b"host"}]


def test_headers_after_the_body_are_counted_like_others():
    sent = CHUNKED + b"0\r\n" + b"X: y\r\n" * 200 + b"\r\n"
    assert with_door(lambda opened: opened.asked(sent)).startswith(b"HTTP/1.1 431 ")


def test_a_body_in_chunks_of_next_to_nothing_is_refused():
    async def test(opened):
        sent = CHUNKED + b"1\r\n-\r\n" * 100_000 + b"0\r\n\r\n"
        received = await opened.asked(sent)
        assert received.startswith(b"HTTP/1.1 413 ")
        assert "larger chunks" in json.loads(received.partition(b"\r\n\r\n")[2])["fix"]
        assert (await opened.asked(TINY + HEALTH.replace(b"1.1", b"1.0"))).count(b" 200 ") == 2

    with_door(test)


@pytest.mark.parametrize("sent", [TINY, EMPTY_HEADERS * 50])
def test_no_round_of_the_event_loop_reads_more_than_some_steps(read, sent):
    async def test(opened):
        whole = 4 * sent.count(b" /some ")
        return await most_in_a_round(opened, [sent] * 4, lambda: sum(read[1]), lambda: opened.app.begun == whole)

    assert with_door(test) <= STEPS_OF_A_ROUND + PIECE


def test_health_is_read_before_all_bodies_in_small_chunks():
    async def test(opened):
        with asking_at_once(opened, [*[TINY] * 8, HEALTH]):
            await until(lambda: opened.app.begun == 9)
        return opened.app.begun_before_health

    assert with_door(test) == 0


def test_a_short_request_is_read_at_once_though_others_have_had_all_turns_of_this_round(monkeypatch):
    monkeypatch.setattr(FrontDoor, "may_read", False)

    async def test(opened):
        opened.door.read_later = lambda connection: connection.abort()  # who waits for its turn leaves
        assert (await opened.asked(HEALTH.replace(b"1.1", b"1.0"))).startswith(b"HTTP/1.1 200 ")
        with contextlib.suppress(ConnectionError):
            assert await opened.asked(TINY) == b""

    with_door(test)


def test_a_client_that_sends_on_and_on_is_read_no_further_than_it_is_answered(read):
    async def test(opened):
        _, writer = await opened.connect(b"GET /wait HTTP/1.1\r\nHost: x\r\n\r\n" + EMPTY_HEADERS * 500)
        await until(lambda: opened.app.begun == 1)
        (one,) = opened.door.connections
        await until(lambda: one._paused_reading)
        for _ in range(20):
            opened.door.read_later(one)
            await until(lambda: one not in opened.door._reading)
        writer.close()
        return len(one._complete)

    assert with_door(test) <= http_connection.MOST_PIPELINED + PIECE // len(EMPTY_HEADERS) + 2


@pytest.mark.parametrize(
    "line", [b"CONNECT example.com:443", b"GET http://[::bad/api/about", b"GET http:///x", b"OPTIONS *"]
)
def test_an_address_that_is_none_is_answered_counted_and_logged(line):
    counted = []

    async def test(opened):
        opened.door.count_refusal = lambda status, seconds: counted.append((status, seconds >= 0))
        opened.door.common_headers = lambda: b"x-carp-bundle: sum\r\n"
        received = await opened.asked(line + b" HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: mine-1\r\n\r\n")
        head, _, body = received.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400 ")
        assert b"x-carp-bundle: sum" in head
        assert b"x-request-id: mine-1" in head
        assert json.loads(body)["fix"]
        (logged,) = opened.logged()
        assert (logged["id"], logged["method"], logged["route"]) == ("mine-1", line.split()[0].decode(), "other")
        assert logged["ms"] >= 0

    with_door(test)
    assert counted == [(400, True)]


def test_what_was_asked_before_is_answered_before_a_refusal():
    sent = HEALTH + HEALTH + b"CONNECT example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n"
    received = with_door(lambda opened: opened.asked(sent))
    assert [part[:3] for part in received.split(b"HTTP/1.1 ")[1:]] == [b"200", b"200", b"400"]


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"POST / HTTP/1.1\r\nHost: x\r\nX-Request-Id: mine-1\r\nContent-Length: 2000000\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\nHost: x\r\nX-Request-Id: mine-1\r\n" + b"X: y\r\n" * 200, 431),
        (b"POST / HTTP/1.1\r\nHost: x\r\nX-Request-Id: mine-1\r\nX: y\r\nX", 408),
        (b"POST / HTTP/1.1\r\nHost: x\r\nX-Request-Id: mine-1\r\nContent-Length: 2\r\n\r\n-", 408),
    ],
)
def test_a_refusal_at_the_door_has_the_clients_own_id(monkeypatch, sent, status):
    for stage in ("head", "body"):
        monkeypatch.setitem(http_connection.STAGES, stage, 0.05)

    async def test(opened):
        received = await opened.asked(sent)
        assert received.startswith(b"HTTP/1.1 %d " % status)
        assert b"x-request-id: mine-1\r\n" in received
        assert json.loads(received.partition(b"\r\n\r\n")[2])["id"] == "mine-1"
        (logged,) = opened.logged()
        assert [logged[name] for name in ("id", "method", "route", "status")] == ["mine-1", "POST", "other", status]

    with_door(test)


def test_a_refused_head_has_no_body():
    sent = b"HEAD /some HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * 200 + b"\r\n"
    received = with_door(lambda opened: opened.asked(sent))
    assert received.startswith(b"HTTP/1.1 431 ")
    assert received.endswith(b"\r\n\r\n")
    assert b"content-length: " in received
