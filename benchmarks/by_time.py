"""Test errors where the latest reviews are held out, as a shop would test.

    python benchmarks/by_time.py CORPUS... --models bias mf ridge --rules time --out results/by-time.jsonl

One JSON line a cell, with command and commit. A corpus without dates is a line that says so.
"""

from __future__ import annotations

import argparse
import json
import shlex
import time
from pathlib import Path
from typing import Any

import torch

from carp.bench.cells import current_commit, machine
from carp.bench.datasets import load_corpus
from carp.errors import CarpError
from carp.recommender import Recommender
from carp.reviews.corpora.corpus import Corpus


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", nargs="+", type=Path)
    parser.add_argument("--models", nargs="+", default=["bias", "mf", "ridge", "meeting"])
    parser.add_argument("--rules", nargs="+", default=["time"], help="time, or time:2013-01-31")
    parser.add_argument("--out", type=Path, default=Path("results/by-time.jsonl"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    words = [*(folder.name for folder in given.corpora), "--models", *given.models, "--rules", *given.rules]
    command = f"python benchmarks/by_time.py {shlex.join(words)} --out {given.out.name}"
    for folder in given.corpora:
        corpus = load_corpus(folder)
        for rule in given.rules:
            for model in given.models:
                line = {"corpus": folder.name, "fingerprint": corpus.fingerprint, "rule": rule, "model": model}
                line |= {**measured(corpus, rule, model), "command": command, "commit": current_commit()}
                with given.out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps({**line, "machine": machine("cpu")}) + "\n")
                print(folder.name, rule, model, line.get("error") or line["rows"], flush=True)


def measured(corpus: Corpus, rule: str, model: str) -> dict[str, Any]:
    began = time.monotonic()
    try:
        recommender = Recommender(model, seed=0, device="cpu").fit(corpus, split=rule, progress=False)
    except CarpError as error:
        return {"error": str(error)}
    return {**recommender.evaluate(), "seed": 0, "seconds": round(time.monotonic() - began, 1)}


if __name__ == "__main__":
    main()
