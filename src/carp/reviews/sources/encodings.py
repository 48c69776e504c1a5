"""The encoding of a file: asked for, or recognised by a library that knows them all."""

from __future__ import annotations

import codecs
from contextlib import suppress

from carp.errors import InputError, UsageError
from carp.reviews.sources.recognition import BEER_LINE
from carp.reviews.sources.unpacking import SourceFile, reading_faults, unpacked

SAMPLE = 256 << 10  # bytes that are looked at
LINES = 400  # of them beyond ASCII, which tell the encoding
USUAL = "cp1252"
UTF8 = ("utf-8", "utf_8", "utf8", "ascii")
_MARKS = {b"\xff\xfe\0\0": "utf-32", b"\0\0\xfe\xff": "utf-32", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}


def check_encoding(name: str | None) -> str | None:
    """The encoding in Python's own spelling; None for UTF-8, which needs no conversion.

    >>> check_encoding("Latin1"), check_encoding("UTF8")
    ('iso8859-1', None)
    """
    if name is None:
        return None
    try:
        found = codecs.lookup(name)
        "".encode(name)
    except (LookupError, ValueError):
        fix = "write utf-8, cp1252, latin-1, shift_jis, gb18030 or another name that Python knows"
        raise UsageError(f"there is no encoding {name!r}", where="--encoding", fix=fix) from None
    return None if found.name in UTF8 else found.name


def detected_encoding(file: SourceFile) -> str | None:
    """The encoding of a file that is not UTF-8; None if it is, or if only a few of its lines are not."""
    sample = b""
    with suppress(InputError), reading_faults(file, lambda: 0):  # the reading itself says what is wrong, and where
        for chunk in unpacked(file, 1 << 40, None):
            sample += chunk
            if len(sample) >= SAMPLE:
                break
    for mark, encoding in _MARKS.items():
        if sample.startswith(mark):
            return encoding
    if b"\0" in sample:
        return None
    lines = [line for line in sample.split(b"\n")[:-1] or [sample] if not line.isascii()][:LINES]
    broken = [line for line in lines if not _is_utf8(line)]
    # One broken line is a damaged line. And in the dumps of beer reviews only names have another encoding.
    if len(broken) < 2 or 2 * len(broken) <= len(lines) or BEER_LINE.match(sample):
        return None
    return _guess(b"\n".join(broken))


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def _guess(sample: bytes) -> str | None:
    from charset_normalizer import from_bytes

    matches = from_bytes(sample)
    best = matches.best()
    if best is None or best.encoding in UTF8:
        return None
    # Latin encodings differ in a few letters only. Of those that fit alike, the usual one is the likeliest.
    fits_alike = [one for one in matches if one.coherence >= best.coherence]
    return USUAL if any(USUAL in one.could_be_from_charset for one in fits_alike) else str(best.encoding)
