"""Who may ask: the names the service answers to, its key, and how often one address may ask."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

import carp
from carp.errors import UsageError
from carp.serve.access_control import (
    MOST_CLIENTS,
    OPEN_PATHS,
    AccessRules,
    RateLimit,
    allowed_names,
    check_administrator,
    check_reach,
    read_key,
)
from carp.serve.problems import TITLES, Problem
from carp.serve.request_counts import OTHER, STATUSES, Counters
from carp.serve.server import ServiceOptions

KEY = b"a-key-of-many-characters"


def status(rules, path="/api/about", **headers):
    given = [(name.replace("_", "-").encode(), value) for name, value in headers.items()]
    refusal = rules.wrong_name(given) or (None if path in OPEN_PATHS else rules.wrong_key(given))
    return 200 if refusal is None else refusal.status


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        (b"localhost", 200),
        (b"LOCALHOST:8000", 200),
        (b"localhost.", 200),
        (b"127.0.0.1:1", 200),
        (b"[::1]:8000", 200),
        (b"books.example", 200),
        (b"evil.example", 421),
        (b"localhost.evil.example", 421),
        (b"evil.example:80@localhost", 421),
        (b"localhost:80@evil.example", 421),
        (b"[::1]evil.example", 421),
        (b"[::1]:80:80", 421),
        (b"[localhost]", 421),
        (b"localhost/evil.example", 421),
        (b"localhost:", 421),
        (b"10.1.2.3", 421),
        (b"", 421),
    ],
)
def test_only_names_that_were_allowed_are_answered(host, expected):
    assert status(AccessRules.of("127.0.0.1", ["Books.example"], None), host=host) == expected


@pytest.mark.parametrize("name", ["https://books.example", "*", "*.example", "bücher.example", "books.example/", ""])
def test_a_name_that_no_request_can_say_is_refused_when_it_is_allowed(name):
    with pytest.raises(UsageError) as caught:
        allowed_names(["books.example", name])
    assert (caught.value.where, "as browsers send it" in caught.value.fix) == (name, True)


@pytest.mark.parametrize("name", ["Books.example", "books.example:8000", "books.example.", " books.example"])
def test_a_name_is_allowed_however_a_request_may_write_it(name):
    rules = AccessRules.of("127.0.0.1", allowed_names([name]), None)
    assert [status(rules, host=host) for host in (b"books.example", b"BOOKS.example:9000")] == [200, 200]


def test_a_service_for_others_is_also_reached_by_any_numeric_address_but_by_no_other_name():
    rules = AccessRules.of("0.0.0.0", [], KEY)
    assert status(rules, "/health", host=b"10.1.2.3:8000") == 200
    assert status(rules, "/health", host=b"[fe80::1]") == 200
    assert status(rules, "/health", host=b"rebound.example") == 421


def test_a_request_names_one_host():
    rules = AccessRules.of("127.0.0.1", [], None)
    assert rules.wrong_name([]).status == 400
    assert rules.wrong_name([(b"host", b"localhost"), (b"host", b"localhost")]).status == 400


def test_the_key_opens_and_nothing_else_does():
    rules = AccessRules.of("localhost", [], KEY)

    def asked(value):
        return status(rules, host=b"localhost", authorization=value)

    assert status(rules, host=b"localhost") == 401
    assert asked(b"Bearer " + KEY) == asked(b"bearer  " + KEY) == 200
    assert asked(b"Basic " + base64.b64encode(b"anybody:" + KEY)) == 200
    wrong = [b"", b"Bearer", b"Bearer " + KEY[:-1], b"Bearer " + KEY + b"x", KEY, b"Basic ???", b"Basic " + KEY]
    wrong += [b"Basic " + base64.b64encode(KEY), b"Bearer \xff\xfe"]
    assert {asked(value) for value in wrong} == {401}
    refused = rules.wrong_key([(b"host", b"localhost")])
    assert refused.headers["www-authenticate"].startswith("Basic"), "a browser asks its user for the key"
    assert status(rules, "/ready", host=b"localhost") == 200


def test_a_key_comes_from_a_file_or_the_environment_and_is_long_enough(tmp_path):
    file = tmp_path / "key"
    file.write_text(KEY.decode() + "\nsecond line\n")
    file.chmod(0o600)
    assert read_key(file, "ignored") == KEY
    assert read_key(None, KEY.decode()) == KEY
    assert read_key(None, None) is None
    file.write_text("short\n")
    for given in ((file, None), (tmp_path / "missing", None), (None, ""), (None, "ü" * 30)):
        with pytest.raises(carp.CarpError) as refused:
            read_key(*given)
        assert refused.value.fix


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o606, 0o644])
def test_a_key_that_others_may_read_is_refused(tmp_path, mode):
    file = tmp_path / "key"
    file.write_text(KEY.decode())
    file.chmod(mode)
    with pytest.raises(carp.CarpError, match="others may read this key") as refused:
        read_key(file, None)
    assert refused.value.fix == f"chmod 600 {file}"


def test_a_key_of_another_user_may_be_readable_by_its_group(tmp_path, monkeypatch):
    """Those that run containers hand it over in that way."""
    file = tmp_path / "key"
    file.write_text(KEY.decode())
    file.chmod(0o640)
    monkeypatch.setattr("os.getuid", lambda: file.stat().st_uid + 1)
    assert read_key(file, None) == KEY
    file.chmod(0o644)
    with pytest.raises(carp.CarpError, match="others may read this key"):
        read_key(file, None)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "books.example", ""])
def test_listening_beyond_this_machine_needs_a_key_or_a_word(host):
    with pytest.raises(carp.CarpError) as refused:
        check_reach(host, None, False)
    assert "--open-to-everyone" in refused.value.fix
    check_reach(host, KEY, False)
    check_reach(host, None, True)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_this_machine_needs_neither(host):
    check_reach(host, None, False)


def test_an_address_that_asks_too_often_is_told_when_to_come_back():
    limit = RateLimit(10)
    refusals = [limit.refusal("1.2.3.4", now=0.0) for _ in range(25)]
    assert [one is None for one in refusals] == [True] * 20 + [False] * 5
    assert refusals[-1].status == 429
    assert refusals[-1].headers["retry-after"] == "1"
    assert limit.refusal("1.2.3.5", now=0.0) is None, "others are not affected"
    assert limit.refusal("1.2.3.4", now=0.2) is None
    assert RateLimit(0).refusal("1.2.3.4", now=0.0) is None


def test_this_machine_is_spared_where_nothing_else_was_said():
    limit = RateLimit(1, spare_loopback=True)
    assert {limit.refusal("127.0.0.1", now=0.0) for _ in range(50)} == {None}
    assert {limit.refusal("::ffff:127.0.0.1", now=0.0) for _ in range(50)} == {None}, "what listens at :: sees it so"
    assert [limit.refusal("9.9.9.9", now=0.0) is None for _ in range(3)] == [True, True, False]


def test_a_rate_below_one_request_a_second_lets_one_through_now_and_then():
    limit = RateLimit(0.125)
    answers = [(now, limit.refusal("1.2.3.4", now=float(now))) for now in range(31)]
    assert [now for now, refusal in answers if refusal is None] == [0, 8, 16, 24]
    assert answers[1][1].headers["retry-after"] == "7"
    least = RateLimit(5e-324)
    assert least.refusal("1.2.3.4", now=0.0) is None
    assert least.refusal("1.2.3.4", now=0.0).headers["retry-after"] == "86400"


@pytest.mark.parametrize("rate", [float("nan"), float("inf"), -1.0, -float("inf")])
def test_what_is_no_rate_is_refused_before_anything_is_loaded(rate):
    for refused in (RateLimit, lambda given: ServiceOptions(Path("model"), rate=given)):
        with pytest.raises(carp.CarpError, match="no limit") as error:
            refused(rate)
        assert error.value.where == "--rate-limit"
        assert "0 for no limit" in error.value.fix


def test_the_administrator_is_at_this_machine_by_whatever_address_it_is_seen():
    meant = {"x-carp-admin": "reload"}
    for client in ("127.0.0.1", "::1", "::ffff:127.0.0.1"):
        check_administrator(meant, client)
    for client in ("9.9.9.9", "::ffff:9.9.9.9", "2001:db8::1", ""):
        with pytest.raises(Problem) as refused:
            check_administrator(meant, client)
        assert refused.value.status == 403
        assert refused.value.fix


def test_every_status_that_a_refusal_can_have_is_counted_by_its_number():
    assert set(TITLES) <= set(STATUSES)
    counters = Counters([])
    counters.count(OTHER, 403, 0.001)
    assert 'status="403"' in counters.text()


def test_the_memory_for_addresses_has_an_end():
    limit = RateLimit(1)
    for n in range(MOST_CLIENTS + 500):
        limit.refusal(str(n), now=0.0)
    assert limit.refusal(str(MOST_CLIENTS + 499), now=0.0) is None
    assert limit.refusal(str(MOST_CLIENTS + 499), now=0.0) is not None
    assert limit.refusal("0", now=0.0) is None, "who asked longest ago was forgotten"
