"""The log: one line of JSON for each thing that happened, written beside the work and never in its way."""

from __future__ import annotations

import contextlib
import queue
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import msgspec

from carp.storage import disk_errors

SETTLING = 2.0  # seconds for the last lines
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
        self._lines: queue.Queue[str | None] = queue.Queue(MOST_WAITING)
        self._writer = threading.Thread(target=self._write_all, name="log", daemon=True)
        if stream is not None:
            self._writer.start()

    def write(self, event: str, **facts: Any) -> None:
        """Add a line; None is left out."""
        if self._stream is None:
            return
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = {"time": now, "event": event, **{name: value for name, value in facts.items() if value is not None}}
        try:
            self._lines.put_nowait(msgspec.json.encode(line).decode("utf-8", "replace"))
        except queue.Full:
            self.dropped += 1

    def close(self, patience: float = SETTLING) -> None:
        """Write what is waiting, if its reader takes it in time."""
        if self._stream is None:
            return
        with contextlib.suppress(queue.Full):
            self._lines.put_nowait(None)
            self._writer.join(patience)

    def _write_all(self) -> None:
        assert self._stream is not None
        while (line := self._lines.get()) is not None:
            try:
                self._stream.write(f"{line}\n")
                if self._lines.empty():
                    self._stream.flush()
            except (OSError, ValueError):  # the reader has gone; the service goes on
                self.dropped += 1
        with contextlib.suppress(OSError, ValueError):
            self._stream.flush()
