"""Pairs a second against the number of pairs at once, on the CPU: ours beside the straightforward form at each size.

    python benchmarks/batches.py [CORPUS] --out results/batches-cpu.json

Training steps of several batch sizes, and scoring of several numbers of pairs from ready sides. The two forms take
turns in one run, and only their ratio carries over to another machine.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import source_tree  # noqa: F401  carp of this checkout
from carp.kernels.cpu.cpu_trainer import CpuTrainer
from carp.models.batch import Pairs, TrainingData
from carp.models.predict import encode_documents, score_pairs
from carp.reviews.split import random_split
from carp.reviews.text.vocabulary import TextSettings
from carp.training.fitted_corpus import fit_corpus
from carp.training.loop import TrainingSettings, make_optimizer, repeatable
from growth import endless
from speed import CPU, Carp, CarpConfig, Straightforward, in_turns, load, machine, write
from straightforward import training_steps

Row = dict[str, Any]
STEP_SIZES = (25, 50, 100, 200, 400)
SCORE_SIZES = (1, 10, 100, 1_000, 10_000, 100_000)
MOST_STRAIGHTFORWARD = 4_000  # pairs it is given at once: more would only cost it memory


def training(model: Carp, data: TrainingData, size: int, rounds: int) -> Row:
    trainer = CpuTrainer(model.train(), data, size, make_optimizer(model, TrainingSettings()))
    ours, plain = endless(trainer), Straightforward(model)
    theirs = (loss for epoch in itertools.count(1) for loss in training_steps(plain, data, size, epoch=epoch))
    with repeatable():
        a, b = in_turns(lambda: next(theirs), lambda: [next(ours) for _ in range(4)], rounds)
    return {"work": "training", "pairs": size, "straightforward": size / a, "ours": 4 * size / b}


class Scoring:
    """Both forms over the same ready sides."""

    def __init__(self, model: Carp, data: TrainingData) -> None:
        self.model, self.plain = model.eval(), Straightforward(model).eval()
        self.users = encode_documents(model.encode_users, data.user_documents, CPU)
        self.items = encode_documents(model.encode_items, data.item_documents, CPU)

    def at(self, size: int, rounds: int) -> Row:
        chance = np.random.default_rng(size)
        people, things = chance.integers(0, len(self.users), size), chance.integers(0, len(self.items), size)
        pairs = Pairs(people, things, np.zeros(size, np.float32), np.full(size, -1))
        some = min(size, MOST_STRAIGHTFORWARD)
        u, i = torch.from_numpy(people[:some]), torch.from_numpy(things[:some])
        often = max(1, 1_000 // size)  # so that the clock sees something

        @torch.no_grad()
        def theirs() -> None:
            for _ in range(often):
                self.plain.score(u, i, self.users[u], self.items[i])

        def ours() -> None:
            for _ in range(often):
                score_pairs(self.model, self.users, self.items, pairs)

        a, b = in_turns(theirs, ours, rounds)
        return {"work": "scoring", "pairs": size, "straightforward": often * some / a, "ours": often * size / b}


def measured(model: Carp, data: TrainingData, rounds: int) -> Iterator[Row]:
    for size in STEP_SIZES:
        yield training(model, data, size, rounds)
    scoring = Scoring(model, data)
    for size in SCORE_SIZES:
        yield scoring.at(size, rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", nargs="?")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    name, corpus = load(asked.corpus)
    data = fit_corpus(corpus, random_split(corpus.user, corpus.item, seed=0), TextSettings()).training_data()
    torch.manual_seed(0)
    model = Carp(CarpConfig(), data.sizes)
    model.start(data)
    rows = []
    for row in measured(model, data, asked.rounds):
        rows.append(row)
        print(f"{row['work']}\t{row['pairs']}\t{row['ours'] / row['straightforward']:.2f}", flush=True)
    write(asked.out, {"corpus": name, **machine(), "command": sys.argv, "batches": rows})


if __name__ == "__main__":
    main()
