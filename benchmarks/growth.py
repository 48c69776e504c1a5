"""How training time and memory grow with the corpus: what `speed.py --growth` measures.

The corpus's reviews are repeated, each copy with users and items of its own. A fixed number of steps is timed at each
size, in a process of its own; an epoch's seconds follow from them and from the time the data's layout took.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from carp.kernels.cpu.cpu_trainer import CpuTrainer
from carp.models.batch import Pairs, Sizes, TrainingData
from carp.models.carp import Carp, CarpConfig
from carp.reviews.documents import Documents
from carp.training.loop import TrainingSettings, make_optimizer

BATCH = TrainingSettings().batch_size
REVIEWS = (10_000, 30_000, 100_000, 300_000, 1_200_000)


def endless(trainer: CpuTrainer) -> Iterator[float]:
    """Learn step after step, epoch after epoch, giving each step's loss."""
    epoch = 0
    while True:
        epoch += 1
        steps = trainer.maker.steps(0, epoch)
        step = next(steps, None)
        while step is not None:
            loss, step = trainer.learn(step, steps)
            yield loss


def repeated(data: TrainingData, reviews: int) -> TrainingData:
    """About as many training and validation reviews: copies with users, items and records of their own."""
    copies = max(1, round(reviews / (len(data.train) + len(data.valid))))
    records = int(max(data.train.records.max(), data.valid.records.max())) + 1

    def pairs(some: Pairs) -> Pairs:
        shift = np.repeat(np.arange(copies), len(some))
        return Pairs(
            np.tile(some.users, copies) + shift * data.sizes.users,
            np.tile(some.items, copies) + shift * data.sizes.items,
            np.tile(some.ratings, copies),
            np.tile(some.records, copies) + shift * records,
        )

    def documents(some: Documents) -> Documents:
        review = np.tile(some.review, copies) + np.repeat(np.arange(copies) * records, len(some.review))
        offsets = np.concatenate([[0], np.cumsum(np.tile(some.lengths(), copies))])
        return Documents(
            np.tile(some.words, copies), review.astype(np.int32), np.tile(some.characters, (copies, 1)), offsets
        )

    sizes = Sizes(
        data.sizes.users * copies, data.sizes.items * copies, data.sizes.words, max_words=data.sizes.max_words
    )
    return TrainingData(
        pairs(data.train), pairs(data.valid), documents(data.user_documents), documents(data.item_documents), sizes
    )


def growth_at(data: TrainingData, reviews: int, steps: int) -> dict[str, Any]:
    """Of one size, in this process: `epoch_seconds` follows from the mean of `steps` steps and the data path."""
    data = repeated(data, reviews)
    torch.manual_seed(0)
    model = Carp(CarpConfig(), data.sizes).train()
    began = time.perf_counter()
    trainer = CpuTrainer(model, data, BATCH, make_optimizer(model, TrainingSettings()))
    laid_out = time.perf_counter() - began
    ours = endless(trainer)
    for _ in range(3):
        next(ours)
    began = time.perf_counter()
    for _ in range(steps):
        next(ours)
    step = (time.perf_counter() - began) / steps
    whole = -(-len(data.train) // BATCH)
    words = len(data.user_documents.words) + len(data.item_documents.words)
    return {
        "reviews": len(data.train) + len(data.valid),
        "document_words": words,
        "steps_of_an_epoch": whole,
        "steps_measured": steps,
        "step_seconds": step,
        "layout_seconds": laid_out,
        "epoch_seconds": laid_out + step * whole,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def growth(path: str | None, steps: int) -> list[dict[str, Any]]:
    found = []
    for reviews in REVIEWS:
        command = [
            sys.executable,
            str(Path(__file__).with_name("speed.py")),
            *([path] if path else []),
            "--growth-at",
            str(reviews),
            "--steps",
            str(steps),
        ]
        line = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1]
        found.append(json.loads(line))
        row = found[-1]
        print(f"{row['reviews']}\t{row['epoch_seconds']:.2f}\t{row['peak_bytes'] / 2**20:.0f}", flush=True)
    return found
