"""The GPU's benchmark goes through its parts without a card, and ends as it promises."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from carp.kernels.gpu.availability import has_triton
from carp.models.base import make_config
from carp.models.meeting import Meeting

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


def test_the_ratings_that_the_meeting_model_is_timed_on_follow_from_the_documents(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import gpu_meeting
    from gpu_corpora import made_up

    data = gpu_meeting.with_opinions(made_up(gpu_meeting.SMALL))
    assert set(np.unique(data.train.ratings)) == {1, 2, 3, 4, 5}
    assert data.valid is data.train
    assert data.user_documents.lengths().sum() == data.item_documents.lengths().sum()  # none is cut
    fitted = Meeting(make_config(Meeting, {"rarity": 1.0, "from_mean": False, "rounds": 4}), data.sizes)
    fitted.start(data)
    assert (fitted.strengths[0, :2] > 0).all()  # the biases
    assert (fitted.strengths[0, 2:-1] > 0).any()  # and the texts
