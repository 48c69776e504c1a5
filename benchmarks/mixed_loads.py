"""Models are saved to one place in turn while it is loaded again and again: no load mixes two of them.

Two are alike but for a fact and a weight. The third is of another kind and has other files.

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

NAMES = ("one", "two", "three")
SAVING = (
    "import sys, torch, carp\n"
    "torch.set_num_threads(1)\n"
    "models = [carp.load(name, device='cpu') for name in sys.argv[1:-1]]\n"
    "print('ready', flush=True)\n"
    "while True:\n"
    "    for model in models: model.save(sys.argv[-1], overwrite=True)\n"
)


def make_models(folder: Path, whole: Path) -> list[str]:
    """Models to be saved in turn, of which a bundle of `carp` is the first: their folders, and the place for all."""
    first, other = (carp.load(whole, device="cpu") for _ in range(2))
    first.save(folder / "one")
    other.facts["seed"] = 77
    with torch.no_grad():
        dict(other.model.named_parameters())["vote_weight"].fill_(0.5)
    other.save(folder / "two")
    hostile_bundles.make_bundle(folder / "three", "bias")
    other.save(folder / "all")
    return [str(folder / name) for name in ("one", "two", "three", "all")]


def run(loads: int) -> dict[str, Any]:
    """How many loads found which model, and which were mixed or refused."""
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        hostile_bundles.make_bundle(folder / "whole")
        asked = make_models(folder, folder / "whole")
        saver = subprocess.Popen([sys.executable, "-c", SAVING, *asked], stdout=subprocess.PIPE, text=True)
        try:
            assert saver.stdout
            assert saver.stdout.readline() == "ready\n"
            for _ in range(loads):
                counts[loaded(folder / "all")] += 1
        finally:
            saver.kill()
            saver.wait()
    faults = [f"{count} times: {what}" for what, count in counts.items() if what not in NAMES]
    return {"tried": loads, "counts": dict(counts), "faults": faults}


def loaded(folder: Path) -> str:
    """Which model was found, or what is wrong with it."""
    try:
        found = carp.load(folder, device="cpu")
    except CarpError as error:
        return f"refused: {error}"[:200]
    if found.name == "bias":
        return "three" if found.seed == 0 and not found.model.explained_by else "a mixture"
    weight = dict(found.model.named_parameters())["vote_weight"]
    return {(0, False): "one", (77, True): "two"}.get((found.seed, bool(weight.eq(0.5).all())), "a mixture")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--loads", type=int, default=2000)
    return tell_report(run(parser.parse_args().loads))


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(main())
