"""Who gives up a place where all are taken, and who is answered whoever has the places."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket

import pytest

from carp.serve import front_door, http_connection
from carp.serve.access_control import RateLimit
from carp.serve.answer_writing import STRETCH, Outgoing
from carp.serve.connection_places import KEPT_FOR_PROBES, Places
from opened_door import HEALTH, REQUEST, answer_of, until, waiting, with_door

LARGE = b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Someone:
    def __init__(self, client_key, stage="answering"):
        self.client_key = client_key
        self.stage = stage
        self.heard = True


def seated(places, client, number, stage="answering"):
    made = [Someone(client, stage) for _ in range(number)]
    for one in made:
        assert places.seat(one) is None
        places.note_stage(one)
    return made


def test_one_client_may_have_all_places_while_nobody_else_comes():
    places = Places(1_000)
    seated(places, "a", 1_000)
    assert not places.has_room(Someone("a"))


def test_a_client_with_more_than_its_share_makes_room_for_others_until_it_has_its_share():
    places = Places(10, 5)
    answered = seated(places, "a", 6)
    idle = seated(places, "a", 2, "idle")
    not_taking = seated(places, "a", 2, "writing")
    left = []
    while places.has_room(Someone("b")):
        left.append(places.seat(Someone("b")))
    assert left == [*not_taking, *idle, answered[-1]], "who loses nothing goes first"


def test_a_client_that_has_its_share_makes_room_for_itself_alone():
    places = Places(10, 5)
    (own, *_), (other, *_) = seated(places, "a", 5, "idle"), seated(places, "b", 5, "idle")
    assert places.seat(Someone("b")) is other
    assert places.seat(Someone("c")) is own, "where nobody has more than its share, the longest quiet one goes"


def test_places_know_nobody_who_has_left():
    places = Places(4)
    for one in seated(places, "a", 4, "idle"):
        places.leave(one)
    assert len(places) == 0
    assert places.longest_quiet() is None
    assert seated(places, "b", 4)


def test_clients_that_do_not_take_their_answers_lose_their_places_to_those_who_ask():
    async def test(opened):
        with contextlib.ExitStack() as stack:
            deaf = [stack.enter_context(opened.connect_deaf(LARGE * 10)) for _ in range(5)]
            await until(lambda: [one.stage for one in opened.door.connections] == ["writing"] * 5)
            for n in range(3):
                received = await opened.asked(b"GET /some HTTP/1.0\r\nHost: x\r\n\r\n")
                assert received.startswith(b"HTTP/1.1 200 "), n
                await until(lambda: len(opened.door.connections) == 4)
            assert opened.door.evicted == 1, "one place is enough for those who take their answers"
            assert len(deaf) == 5

    with_door(test, most=5)


def test_health_is_answered_where_all_places_are_being_answered_and_nothing_else_is():
    async def test(opened):
        busy = await waiting(opened, 5)
        silent = [await opened.connect() for _ in range(2 * KEPT_FOR_PROBES)]
        await until(lambda: len(opened.door.connections) == 5 + KEPT_FOR_PROBES)
        for _ in range(3):
            received = await opened.asked(HEALTH)  # it also ends, though the client would ask on
            assert received.startswith(b"HTTP/1.1 200 ")
            assert b"connection: close" in received
        assert (await opened.asked(REQUEST % 1)).startswith(b"HTTP/1.1 503 ")
        opened.app.go_on.set()
        for _, writer in (*busy, *silent):
            writer.close()

    with_door(test, most=5)


def test_who_came_without_a_place_has_one_when_it_asks_and_there_is_one_by_then():
    async def test(opened):
        busy = await waiting(opened, 5)
        reader, writer = await opened.connect()
        await until(lambda: len(opened.door.connections) == 6)
        busy[0][1].close()
        await until(lambda: len(opened.door.connections) == 5)
        writer.write(REQUEST % 1)
        assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
        assert not opened.door.connections.guests
        writer.close()

    with_door(test, most=5)


async def first_line(one):
    one.setblocking(False)
    return (await asyncio.get_running_loop().sock_recv(one, 65_536)).partition(b"\r\n")[0]


def test_who_has_just_come_is_heard_before_others_that_come_in_the_same_moment_take_their_place():
    async def test(opened):
        busy = await waiting(opened, 4)
        idle = await opened.connect(REQUEST % 1)
        await answer_of(idle[0])
        with contextlib.ExitStack() as stack:
            come = [stack.enter_context(socket.create_connection(("127.0.0.1", opened.port))) for _ in range(20)]
            for one in come:
                one.sendall(HEALTH)
            assert {await first_line(one) for one in come} == {b"HTTP/1.1 200 OK"}
        opened.app.go_on.set()
        for _, writer in (*busy, idle):
            writer.close()

    with_door(test, most=5)


def test_who_says_nothing_makes_room_after_a_moment(monkeypatch):
    monkeypatch.setattr(front_door, "TIME_TO_SPEAK", 0.0)
    monkeypatch.setattr(front_door, "LOOK", 0.001)

    async def test(opened):
        silent = [await opened.connect() for _ in range(5)]
        await until(lambda: [one.heard for one in opened.door.connections] == [True] * 5)
        assert (await opened.asked(REQUEST.replace(b"1.1", b"1.0") % 1)).startswith(b"HTTP/1.1 200 ")
        assert opened.door.evicted == 1
        for _, writer in silent:
            writer.close()

    with_door(test, most=5)


def test_guests_that_were_answered_leave_before_those_that_were_not_heard_yet_and_these_before_those_who_wait():
    places = Places(1)
    seated(places, "a", 1)
    waits, new, answered = Someone("a", "waiting"), Someone("a", "head"), Someone("a", "lingering")
    new.heard = False
    guests = [waits, new, answered, *(Someone("a", "waiting") for _ in range(KEPT_FOR_PROBES - 3))]
    for one in guests:
        assert places.take_in(one) is None
    assert [places.take_in(Someone("a", "waiting")) for _ in range(3)] == [answered, new, waits]


class NoDescriptors(socket.socket):
    """A listening socket of a process that may open nothing more, until it was asked so many times."""

    def __init__(self, listening, times):
        super().__init__(fileno=listening.detach())
        self.asked = 0
        self.times = times

    def accept(self):
        self.asked += 1
        if self.asked > self.times:
            return super().accept()
        raise OSError(errno.EMFILE, "Too many open files")


@contextlib.contextmanager
def full_door(opened, times):
    listening = NoDescriptors(socket.create_server(("127.0.0.1", 0)), times)
    listening.setblocking(False)
    opened.door.listen(listening)
    with socket.create_connection(listening.getsockname()) as client:
        client.setblocking(False)
        yield listening, client


def test_a_door_without_descriptors_rests_before_it_asks_again(monkeypatch):
    monkeypatch.setattr(front_door, "REST", 3_600.0)

    async def test(opened):
        with full_door(opened, float("inf")) as (listening, _):
            await until(lambda: listening.asked)
            for _ in range(100):
                await asyncio.sleep(0)
            assert listening.asked == 1
            await opened.door.close(patience=0)

    with_door(test)


def test_a_door_without_descriptors_does_not_rest_while_somebody_quiet_can_go(monkeypatch):
    monkeypatch.setattr(front_door, "REST", 3_600.0)

    async def test(opened):
        quiet = [await opened.connect(REQUEST % n) for n in range(3)]
        for reader, _ in quiet:
            await answer_of(reader)
        with full_door(opened, 1) as (_, client):
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(client, HEALTH)
            assert (await loop.sock_recv(client, 65_536)).startswith(b"HTTP/1.1 200 ")
        assert opened.door.evicted == 1
        for _, writer in quiet:
            writer.close()

    with_door(test)


def test_a_door_that_has_descriptors_again_takes_those_who_waited_and_has_told_of_it_once(monkeypatch):
    monkeypatch.setattr(front_door, "REST", 0.0)

    async def test(opened):
        with full_door(opened, 5) as (_, client):
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(client, HEALTH)
            assert (await loop.sock_recv(client, 65_536)).startswith(b"HTTP/1.1 200 ")
        await opened.door.close(patience=0)
        assert [line["event"] for line in opened.logged() if line["event"] != "request"] == ["cannot accept"]

    with_door(test)


@pytest.mark.parametrize("sent", [LARGE, LARGE.replace(b"1.1", b"1.0"), LARGE + b"no HTTP"])
def test_who_takes_nothing_of_a_last_answer_is_cut_off_too(monkeypatch, sent):
    for stage in ("writing", "idle", "lingering"):
        monkeypatch.setitem(http_connection.STAGES, stage, 0.05)

    async def test(opened):
        with opened.connect_deaf(sent):
            await until(lambda: opened.app.begun and not len(opened.door.connections))
        assert "the answer was not taken in time" in [line.get("reason") for line in opened.logged()]

    with_door(test)


class Held:
    """A transport whose system takes everything, and whose client what the test says."""

    def __init__(self):
        self.written = 0

    def write(self, data):
        self.written += len(data)

    def get_write_buffer_size(self):
        return 0


def test_what_the_system_keeps_for_a_client_is_not_taken(monkeypatch):
    """Else each answer that follows would give the one before it more time."""
    taken, transport = [0], Held()
    monkeypatch.setattr(Outgoing, "_unacknowledged", lambda self: transport.written - taken[0])
    outgoing = Outgoing(transport)
    outgoing.write(bytes(100))
    assert outgoing.waits_since(1.0) == 1.0
    for now in (10.0, 20.0, 30.0):
        outgoing.write(bytes(10 * STRETCH))
        assert outgoing.waits_since(now) == 1.0
    taken[0] = 100
    assert outgoing.waits_since(31.0) == 31.0
    taken[0] += STRETCH - 1
    assert outgoing.waits_since(40.0) == 31.0
    taken[0] += 1
    assert outgoing.waits_since(41.0) == 41.0, "who takes a long answer bit by bit has time for each"


def test_what_the_system_keeps_for_a_client_is_told_by_the_system():
    async def test(opened):
        with opened.connect_deaf(LARGE):
            await until(lambda: [one.stage for one in opened.door.connections] == ["writing"])
            (one,) = opened.door.connections
            await asyncio.sleep(0)
            return one._outgoing._unacknowledged()

    assert with_door(test) > 0


def test_the_addresses_of_one_network_are_one_client():
    limit = RateLimit(1)
    assert [limit.refusal(f"2001:db8::{n}", now=0.0) is None for n in (1, 2, 3)] == [True, True, False]
    assert limit.refusal("2001:db8:0:1::1", now=0.0) is None
    assert [limit.refusal(one, now=0.0) is None for one in ("1.2.3.4", "::ffff:1.2.3.4", "1.2.3.4")] == [1, 1, 0]
