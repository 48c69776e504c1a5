"""Validation errors of the same runs trained by the plain loop and by the fast one, on this machine's CPU.

    python benchmarks/same_validation.py [CORPUS] [--seeds 5] [--epochs 5] [--variant paper] [--out FILE]

Both have the same split, the same start and the same order of pairs; what dropout leaves out is drawn otherwise. One
JSON line a seed; without a corpus, Musical Instruments from ../shared/data.
"""

from __future__ import annotations

import argparse
import json
import platform
from pathlib import Path
from statistics import mean
from typing import Any
from unittest.mock import patch

from scipy.stats import ttest_rel

import source_tree  # noqa: F401  carp of this checkout
from carp.bench.cells import current_commit
from carp.recommender import Recommender
from carp.reviews.corpora.corpus import Corpus
from carp.training import loop
from speed import load


def validation_errors(corpus: Corpus, seed: int, settings: dict[str, Any], *, plain: bool) -> list[float]:
    """After each epoch."""
    fitted = Recommender("carp", seed=seed, device="cpu", **settings)
    with patch.object(loop, "trainer_for", (lambda *_: None) if plain else loop.trainer_for):
        fitted.fit(corpus, progress=False)
    return [json.loads(line)["valid_mse"] for line in fitted.training_log.splitlines()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", nargs="?")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--variant", default="paper")
    parser.add_argument("--out", type=Path, help="a file to which a JSON line a seed is added")
    given = parser.parse_args()
    name, corpus = load(given.corpus)
    settings = {"variant": given.variant, "epochs": given.epochs, "patience": given.epochs}
    best: list[tuple[float, float]] = []
    for seed in range(given.seeds):
        plain, fast = (validation_errors(corpus, seed, settings, plain=plain) for plain in (True, False))
        best.append((min(plain), min(fast)))
        print(f"seed {seed}: {min(plain):.4f} plain, {min(fast):.4f} fast", flush=True)
        line = {"corpus": name, "seed": seed, "settings": settings, "plain": plain, "fast": fast}
        line |= {"commit": current_commit(), "machine": platform.processor() or platform.machine()}
        if given.out is not None:
            with given.out.open("a") as file:
                file.write(json.dumps(line) + "\n")
    higher = mean(fast / plain - 1 for plain, fast in best)
    p = ttest_rel([plain for plain, _ in best], [fast for _, fast in best]).pvalue
    print(f"fast is {higher:+.2%} of plain on average, paired t-test p = {p:.2f}")


if __name__ == "__main__":
    main()
