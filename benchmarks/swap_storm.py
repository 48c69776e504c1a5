"""Clients that ask without a pause while the model of a service is replaced: no error, and no answer of two models."""

from __future__ import annotations

import http.client
import json
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from carp.storage.new_folders import put_in_place

PATIENCE = 120  # seconds
LAST_BITS = 1e-5
PAIRS = 120  # of a request for ratings: the service asks its engines for them in three parts
Asked = tuple[str, str, bytes | None]  # method, address, body


@dataclass
class Storm:
    """What all clients saw: the distinct bodies of each request under each model, and what went wrong."""

    answers: int = 0
    errors: list[str] = field(default_factory=list)
    bodies: dict[tuple[Asked, str], list[Any]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, asked: Asked, status: int, model: str, body: bytes) -> None:
        with self.lock:
            self.answers += 1
            if status != 200:
                self.errors.append(f"{status} {asked[1]} {body[:200]!r}")
            else:
                known, found = self.bodies.setdefault((asked, model), []), json.loads(body)
                if not any(same(found, one) for one in known):
                    known.append(found)

    @property
    def models(self) -> set[str]:
        return {model for _, model in self.bodies}

    @property
    def mixed(self) -> int:
        """Answers that differ from others of the same model to the same request."""
        return sum(len(found) - 1 for found in self.bodies.values())

    @property
    def telling(self) -> int:
        """Requests that the models answer differently: only those could show a mixture."""
        answers: dict[Asked, list[Any]] = {}
        for (asked, _), found in self.bodies.items():
            answers.setdefault(asked, []).extend(found)
        return sum(any(not same(one, found[0]) for one in found) for found in answers.values())


def same(one: Any, other: Any) -> bool:
    """Whether two answers are the same up to the last bits, which depend on what is computed beside them."""
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other) <= LAST_BITS
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def requests_for(users: list[str], items: list[str], pairs: int = PAIRS) -> list[Asked]:
    """Ratings of many pairs at once, of one pair, reasons and recommendations."""
    many = [{"user": users[n % len(users)], "item": items[n % len(items)]} for n in range(pairs)]
    asked: list[Asked] = [("POST", "/api/predict", json.dumps({"pairs": many}).encode())]
    for user, item in zip(users[:6], items[:6], strict=False):
        named = f"user={quote(user, safe='')}&item={quote(item, safe='')}"
        asked += [
            ("GET", f"/api/explain?{named}", None),
            ("GET", f"/api/recommend?user={quote(user, safe='')}&n=3", None),
        ]
        asked.append(("POST", "/api/predict", json.dumps({"user": user, "item": item}).encode()))
    return asked


def weather(port: int, asked: list[Asked], clients: int, swap: Callable[[int], None], swaps: int) -> Storm:
    """Let so many clients ask while `swap` is called so many times; ask everything of the first and the last alone."""
    storm, over, alone = Storm(), threading.Event(), threading.Event()
    alone.set()
    _ask(port, asked, storm, alone)
    threads = [
        threading.Thread(target=_ask, args=(port, asked[n % len(asked) :] + asked[: n % len(asked)], storm, over))
        for n in range(clients)
    ]
    for thread in threads:
        thread.start()
    try:
        for number in range(swaps):
            swap(number)
    finally:
        over.set()
        for thread in threads:
            thread.join(PATIENCE)
    _ask(port, asked, storm, alone)
    return storm


def _ask(port: int, asked: list[Asked], storm: Storm, over: threading.Event) -> None:
    """Go through the requests over one connection until it is over, but at least once."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        while True:
            for one in asked:
                connection.request(one[0], one[1], one[2], {"content-type": "application/json"})
                answer = connection.getresponse()
                storm.note(one, answer.status, answer.headers.get("x-carp-bundle", ""), answer.read())
            if over.is_set():
                return
    except (OSError, http.client.HTTPException) as error:
        with storm.lock:
            storm.errors.append(f"{type(error).__name__}: {error}")
    finally:
        connection.close()


def reload(port: int) -> str:
    """Ask the service to take the model that is at its place now; the sum of the one it serves then."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    connection.request("POST", "/admin/reload", headers={"X-Carp-Admin": "reload"})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    if answer.status != 200:
        raise RuntimeError(f"{answer.status} {body.decode()}")
    return str(json.loads(body)["bundle"])


def replacing(place: Path, bundles: Iterator[Path]) -> Callable[[], None]:
    """Puts the next of the bundles at the place in one step, as saving a model does."""

    def replace() -> None:
        beside = place.with_name(f".{place.name}.next")
        shutil.copytree(next(bundles), beside)
        put_in_place(beside, place)
        shutil.rmtree(beside)

    return replace
