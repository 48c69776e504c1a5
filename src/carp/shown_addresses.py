"""Addresses as they may be shown and kept: without the passwords, keys and tokens that people write into them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import unquote

HIDDEN = "…"
SHORT = 4  # letters; a shorter secret is looked for as a word alone, as its letters stand in every sentence
_KIND = "[a-zA-Z][a-zA-Z0-9+.-]{0,30}"  # bounded, so that a long text without an address takes no longer for it
_IN_TEXT = re.compile(rf"{_KIND}://\S+")
_LINK = re.compile(rf"({_KIND})://")
_CHAINED = re.compile(rf"::(?={_KIND}://)")  # as in zip://reviews.csv::s3://bucket/reviews.zip
_NAME = re.compile(r"[?&;#]([^=&;#?\s]+)=")
_END = re.compile(r"[&#\s]|$")
_SECRET = re.compile(r"pass|pwd|secret|token|sig|key|cred|auth|^code$", re.IGNORECASE)
# The other way of addressing PostgreSQL: host=shop user=ann password='secret'.
_WORDS = re.compile(r"(?<![?&])\b(?:ssl)?password\s*=\s*('(?:[^'\\]|\\.)*'|[^\s)]+)", re.IGNORECASE)
_HOST = r"(?:\[[^\]]*\]|[^:,]*)(?::\d*)?"
_HOSTS = re.compile(rf"{_HOST}(?:,{_HOST})*|arn:.*")
_SEPARATORS = re.compile(r"[@:/?]")
Span = tuple[int, int]


def shown_address(address: str) -> str:
    """An address with … in the place of each secret: of passwords, and of values in its query that are called so.

    >>> shown_address("postgresql://ann:secret@shop/reviews"), shown_address("s3://bucket/reviews.csv")
    ('postgresql://ann:…@shop/reviews', 's3://bucket/reviews.csv')
    >>> shown_address("postgresql://shop/reviews?user=ann&password=secret")
    'postgresql://shop/reviews?user=ann&password=…'
    """
    shown, at = "", 0
    for begin, end in sorted(_secret_spans(address)):
        if begin >= at:
            shown += address[at:begin] + HIDDEN
        at = max(at, end)
    return shown + address[at:]


def without_secrets(text: str, address: str = "") -> str:
    """A text in which addresses are as they may be shown, and in which no secret of this address stands.

    >>> without_secrets("no answer from ftp://ann:secret@shop/reviews.csv")
    'no answer from ftp://ann:…@shop/reviews.csv'
    """
    text = text.replace(address, shown_address(address)) if address else text
    for secret in _secrets(address):
        found = re.escape(secret)
        text = re.sub(found if len(secret) >= SHORT else rf"(?<!\w){found}(?!\w)", HIDDEN, text)
    text = _WORDS.sub(lambda said: said[0][: said.start(1) - said.start()] + HIDDEN, text)
    return _IN_TEXT.sub(lambda found: shown_address(found[0]) if re.search("[@=]", found[0]) else found[0], text)


def _secrets(address: str) -> list[str]:
    """The secrets of an address as they are written and as they are meant, and what is left of one that was taken
    apart where it has a sign that it should not have; the longest first."""
    written = [address[begin:end].strip("'") for begin, end in _secret_spans(address)]
    whole = {one for secret in written for one in (secret, unquote(secret), HIDDEN)} - {HIDDEN, ""}
    parts = {part for secret in written for part in _SEPARATORS.split(secret) if part}
    return sorted(whole | parts, key=len, reverse=True)


def _secret_spans(address: str) -> list[Span]:
    """Where the secrets of an address are: from where, and up to where."""
    if not _LINK.search(address):
        return [found.span(1) for found in _WORDS.finditer(address)]
    spans = list(_settings(address))
    plain = list(address)
    for begin, end in spans:  # what is in them divides nothing
        plain[begin:end] = "x" * (end - begin)
    begin = 0
    for link in _CHAINED.split("".join(plain)):
        spans += [(begin + first, begin + last) for first, last in _password(link)]
        begin += len(link) + len("::")
    return spans


def _settings(address: str) -> Iterator[Span]:
    """Values in the query that are secret by their names."""
    at = 0
    for name in _NAME.finditer(address):
        if name.start() >= at and _SECRET.search(unquote(name[1])):
            at = _END.search(address, name.end()).start()  # type: ignore[union-attr]  # the end is always found
            yield name.end(), at


def _password(address: str) -> Iterator[Span]:
    """The password before the host. Whoever forgot to write its signs as %40 or %2F has it hidden all the same."""
    link = _LINK.match(address)
    if link is None:
        return
    kind, begin = link[1].lower(), link.end()
    path = _place(address, "/", begin)
    names_hosts = _HOSTS.fullmatch(address, begin, path) is not None
    at = address.rfind("@", begin, path)
    if kind.startswith("postgres") or (at < 0 and not names_hosts):
        at = address.rfind("@", begin, _place(address, "?", path))
    colon = address.find(":", begin, path if at < 0 else at)
    if at < 0:
        if not names_hosts:
            yield colon + 1, path
    elif colon >= 0:
        yield colon + 1, at
    elif kind in ("http", "https"):  # a name alone is a token there
        yield begin, at


def _place(address: str, sign: str, begin: int) -> int:
    """Where a sign is; the very end where there is none."""
    found = address.find(sign, begin)
    return len(address) if found < 0 else found
