"""The service as a process: `carp serve` on a real socket, with several workers, from its start to its end."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src"
PATIENCE = 60  # seconds, on a machine that others use too
NEEDS_FORK = pytest.mark.skipif(not hasattr(os, "fork"), reason="several workers are forked")


def command(*words):
    return [sys.executable, "-m", "carp", "serve", *map(str, words)]


def environment():
    return {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}


@contextlib.contextmanager
def serving(bundle, *options):
    """A running service: its process, its address, and what it has said so far."""
    process = subprocess.Popen(
        command(bundle, "--port", "0", *options), stderr=subprocess.PIPE, text=True, env=environment()
    )
    said = []
    try:
        for line in process.stderr:
            said.append(line)
            if found := re.search(r"http://[^/]+", line):
                break
        else:
            raise AssertionError("".join(said))
        reader = threading.Thread(target=lambda: said.extend(process.stderr), daemon=True)
        reader.start()
        yield process, found[0], said
        if process.poll() is None:
            process.terminate()
        process.wait(PATIENCE)
        reader.join(PATIENCE)
    finally:
        if process.poll() is None:
            process.kill()
        process.stderr.close()


def get(address, path, **query):
    with urllib.request.urlopen(
        f"{address}{path}{'?' + urlencode(query) if query else ''}", timeout=PATIENCE
    ) as answer:
        return json.loads(answer.read())


def children_of(process):
    found = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True, check=False)
    return [int(word) for word in found.stdout.split()]


@pytest.fixture(scope="module")
def service(bundle):
    with serving(bundle, "--workers", "2") as (process, address, said):
        yield process, address, said


def test_the_service_tells_where_it_is_and_answers_there(service, recommender):
    _, address, said = service
    assert address.startswith("http://127.0.0.1:"), "bound to this machine alone unless told otherwise"
    assert "2 workers" in "".join(said)
    assert get(address, "/healthz") == {"status": "ok"}
    user, item = recommender.fitted_corpus.users[4], recommender.fitted_corpus.items[4]
    found = get(address, "/api/explain", user=user, item=item)
    assert found["rating"] == pytest.approx(recommender.explain(user, item).rating, abs=1e-4)


def test_ids_of_any_characters_pass_through_a_real_address(service, recommender):
    _, address, _ = service
    for kind in ("users", "items"):
        for name in getattr(recommender.fitted_corpus, kind):
            assert get(address, f"/api/{kind}/{quote(name, safe='')}/profile")[kind.removesuffix("s")] == name


def raw(address, request):
    host, _, port = address.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as connection:
        connection.sendall(request)
        received = b""
        while part := connection.recv(65536):
            received += part
    return received


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"GET /static/../../recommender.py HTTP/1.1", b"404"),
        (b"GET /../../etc/passwd HTTP/1.1", b"404"),
        (b"GET //etc/passwd HTTP/1.1", b"404"),
        (b"GET /api/explain?user=%ff%fe&item=%00 HTTP/1.1", b"404"),
        (b"TRACE / HTTP/1.1", b"405"),
    ],
)
def test_raw_requests_meet_a_problem_document(service, request_line, status):
    received = raw(service[1], request_line + b"\r\nHost: x\r\nConnection: close\r\n\r\n")
    head, _, body = received.partition(b"\r\n\r\n")
    assert head.split()[1] == status
    assert b"application/problem+json" in head
    assert json.loads(body)["id"]
    assert b"root:" not in body


@pytest.mark.parametrize("request_bytes", [b"\x00\x01\x02\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n"])
def test_what_is_no_http_is_refused_without_a_word_of_the_inside(service, request_bytes):
    received = raw(service[1], request_bytes)
    assert b"Traceback" not in received
    assert received == b"" or received.split()[1] == b"400"
    assert get(service[1], "/healthz") == {"status": "ok"}


def test_many_clients_at_once_are_all_answered_and_all_counted(service, recommender):
    _, address, _ = service
    users, items = list(recommender.fitted_corpus.users), list(recommender.fitted_corpus.items)
    before = explained(address)
    failures = []

    def ask(start):
        try:
            for n in range(start, start + 10):
                pair = {"user": users[n % len(users)], "item": items[n % len(items)]}
                assert get(address, "/api/explain", **pair)["item"] == pair["item"]
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=ask, args=(start,)) for start in range(0, 160, 10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert not failures
    assert explained(address) == before + 160, "the counts of both workers are one"


def explained(address):
    with urllib.request.urlopen(f"{address}/metrics", timeout=PATIENCE) as answer:
        text = answer.read().decode()
    assert "carp_errors_total 0" in text
    found = re.search(r'carp_requests_total\{route="/api/explain",status="200"\} (\d+)', text)
    return int(found[1]) if found else 0


@NEEDS_FORK
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("workers", ["1", "2"])
def test_the_service_ends_cleanly_when_told_to(bundle, number, workers):
    with serving(bundle, "--workers", workers) as (process, address, said):
        get(address, "/healthz")
        children = children_of(process)
        process.send_signal(number)
        assert process.wait(PATIENCE) == 0
    assert len(children) == (2 if workers == "2" else 0)
    for child in children:
        with pytest.raises(ProcessLookupError):
            os.kill(child, 0)
    assert "Traceback" not in "".join(said)
    assert "Stopped." in "".join(said)


@NEEDS_FORK
def test_a_worker_that_dies_is_replaced(bundle):
    with serving(bundle, "--workers", "2") as (process, address, said):
        get(address, "/healthz")
        first = children_of(process)
        os.kill(first[0], signal.SIGKILL)
        deadline = time.monotonic() + PATIENCE
        while first[0] in children_of(process) or len(children_of(process)) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        for _ in range(8):
            assert get(address, "/healthz") == {"status": "ok"}
    assert "replaced" in "".join(said)


def refused(*words):
    done = subprocess.run(
        command(*words), capture_output=True, text=True, env=environment(), timeout=PATIENCE, check=False
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


def test_a_port_in_use_is_told_before_anything_is_loaded(bundle, service):
    port = service[1].rpartition(":")[2]
    code, words = refused(bundle, "--port", port)
    assert code == 1
    assert "in use" in words
    assert "Fix" in words
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert refused(bundle, "--port", taken.getsockname()[1])[0] == 1


@pytest.mark.parametrize(
    ("options", "code"),
    [(["--port", "70000"], 2), (["--workers", "0"], 2), (["--host", "256.1.1.1"], 1), (["--results", "nowhere"], 2)],
)
def test_wrong_options_are_refused_with_a_remedy(bundle, options, code):
    found, words = refused(bundle, "--port", "0", *options)
    assert found == code
    assert "Fix" in words


def test_a_missing_or_damaged_bundle_is_refused(bundle, tmp_path):
    code, words = refused(tmp_path / "nothing", "--port", "0")
    assert code == 1
    assert "nothing" in words
    damaged = tmp_path / "damaged"
    shutil.copytree(bundle, damaged)
    weights = damaged / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-10])
    code, words = refused(damaged, "--port", "0")
    assert code == 1
    assert "Fix" in words
