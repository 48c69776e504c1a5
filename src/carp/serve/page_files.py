"""The page's files: read once, so that no request ever names a place on the disk."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
    ".webmanifest": "application/manifest+json",
}
INDEX = "index.html"
PICTURES = b'<meta name="carp-pictures" content="">'  # where the page learns from where it may load pictures


@dataclass(frozen=True)
class Served:
    body: bytes
    kind: str
    tag: str  # of this very content, so that a browser need not fetch it again


def page_files(pictures: Sequence[str] = ()) -> dict[str, Served]:
    """The files of the explorer page by their names below /static/; it shows pictures from these origins alone."""
    found: dict[str, Served] = {}
    _gather(resources.files("carp.serve").joinpath("page"), "", found)
    if INDEX in found:
        told = PICTURES.replace(b'""', b'"' + " ".join(pictures).encode() + b'"')
        found[INDEX] = _served(found[INDEX].body.replace(PICTURES, told), found[INDEX].kind)
    return found


def _served(body: bytes, kind: str) -> Served:
    return Served(body, kind, f'"{hashlib.sha256(body).hexdigest()[:20]}"')


def _gather(folder: Traversable, before: str, found: dict[str, Served]) -> None:
    if not folder.is_dir():
        return
    for entry in folder.iterdir():
        if entry.is_dir():
            _gather(entry, f"{before}{entry.name}/", found)
        elif Path(entry.name).suffix in KINDS:
            found[before + entry.name] = _served(entry.read_bytes(), KINDS[Path(entry.name).suffix])


@dataclass(frozen=True)
class RouteShown:
    """A route as the page of routes shows it."""

    method: str
    path: str
    summary: str
    fields: str


def docs_page(schema: dict[str, Any]) -> bytes:
    """What can be asked, as a plain page: no script and nothing from elsewhere."""
    from carp.render.html_templates import filled

    routes = [
        RouteShown(method.upper(), path, about.get("summary", ""), ", ".join(_fields(about, schema)))
        for path, methods in schema["paths"].items()
        for method, about in methods.items()
    ]
    return filled("routes.html", routes=routes).encode()


def _fields(about: dict[str, Any], schema: dict[str, Any]) -> list[str]:
    """The names of what a route takes, in its address and in its body."""
    names = [one["name"] for one in about.get("parameters", [])]
    body = about.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    known = schema.get("components", {}).get("schemas", {}).get(str(body.get("$ref", "")).rpartition("/")[2], {})
    ways = known.get("oneOf", [known])
    return [*names, *(name for way in ways for name in way.get("properties", {}))]
