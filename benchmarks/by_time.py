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
from carp.bench.datasets import SLIM, load_corpus
from carp.errors import CarpError
from carp.recommender import Recommender
from carp.reviews.corpora.corpus import Corpus


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", nargs="+", type=Path)
    parser.add_argument("--models", nargs="+", default=["bias", "mf", "ridge", "meeting"])
    parser.add_argument("--rules", nargs="+", default=["time"], help="time, or time:2013-01-31")
    parser.add_argument("--out", type=Path, default=Path("results/by-time.jsonl"))
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    torch.set_num_threads(1)
    names = [folder.name.removesuffix(SLIM) for folder in given.corpora]
    words = [*names, "--models", *given.models, "--rules", *given.rules]
    command = f"python benchmarks/by_time.py {shlex.join(words)} --out {given.out.name}"
    for folder, name in zip(given.corpora, names, strict=True):
        corpus = load_corpus(folder)
        for rule in given.rules:
            for model in given.models:
                line = {"corpus": name, "fingerprint": corpus.fingerprint, "rule": rule, "model": model}
                line |= {**measured(corpus, rule, model, given.device), "command": command, "commit": current_commit()}
                with given.out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps({**line, "machine": machine(given.device)}) + "\n")
                print(name, rule, model, line.get("error") or line["rows"], flush=True)


def measured(corpus: Corpus, rule: str, model: str, device: str) -> dict[str, Any]:
    began = time.monotonic()
    try:
        recommender = Recommender(model, seed=0, device=device).fit(corpus, split=rule, progress=False)
    except CarpError as error:
        return {"error": str(error)}
    return {**recommender.evaluate(), "seed": 0, "seconds": round(time.monotonic() - began, 1)}


if __name__ == "__main__":
    main()
