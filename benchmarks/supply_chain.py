"""What carp is built and tested with, with hashes: a lock for pip, and a software bill of materials.

    python benchmarks/supply_chain.py --lock requirements.lock --bill results/sbom.cdx.json

Names and versions come from constraints.txt, and where that leaves a range, from what is installed here. The hashes of
all files of a release come from the package index, whose answer is trusted once, when the lock is made. From then on
`pip install --require-hashes -r requirements.lock` takes no other file.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import urllib.request
import uuid
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
INDEX = "https://pypi.org/simple"
FILE = re.compile(r'#sha256=([0-9a-f]{64})"[^>]*>([^<]+)</a>')


def pinned(text: str) -> dict[str, str]:
    """Names and versions of the constraints."""
    found = {}
    for line in text.splitlines():
        wanted = line.split("#")[0].split(";")[0].strip()
        if not wanted:
            continue
        name = re.split(r"[=<>!~ \[]", wanted, maxsplit=1)[0]
        exact = re.fullmatch(r"[\w.-]+==([\w.]+)", wanted)
        found[name] = exact[1] if exact else metadata.version(name)
    return found


def plain_name(name: str) -> str:
    """As the index spells it: `ast_serialize` and `ast-serialize` are one package."""
    return re.sub(r"[-_.]+", "-", name).lower()


def needed(requirements: list[str]) -> set[str]:
    """The packages that requirements ask for here, and those that these ask for in turn."""
    found: set[tuple[str, tuple[str, ...]]] = set()
    waiting = [Requirement(text) for text in requirements]
    while waiting:
        wanted = waiting.pop()
        key = plain_name(wanted.name), tuple(sorted(wanted.extras))
        if key in found or not _asked(wanted, {""}):
            continue
        found.add(key)
        listed = [Requirement(text) for text in metadata.distribution(wanted.name).requires or []]
        waiting += [_without_marker(one) for one in listed if _asked(one, {"", *wanted.extras})]
    return {name for name, _ in found}


def _asked(wanted: Requirement, extras: set[str]) -> bool:
    return wanted.marker is None or any(wanted.marker.evaluate({"extra": extra}) for extra in extras)


def _without_marker(wanted: Requirement) -> Requirement:
    wanted.marker = None
    return wanted


def release(name: str, version: str) -> dict[str, Any]:
    """The files of a release with their sums, as the index lists them; the licence as the installed one names it."""
    with urllib.request.urlopen(f"{INDEX}/{plain_name(name)}/", timeout=60) as answer:
        listed = FILE.findall(answer.read().decode())
    number = re.escape(version)
    ours = re.compile(rf"[A-Za-z0-9._]+?-{number}(-.*\.whl|\.tar\.gz|\.zip)")
    files = {file: total for total, file in listed if ours.fullmatch(file)}
    return {"name": name, "version": version, "licence": _licence(name), "files": files}


def _licence(name: str) -> str | None:
    try:
        about = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return None
    named = [one.rsplit(" :: ", 1)[1] for one in about.get_all("Classifier") or [] if one.startswith("License ::")]
    return next(iter([*(about.get_all("License-Expression") or []), *named]), None)


def lock_of(releases: list[dict[str, Any]]) -> str:
    lines = ["# Made from constraints.txt by benchmarks/supply_chain.py. Use: make install-locked"]
    for one in releases:
        hashes = [f"--hash=sha256:{total}" for total in sorted(one["files"].values())]
        lines.append(" \\\n    ".join([f"{one['name']}=={one['version']}", *hashes]))
    return "\n".join(lines) + "\n"


def bill_of(releases: list[dict[str, Any]], version: str) -> dict[str, Any]:
    """A CycloneDX document; its number follows from its content, so that the same lock gives the same bill."""
    parts = [
        {
            "type": "library",
            "name": one["name"],
            "version": one["version"],
            "purl": f"pkg:pypi/{one['name'].lower()}@{one['version']}",
            **({"licenses": [{"license": {"name": one["licence"]}}]} if one["licence"] else {}),
            "hashes": [{"alg": "SHA-256", "content": total} for total in sorted(one["files"].values())],
        }
        for one in releases
    ]
    number = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(parts, sort_keys=True))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{number}",
        "version": 1,
        "metadata": {"component": {"type": "application", "name": "carp-rec", "version": version}},
        "components": parts,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lock", type=Path, required=True)
    parser.add_argument("--bill", type=Path, required=True)
    given = parser.parse_args()
    import carp

    releases = [release(*one) for one in pinned((ROOT / "constraints.txt").read_text()).items()]
    if empty := [one["name"] for one in releases if not one["files"]]:
        print(f"the index has no files of {', '.join(empty)}", file=sys.stderr)
        return 1
    given.lock.write_text(lock_of(releases))
    given.bill.write_text(json.dumps(bill_of(releases, carp.__version__), indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
