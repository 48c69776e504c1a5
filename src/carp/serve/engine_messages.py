"""What the process at the door and the processes that compute say to each other: frames of plain values."""

from __future__ import annotations

import socket
import struct
from contextvars import ContextVar
from typing import Any

import msgspec

from carp.serve.problems import Problem

LENGTH = struct.Struct("<I")


class Call(msgspec.Struct, array_like=True):
    """Several requests of one kind, answered together."""

    kind: str
    asked: list[list[Any]]  # the arguments of each


class Refused(msgspec.Struct, array_like=True):
    """A problem on its way between two processes."""

    status: int
    detail: str
    fix: str | None
    kind: str
    more: dict[str, Any]


class Reply(msgspec.Struct, array_like=True):
    """The answers to a call, in its order: JSON, or why there is none."""

    answers: list[bytes | Refused]
    seconds: float  # of computing
    hits: int  # of the memory for explanations, since the engine began
    misses: int
    failures: list[str | None]  # for the log: what went wrong inside, if anything did


class Progress(msgspec.Struct, array_like=True, tag=True):
    """What the loader is at."""

    stage: str


class Loaded(msgspec.Struct, array_like=True, tag=True):
    """The model is there: who it is, and what /api/about says."""

    bundle: str  # the sha256 sum of its manifest
    model: str
    about: bytes


# The model that gave the answer to the present request: another one may be served by the time it is sent.
ANSWERED_BY: ContextVar[Loaded | None] = ContextVar("answered_by", default=None)
ASKED_BY: ContextVar[str] = ContextVar("asked_by", default="")  # the client of the present request


class EngineStarted(msgspec.Struct, array_like=True, tag=True):
    """A new engine; the door's end of its line comes with this message."""

    process: int


class LoadFailed(msgspec.Struct, array_like=True, tag=True):
    """The model cannot be served."""

    what: str
    where: str | None
    fix: str | None
    exit_code: int


News = Progress | Loaded | EngineStarted | LoadFailed


def refused(problem: Problem) -> Refused:
    return Refused(problem.status, problem.detail, problem.fix, problem.kind, problem.more)


def problem_again(refusal: Refused) -> Problem:
    """The problem that was sent.

    >>> problem_again(refused(Problem(404, "no such thing", nearest="drum"))).more
    {'nearest': 'drum'}
    """
    return Problem(refusal.status, refusal.detail, fix=refusal.fix, kind=refusal.kind, **refusal.more)


def frame(message: Any) -> bytes:
    written = msgspec.msgpack.encode(message)
    return LENGTH.pack(len(written)) + written


class FrameReader:
    """Puts frames together again from the pieces in which they arrive.

    >>> reader = FrameReader()
    >>> whole = frame("one") + frame("two")
    >>> list(reader.feed(whole[:6])), [msgspec.msgpack.decode(one) for one in reader.feed(whole[6:])]
    ([], ['one', 'two'])
    """

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        self._held += data
        whole, at = [], 0
        while len(self._held) - at >= LENGTH.size:
            end = at + LENGTH.size + LENGTH.unpack_from(self._held, at)[0]
            if len(self._held) < end:
                break
            whole.append(bytes(self._held[at + LENGTH.size : end]))
            at = end
        del self._held[:at]
        return whole


def receive_frame(line: socket.socket) -> bytes | None:
    """The next frame of a line that is waited for; None where the other end has gone."""
    head = _receive(line, LENGTH.size)
    return None if head is None else _receive(line, LENGTH.unpack(head)[0])


def _receive(line: socket.socket, size: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < size:
        part = line.recv(size - len(parts))
        if not part:
            return None
        parts += part
    return bytes(parts)
