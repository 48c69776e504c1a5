"""What a part of the torture found: a line in a file, in the place of the part's last one, or a report in words."""

from __future__ import annotations

import json
import platform
import subprocess
import time
from pathlib import Path
from typing import Any


def put_line(out: Path, line: dict[str, Any]) -> None:
    """Write a part's line in the place of its last one of the same model, on cores of its own or on shared ones."""
    before = out.read_text("utf-8").splitlines() if out.exists() else []
    kept = [old for old in before if _measured(json.loads(old)) != _measured(line)]
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text("\n".join([*kept, json.dumps(line)]) + "\n", encoding="utf-8")


def _measured(line: dict[str, Any]) -> tuple[str, str | None, bool]:
    return line["part"], line.get("model"), "of_cores" in line


def tell_report(report: dict[str, Any]) -> int:
    """Print what was tried and found; the exit code that says whether there were faults."""
    print(json.dumps(report, indent=1))
    return 1 if report["faults"] else 0


def where_and_when() -> dict[str, str]:
    """The machine and the day of a measurement, and the commit, with a + where files were changed since."""
    system = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    found = {"machine": system, "date": time.strftime("%Y-%m-%d")}
    return found | ({"commit": commit} if (commit := _commit()) else {})


def _commit() -> str:
    command = ["git", "describe", "--always", "--exclude=*", "--abbrev=7", "--dirty=+"]
    try:
        done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    except OSError:  # there is no git
        return ""
    return done.stdout.strip()
