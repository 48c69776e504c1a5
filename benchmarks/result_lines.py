"""Lines of results in a file, one for each part: a new line takes the place of the part's last one."""

from __future__ import annotations

import json
import platform
import time
from pathlib import Path
from typing import Any


def put_line(out: Path, line: dict[str, Any]) -> None:
    """Write a part's line in the place of its last one."""
    before = out.read_text("utf-8").splitlines() if out.exists() else []
    kept = [old for old in before if json.loads(old)["part"] != line["part"]]
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text("\n".join([*kept, json.dumps(line)]) + "\n", encoding="utf-8")


def where_and_when() -> dict[str, str]:
    """The machine and the day of a measurement."""
    system = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    return {"machine": system, "date": time.strftime("%Y-%m-%d")}
