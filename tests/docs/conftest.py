"""The site is built once, and the pages' sessions are run once, for all tests that look at them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """The built site; what it complains of is a failure."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def ended(tmp_path_factory, single_thread):
    """What the examples of a page printed otherwise than it says, and the folder they left; each page is run once."""
    import examples

    places = {}

    def run(page):
        if page not in places:
            first = examples.before(page)
            folder = tmp_path_factory.mktemp("page") / "work"
            if first is None:
                folder.mkdir()
            else:
                shutil.copytree(run(first)[1], folder)
            places[page] = examples.differences(page, examples.Session(folder)), folder
        return places[page]

    return run
