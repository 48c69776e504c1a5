"""The id of a request, by which its answer is found in the log."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

GOOD_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")


def request_id(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """The client's own id where it is well formed, else a new one.

    >>> request_id([(b"x-request-id", b"mine-1")]), len(request_id([(b"x-request-id", b"not well formed")]))
    ('mine-1', 16)
    """
    for name, value in headers:
        if name == b"x-request-id" and GOOD_ID.fullmatch(value):
            return value.decode()
    return os.urandom(8).hex()
