"""The GPU's benchmark goes through its parts without a card, and ends as it promises."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from carp.kernels.gpu.availability import has_triton

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(not has_triton(), reason="needs Triton")
def test_a_rehearsal_ends_with_a_line_a_work_and_writes_down_what_it_measured(tmp_path):
    out = tmp_path / "rehearsed.jsonl"
    command = [sys.executable, str(ROOT / "benchmarks" / "speed_gpu.py"), "--rehearse", "--part", "encode"]
    run = subprocess.run([*command, "--out", str(out)], capture_output=True, text=True, check=False, timeout=300)
    assert run.returncode == 0, run.stderr
    works = [line.split("\t") for line in run.stdout.splitlines() if "\t" in line]
    assert len(works) == 2
    written = [line for line in map(json.loads, out.read_text().splitlines()) if "ratio" in line]
    for (name, theirs, ours, ratio), line in zip(works, written, strict=True):
        assert name == line["work"] == "encoding documents (ieee)"
        assert float(theirs.split()[0]) == pytest.approx(line["straightforward"], rel=1e-3)
        assert float(ours.split()[0]) == pytest.approx(line["ours"], rel=1e-3)
        assert float(ratio) == pytest.approx(line["ours"] / line["straightforward"], rel=1e-2)
        assert 0 < line["bytes_share"] < 1
        assert 0 < line["operations_share"] < 1
