"""Who may ask: by which name the service is called, with which key, and how often."""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
import re
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, isfinite
from pathlib import Path

from carp.errors import UsageError
from carp.serve.problems import Problem, echo
from carp.storage.secret_files import read_secret

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
SHORTEST_KEY = 16  # characters
MOST_KEY = 4_096  # bytes of its file that are read
OPEN_PATHS = (
    "/health",
    "/healthz",
    "/ready",
)  # a probe has no key; these tell nothing but whether the service is there
FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")  # said by a proxy
LONGEST_WAIT = 86_400  # seconds that an answer names
MOST_CLIENTS = 10_000  # whose requests are counted; who asked longest ago is forgotten first
Headers = Sequence[tuple[bytes, bytes]]
_HOST = re.compile(r"(\[[0-9a-f.]*:[0-9a-f.:]*(?:%[a-z0-9._~%-]+)?\]|[a-z0-9_.-]+)(?::[0-9]{1,5})?", re.IGNORECASE)
_ORIGIN = re.compile(r"(https?://(?:[a-z0-9-]+\.)*[a-z0-9-]+(?::[0-9]{1,5})?)/?")


def is_loopback(host: str) -> bool:
    """Whether an address to listen on is reached from this machine alone.

    >>> [is_loopback(host) for host in ("localhost", "127.0.0.2", "::1", "::ffff:127.0.0.1", "0.0.0.0", "example.org")]
    [True, True, True, True, False, False]
    """
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    # What listens at :: sees IPv4 in that form, and Python 3.11 does not see through it.
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def client_of(address: str) -> str:
    """What counts as one client: an address, or the network of 64 bits that an IPv6 address is of.

    >>> client_of("1.2.3.4"), client_of("::ffff:1.2.3.4"), client_of("2001:db8:1:2:3::4")
    ('1.2.3.4', '1.2.3.4', '2001:db8:1:2::/64')
    """
    if ":" not in address:
        return address
    try:
        given = ipaddress.IPv6Address(address)
    except ValueError:
        return address
    if given.ipv4_mapped is not None:
        return str(given.ipv4_mapped)
    return f"{ipaddress.IPv6Address(int(given) >> 64 << 64)}/64"


def allowed_names(given: Iterable[str]) -> tuple[str, ...]:
    """Names by which the service may be called, without a port; what no Host header can say is refused.

    >>> allowed_names(["Books.example", "books.example:8000", "::1"])
    ('books.example', 'books.example', '::1')
    """
    names = []
    for one in given:
        name = _bare(one) if _is_number(_bare(one)) else _without_port(one)
        if name is None:
            fix = "give the name alone, as browsers send it: books.example, or xn--bcher-kva.example for bücher"
            raise UsageError("no request can call the service by this name", where=one, fix=fix)
        names.append(name)
    return tuple(names)


def picture_origins(given: Iterable[str]) -> tuple[str, ...]:
    """Hosts from which the page may load pictures, as a browser writes them; what is none is refused.

    >>> picture_origins(["https://Images.Example/", "http://cdn.example:8080"])
    ('https://images.example', 'http://cdn.example:8080')
    """
    origins = []
    for one in given:
        found = _ORIGIN.fullmatch(one.strip().lower())
        if found is None:
            fix = "give only how it begins, as https://images.example"
            raise UsageError("this is not the beginning of a picture's address", where=one, fix=fix)
        origins.append(found[1])
    return tuple(dict.fromkeys(origins))


def read_key(file: Path | None, given: str | None) -> bytes | None:
    """The key of a file's first line, else the one given by the environment; None where there is neither."""
    where = str(file) if file is not None else "CARP_API_KEY"
    if file is not None:
        try:
            given = read_secret(file, MOST_KEY, of_a_group=True).partition(b"\n")[0].decode()
        except (OSError, UnicodeDecodeError) as error:
            fix = "give a text file whose first line is the key"
            raise UsageError("the key cannot be read", where=where, fix=fix) from error
    if given is None:
        return None
    if len(given.strip()) < SHORTEST_KEY or not given.strip().isascii() or not given.strip().isprintable():
        fix = "make one with: python -c 'import secrets; print(secrets.token_urlsafe(32))'"
        what = f"a key needs at least {SHORTEST_KEY} printable ASCII characters"
        raise UsageError(what, where=where, fix=fix)
    return given.strip().encode()


def check_reach(host: str, key: bytes | None, open_to_everyone: bool) -> None:
    """Refuse to listen beyond this machine where neither a key nor a word of consent was given."""
    if is_loopback(host) or key is not None or open_to_everyone:
        return
    raise UsageError(
        "everybody who reaches this address could read all reviews",
        where=f"--host {host}",
        fix="give a key with --api-key-file FILE, or say --open-to-everyone, or use --host 127.0.0.1",
    )


