"""Accuracy on shared splits: models × corpora × split seeds, selection on validation alone, one JSON line a run.

    python benchmarks/accuracy.py CORPUS... --seeds 0 1 2 3 4 --out results/accuracy.jsonl
    python benchmarks/accuracy.py --table results/accuracy.jsonl

CORPUS is a folder made by `carp prepare`, or a slim copy made by `python -m carp.bench CORPUS --slim FILE`, which
leaves the texts out so that it can travel to a GPU machine; torch, numpy and safetensors are all that training needs.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import platform
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "mean": ("mean", {}),
    "bias": ("bias", {}),
    "carp, paper's form": ("carp", {}),
    "carp, paper's form, target reviews kept": ("carp", {"target_reviews": "keep"}),
    "carp, released variant": ("carp", {"variant": "released"}),
    "carp, calibrated": ("carp", {"variant": "calibrated"}),
    "carp-ra, paper's form": ("carp-ra", {}),
}


def run(corpus_path: str, label: str, split_seed: int, device: str) -> dict[str, Any]:
    """One cell: split, fit, choose the epoch on validation, and only then look at the test pairs."""
    import torch

    from carp.archive import TextSettings, make_archive
    from carp.bench.corpora import load_corpus
    from carp.metrics import errors
    from carp.models import model_class, model_entry
    from carp.models.base import from_settings, make_config
    from carp.models.predict import predict_pairs
    from carp.reviews.split import random_split
    from carp.train import TrainingSettings, train

    name, settings = RUNS[label]
    settings = dict(settings)
    target_reviews = settings.pop("target_reviews", "leave out")
    corpus = load_corpus(corpus_path)
    archive = make_archive(corpus, random_split(corpus.user, corpus.item, seed=split_seed), TextSettings())
    data = archive.training_data(target_reviews)
    torch.set_num_threads(1 if device == "cuda" else torch.get_num_threads())
    torch.manual_seed(0)
    kind = model_class(name)
    model = kind(make_config(kind, {**model_entry(name).settings, **settings}), data.sizes)
    training = from_settings(TrainingSettings, dict(kind.training_defaults))
    where = torch.device(device)
    began = time.monotonic()
    reached = train(model, data, training, seed=0, device=where)
    found = {part: errors(predict_pairs(model, data, p, where), p.ratings) for part, p in
             (("valid", data.valid), ("test", archive.test_pairs()))}  # fmt: skip
    return {
        "corpus": Path(corpus_path).stem,
        "model": label,
        "split_seed": split_seed,
        "seed": 0,
        "valid_mse": found["valid"]["mse"],
        "test_mse": found["test"]["mse"],
        "test_mae": found["test"]["mae"],
        "best_epoch": reached.best_epoch,
        "epochs": reached.epoch,
        "settings": {"target_reviews": target_reviews, **settings},
        "seconds": round(time.monotonic() - began, 1),
        "machine": torch.cuda.get_device_name() if device == "cuda" else platform.processor() or platform.machine(),
        "torch": torch.__version__,
    }


def commit() -> str:
    asked = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return asked.stdout.strip() or "unknown"


def table(lines: list[dict[str, Any]]) -> str:
    """Mean test MSE, its spread over splits, and the ratio to the biases on the same splits."""
    from scipy.stats import ttest_rel

    heads = ("corpus", "model", "splits", "test MSE", "spread", "ratio to bias", "p, paired t-test", "validation MSE")
    rows = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for corpus in dict.fromkeys(line["corpus"] for line in lines):
        here = [line for line in lines if line["corpus"] == corpus]
        bias = {line["split_seed"]: line["test_mse"] for line in here if line["model"] == "bias"}
        for label in (label for label in RUNS if any(line["model"] == label for line in here)):
            runs = [line for line in here if line["model"] == label]
            test = np.array([line["test_mse"] for line in runs])
            shared = [line for line in runs if line["split_seed"] in bias]
            ratio = np.mean([line["test_mse"] for line in shared]) / np.mean([bias[r["split_seed"]] for r in shared])
            valid = np.mean([line["valid_mse"] for line in runs])
            spread = test.std(ddof=1) if len(test) > 1 else 0.0
            pairs = [(line["test_mse"], bias[line["split_seed"]]) for line in shared]
            p = "" if label == "bias" or len(pairs) < 2 else f"{ttest_rel(*zip(*pairs, strict=True)).pvalue:.3f}"
            numbers = (f"{test.mean():.4f}", f"{spread:.4f}", f"{ratio:.4f}", p, f"{valid:.4f}")
            rows.append(f"| {corpus} | {label} | {len(test)} | {' | '.join(numbers)} |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", nargs="*")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--models", nargs="+", default=list(RUNS), choices=list(RUNS))
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--commit", help="recorded where the runs are made on a copy without git")
    parser.add_argument("--table", type=Path, help="print the table of a file of runs")
    given = parser.parse_args()
    if given.table:
        print(table([json.loads(line) for line in given.table.read_text().splitlines()]))
        return
    cells = [(c, m, s, given.device) for s in given.seeds for c in given.corpora for m in given.models]
    lines = []
    with ProcessPoolExecutor(given.processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        for done in as_completed([pool.submit(run, *cell) for cell in cells]):
            line = {**done.result(), "commit": given.commit or commit()}
            lines.append(line)
            print(f"{line['corpus']}, split {line['split_seed']}, {line['model']}: "
                  f"validation {line['valid_mse']:.4f}, {line['seconds']} s", file=sys.stderr, flush=True)  # fmt: skip
            if given.out:
                with given.out.open("a") as file:
                    file.write(json.dumps(line) + "\n")
    print(table(lines))


if __name__ == "__main__":
    main()
