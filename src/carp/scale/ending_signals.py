"""Ctrl-C and SIGTERM: both end what is being done in an orderly way, or wait where it must not be left half done."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

TERMINATED = 128 + signal.SIGTERM  # the exit code that shells give to a command ended by SIGTERM


class Terminated(KeyboardInterrupt):
    """SIGTERM, which ends things as Ctrl-C does."""


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM is raised meanwhile, as Ctrl-C is."""

    def end(*_: int | FrameType | None) -> None:
        raise Terminated

    if threading.current_thread() is not threading.main_thread():  # which alone hears signals
        yield
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Neither ends anything meanwhile."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {one: signal.signal(one, signal.SIG_IGN) for one in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
