"""Training on one corpus and using it on another: its error beside that of training on the target alone.

    python benchmarks/transfer.py words SOURCE TARGET [--models carp meeting] [--shares 0.1 1] [--seeds 1] [--out FILE]
    python benchmarks/transfer.py people REVIEWS.jsonl.gz [...]

`words` takes two prepared corpora, which have nothing in common but words. `people` takes a file of reviews of things
with names, such as RateBeer's, and divides the things by the first word of their name, which for beers is the brewery:
one half is the source, the other the target, and the people are the same.

Of the target, a share of the training reviews is known. Each model is measured in three ways on the target's test
pairs: trained on the target alone; trained on the source, and then only shown the target's reviews (`carp update`, with
`--refit` where the model is in closed form); and trained on the target from what it learned on the source (`carp train
--from`), where the model learns by steps. Ratings of all corpora are brought to the range from 1 to 5. One JSON line a
cell, with command and commit.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch

from carp.bench.cells import current_commit, machine
from carp.models import model_class
from carp.recommender import Recommender
from carp.reviews.corpora.corpus import Corpus, build_corpus
from carp.reviews.sources.formats import read_reviews
from carp.reviews.split import split_corpus
from carp.reviews.split_parts import TEST, TRAIN, VALID
from carp.upkeep.updating import read_for, update

PARTS = {TRAIN: "train", VALID: "valid", TEST: "test"}
STARS = (1.0, 5.0)


@dataclass(frozen=True)
class Case:
    """A source and a target with its split, as frames of user, item, rating, text and (the target's) split."""

    common: str
    source_name: str
    target_name: str
    source: pl.DataFrame
    target: pl.DataFrame
    share: float = 1.0  # of the target's training reviews that are known
    seed: int = 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("common", choices=["words", "people"])
    parser.add_argument("places", nargs="+", type=Path)
    parser.add_argument("--models", nargs="+", default=["carp", "meeting"])
    parser.add_argument("--shares", nargs="+", type=float, default=[0.1, 1.0])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("results/transfer.jsonl"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    words = [given.common, *(place.name for place in given.places), "--models", *given.models]
    words += ["--shares", *map(str, given.shares), "--seeds", str(given.seeds)]
    about = {"command": f"python benchmarks/transfer.py {shlex.join(words)}", "commit": current_commit()}
    for seed in range(given.seeds):
        whole = case_of(given.common, given.places, seed)
        for model in given.models:
            for line in measured(whole, model, given.shares):
                with given.out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps({**line, **about, "machine": machine("cpu")}) + "\n")
                print(*(line[name] for name in ("target", "share", "model", "way", "test_mse")), flush=True)


def case_of(common: str, places: Sequence[Path], seed: int) -> Case:
    if common == "words":
        source, target = (Corpus.load(place) for place in places)
        return Case(
            common, places[0].name, places[1].name, frame_of(source, "a"), split_frame(target, "b", seed), 1, seed
        )
    [file] = places
    halves = by_first_word(file)
    source, target = (build_corpus(read_reviews(half, rating_range=STARS), min_reviews=5) for half in halves)
    name = file.name.partition(".")[0]
    names = f"{name}, one half of the breweries", f"{name}, the other half"
    return Case(common, *names, frame_of(source), split_frame(target, "", seed), 1, seed)


def by_first_word(file: Path) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Reviews of things whose name begins with a word of one half, and of the other."""
    halves: tuple[list[Any], list[Any]] = [], []
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        for one in map(json.loads, lines):
            if one["rating"] is not None and one.get("name") and one["text"]:
                first = one["name"].split()[0].lower()
                place = hashlib.sha256(first.encode()).digest()[0] % 2
                halves[place].append((one["user"], one["item"], one["rating"] / 4, one["text"]))  # of 4 to 20
    schema = {"user": pl.String, "item": pl.String, "rating": pl.Float64, "text": pl.String}
    first, second = (
        pl.DataFrame(half, schema=schema, orient="row").filter(pl.col("rating").is_between(*STARS)) for half in halves
    )
    return first, second


def frame_of(corpus: Corpus, mark: str = "") -> pl.DataFrame:
    """All reviews of a corpus on the models' scale. The mark keeps the ids of two corpora apart."""
    users, items = list(corpus.users), list(corpus.items)
    return pl.DataFrame(
        {
            "user": [mark + users[number] for number in corpus.user],
            "item": [mark + items[number] for number in corpus.item],
            "rating": np.asarray(corpus.rating, np.float64),
            "text": list(corpus.texts),
        }
    )


def split_frame(corpus: Corpus, mark: str, seed: int) -> pl.DataFrame:
    part = split_corpus(corpus, seed=seed).part
    return frame_of(corpus, mark).with_columns(split=pl.Series([PARTS[int(one)] for one in part]))


def with_share(case: Case, share: float) -> Case:
    """A part of the target's training and validation reviews, drawn by the seed, and all of its test reviews."""
    drawn = np.random.default_rng(case.seed).random(len(case.target)) < share
    known = (case.target["split"] == "test") | pl.Series(drawn)
    return replace(case, target=case.target.filter(known), share=share)


def measured(whole: Case, model: str, shares: Sequence[float]) -> Iterator[dict[str, Any]]:
    began = time.monotonic()
    source = Recommender(model, seed=whole.seed, device="cpu").fit(corpus_of(whole.source), progress=False)
    source_seconds = time.monotonic() - began
    for share in shares:
        case = with_share(whole, share)
        ways: dict[str, Callable[[Case], Recommender]] = {
            "biases of the target": lambda case: alone(case, "bias"),
            "target alone": lambda case: alone(case, model),
            "source, then shown the target": lambda case: shown(case, source),
        }
        if model_class(model).learns:
            ways["source, then trained on the target"] = lambda case: trained_on(case, source)
        for way, fit in ways.items():
            began = time.monotonic()
            found = fit(case)
            yield {
                "common": case.common,
                "source": case.source_name,
                "target": case.target_name,
                "share": share,
                "model": model,
                "way": way,
                "split_seed": case.seed,
                **errors_of(found, case),
                "seconds": round(time.monotonic() - began, 1),
                "source_seconds": round(source_seconds, 1),
            }


def corpus_of(frame: pl.DataFrame) -> Corpus:
    return build_corpus(read_reviews(frame, rating_range=STARS), min_reviews=1, copies="keep")


def alone(case: Case, model: str) -> Recommender:
    return Recommender(model, seed=case.seed, device="cpu").fit(corpus_of(case.target), progress=False)


def shown(case: Case, source: Recommender) -> Recommender:
    """What was learned of the source, with the target's known reviews as more to read."""
    known = case.target.filter(pl.col("split") != "test").drop("split")
    return update(source, read_for(source, known), refit=not source.model.learns)[0]


def trained_on(case: Case, source: Recommender) -> Recommender:
    fresh = Recommender(source.name, seed=case.seed, device="cpu")
    return fresh.fit(corpus_of(case.target), start_from=source, progress=False)


def errors_of(recommender: Recommender, case: Case) -> dict[str, Any]:
    test = case.target.filter(pl.col("split") == "test")
    guesses = np.clip(np.asarray(recommender.predict(list(zip(test["user"], test["item"], strict=True)))), *STARS)
    error = float(np.square(guesses - test["rating"].to_numpy()).mean())
    known = case.target.height - test.height
    return {"test_mse": round(error, 6), "test_pairs": test.height, "known_reviews": known}


if __name__ == "__main__":
    main()
