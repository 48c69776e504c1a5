"""How fast the service answers many clients: `carp serve` on a trained model, asked over real sockets.

    python benchmarks/load.py MODEL [--requests 100000] [--clients 64] [--explain 0.5] [--workers N]

Every client sends its next request as soon as the last one is answered. Pairs are drawn at random of all people and
all things, so that nearly no explanation has been made before. Without a bundle at MODEL one is trained there, with
--corpus. At the end: how long a recommendation over all things takes, asked one after another.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import re
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from urllib.parse import quote

WANTED = {"explain": 200.0, "predict": 100.0, "recommend": 50.0}  # milliseconds: p99, and for recommend the longest
START = 120  # seconds


class Client(asyncio.Protocol):
    """One connection that asks, waits for the whole answer, and asks again."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.received = bytearray()
        self.expected = -1
        self.kind = ""
        self.began = 0.0
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.ask()

    def ask(self) -> None:
        assert self.transport is not None
        drawn = self.load.draw()
        if drawn is None:
            self.transport.close()
            return
        self.kind, request = drawn
        self.received.clear()
        self.expected = -1
        self.began = time.perf_counter()
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        self.received += data
        if self.expected < 0:
            end = self.received.find(b"\r\n\r\n")
            if end < 0:
                return
            found = re.search(rb"content-length: (\d+)", self.received[:end])
            self.expected = end + 4 + (int(found[1]) if found else 0)
        if len(self.received) >= self.expected:
            good = self.received.startswith(b"HTTP/1.1 200") and b'"rating":' in self.received
            self.load.note(self.kind, time.perf_counter() - self.began, good, bytes(self.received[:300]))
            self.kind = ""
            self.ask()

    def connection_lost(self, error: Exception | None) -> None:
        if self.kind:
            self.load.note(self.kind, time.perf_counter() - self.began, False, b"the connection was lost")
        self.load.left(self)


class Load:
    """What is asked, and what came of it."""

    def __init__(self, users: list[str], items: list[str], requests: int, explain: float, seed: int) -> None:
        self.users, self.items = users, items
        self.requests, self.explain = requests, explain
        self.drawn = 0
        self.random = random.Random(seed)
        self.seconds: dict[str, list[float]] = {"predict": [], "explain": []}
        self.errors = {"predict": 0, "explain": 0}
        self.first_error = b""
        self.clients: set[Client] = set()
        self.done = asyncio.Event()

    def draw(self) -> tuple[str, bytes] | None:
        if self.drawn >= self.requests:
            return None
        self.drawn += 1
        user, item = self.random.choice(self.users), self.random.choice(self.items)
        if self.random.random() < self.explain:
            asked = f"user={quote(user, safe='')}&item={quote(item, safe='')}"
            return "explain", f"GET /api/explain?{asked} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
        body = json.dumps({"user": user, "item": item}).encode()
        head = "POST /api/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length:"
        return "predict", f"{head} {len(body)}\r\n\r\n".encode() + body

    def note(self, kind: str, seconds: float, good: bool, beginning: bytes) -> None:
        self.seconds[kind].append(seconds)
        if not good:
            self.errors[kind] += 1
            self.first_error = self.first_error or beginning

    def left(self, client: Client) -> None:
        self.clients.discard(client)
        if not self.clients:
            self.done.set()


async def run(load: Load, host: str, port: int, clients: int) -> float:
    loop = asyncio.get_running_loop()
    began = time.perf_counter()
    unused = [Client(load) for _ in range(clients)]
    load.clients = set(unused)
    await asyncio.gather(*(loop.create_connection(unused.pop, host, port) for _ in range(clients)))
    await load.done.wait()
    return time.perf_counter() - began


def listed(address: str, kind: str) -> list[str]:
    """All ids of one kind, page by page, as a client sees them."""
    ids: list[str] = []
    while True:
        with urllib.request.urlopen(f"{address}/api/{kind}?limit=200&offset={len(ids)}") as answer:
            found = json.load(answer)
        ids += [row["id"] for row in found[kind]]
        if len(ids) >= found["total"] or not found[kind]:
            return ids


def recommendations(address: str, users: list[str]) -> list[float]:
    seconds = []
    for user in users:
        began = time.perf_counter()
        with urllib.request.urlopen(f"{address}/api/recommend?user={quote(user, safe='')}&n=10") as answer:
            json.load(answer)
        seconds.append(time.perf_counter() - began)
    return seconds


