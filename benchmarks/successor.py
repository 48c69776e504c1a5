"""What each ingredient of `meeting` is worth, how it does for people and things hardly known, and whether its intervals
hold: on split seeds 100 to 104, so that those of the tables stay unread.

    python benchmarks/successor.py CORPUS.npz... --part ablation|cold|intervals|small [--seeds 100-104] --out FILE.jsonl

Corpora are slim ones (`python -m carp.bench CORPUS --slim CORPUS.npz`); torch, numpy and safetensors suffice. Each line
is a cell: corpus, split, what was changed, and test MSE over that of the tuned biases on the same pairs.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray

from carp.bench.cells import current_commit
from carp.bench.datasets import load_corpus
from carp.models import meeting, model_class
from carp.models.base import RatingModel, make_config
from carp.models.batch import Pairs, TrainingData
from carp.models.calibration import NORMAL_90
from carp.models.layers import TunedBiases
from carp.models.pair_covariance import NAMES, START
from carp.models.predict import predict_pairs
from carp.reviews.corpora.corpus import Corpus
from carp.reviews.documents import make_documents, training_words
from carp.reviews.split import Split, random_split
from carp.reviews.split_parts import TEST, TRAIN, VALID
from carp.reviews.text.vocabulary import TextSettings
from carp.training.fitted_corpus import FittedCorpus, fit_corpus

Floats = NDArray[np.float64]
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
WHOLE = TextSettings(max_words=1_000_000)
LINEAR = ("person", "thing", "person's words", "thing's words", "noise")
ABLATIONS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "without meetings": {"keep": LINEAR},
    "without weights of words": {"keep": tuple(n for n in NAMES if not n.endswith("words"))},
    "without texts": {"keep": ("person", "thing", "noise")},
    "without what a person makes of aspects": {"keep": tuple(n for n in NAMES if n != "by person")},
    "without what viewpoints make of a thing": {"keep": tuple(n for n in NAMES if n != "by thing")},
    "without viewpoints meeting aspects": {"keep": tuple(n for n in NAMES if n != "by both")},
    "documents cut at 300 words": {"text": TextSettings(max_words=300)},
    "without bigrams": {"settings": {"bigrams": 0}},
    "without names of things": {"settings": {"name_weight": 0.0}},
    "the same noise for all": {"settings": {"own_noise": False}},
    "without the curve": {"settings": {"curved": False}},
    "z from the origin": {"settings": {"from_mean": False}},
    "z from the mean of texts": {"settings": {"from_mean": True}},
    "rarity 0": {"settings": {"rarity": 0.0}},
    "rarity 1": {"settings": {"rarity": 1.0}},
    "32 directions": {"settings": {"directions": 32}},
    "256 directions": {"settings": {"directions": 256}},
    "validation ratings as data": {"settings": {"learn_from": "training and validation"}},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", nargs="+", type=Path)
    parser.add_argument("--part", choices=["ablation", "cold", "intervals", "small"], required=True)
    parser.add_argument("--seeds", default="100-104")
    parser.add_argument("--only", help="the one ablation")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    first, last = (int(n) for n in given.seeds.split("-"))
    part = {"ablation": ablation, "cold": cold, "intervals": intervals, "small": small}[given.part]
    for path in given.corpora:
        corpus = load_corpus(path)
        for seed in range(first, last + 1):
            for cell in part(corpus, seed, given.only):
                command = f"python benchmarks/successor.py {path.name} --part {given.part} --seeds {given.seeds}"
                line = {"corpus": path.stem.removesuffix("-slim"), "split_seed": seed, **cell}
                line |= {"machine": _machine(), "commit": current_commit(), "command": command}
                print(json.dumps(cell), flush=True)
                with given.out.open("a") as file:
                    file.write(json.dumps(line) + "\n")


def _machine() -> str:
    return torch.cuda.get_device_name() if DEVICE.type == "cuda" else "CPU"


def _split(corpus: Corpus, seed: int) -> Split:
    return random_split(np.asarray(corpus.user), np.asarray(corpus.item), seed=seed)


def _fit(name: str, fitted: FittedCorpus, data: TrainingData, **settings: Any) -> tuple[RatingModel, float]:
    kind = model_class(name)
    torch.manual_seed(0)
    model = kind(make_config(kind, settings), fitted.sizes).to(DEVICE)
    begun = time.perf_counter()
    model.start(data)
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()
    return model.eval(), time.perf_counter() - begun


def _biases(fitted: FittedCorpus, data: TrainingData) -> TunedBiases:
    biases = TunedBiases(fitted.sizes)
    biases.fit(data.train, data.valid, fitted.levels)
    return biases


def _squares(found: NDArray[Any], pairs: Pairs) -> Floats:
    return np.square(np.asarray(found, dtype=np.float64) - pairs.ratings)


def _bias_squares(biases: TunedBiases, fitted: FittedCorpus, pairs: Pairs) -> Floats:
    found = biases(torch.from_numpy(pairs.users), torch.from_numpy(pairs.items)).clamp(1, fitted.levels)
    return _squares(found.numpy(), pairs)


# ---- what each ingredient is worth


def ablation(corpus: Corpus, seed: int, only: str | None) -> Iterator[dict[str, Any]]:
    fitted: dict[TextSettings, FittedCorpus] = {}
    for name, change in ABLATIONS.items():
        if only is not None and name != only:
            continue
        text = change.get("text", WHOLE)
        if text not in fitted:
            fitted[text] = fit_corpus(corpus, _split(corpus, seed), text)
        one = fitted[text]
        data, test = one.training_data(), one.test_pairs()
        if name == "without names of things" and data.item_names is None:
            continue
        with _strengths_of(change.get("keep", NAMES)):
            model, seconds = _fit("meeting", one, data, **change.get("settings", {}))
        mse = _squares(predict_pairs(model, data, test, DEVICE), test).mean()
        ratio = float(mse / _bias_squares(_biases(one, data), one, test).mean())
        yield {"part": "ablation", "change": name, "ratio": ratio, "seconds": round(seconds, 2)}


@contextmanager
def _strengths_of(kept: tuple[str, ...]) -> Iterator[None]:
    """Terms that begin with the strength 0 keep it."""
    begun = tuple(s if name in kept else 0.0 for s, name in zip(START, NAMES, strict=True))
    with patch.object(meeting, "START", begun):
        yield


# ---- whether intervals hold


def intervals(corpus: Corpus, seed: int, only: str | None) -> Iterator[dict[str, Any]]:
    fitted = fit_corpus(corpus, _split(corpus, seed), WHOLE)
    data, test = fitted.training_data(), fitted.test_pairs()
    model, _ = _fit("meeting", fitted, data)
    rating, deviation = _with_deviation(model, data, test)
    inside = np.abs(np.clip(rating, 1, fitted.levels) - test.ratings) <= NORMAL_90 * deviation
    reviews = {
        "person": np.bincount(data.train.users, minlength=fitted.sizes.users)[test.users],
        "thing": np.bincount(data.train.items, minlength=fitted.sizes.items)[test.items],
    }
    thirds = {who: [float(inside[third].mean()) for third in _thirds(count)] for who, count in reviews.items()}
    yield {
        "part": "intervals",
        "covered": float(inside.mean()),
        "thirds": thirds,
        "width": float(2 * NORMAL_90 * deviation.mean()),
    }


def _thirds(count: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Test pairs in three parts of like size, from few reviews to many."""
    return np.array_split(np.argsort(count, kind="stable"), 3)


