"""Which requests of a connection are the last ones that a service answers when it stops."""

from __future__ import annotations

import fcntl
import struct
import termios
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from carp.serve.request_reading import RequestReader


class LastRequests:
    """Those that have arrived when the first answer since the stop is written: clients may send several at once.

    Of what comes later no more than a piece is read: who always has the next request under way would hold up the stop.
    """

    def __init__(self, reader: RequestReader, transport: asyncio.Transport) -> None:
        self._reader = reader
        self._transport = transport
        self._left: int | None = None  # bytes of them that are not read yet; None: the service goes on

    def begin(self, unread: int) -> None:
        """Note what has arrived by now: what was read, so many bytes that were not, and those that the system keeps."""
        if self._left is None:
            self._left = unread + _kept_by_system(self._transport)
            self._end_unless_begun()

    def note_read(self, length: int, *, completed: bool) -> None:
        """A piece was read, and completed a request or did not."""
        if self._left is None:
            return
        if self._left == 0 and completed:  # the one that had begun
            self._reader.last = True
            return
        self._left = max(0, self._left - length)
        self._end_unless_begun()

    def _end_unless_begun(self) -> None:
        if self._left == 0 and not self._reader.begun:
            self._reader.last = True


def _kept_by_system(transport: asyncio.Transport) -> int:
    """Bytes that have arrived and nobody has read; 0 where the system does not say."""
    with suppress(OSError, ValueError, AttributeError):
        number = transport.get_extra_info("socket").fileno()
        return int(struct.unpack("i", fcntl.ioctl(number, termios.FIONREAD, bytes(4)))[0])
    return 0
