"""The service as a process: `carp serve` on a real socket, with several workers, from its start to its end."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import io
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

from carp.cli.entry import main
from carp.errors import CarpError
from carp.serve import routes, server
from carp.serve.connection_places import KEPT_FOR_PROBES
from carp.serve.log_lines import LogLines
from torture_serve import raw_get, traversal_strings

SOURCE = Path(__file__).resolve().parents[2] / "src"
PATIENCE = 600  # seconds, on a machine that others use too


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
    found = subprocess.run(["pgrep", "-P", str(process)], capture_output=True, text=True, check=False)
    return [int(word) for word in found.stdout.split()]


def engines_of(process):
    """The processes that compute: forked by the one that loaded the model, which the service started."""
    (loader,) = children_of(process.pid)
    return children_of(loader)


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


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="this system does not say what is loaded")
def test_who_listens_does_not_load_what_computes(service):
    """Else the door opens later, and takes the memory of an engine."""
    process = service[0]
    assert "libtorch" not in Path(f"/proc/{process.pid}/maps").read_text()
    assert all("libtorch" in Path(f"/proc/{engine}/maps").read_text() for engine in engines_of(process))


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
    received = raw(service[1], request_line + b"\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    head, _, body = received.partition(b"\r\n\r\n")
    assert head.split()[1] == status
    assert b"application/problem+json" in head
    assert json.loads(body)["id"]
    assert b"root:" not in body


def test_no_string_leads_out_of_the_page_to_a_file(service):
    port = int(service[1].rpartition(":")[2])
    strings = traversal_strings()
    assert len(strings) == len(set(strings)) == 200
    for string in strings:
        status, body = raw_get(port, f"/static/{string}")
        assert status == 404
        assert json.loads(body)["title"] == "There is nothing here"


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


def all_engines_of(process, workers):
    deadline = time.monotonic() + PATIENCE
    while len(engines := engines_of(process)) < workers:  # the first one answers already
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert len(engines) == workers
    return engines


def ended_cleanly(process, engines, said):
    """A service that was told to end has taken its engines along, and has said so."""
    assert process.returncode == 0
    deadline = time.monotonic() + PATIENCE
    while any(Path(f"/proc/{child}").exists() for child in engines):  # an engine may finish what it reads
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert "Traceback" not in "".join(said)
    assert "Stopped." in "".join(said)
    return True


def test_who_computes_gives_way_to_the_door(service):
    """Health is answered by the door, which needs a core for a moment while others need all of them."""
    process, address, _ = service
    get(address, "/ready")
    door = os.getpriority(os.PRIO_PROCESS, process.pid)
    for one in (*children_of(process.pid), *engines_of(process)):
        assert os.getpriority(os.PRIO_PROCESS, one) > door


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="this system does not say what is ignored")
def test_a_signal_to_all_processes_of_a_service_is_heard_by_the_door_alone(service):
    process, address, _ = service
    get(address, "/ready")
    for one in (*children_of(process.pid), *engines_of(process)):
        ignored = int(re.search(r"SigIgn:\s*(\w+)", Path(f"/proc/{one}/status").read_text())[1], 16)
        heard = {signal.SIGHUP, signal.SIGINT, signal.SIGTERM}
        assert {number for number in heard if not ignored >> number - 1 & 1} == set()


def test_an_engine_that_dies_is_replaced_unnoticed_and_nothing_outlives_a_service_that_was_killed(bundle, recommender):
    users, items = list(recommender.fitted_corpus.users), list(recommender.fitted_corpus.items)
    with serving(bundle, "--workers", "2") as (process, address, said):
        for n, engine in enumerate(engines_of(process)):
            os.kill(engine, signal.SIGKILL)
            assert get(address, "/api/explain", user=users[n], item=items[n])["item"] == items[n]
        deadline = time.monotonic() + PATIENCE
        while get(address, "/ready")["engines"] < 2:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        (loader,) = children_of(process.pid)
        os.kill(loader, signal.SIGKILL)
        for n in range(6):
            assert get(address, "/api/explain", user=users[n], item=items[n])["item"] == items[n]
        while children_of(process.pid) == [loader] or len(engines_of(process)) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert get(address, "/api/explain", user=users[7], item=items[7])["item"] == items[7]
        assert "".join(said).count("loader ended") == 1
        (loader,) = children_of(process.pid)
        left = {loader, *engines_of(process)}
        assert len(left) == 3
        process.kill()
        process.wait(PATIENCE)
        deadline = time.monotonic() + PATIENCE
        while any(map(is_alive, left)):
            assert time.monotonic() < deadline
            time.sleep(0.05)


def is_alive(process):
    found = subprocess.run(["ps", "-o", "stat=", "-p", str(process)], capture_output=True, text=True, check=False)
    return bool(found.stdout.strip()) and not found.stdout.startswith("Z")


def refused_by_a_process(*words):
    done = subprocess.run(
        command(*words), capture_output=True, text=True, env=environment(), timeout=PATIENCE, check=False
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


@pytest.fixture
def refused(capsys):
    """How a command ends that is refused before anything is started, and what it says; that needs no process."""

    def ask(*words):
        code = main(["serve", *map(str, words)])
        return code, capsys.readouterr().err

    return ask


def test_a_port_in_use_is_told_before_anything_is_loaded(bundle, service, refused):
    port = service[1].rpartition(":")[2]
    code, words = refused_by_a_process(bundle, "--port", port)
    assert code == 1
    assert "in use" in words
    assert "Fix" in words
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert refused(bundle, "--port", taken.getsockname()[1])[0] == 1


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--port", "70000"], 2),
        (["--workers", "0"], 2),
        (["--rate-limit", "nan", "--host", "256.1.1.1", "--open-to-everyone"], 2),  # before it listens
        (["--rate-limit", "inf", "--host", "256.1.1.1", "--open-to-everyone"], 2),
        (["--host", "256.1.1.1", "--open-to-everyone"], 1),
        (["--host", "0.0.0.0"], 2),
        (["--api-key-file", "nowhere"], 2),
        (["--results", "nowhere"], 2),
    ],
)
def test_wrong_options_are_refused_with_a_remedy(bundle, options, code, refused):
    found, words = refused(bundle, "--port", "0", *options)
    assert found == code
    assert "Fix" in words


def test_a_terminal_that_has_gone_keeps_nobody_from_being_answered(bundle, tmp_path, monkeypatch):
    class Gone(io.StringIO):
        def write(self, words):
            raise BrokenPipeError(errno.EPIPE, "nobody reads this")

    served = []

    def run_service(options, address, *, metrics_port, say, log):
        say("Serving")
        served.append(options.model)

    monkeypatch.setattr(server, "run_service", run_service)
    monkeypatch.setattr(sys, "stderr", Gone())
    words = [bundle, "--log", tmp_path / "log", "--host", "0.0.0.0", "--open-to-everyone"]
    assert main(["serve", *map(str, words)]) == 0
    assert served == [bundle]


def test_a_missing_or_damaged_bundle_is_refused(bundle, tmp_path):
    code, words = refused_by_a_process(tmp_path / "nothing", "--port", "0")
    assert code == 1
    assert "nothing" in words
    damaged = tmp_path / "damaged"
    shutil.copytree(bundle, damaged)
    weights = damaged / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-10])
    code, words = refused_by_a_process(damaged, "--port", "0")
    assert code == 1
    assert "Fix" in words


def test_every_request_is_a_line_of_json_that_its_id_finds_and_that_holds_nothing_written(service, recommender):
    _, address, said = service
    user, item = recommender.fitted_corpus.users[2], recommender.fitted_corpus.items[2]
    asked = urllib.request.Request(
        f"{address}/api/newcomer",
        json.dumps({"reviews": ["a light battery of secret thoughts"], "explain": item}).encode(),
        {"content-type": "application/json", "x-request-id": "mine-1"},
    )
    with urllib.request.urlopen(asked, timeout=PATIENCE) as answer:
        assert answer.headers["x-request-id"] == "mine-1"
    get(address, "/api/explain", user=user, item=item)
    bad = urllib.request.Request(f"{address}/api/users?q=battery", headers={"x-request-id": "not well\tformed"})
    with urllib.request.urlopen(bad, timeout=PATIENCE) as answer:
        assert re.fullmatch("[0-9a-f]{16}", answer.headers["x-request-id"])
    deadline = time.monotonic() + PATIENCE
    while not (found := [json.loads(line) for line in said if '"mine-1"' in line]):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    (line,) = found
    assert (line["event"], line["method"], line["route"], line["status"]) == ("request", "POST", "/api/newcomer", 200)
    assert line["ms"] > 0
    assert not re.search("secret|battery", "".join(said))


def test_every_answer_names_the_version_and_the_model(service, bundle):
    import hashlib

    import carp

    _, address, _ = service
    expected = hashlib.sha256((bundle / "manifest.json").read_bytes()).hexdigest()
    for path in ("/health", "/api/about", "/static/app.js", "/"):
        with urllib.request.urlopen(f"{address}{path}", timeout=PATIENCE) as answer:
            assert answer.headers["x-carp-version"] == carp.__version__
            assert answer.headers["x-carp-bundle"] == expected
            assert answer.headers["date"]
    refused = raw(address, b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n")
    assert f"x-carp-bundle: {expected}".encode() in refused
    assert get(address, "/version") == {"version": carp.__version__, "model": "carp", "bundle": expected}


def test_a_foreign_host_is_not_answered(service):
    _, address, _ = service
    port = address.rpartition(":")[2].encode()
    for host, status in ((b"evil.example", b"421"), (b"localhost:" + port, b"200"), (b"[::1]", b"200"), (b"", b"421")):
        received = raw(address, b"GET /health HTTP/1.1\r\nHost: " + host + b"\r\nConnection: close\r\n\r\n")
        assert received.split()[1] == status, host
    assert raw(address, b"GET /health HTTP/1.1\r\nConnection: close\r\n\r\n").split()[1] == b"400"


def test_a_service_with_a_key_and_a_port_for_metrics_ends_cleanly_when_interrupted(bundle, tmp_path):
    key = "a-key-of-many-characters"
    (tmp_path / "key").write_text(f"{key}\n")
    (tmp_path / "key").chmod(0o600)
    options = ["--workers", "1", "--api-key-file", tmp_path / "key", "--metrics-port", "0", "--host", "0.0.0.0"]
    with serving(bundle, *options, "--log", tmp_path / "log") as (process, address, said):
        address = address.replace("0.0.0.0", "127.0.0.1")
        watched = re.search(r"Metrics at port (\d+)", "".join(said))[1]

        def status(path, **headers):
            try:
                asked = urllib.request.Request(address + path, headers=headers)
                with urllib.request.urlopen(asked, timeout=PATIENCE) as answer:
                    return answer.status
            except urllib.error.HTTPError as error:
                return error.code

        assert status("/health") == status("/healthz") == status("/ready") == 200
        assert status("/") == status("/api/about") == status("/metrics") == 401
        assert status("/api/about", Authorization=f"Bearer {key}x") == 401
        assert status("/api/about", Authorization=f"Bearer {key}") == 200
        assert status("/metrics", Authorization=f"Bearer {key}") == 404
        with urllib.request.urlopen(f"http://127.0.0.1:{watched}/metrics", timeout=PATIENCE) as answer:
            text = answer.read().decode()
        assert "carp_engines_alive 1\n" in text
        assert raw(f"http://127.0.0.1:{watched}", b"GET /health HTTP/1.0\r\nHost: [::1]\r\n\r\n").split()[1] == b"200"
        for path in (b"/openapi.json", b"/api/about", b"/docs", b"/"):
            asked = b"GET " + path + b" HTTP/1.0\r\nHost: localhost\r\n\r\n"
            assert raw(f"http://127.0.0.1:{watched}", asked).split()[1] == b"404"
        assert 'carp_requests_total{route="/api/about",status="401"} 0' not in text
        engines = all_engines_of(process, 1)
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE)
    assert ended_cleanly(process, engines, said)
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert [line["event"] for line in lines[-2:]] == ["stopping", "stopped"]
    assert not [line for line in lines if key in str(line)]


def test_the_description_is_made_before_anybody_can_ask_for_it(monkeypatch):
    """It takes long enough for health to wait."""
    described = []
    monkeypatch.setattr(routes, "describe", lambda app, **_: described.append(app) or {})

    async def begin_and_end():
        service = server.Service(server.ServiceOptions(Path("model")), LogLines(None), print)
        service.pool.failure = CarpError("there is no model")

        async def load_nothing(*_):
            pass

        monkeypatch.setattr(service.pool, "start", load_nothing)
        await service.live(server.listen("127.0.0.1", 0), None)

    with pytest.raises(CarpError, match="there is no model"):
        asyncio.run(begin_and_end())
    assert len(described) == 1


def test_the_port_for_metrics_takes_nothing_from_the_places_of_the_service(monkeypatch):
    """It asks for no key: whoever reaches it could else use up all that the process may open."""
    opened, options = [], server.ServiceOptions(Path("model"), workers=3, connections=500, share=400)

    class NotedDoor(server.FrontDoor):
        def __init__(self, *given, **settings):
            super().__init__(*given, **settings)
            opened.append(self.connections)

    async def begin_and_end():
        service = server.Service(options, LogLines(None), print)
        service.pool.failure = CarpError("there is no model")

        async def load_nothing(*_):
            pass

        monkeypatch.setattr(service.pool, "start", load_nothing)
        await service.live(server.listen("127.0.0.1", 0), server.listen("127.0.0.1", 0))

    monkeypatch.setattr(server, "FrontDoor", NotedDoor)
    with pytest.raises(CarpError, match="there is no model"):
        asyncio.run(begin_and_end())
    assert [(places.most, places.share) for places in opened] == [(500, 400), (32, 16)]
    most = sum(places.most + KEPT_FOR_PROBES for places in opened)
    engines = 2 * options.workers  # while a newer model comes
    assert server.count_descriptors(options, watched=True) >= most + engines + 64
    assert server.count_descriptors(options, watched=False) >= 500 + KEPT_FOR_PROBES + engines + 64


def test_the_limit_of_descriptors_is_raised_by_what_is_needed(monkeypatch):
    raised = []
    monkeypatch.setattr(server, "raise_descriptor_limit", raised.append)

    def listen_nowhere(*_):
        raise CarpError("there is no port")

    monkeypatch.setattr(server, "listen", listen_nowhere)
    options = server.ServiceOptions(Path("model"))
    for port in (None, 0):
        with pytest.raises(CarpError, match="there is no port"):
            server.run_service(options, ("127.0.0.1", 0), metrics_port=port, say=print, log=LogLines(None))
    assert raised == [server.count_descriptors(options, watched=watched) for watched in (False, True)]


def test_signals_are_heard_before_anybody_can_connect(monkeypatch):
    """Else who connects in the first moment is cut off where the service is told to stop or to load again."""
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before, heard = [signal.getsignal(number) for number in numbers], []

    def listen_nowhere(*_):
        heard.extend(signal.getsignal(number) for number in numbers)
        raise CarpError("there is no port")

    monkeypatch.setattr(server, "listen", listen_nowhere)
    with pytest.raises(CarpError, match="there is no port"):
        server.run_service(server.ServiceOptions(Path("model")), ("127.0.0.1", 0), say=print, log=LogLines(None))
    assert not set(heard) & {*before, signal.SIG_DFL, signal.default_int_handler}


def test_a_stop_with_clients_at_work_loses_no_request_and_ends_cleanly(bundle, recommender):
    """Every client asks again and again until it can no longer connect; whoever could is answered.

    Half of them keep their connections, half ask over a new one each time; every third sends two requests at once."""
    users, items = list(recommender.fitted_corpus.users), list(recommender.fitted_corpus.items)
    with serving(bundle, "--workers", "2", "--log", os.devnull) as (process, address, said):
        pairs = [(users[n], items[n % len(items)]) for n in range(12)]
        clients = [AskingClient(address, *pair, n % 2 == 0, 1 + (n % 3 == 0)) for n, pair in enumerate(pairs)]
        for client in clients:
            client.answered_once.wait(PATIENCE)
        engines = all_engines_of(process, 2)
        process.terminate()
        for client in clients:
            client.join(PATIENCE)
        process.wait(PATIENCE)
    assert ended_cleanly(process, engines, said)
    assert [client.lost for client in clients] == [None] * 12
    assert all(client.answers for client in clients)


class AskingClient(threading.Thread):
    """Asks until no connection is to be had; `lost` says what became of a request that was sent and not answered."""

    def __init__(self, address, user, item, kept, at_once):
        super().__init__(daemon=True)
        host, _, port = address.removeprefix("http://").partition(":")
        self.place = host, int(port)
        query = urlencode({"user": user, "item": item})
        self.request = f"GET /api/explain?{query} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
        self.kept = kept
        self.at_once = at_once
        self.answers = 0
        self.lost = None
        self.answered_once = threading.Event()
        self.start()

    def run(self):
        with contextlib.suppress(ConnectionRefusedError, TimeoutError):
            while self.lost is None:
                with socket.create_connection(self.place, timeout=PATIENCE) as connection:
                    self.ask_on(connection, connection.makefile("rb"))

    def ask_on(self, connection, answers):
        going_on = True
        while going_on and self.lost is None:
            try:
                connection.sendall(self.request * self.at_once)
                going_on = [self.take(answers) for _ in range(self.at_once)][-1]
            except OSError as error:
                self.lost = repr(error)

    def take(self, answers):
        """Whether another request may follow."""
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            line = answers.readline()
            if not line:
                self.lost = f"closed after {head!r}"
                return False
            head += line
        body = answers.read(int(re.search(rb"content-length: (\d+)", head)[1]))
        if not head.startswith(b"HTTP/1.1 200") or json.loads(body)["rating"] is None:
            self.lost = repr(head)
        self.answers += 1
        self.answered_once.set()
        return self.kept and b"connection: close" not in head
