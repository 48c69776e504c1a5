"""Folders that are mounted, as containers have them: a new folder takes the place of one inside a mount, and of none
at which something is mounted. Mounts are made in namespaces of their own, which not every machine allows."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from carp.errors import StorageError
from carp.storage import mount_points, new_folder
from carp.storage.mount_points import is_mount_point

MODELS = """
import sys
from pathlib import Path
from carp.cli.output_files import check_new_folder
from carp.errors import CarpError
from carp.storage import new_folder, opened_folder

def put(folder, content):
    with new_folder(folder, "model", overwrite=True) as partial:
        (partial / "content").write_text(content)

def served(folder):
    with opened_folder(folder, "model") as found:
        return found.read("content").decode()
"""
SWAP = """
print(served("above/model"), served("alone"))
put("models/model", "newer")
print(served("above/model"), list(Path("alone").iterdir()))
"""
REPLACE = """
def refused(command, *words, **more):
    try:
        command(*words, **more)
    except CarpError as error:
        print(type(error).__name__, Path(error.where).name, error.what)

refused(put, "alone", "newer")
refused(check_new_folder, Path("alone"), "model", overwrite=True)
print(served("alone"))
refused(put, "above/model", "newer")
print(served("above/model"), sorted(one.name for one in Path().iterdir()))
"""


@pytest.fixture
def mounted(tmp_path):
    """Runs Python where the folder of a model and the one above it are mounted once more, each somewhere else."""
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("there is no unshare here, which makes mounts of one's own")
    for name in ("models", "above", "alone"):
        (tmp_path / name).mkdir()
    with new_folder(tmp_path / "models" / "model", "model") as partial:
        (partial / "content").write_text("older")

    def run(words):
        mounts = "mount --bind models above && mount --bind models/model alone"
        alone = [unshare, "--map-root-user", "--mount", "sh", "-c"]
        tried = subprocess.run([*alone, mounts], cwd=tmp_path, capture_output=True, text=True, check=False)
        if tried.returncode:
            pytest.skip(f"mounts of one's own are not allowed here ({tried.stderr.strip()})")
        command = [*alone, f'{mounts} && exec "$0" -c "$1"', sys.executable, MODELS + words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return run


def test_a_newer_model_is_seen_where_the_folder_above_it_is_mounted_and_not_where_it_is_mounted_itself(mounted):
    assert mounted(SWAP) == ["older older", "newer []"], "what was mounted is the old folder, whose files are gone"


def test_a_folder_at_which_a_volume_is_mounted_is_not_replaced_and_the_error_says_why(mounted):
    what = "a volume is mounted at this very folder, which can therefore not be replaced"
    assert mounted(REPLACE) == [
        f"StorageError alone {what}",
        f"StorageError alone {what}",
        "older",
        "newer ['above', 'alone', 'models']",
    ]


def test_where_a_volume_is_mounted_is_seen_and_plain_folders_are_none(tmp_path):
    (tmp_path / "link").symlink_to("/")
    assert is_mount_point(Path("/"))
    assert is_mount_point(Path("/proc")) or not Path("/proc").exists()
    assert not any(map(is_mount_point, (tmp_path, tmp_path / "link", tmp_path / "none", Path(__file__))))


def test_a_refused_folder_stays_as_it_was(tmp_path, monkeypatch):
    with new_folder(tmp_path / "model", "model") as partial:
        (partial / "content").write_text("older")
    monkeypatch.setattr(mount_points, "is_mount_point", lambda path: path.name == "model")
    with (
        pytest.raises(StorageError, match="mount the folder above it"),
        new_folder(tmp_path / "model", "model", overwrite=True) as partial,
    ):
        (partial / "content").write_text("newer")
    assert [one.name for one in tmp_path.iterdir()] == ["model"]
    assert (tmp_path / "model" / "content").read_text() == "older"
