"""How good an updated model is: its error beside that of the model before and of one that is trained anew.

    python benchmarks/update_errors.py CORPUS ... [--models meeting] [--seeds 100 101 102] [--new 1000] [--out FILE]

Of a corpus that `carp prepare` made, some reviews of the training part are held back. A model is trained on the
others, and measured on the test pairs; `carp update` puts the reviews in, and it is measured again; and a third is
trained on all of them. One JSON line for each, with the error on all test pairs, and on those whose person or thing has
a new review. Whoever the earlier model has never seen is answered by the biases that are known.
"""

from __future__ import annotations

import argparse
import json
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch

import transfer
from carp.bench.cells import current_commit, machine
from carp.recommender import Recommender
from carp.reviews.corpora.corpus import Corpus
from carp.upkeep.updating import read_for, update


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", nargs="+", type=Path)
    parser.add_argument("--models", nargs="+", default=["meeting"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[100, 101, 102])
    parser.add_argument("--new", type=int, default=1_000, help="reviews that are held back")
    parser.add_argument("--out", type=Path, default=Path("results/update-errors.jsonl"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    words = [*(place.name for place in given.corpora), "--models", *given.models]
    words += ["--seeds", *map(str, given.seeds), "--new", str(given.new)]
    about = {"command": f"python benchmarks/update_errors.py {shlex.join(words)}", "commit": current_commit()}
    for place in given.corpora:
        corpus = Corpus.load(place)
        for model in given.models:
            for seed in given.seeds:
                for line in measured(named_frame(corpus, seed), model, seed, given.new):
                    print(place.name, *line.values(), flush=True)
                    with given.out.open("a", encoding="utf-8") as file:
                        file.write(
                            json.dumps({"corpus": place.name, **line, **about, "machine": machine("cpu")}) + "\n"
                        )


def named_frame(corpus: Corpus, seed: int) -> pl.DataFrame:
    """All reviews with their part of the split, and what things are called where that is known."""
    frame = transfer.split_frame(corpus, "", seed)
    if corpus.item_texts is None:
        return frame
    return frame.with_columns(title=pl.Series([corpus.item_texts.titles[thing] for thing in corpus.item]))


def measured(frame: pl.DataFrame, model: str, seed: int, count: int) -> Iterator[dict[str, Any]]:
    training = np.flatnonzero((frame["split"] == "train").to_numpy())
    held_back = np.random.default_rng(seed).permutation(training)[:count]
    new = frame[np.sort(held_back)]
    old = frame[np.setdiff1d(np.arange(frame.height), held_back)]
    before, seconds = trained(old, model)
    yield {"model": model, "seed": seed, "way": "before", **errors_of(before, frame, new), "seconds": seconds}
    began = time.process_time()
    after = update(before, read_for(before, new.drop("split")))[0]
    seconds = round(time.process_time() - began, 2)
    yield {"model": model, "seed": seed, "way": "updated", **errors_of(after, frame, new), "seconds": seconds}
    anew, seconds = trained(frame, model)
    yield {"model": model, "seed": seed, "way": "trained anew", **errors_of(anew, frame, new), "seconds": seconds}


def trained(frame: pl.DataFrame, model: str) -> tuple[Recommender, float]:
    """A model of these reviews, and the processor seconds that it took."""
    began = time.process_time()
    found = Recommender(model, device="cpu").fit(transfer.corpus_of(frame), progress=False)
    return found, round(time.process_time() - began, 2)


def errors_of(recommender: Recommender, frame: pl.DataFrame, new: pl.DataFrame) -> dict[str, Any]:
    test = frame.filter(pl.col("split") == "test")
    pairs = list(zip(test["user"], test["item"], strict=True))
    guesses = np.clip(np.asarray(recommender.predict(pairs)), *transfer.STARS)
    square = np.square(guesses - test["rating"].to_numpy())
    touched = (test["user"].is_in(new["user"].implode()) | test["item"].is_in(new["item"].implode())).to_numpy()
    errors = {"test_mse": float(square.mean()), "touched_mse": float(square[touched].mean())}
    counts = {"test_pairs": len(square), "touched_pairs": int(touched.sum())}
    return {name: round(value, 6) for name, value in errors.items()} | counts


if __name__ == "__main__":
    main()