def _with_deviation(model: RatingModel, data: TrainingData, pairs: Pairs) -> tuple[Floats, Floats]:
    ratings, deviations = [], []
    with torch.no_grad():
        for batch in data.batches(pairs):
            there = batch.to(DEVICE)
            known = model.deviations(there.users, there.items)
            assert known is not None
            ratings.append(model(there).rating.double().cpu().numpy())
            deviations.append(known.double().cpu().numpy())
    return np.concatenate(ratings), np.concatenate(deviations)


# ---- people and things hardly known

COUNTS = ((0, 2), (3, 4), (5, 9), (10, 19), (20, 10**9))


def cold(corpus: Corpus, seed: int, only: str | None) -> Iterator[dict[str, Any]]:
    yield from _by_reviews(corpus, seed)
    for who in ("person", "thing"):
        yield from _held_out_whole(corpus, seed, who)


def _by_reviews(corpus: Corpus, seed: int) -> Iterator[dict[str, Any]]:
    """Errors by how many training reviews a person or a thing has; and with the person known by reviews alone."""
    fitted = fit_corpus(corpus, _split(corpus, seed), WHOLE)
    data, test = fitted.training_data(), fitted.test_pairs()
    biases = _biases(fitted, data)
    squares = {"biases": _bias_squares(biases, fitted, test)}
    pasted = {"biases": _bias_squares(biases, fitted, replace(test, users=np.full(len(test), -1)))}
    for name in ("ridge", "meeting"):
        model, _ = _fit(name, fitted, data)
        squares[name] = _squares(predict_pairs(model, data, test, DEVICE), test)
        pasted[name] = _squares(_from_texts_alone(model, data, test, fitted.levels), test)
    for who, owner, size in (("person", "users", fitted.sizes.users), ("thing", "items", fitted.sizes.items)):
        count = np.bincount(getattr(data.train, owner), minlength=size)[getattr(test, owner)]
        for low, high in COUNTS:
            chosen = (count >= low) & (count <= high)
            if chosen.any():
                errors = {name: float(of[chosen].mean()) for name, of in squares.items()}
                yield {"part": "cold", "known": who, "from": low, "to": high, "pairs": int(chosen.sum()), "mse": errors}
    errors = {name: float(of.mean()) for name, of in pasted.items()}
    yield {"part": "cold", "known": "person by pasted reviews alone", "pairs": len(test), "mse": errors}


