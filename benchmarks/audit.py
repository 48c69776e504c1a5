"""Known vulnerabilities of everything in requirements.lock, by pip-audit; what could not be looked up is said as such.

    make audit

pip-audit asks the package index, or the database of OSV with `--service osv`. It says "no known vulnerabilities" also
where it could look up nothing, so this counts what was looked up. The record is results/audit.json.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from result_lines import where_and_when

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "requirements.lock"


def summary(report: dict[str, Any]) -> dict[str, Any]:
    """What pip-audit's report says: how many releases were looked up, what was found, and why others were not."""
    listed = report["dependencies"]
    looked_up = [one for one in listed if "skip_reason" not in one]
    found = [
        {"name": one["name"], "version": one["version"], "id": fault["id"], "fixed_in": fault["fix_versions"]}
        for one in looked_up
        for fault in one["vulns"]
    ]
    reasons = Counter(re.sub(r":.*", "", one["skip_reason"]) for one in listed if "skip_reason" in one)
    return {"releases": len(listed), "looked_up": len(looked_up), "vulnerabilities": found, "skipped": dict(reasons)}


def audited(service: str) -> dict[str, Any]:
    """Run pip-audit over the lock."""
    command = [sys.executable, "-m", "pip_audit", "--requirement", str(LOCK), "--disable-pip", "--no-deps"]
    command += ["--vulnerability-service", service, "--progress-spinner", "off", "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not done.stdout.strip():
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        return {"releases": 0, "looked_up": 0, "vulnerabilities": [], "skipped": {last[:200]: 1}}
    return summary(json.loads(done.stdout))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "audit.json")
    parser.add_argument("--service", choices=["pypi", "osv"], default="pypi")
    given = parser.parse_args()
    found = {"command": "make audit", **audited(given.service), **where_and_when()}
    given.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(f"{found['looked_up']} of {found['releases']} releases were looked up", file=sys.stderr)
    print(f"{len(found['vulnerabilities'])} known vulnerabilities", file=sys.stderr)
    whole = found["looked_up"] == found["releases"] > 0
    return 0 if whole and not found["vulnerabilities"] else 1


if __name__ == "__main__":
    sys.exit(main())
