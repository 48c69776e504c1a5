"""A page's curl commands, answered by the service itself without a socket."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any
from urllib.parse import quote

SERVICE = "http://127.0.0.1:8000"


def ask(command: str, client: Any) -> str:
    """A curl command answered by the service itself, without a socket."""
    asked, _, filtered = command.partition("|")
    words = iter(shlex.split(asked)[1:])
    url, body, as_query, method = "", [], False, None
    for word in words:
        if word in ("-d", "--data", "--data-urlencode"):
            body.append((word, next(words)))
        elif word == "-G":
            as_query = True
        elif word == "-X":
            method = next(words)
        elif word == "-H":
            next(words)
        elif not word.startswith("-"):
            url = word
    path = url.removeprefix(SERVICE)
    if as_query:
        pairs = (text.partition("=") for _, text in body)
        path += "?" + "&".join(f"{name}={quote(value)}" for name, _, value in pairs)
        answer = client.get(path)
    elif body:
        answer = client.request(
            method or "POST", path, content=body[0][1].encode(), headers={"content-type": "application/json"}
        )
    else:
        answer = client.request(method or "GET", path)
    if "json.tool" in filtered:
        return json.dumps(answer.json(), indent=4, ensure_ascii=False)
    return str(answer.text)


def client_of(model: Path) -> Any:
    """The service of a saved model."""
    from starlette.testclient import TestClient

    import carp
    from carp.serve.routes import make_app

    return TestClient(make_app(carp.load(model)), raise_server_exceptions=False)
