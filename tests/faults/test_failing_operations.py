"""Some of the operations of each job fail in turn; all of them do in `make torture`."""

from __future__ import annotations

import random
import shutil
import sys

import pytest

import failing_operations

# Other operations each time, so that in the end all are tried; the seed is printed where it matters.
FIRST = random.randrange(1, 38)


@pytest.mark.skipif(sys.platform != "linux", reason="the layer under the process is made for Linux")
@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler here")
@pytest.mark.parametrize(("job", "error"), [("prepare", "full"), ("save", "killed"), ("train", "broken")])
def test_whatever_operation_fails_the_old_state_or_the_new_one_is_there(job, error):
    report = failing_operations.run(job, error, first=FIRST, step=37)
    assert report["wrong"] == [], f"python benchmarks/failing_operations.py --job {job} --error {error} --first {FIRST}"
    assert report["operations"] > 40
    assert sum(report["counts"][how] for how in ("refused", "killed") if how in report["counts"]) > 0