def share(seconds: list[float], part: float) -> float:
    """A quantile in milliseconds."""
    ordered = sorted(seconds)
    return 1000 * ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else float("nan")


def start(model: Path, workers: int | None) -> tuple[subprocess.Popen[str], str]:
    command = [sys.executable, "-m", "carp", "serve", str(model), "--port", "0"]
    command += ["--workers", str(workers)] if workers else []
    command += ["--log", os.devnull]
    service = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert service.stderr is not None
    said = []
    for line in service.stderr:
        said.append(line)
        if found := re.search(r"http://[^/]+", line):
            print(line.strip(), file=sys.stderr)
            return service, found[0]
    raise SystemExit("the service did not start:\n" + "".join(said))


def cpu_seconds(process: int) -> float:
    """Processor time of a process and all that it started so far; not a number where there is no /proc."""
    figures: dict[int, tuple[int, int]] = {}  # process → its parent, its ticks
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (entry / "stat").read_text().rpartition(")")[2].split()
            figures[int(entry.name)] = int(words[1]), int(words[11]) + int(words[12])
    if process not in figures:
        return float("nan")
    family, found = {process}, 0
    while len(family) > found:
        found = len(family)
        family |= {one for one, (parent, _) in figures.items() if parent in family}
    return sum(figures[one][1] for one in family) / os.sysconf("SC_CLK_TCK")


def train(corpus: Path, model: Path) -> None:
    settings = ["--model", "carp", "--set", "epochs=2", "--set", "variant=calibrated"]
    subprocess.run([sys.executable, "-m", "carp", "train", str(corpus), "--out", str(model), *settings], check=True)


def measure(service: int, address: str, options: argparse.Namespace) -> bool:
    users, items = listed(address, "users"), listed(address, "items")
    host, _, port = address.removeprefix("http://").rpartition(":")

    async def whole() -> tuple[Load, float]:
        load = Load(users, items, options.requests, options.explain, options.seed)
        return load, await run(load, host, int(port), options.clients)

    before, own = cpu_seconds(service), time.process_time()
    load, seconds = asyncio.run(whole())
    used, own = cpu_seconds(service) - before, time.process_time() - own
    asked = recommendations(address, users[:: max(1, len(users) // options.recommendations)])
    print(f"{options.clients} clients, {options.requests:,} requests, {options.requests / seconds:.0f} a second")
    each = 1000 / options.requests
    print(f"processor time a request: {used * each:.2f} ms of the service, {own * each:.2f} ms of the clients")
    print(f"load average of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    if load.first_error:
        print(f"the first error: {load.first_error!r}")
    print("kind\trequests\terrors\tp50 ms\tp99 ms\tlongest ms\twanted ms\treached")
    reached = True
    for kind in ("predict", "explain"):
        p99 = share(load.seconds[kind], 0.99)
        good = not load.errors[kind] and not p99 > WANTED[kind]
        reached = reached and good
        figures = [share(load.seconds[kind], 0.5), p99, share(load.seconds[kind], 1.0), WANTED[kind]]
        row = [kind, str(len(load.seconds[kind])), str(load.errors[kind]), *(f"{one:.1f}" for one in figures)]
        print("\t".join([*row, "yes" if good else "no"]))
    good = share(asked, 1.0) <= WANTED["recommend"]
    figures = [share(asked, 0.5), share(asked, 0.99), share(asked, 1.0), WANTED["recommend"]]
    print("\t".join(["recommend", str(len(asked)), "0", *(f"{one:.1f}" for one in figures), "yes" if good else "no"]))
    return reached and good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--corpus", type=Path, help="trains a model on it where there is none")
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--explain", type=float, default=0.5, help="the share of requests that ask for reasons")
    parser.add_argument("--recommendations", type=int, default=50)
    parser.add_argument("--workers", type=int)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if not options.model.is_dir():
        if options.corpus is None:
            parser.error(f"there is no model at {options.model}; give --corpus to train one")
        train(options.corpus, options.model)
    service, address = start(options.model, options.workers)
    try:
        return 0 if measure(service.pid, address, options) else 1
    finally:
        service.terminate()
        service.wait(START)


if __name__ == "__main__":
    sys.exit(main())
