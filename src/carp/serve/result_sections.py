"""The sections of a folder of results for the explorer: made once for the same results, and sent one by one."""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from pathlib import Path
from typing import Any

import carp
from carp.errors import CarpError
from carp.storage import read_json, write_json
from carp.storage.own_cache import own_cache

KEPT = "report-{key}.json"  # in the user's cache
KEPT_DAYS = 30
SENT_AT_ONCE = 60_000  # characters of the first sections; the others are asked for
Section = dict[str, str]


class ResultSections:
    """Tables and plots of a folder, as parts of a page."""

    def __init__(self, folder: Path) -> None:
        self.sections = kept_sections(folder)

    def first(self) -> dict[str, Any]:
        """All titles, with what belongs to the first of them; the rest is empty and asked for by its number."""
        room, told = SENT_AT_ONCE, []
        for number, section in enumerate(self.sections):
            room -= len(section["html"])
            told.append(section if number == 0 or room >= 0 else {**section, "html": ""})
        return {"sections": told}

    def one(self, number: int) -> dict[str, Any] | None:
        return {"sections": [self.sections[number]]} if number < len(self.sections) else None


def holds_results(folder: Path) -> bool:
    """Whether a report can be made of the folder, as far as its lines tell."""
    from carp.bench.results_folder import BENCH, STUDY, read_results

    with contextlib.suppress(CarpError):
        return any(read_results(folder, file).lines for file in (BENCH, STUDY))
    return False


def kept_sections(folder: Path) -> list[Section]:
    """What was made of the very same results before, else made now and kept; a cache that cannot be used is passed."""
    kept: Path | None = None
    with contextlib.suppress(OSError):  # no home, no right to write
        kept = own_cache() / KEPT.format(key=_key(folder))
    if kept is not None:
        with contextlib.suppress(CarpError, OSError, KeyError, TypeError, AttributeError):
            return [{"title": str(one["title"]), "html": str(one["html"])} for one in read_json(kept)["sections"]]
    made = _made(folder)
    if kept is not None:
        with contextlib.suppress(CarpError, OSError):
            _forget_old(kept.parent)
            write_json(kept, {"sections": made})
    return made


def _key(folder: Path) -> str:
    """Of all that a report is made from: the lines of the folder, and the version that makes it."""
    summed = hashlib.sha256(json.dumps([carp.__version__, _made_by()]).encode())
    for file in sorted([*folder.glob("*.json"), *folder.glob("*.jsonl"), *folder.glob("errors/*.npy")]):
        summed.update(file.name.encode() + b"\0" + hashlib.sha256(file.read_bytes()).digest())
    return summed.hexdigest()[:32]


def _made_by() -> list[str]:
    """The code of the report itself, which changes between two releases."""
    from carp.bench import report

    code = sorted(Path(report.__file__).parent.glob("*.py"))
    return [hashlib.sha256(file.read_bytes()).hexdigest() for file in code]


def _forget_old(cache: Path) -> None:
    before = time.time() - 86_400 * KEPT_DAYS
    for file in cache.glob(KEPT.format(key="*")):
        if file.stat().st_mtime < before:
            file.unlink(missing_ok=True)


def _made(folder: Path) -> list[Section]:
    """A plot that cannot be drawn here is left out."""
    from carp.bench.report import make_report
    from carp.bench.report_page import section_part

    sections = []
    for section in make_report(folder):
        try:
            written = section_part(section)
        except CarpError:
            section.plots.clear()
            written = section_part(section)
        sections.append({"title": section.title, "html": written})
    return sections
