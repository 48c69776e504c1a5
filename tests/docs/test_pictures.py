"""The drawings are those of their script, and the routing drawn there is the model's own."""

from __future__ import annotations

import importlib.util
import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

PICTURES = Path(__file__).resolve().parents[2] / "docs" / "pictures"
NUMBERS = json.loads((PICTURES / "routing.json").read_text("utf-8"))


@pytest.fixture(scope="module")
def draw():
    spec = importlib.util.spec_from_file_location("draw", PICTURES / "draw.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_drawings_are_up_to_date(draw):
    assert {path.stem for path in PICTURES.glob("*.svg")} == set(draw.PICTURES)
    for name, make in draw.PICTURES.items():
        assert (PICTURES / f"{name}.svg").read_text("utf-8") == str(make()), f"run python {PICTURES / 'draw.py'}"


@pytest.mark.parametrize("path", sorted(PICTURES.glob("*.svg")), ids=lambda path: path.stem)
def test_a_drawing_says_what_it_shows_and_stays_on_its_sheet(path):
    root = ET.parse(path).getroot()
    kind = "{http://www.w3.org/2000/svg}"
    assert root.findtext(f"{kind}title")
    assert root.findtext(f"{kind}desc")
    _, _, width, height = map(float, root.get("viewBox").split())
    for box in root.iter(f"{kind}rect"):
        assert float(box.get("x")) + float(box.get("width")) <= width
        assert float(box.get("y")) + float(box.get("height")) <= height
    for text in root.iter(f"{kind}text"):
        assert 0 <= float(text.get("x")) <= width
        assert 0 <= float(text.get("y")) <= height


@pytest.mark.parametrize("number", range(len(NUMBERS["rounds"])))
def test_the_coupling_of_each_round_follows_from_its_agreement(number):
    import torch

    from carp.models.carp import bi_agreement

    one = NUMBERS["rounds"][number]
    found = bi_agreement(torch.tensor([one["agreement"]], dtype=torch.float64))[0]
    assert torch.allclose(found, torch.tensor(one["coupling"], dtype=torch.float64), atol=2e-6)


def test_the_numbers_of_the_last_round_are_in_the_explanation_that_is_read():
    page = (PICTURES.parent / "howto" / "read-an-explanation.md").read_text("utf-8")
    for sentiment, words in enumerate(("for", "against")):
        for x, y, listed in NUMBERS["units"]:
            value = NUMBERS["rounds"][-1]["coupling"][sentiment][(x - 1) * NUMBERS["viewpoints"] + y - 1]
            assert f"{words} {value:.3f}" in page, (x, y, listed)
    lengths = NUMBERS["rounds"][-1]["lengths"]
    assert all(f"length {length:.3f}" in page for length in lengths)
