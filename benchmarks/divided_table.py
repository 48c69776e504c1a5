"""What it costs to divide a word table among processes: the bytes CARP sends in a step, from the words of real batches.

    python benchmarks/divided_table.py CORPUS --processes 2 --out results/divided-table.jsonl

Nothing is trained and nothing is sent. In each step a process looks up the distinct words of the users' documents in
its rows of the batch, and those of the items' documents. Of the words that another process keeps, it sends the number,
is sent the row, and sends the row's gradient. A table that is whole costs its gradient instead, which is added up over
all processes: by a ring, each sends it 2 (n - 1) / n times.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

import source_tree  # noqa: F401  carp of this checkout
from carp.models.batch import Batch
from carp.models.batch_share import BatchShare
from carp.recommender import Recommender
from carp.reviews.corpora.corpus import Corpus
from carp.reviews.split import split_corpus
from carp.training.fitted_corpus import fit_corpus

WORD, WEIGHT = 8, 4  # bytes of a word's number, and of a weight in single precision


def asked_of_others(batch: Batch, processes: int) -> int:
    """How many rows all processes together ask of others for a batch."""
    asked = 0
    for rank in range(processes):
        rows = BatchShare.of(SimpleNamespace(rank=rank, size=processes), len(batch)).rows
        for words in (batch.user_words[rows], batch.item_words[rows]):
            asked += int((torch.unique(words) % processes != rank).sum())
    return asked


def measure(corpus: Corpus, processes: int) -> dict[str, Any]:
    recommender = Recommender("carp", device="cpu")
    fitted = fit_corpus(corpus, split_corpus(corpus, seed=0), recommender.text)
    batches = fitted.training_data().training_batches(recommender.training.batch_size, 0, 1)
    asked = np.array([asked_of_others(batch, processes) for batch in batches])
    wide = recommender.config.dimension
    table = (fitted.sizes.words + 1) * wide * WEIGHT
    return {
        "processes": processes,
        "words": fitted.sizes.words,
        "dimension": wide,
        "batch_size": recommender.training.batch_size,
        "steps": len(asked),
        "rows_of_others_a_process": round(float(asked.mean()) / processes, 1),
        "bytes_sent_a_process_divided": round(float(asked.mean()) / processes * (WORD + 2 * WEIGHT * wide)),
        "bytes_sent_a_process_whole": round(table * 2 * (processes - 1) / processes),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    line = {"corpus": given.corpus.name, **measure(Corpus.load(given.corpus), given.processes)}
    with given.out.open("a") as out:
        print(json.dumps(line), file=out)
    print(json.dumps(line))


if __name__ == "__main__":
    main()
