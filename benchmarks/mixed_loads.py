"""Two models are saved to one place in turn while it is loaded again and again: no load mixes the two.

python benchmarks/mixed_loads.py --loads 100000
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import torch

import carp
import hostile_bundles
from carp.errors import CarpError
from result_lines import tell_report

SAVING = (
    "import sys, torch, carp\n"
    "torch.set_num_threads(1)\n"
    "models = [carp.load(name, device='cpu') for name in sys.argv[1:3]]\n"
    "print('ready', flush=True)\n"
    "while True:\n"
    "    for model in models: model.save(sys.argv[3], overwrite=True)\n"
)


def make_two(folder: Path) -> None:
    """Models that differ in a fact and in a weight."""
    hostile_bundles.make_bundle(folder / "one")
    other = carp.load(folder / "one", device="cpu")
    other.facts["seed"] = 77
    with torch.no_grad():
        dict(other.model.named_parameters())["vote_weight"].fill_(0.5)
    other.save(folder / "two")
    other.save(folder / "both")


def run(loads: int) -> dict[str, Any]:
    """How many loads found which model, and which were mixed or refused."""
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        make_two(folder)
        asked = [sys.executable, "-c", SAVING, *(str(folder / name) for name in ("one", "two", "both"))]
        saver = subprocess.Popen(asked, stdout=subprocess.PIPE, text=True)
        try:
            assert saver.stdout
            assert saver.stdout.readline() == "ready\n"
            for _ in range(loads):
                counts[_loaded(folder / "both")] += 1
        finally:
            saver.kill()
            saver.wait()
    faults = [f"{count} times: {what}" for what, count in counts.items() if what not in ("one", "two")]
    return {"tried": loads, "counts": dict(counts), "faults": faults}


def _loaded(folder: Path) -> str:
    try:
        found = carp.load(folder, device="cpu")
    except CarpError as error:
        return f"refused: {error}"[:200]
    weight = dict(found.model.named_parameters())["vote_weight"]
    return {(0, False): "one", (77, True): "two"}.get((found.seed, bool(weight.eq(0.5).all())), "a mixture")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--loads", type=int, default=2000)
    return tell_report(run(parser.parse_args().loads))


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(main())
