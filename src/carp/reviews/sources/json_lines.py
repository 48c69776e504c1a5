"""JSON lines: each line is a JSON object and becomes one record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec

from carp.errors import UsageError
from carp.reviews.sources.ledger import Check, Record, Rejection
from carp.reviews.sources.line_reading import LINE_TOO_LONG, Line, line_fault
from carp.reviews.sources.recognition import ROLES


@dataclass(frozen=True)
class JsonLines:
    """How the lines of one file become records. Plain data, so that it can be sent to other processes."""

    names: tuple[tuple[str, str], ...]  # role and its name in the file
    check: Check

    @classmethod
    def of(cls, fields: Mapping[str, str], check: Check) -> JsonLines:
        _decoder(tuple(fields.items()))  # raises an error for names that cannot be used
        return cls(tuple(fields.items()), check)

    def records(self, lines: Iterable[Line]) -> Iterator[Record]:
        decode, check = _decoder(self.names), self.check
        for number, line in lines:
            if line is None:
                yield Rejection(check.file, number, LINE_TOO_LONG)
            elif line and not line.isspace():
                try:
                    record = decode(line)
                except (ValueError, RecursionError) as error:
                    yield Rejection.of(check.file, number, _fault(line, error), line)
                    continue
                item = record.variant if record.item is None else record.item
                yield check(
                    number, record.user, item, record.rating, record.text, record.time, record.split, record.title
                )


@lru_cache(maxsize=16)
def _decoder(names: tuple[tuple[str, str], ...]) -> Callable[[bytes], Any]:
    """Decodes only the named fields. Fields the file does not have are None."""
    fields = dict(names)
    absent = {role: None for role in (*ROLES, "variant") if role not in fields}
    try:
        kind = msgspec.defstruct(
            "Record", [(role, Any, None) for role in fields], rename=fields, namespace=absent, gc=False
        )
    except ValueError as error:
        raise UsageError(f"a column cannot be used ({error})", fix="rename it in the file") from None
    return msgspec.json.Decoder(kind).decode


def _fault(line: bytes, error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "JSON is nested too deeply"
    if isinstance(error, msgspec.ValidationError):
        return "a number is too large" if "out of range" in str(error) else "not a JSON object"
    if fault := line_fault(line):
        return fault
    return "not valid JSON but a Python dict" if line.lstrip().startswith(b"{'") else "not valid JSON"
