"""The notebooks run from the first cell to the last, and what they promise holds."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[2] / "docs" / "notebooks"
NOTEBOOKS = sorted(path.name for path in FOLDER.glob("*.ipynb"))


def test_there_are_the_three_notebooks():
    assert NOTEBOOKS == ["compare-models.ipynb", "how-an-explanation-is-made.ipynb", "shop-first-hour.ipynb"]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebook_runs_and_every_last_line_shows_something(name, tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    notebook = nbformat.read(FOLDER / name, as_version=4)
    place = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources=place).execute()
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    shown = [cell for cell in code if cell.outputs]
    assert len(shown) >= 4
    assert all(cell.source.splitlines()[-1].startswith(("assert", "SYSTEMS")) for cell in code if cell not in shown)