def check_administrator(headers: Mapping[str, str], client: str) -> None:
    """Refuse whoever is not at this very machine, comes through a proxy, or is a page in a browser.

    A page can make a browser send a request here, but none with a header of its own: that is asked about first.
    """
    if not is_loopback(client) or any(name in headers for name in FORWARDED):
        what = "only this machine may ask for that, and through no proxy"
        raise Problem(403, what, fix="ask from the machine that serves, or send SIGHUP to the service", kind="not-here")
    if headers.get("x-carp-admin") != "reload":
        raise Problem(
            403, "the request does not say that it is meant", fix="send X-Carp-Admin: reload", kind="not-here"
        )


@dataclass(frozen=True)
class AccessRules:
    """The names that the service answers to, and its key. Without names it answers to all."""

    names: frozenset[str] | None = None
    any_number: bool = False  # whether every numeric address is a good name: no page can make a browser send one
    key: bytes | None = None

    @classmethod
    def of(cls, host: str, allowed: Iterable[str], key: bytes | None) -> AccessRules:
        """The rules of a service that listens at `host`: loopback names, its own, and those allowed besides."""
        named = [*LOOPBACK_NAMES, host, *allowed]
        return cls(frozenset(_bare(name) for name in named), not is_loopback(host), key)

    def wrong_name(self, headers: Headers) -> Problem | None:
        if self.names is None:
            return None
        given = [value.decode("latin-1") for name, value in headers if name == b"host"]
        if len(given) != 1:
            return Problem(400, "the request has no Host header, or several", fix="send exactly one", kind="host")
        name = _without_port(given[0])
        if name is not None and (name in self.names or (self.any_number and _is_number(name))):
            return None
        fix = "ask by a name that the service knows, or start it with --allowed-host and this one"
        return Problem(421, f"nothing is served as {echo(name or given[0])} here", fix=fix, kind="host")

    def wrong_key(self, headers: Headers) -> Problem | None:
        if self.key is None:
            return None
        given = _given_key(headers)
        if given is not None and hmac.compare_digest(given, self.key):
            return None
        what = "the request has no key" if given is None else "the key is not the right one"
        return Problem(401, what, kind="key", headers={"www-authenticate": 'Basic realm="carp", charset="UTF-8"'})


def _bare(name: str) -> str:
    return name.strip().strip("[]").rstrip(".").lower()


def _without_port(host: str) -> str | None:
    """The name or number of a Host header; None where it is not written as one.

    >>> [_without_port(host) for host in ("a.:80", "[::1]:80", "a:80@b", "[::1]b", "a b", "")]
    ['a', '::1', None, None, None, None]
    """
    found = _HOST.fullmatch(host.strip())
    return _bare(found[1]) if found is not None else None


def _is_number(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _given_key(headers: Headers) -> bytes | None:
    """The key as a bearer's, or as the password that a browser asks for; the name beside that may be any."""
    for name, value in headers:
        if name == b"authorization":
            scheme, _, rest = value.partition(b" ")
            if scheme.lower() == b"bearer":
                return rest.strip()
            if scheme.lower() == b"basic":
                try:
                    return base64.b64decode(rest.strip(), validate=True).partition(b":")[2]
                except binascii.Error:
                    return b""
    return None


class RateLimit:
    """So many requests a second for each client, and twice as many at once, or one; 0 is no limit.

    >>> limit = RateLimit(2)
    >>> [limit.refusal("1.2.3.4", now=0.0) is None for _ in range(5)]
    [True, True, True, True, False]
    >>> limit.refusal("5.6.7.8", now=0.0) is None, limit.refusal("1.2.3.4", now=0.5) is None
    (True, True)
    """

    def __init__(self, a_second: float, *, spare_loopback: bool = False) -> None:
        if not isfinite(a_second) or a_second < 0:
            fix = "give a number of requests above 0, as 200 or 0.5, or 0 for no limit"
            raise UsageError(f"{a_second:g} requests a second are no limit", where="--rate-limit", fix=fix)
        self.a_second = a_second
        self.most = max(1.0, 2 * a_second)  # less than one would never be enough for a request
        self._spare_loopback = spare_loopback
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()  # client → requests left, when

    def refusal(self, client: str, now: float | None = None) -> Problem | None:
        if not self.a_second or (self._spare_loopback and is_loopback(client)):
            return None
        client = client_of(client)
        now = time.monotonic() if now is None else now
        left, before = self._left.pop(client, (self.most, now))
        left = min(self.most, left + (now - before) * self.a_second)
        allowed = left >= 1
        self._left[client] = (left - allowed, now)
        if len(self._left) > MOST_CLIENTS:
            self._left.popitem(last=False)
        if allowed:
            return None
        what = f"more than {self.a_second:g} requests a second come from this address"
        wait = str(max(1, ceil(min(LONGEST_WAIT, (1 - left) / self.a_second))))
        return Problem(429, what, kind="too-often", headers={"retry-after": wait})