def _from_texts_alone(model: RatingModel, data: TrainingData, pairs: Pairs, levels: int) -> Floats:
    """Ratings of pairs whose person is known by the words of their reviews, and by no rating."""
    found = []
    with torch.no_grad():
        for batch in data.batches(pairs):
            nobody = replace(batch, users=torch.full_like(batch.users, -1)).to(DEVICE)
            found.append(model(nobody).rating.clamp(1, levels).double().cpu().numpy())
    return np.concatenate(found)


def _held_out_whole(corpus: Corpus, seed: int, who: str) -> Iterator[dict[str, Any]]:
    """A tenth of all people, or things, with every review of theirs in the test part."""
    owner = np.asarray(corpus.user if who == "person" else corpus.item)
    owners = int(owner.max()) + 1
    rng = np.random.default_rng(seed)
    away = np.isin(owner, rng.permutation(owners)[: owners // 10])
    fitted = fit_corpus(
        corpus, _parts(np.where(away, TEST, np.where(rng.random(len(owner)) < 0.1, VALID, TRAIN))), WHOLE
    )
    data, test = fitted.training_data(), fitted.test_pairs()
    errors = {"biases": float(_bias_squares(_biases(fitted, data), fitted, test).mean())}
    pasted = dict(errors)
    others = replace(data, **_documents_of_test(corpus, fitted, test, who))
    for name in ("ridge", "meeting"):
        model, _ = _fit(name, fitted, data)
        errors[name] = float(_squares(predict_pairs(model, data, test, DEVICE), test).mean())
        pasted[name] = float(_squares(_without_own_review(model, others, test, fitted.levels), test).mean())
    yield {"part": "cold", "known": f"{who} held out whole", "pairs": len(test), "mse": errors}
    words = f"{who} held out whole, other reviews pasted"
    yield {"part": "cold", "known": words, "pairs": len(test), "mse": pasted}


def _parts(part: NDArray[np.int64]) -> Split:
    return Split(part.astype(np.int8), "made for this benchmark")


def _documents_of_test(corpus: Corpus, fitted: FittedCorpus, test: Pairs, who: str) -> dict[str, Any]:
    """Documents of those who are held out, of their test reviews."""
    seen = training_words(corpus, fitted.vocabulary, np.sort(test.records))
    if who == "person":
        return {"user_documents": make_documents(*seen, fitted.user, fitted.sizes.users, max_words=fitted.max_words)}
    return {"item_documents": make_documents(*seen, fitted.item, fitted.sizes.items, max_words=fitted.max_words)}


def _without_own_review(model: RatingModel, data: TrainingData, pairs: Pairs, levels: int) -> Floats:
    found = []
    with torch.no_grad():
        for begin in range(0, len(pairs), 500):
            chosen = np.arange(begin, min(begin + 500, len(pairs)))
            batch = replace(data.batch(pairs, chosen, training=True), training=False, ratings=None)
            found.append(model(batch.to(DEVICE)).rating.clamp(1, levels).double().cpu().numpy())
    return np.concatenate(found)


# ---- a shop with few reviews


def small(corpus: Corpus, seed: int, only: str | None) -> Iterator[dict[str, Any]]:
    """2,500 reviews drawn at random, a fifth of them held out, in halves for validation and test."""
    drawn = np.random.default_rng(seed).permutation(len(corpus.user))[:2500]
    part = np.full(len(corpus.user), -1)
    part[drawn] = np.repeat([TRAIN, VALID, TEST], [2000, 250, 250])
    fitted = fit_corpus(corpus, _parts(part), WHOLE)
    data, test = fitted.training_data(), fitted.test_pairs()
    errors = {"biases": float(_bias_squares(_biases(fitted, data), fitted, test).mean())}
    for name in ("ridge", "meeting", "gaussian-process"):
        model, _ = _fit(name, fitted, data)
        errors[name] = float(_squares(predict_pairs(model, data, test, DEVICE), test).mean())
    yield {"part": "small", "pairs": len(test), "mse": errors}


if __name__ == "__main__":
    main()
