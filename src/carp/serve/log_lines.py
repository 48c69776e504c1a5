"""The log: one line of JSON for each thing that happened, written beside the work and never in its way."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import msgspec

from carp.storage import disk_errors

SETTLING = 2.0  # seconds for the last lines
# Seconds in which lines gather before they are written: each waking of the writer takes the work's turn for a moment.
GATHERING = 0.05
MOST_WAITING = 20_000  # lines; where nobody takes them, later ones are dropped and counted


@contextlib.contextmanager
def log_stream(file: Path | None) -> Iterator[IO[str]]:
    """Where the lines go: a file that grows, else standard error."""
    if file is None:
        yield sys.stderr
        return
    with disk_errors(file), file.open("a", encoding="utf-8") as stream:
        yield stream


class LogLines:
    """Lines go to a stream by a thread of their own: a reader that stops reading stops nobody else.

    No line holds what people wrote: routes are named by their pattern, and what was asked for is left out.
    """

    def __init__(self, stream: IO[str] | None) -> None:
        self.dropped = 0
        self._stream = stream
        self._lines: deque[str] = deque()
        self._come = threading.Event()  # there are lines
        self._over = threading.Event()  # there will be none
        self._writer = threading.Thread(target=self._write_all, name="log", daemon=True)
        if stream is not None:
            self._writer.start()

    def write(self, event: str, **facts: Any) -> None:
        """Add a line; None is left out."""
        if self._stream is None:
            return
        if len(self._lines) >= MOST_WAITING:
            self.dropped += 1
            return
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = {"time": now, "event": event, **{name: value for name, value in facts.items() if value is not None}}
        self._lines.append(msgspec.json.encode(line).decode("utf-8", "replace"))
        if not self._come.is_set():
            self._come.set()

    def close(self, patience: float = SETTLING) -> None:
        """Write what is waiting, if its reader takes it in time."""
        if self._stream is None:
            return
        self._over.set()
        self._come.set()
        self._writer.join(patience)

    def _write_all(self) -> None:
        while not self._over.is_set():
            self._come.wait()
            self._over.wait(GATHERING)
            self._come.clear()  # before they are taken: what comes meanwhile wakes the writer again
            self._write_waiting()
        self._write_waiting()  # what came while others were written

    def _write_waiting(self) -> None:
        assert self._stream is not None
        lines = [self._lines.popleft() for _ in range(len(self._lines))]
        try:
            self._stream.write("".join(f"{line}\n" for line in lines))
            self._stream.flush()
        except (OSError, ValueError):  # the reader has gone; the service goes on
            self.dropped += len(lines)
