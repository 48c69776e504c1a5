"""The ways CARP is computed on a CPU against the plain model, all in one run and in turns.

    python benchmarks/tiers.py [CORPUS] [--rounds 5] [--threads 2] [--clock cpu] [--out results/tiers-cpu.jsonl]

torch in blocks: what serves where there is neither a compiler nor a packaged library; packaged C: what a wheel
brings, for most processors of the platform; C: compiled for this very processor. The ratios are the medians of the
rounds', with the least and the most in brackets. Without a corpus, Musical Instruments from ../shared/data is used
where it is, else the made-up shop.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from carp.bench.cells import current_commit
from carp.kernels import best_items, dispatch
from carp.kernels.best_items import top_items
from carp.kernels.cpu import c_build, compiler
from carp.kernels.cpu.compiler import KernelLibrary
from carp.kernels.cpu.cpu_trainer import CpuTrainer
from carp.models.batch import Pairs, TrainingData
from carp.models.carp import Carp, CarpConfig
from carp.models.predict import encode_documents, score_pairs
from carp.reviews.split import random_split
from carp.reviews.text.vocabulary import TextSettings
from carp.training.fitted_corpus import fit_corpus
from carp.training.loop import TrainingSettings, make_optimizer, repeatable
from growth import BATCH, endless
from speed import CPU, load, machine

STEPS = 3  # of training in a round
PAIRS = 20_000
PEOPLE = 20
Ways = dict[str, Callable[[], Any]]


@dataclass(frozen=True)
class Tier:
    """A way to compute; `library` is what the C's glue finds."""

    name: str
    library: KernelLibrary | None

    def __call__(self, work: Callable[[], Any]) -> Callable[[], Any]:
        """The work, done in this way."""

        def done() -> Any:
            with patch.object(compiler, "library", lambda: self.library):
                return work()

        return done


def tiers(folder: Path) -> list[Tier]:
    found = [Tier("torch in blocks", None)]
    cc = c_build.find_compiler()
    if cc is not None:
        for name, flags in (("packaged C", c_build.FOR_MOST_PROCESSORS), ("C", c_build.FOR_THIS_PROCESSOR)):
            file = folder / f"{name}.so"
            c_build.compile_library(cc, flags, file)
            found.append(Tier(name, KernelLibrary(file)))
    return found


def plainly(name: str, where: Any, answer: Any, work: Callable[[], Any]) -> Callable[[], Any]:
    """The work with the fast path refused: `where`.`name` says no."""

    def done() -> Any:
        with patch.object(where, name, lambda *_: answer):
            return work()

    return done


def compared(work: str, ways: Ways, rounds: int, clock: Callable[[], float]) -> dict[str, Any]:
    """Seconds of each way, and how many times faster than the first."""

    def seconds(way: Callable[[], Any]) -> float:
        began = clock()
        way()
        return clock() - began

    for way in ways.values():
        way()
    turns = [[seconds(way) for way in ways.values()] for _ in range(rounds)]
    row: dict[str, Any] = {"work": work, "plain_seconds": statistics.median(turn[0] for turn in turns)}
    for place, name in enumerate(ways):
        if place:
            ratios = [turn[0] / turn[place] for turn in turns]
            row[name] = {"ratio": statistics.median(ratios), "least": min(ratios), "most": max(ratios)}
    shown = [f"{name} {r['ratio']:.2f}× ({r['least']:.2f} to {r['most']:.2f})" for name, r in list(row.items())[2:]]
    print(f"{work:32} plain {row['plain_seconds'] * 1e3:8.1f} ms   {'   '.join(shown)}", flush=True)
    return row


def training(model: Carp, data: TrainingData, found: list[Tier]) -> Ways:
    def plain_steps() -> Iterator[float]:
        own = copy.deepcopy(model).train()
        optimizer = make_optimizer(own, TrainingSettings())
        for epoch in itertools.count(1):
            for batch in data.training_batches(BATCH, 0, epoch, own.needs):
                yield own.train_epoch([batch], optimizer)

    def fast_steps() -> Iterator[float]:
        own = copy.deepcopy(model).train()
        yield from endless(CpuTrainer(own, data, BATCH, make_optimizer(own, TrainingSettings())))

    def some(steps: Iterator[float]) -> Callable[[], Any]:
        return lambda: [next(steps) for _ in range(STEPS)]

    return {"plain": some(plain_steps()), **{tier.name: tier(some(fast_steps())) for tier in found}}


def encoding(model: Carp, data: TrainingData, found: list[Tier]) -> Ways:
    def encode() -> None:
        encode_documents(model.encode_users, data.user_documents, CPU)
        encode_documents(model.encode_items, data.item_documents, CPU)

    plain = plainly("fast_encode_documents", dispatch, None, encode)
    return {"plain": plain, **{tier.name: tier(encode) for tier in found}}


def scoring(model: Carp, data: TrainingData, found: list[Tier]) -> tuple[Ways, Ways]:
    sides = [
        encode_documents(encode, documents, CPU)
        for encode, documents in (
            (model.encode_users, data.user_documents),
            (model.encode_items, data.item_documents),
        )
    ]
    rng = np.random.default_rng(0)
    users, items = (rng.integers(0, count, PAIRS) for count in (data.sizes.users, data.sizes.items))
    pairs = Pairs(users, items, np.zeros(PAIRS, np.float32), np.full(PAIRS, -1))

    def score() -> None:
        score_pairs(model, sides[0], sides[1], pairs)

    def rank() -> None:
        top_items(model, sides[0], sides[1], 10, users=range(PEOPLE))

    scored, ranked = plainly("fast_score_pairs", dispatch, None, score), plainly("_is_fast", best_items, False, rank)
    return (
        {"plain": scored, **{tier.name: tier(score) for tier in found}},
        {"plain": ranked, **{tier.name: tier(rank) for tier in found}},
    )


def measured(data: TrainingData, found: list[Tier], rounds: int, clock: Callable[[], float]) -> list[dict[str, Any]]:
    torch.manual_seed(0)
    model = Carp(CarpConfig(), data.sizes)
    model.start(data)
    with repeatable():
        rows = [compared(f"{STEPS} training steps", training(model, data, found), rounds, clock)]
    model.eval()
    rows.append(compared("encoding all documents", encoding(model, data, found), rounds, clock))
    scored, ranked = scoring(model, data, found)
    rows.append(compared(f"scoring {PAIRS:,} pairs", scored, rounds, clock))
    rows.append(compared(f"ten best for {PEOPLE} people", ranked, rounds, clock))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", nargs="?")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall", help="cpu: for a busy machine")
    parser.add_argument("--out", type=Path, help="a file to which a JSON line is added")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    name, corpus = load(given.corpus)
    data = fit_corpus(corpus, random_split(corpus.user, corpus.item, seed=0), TextSettings()).training_data()
    clock = time.process_time if given.clock == "cpu" else time.perf_counter
    print(f"{name}, {machine()['processor']}, {given.threads} threads, {given.clock} clock")
    with tempfile.TemporaryDirectory() as folder:
        rows = measured(data, tiers(Path(folder)), given.rounds, clock)
    if given.out is not None:
        about = {"corpus": name, **machine(), "clock": given.clock, "rounds": given.rounds}
        line = {**about, "commit": current_commit(), "command": sys.argv, "works": rows}
        with given.out.open("a") as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
