"""Speed on one GPU: a training epoch of Yelp's shape, reading, and scoring from ready sides; right first, then fast.

    PYTHONPATH=src python benchmarks/speed_gpu.py [--quick] [--part PART] [--out FILE]

Needs torch, triton, numpy and safetensors alone. Parts: `check` compares the kernels with the plain model in float64
and ends with 1 where one is wrong; `train`, `encode` and `score` measure against the straightforward form
(straightforward.py) in the same run; `batches` and `growth` are pairs a second against the batch, and time and memory
against the corpus; `profile` times each kernel of a step; `tune` tries other cuts and says the best. `all`, the
default, is check, train, encode, score, batches, growth and meeting: `meeting` fits that model at a sixteenth, a
quarter and the whole of 1.2 million reviews, against the two minutes it may take for them.

The corpus is made up: as many pairs, users, items and words a document as the Yelp corpus of the paper, words by Zipf's
law. The straightforward form keeps its padded documents on the GPU and is timed over some steps; its epoch is that time
times the steps of an epoch, and is named so. Ends with one line a work, tab-separated: name, straightforward, ours,
ratio; --out gets a JSON line for everything measured. --rehearse goes through the parts in Triton's interpreter, with
numbers that mean nothing.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import source_tree  # noqa: F401  carp of this checkout

if "--rehearse" in sys.argv:
    os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported

import torch

import gpu_meeting
import gpu_right
import gpu_scoring
import gpu_training
from carp.models.batch import TrainingData
from gpu_session import Session, measure_ceilings, say

PARTS: dict[str, list[Callable[[Session, TrainingData], None]]] = {
    "train": [gpu_training.train],
    "encode": [gpu_scoring.encode],
    "score": [gpu_scoring.score],
    "batches": [gpu_training.batches, gpu_scoring.score_batches],
    "profile": [gpu_training.profile],
    "tune": [gpu_training.tune, gpu_scoring.tune_scoring],
}
ALL = ("train", "encode", "score", "batches")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer cases and repetitions: about two minutes")
    known = ["all", "check", "growth", "meeting", *PARTS]
    parser.add_argument("--part", action="append", choices=known, help="may be repeated")
    parser.add_argument("--out", type=Path, help="a file to which a JSON line for everything measured is added")
    parser.add_argument("--first", type=int, help="check from this case on, without the kernels one by one")
    parser.add_argument("--rehearse", action="store_true", help="tiny, in Triton's interpreter, without a GPU")
    given = parser.parse_args()
    session = Session.begin(given.quick, given.rehearse, given.out)
    began = time.perf_counter()
    say(f"{session.name}, torch {torch.__version__}, {' '.join(sys.argv)}")
    parts = given.part or ["all"]
    if "all" in parts or "check" in parts:
        gpu_right.check(session, given.first)
    measured = [part for part in PARTS if part in parts or ("all" in parts and part in ALL)]
    if measured:
        session.stage("the card's own ceilings", measure_ceilings, session)
        data = gpu_training.corpus(session)
        for part in measured:
            for work in PARTS[part]:
                session.stage(f"part {part}", work, session, data)
                session.forget()
    if "all" in parts or "growth" in parts:
        session.stage("part growth", gpu_training.growth, session)
    if "all" in parts or "meeting" in parts:
        session.stage("part meeting", gpu_meeting.fits, session)
    say(f"\n{session.name}, {time.perf_counter() - began:.0f} s in all")
    sys.exit(session.finish())


if __name__ == "__main__":
    main()
