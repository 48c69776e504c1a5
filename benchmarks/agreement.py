"""Our rating-only models beside the same models of well-kept libraries, on the same splits.

    pip install -e '.[compare]'
    python benchmarks/agreement.py CORPUS... --seeds 0 1 --out results/agreement.jsonl

    bias   Surprise BaselineOnly     μ + b_u + b_i
    mf     Surprise SVD              μ + b_u + b_i + p·q
    pmf    cornac PMF                a sigmoid of u·v, neither biases nor a mean

Every model is tuned on validation in its own terms (its own penalties, rates and epochs), and only then are the test
pairs looked at. A ratio of test MSE near 1 says that ours is the model it claims to be, and no weaker.
CORPUS is a folder made by `carp prepare`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from carp.models.batch import Pairs, Sizes, TrainingData
from carp.reviews.documents import Documents

COUNTERPARTS = {"bias": "Surprise BaselineOnly", "mf": "Surprise SVD", "pmf": "cornac PMF"}
GRIDS: dict[str, dict[str, tuple[Any, ...]]] = {
    "bias": {},
    "mf": {"latent_size": (25,), "penalty": (0.1, 0.3, 1.0)},
    "pmf": {"latent_size": (25, 100), "penalty": (0.003, 0.01, 0.02)},
    "Surprise BaselineOnly": {"reg_u": (1, 2, 5, 7, 10, 15), "reg_i": (1, 2, 5, 10, 30, 50), "n_epochs": (10,)},
    "Surprise SVD": {
        "n_factors": (5, 25),
        "reg_bu": (0.02, 0.1, 0.4),
        "reg_bi": (0.02, 0.1, 0.4),
        "factors": (0.1, 0.4, 1.0),
        "lr_all": (0.005, 0.01),
        "n_epochs": (20, 40, 80),
    },
    "cornac PMF": {
        "k": (5, 25, 100),
        "lambda_reg": (0.001, 0.01, 0.03),
        "learning_rate": (0.001, 0.005),
        "max_iter": (30, 100),
    },
}
Predict = Callable[[Pairs], NDArray[Any]]


@dataclass(frozen=True)
class Parts:
    train: Pairs
    valid: Pairs
    test: Pairs
    sizes: Sizes


def parts_of(corpus_path: Path, seed: int) -> Parts:
    from carp.reviews.corpus import Corpus
    from carp.reviews.split import random_split

    corpus = Corpus.load(corpus_path)
    split = random_split(corpus.user, corpus.item, seed=seed)

    def pairs(records: NDArray[np.int64]) -> Pairs:
        user, item = corpus.user[records].astype(np.int64), corpus.item[records].astype(np.int64)
        return Pairs(user, item, corpus.rating[records], records)

    sizes = Sizes(len(corpus.users), len(corpus.items), 1, int(corpus.facts["levels"]))
    return Parts(pairs(split.train), pairs(split.valid), pairs(split.test), sizes)


def fit_ours(name: str, parts: Parts, settings: Mapping[str, Any]) -> Predict:
    """Trained as anywhere else, on documents without words: none of these models reads them."""
    import torch

    from carp.models import model_class
    from carp.models.base import from_settings, make_config
    from carp.models.predict import predict_pairs
    from carp.train import TrainingSettings, train

    chosen = dict(settings)
    if name == "pmf" and "penalty" in chosen:
        penalty = chosen.pop("penalty")
        chosen |= {"user_penalty": penalty, "item_penalty": penalty}
    kind = model_class(name)
    none = np.zeros(0, np.int32)
    silent = [Documents(none, none, none, np.zeros(n + 1, np.int64)) for n in (parts.sizes.users, parts.sizes.items)]
    data = TrainingData(parts.train, parts.valid, *silent, parts.sizes)
    cpu = torch.device("cpu")
    torch.set_num_threads(1)  # these steps are too small to share
    torch.manual_seed(0)
    model = kind(make_config(kind, chosen), parts.sizes)
    train(model, data, from_settings(TrainingSettings, dict(kind.training_defaults)), seed=0, device=cpu)
    return lambda pairs: predict_pairs(model, data, pairs, cpu)


def fit_surprise(name: str, parts: Parts, settings: Mapping[str, Any]) -> Predict:
    import pandas
    import surprise

    if name == "Surprise BaselineOnly":
        model = surprise.BaselineOnly(bsl_options={"method": "als", **settings}, verbose=False)
    else:
        chosen = dict(settings)
        factors = chosen.pop("factors")
        model = surprise.SVD(random_state=0, reg_pu=factors, reg_qi=factors, **chosen)
    frame = pandas.DataFrame({"user": parts.train.users, "item": parts.train.items, "rating": parts.train.ratings})
    reader = surprise.Reader(rating_scale=(1, parts.sizes.levels))
    model.fit(surprise.Dataset.load_from_df(frame, reader).build_full_trainset())

    def predict(pairs: Pairs) -> NDArray[Any]:
        rows = zip(pairs.users.tolist(), pairs.items.tolist(), strict=True)
        return np.array([model.predict(user, item).est for user, item in rows])

    return predict


def fit_cornac(name: str, parts: Parts, settings: Mapping[str, Any]) -> Predict:
    import cornac

    rows = zip(parts.train.users.tolist(), parts.train.items.tolist(), parts.train.ratings.tolist(), strict=True)
    known = cornac.data.Dataset.from_uir(list(rows), seed=0)
    model = cornac.models.PMF(variant="non_linear", seed=0, **settings).fit(known)
    users, items = np.asarray(model.U), np.asarray(model.V)

    def predict(pairs: Pairs) -> NDArray[Any]:
        u = [known.uid_map.get(user, -1) for user in pairs.users.tolist()]
        i = [known.iid_map.get(item, -1) for item in pairs.items.tolist()]
        products = [users[a] @ items[b] if a >= 0 and b >= 0 else 0.0 for a, b in zip(u, i, strict=True)]
        low, high = known.min_rating, known.max_rating
        return low + (high - low) / (1 + np.exp(-np.array(products)))

    return predict


def fitter(name: str) -> Callable[[str, Parts, Mapping[str, Any]], Predict]:
    if name in COUNTERPARTS:
        return fit_ours
    return fit_cornac if name.startswith("cornac") else fit_surprise


def mse(predict: Predict, pairs: Pairs, levels: int) -> float:
    guess = np.clip(predict(pairs).astype(np.float64), 1, levels)
    return float(np.square(guess - pairs.ratings).mean())


def tuned(name: str, parts: Parts) -> dict[str, Any]:
    """The settings with the lowest validation error, and the test error of those alone."""
    began = time.monotonic()
    fit, grid, levels = fitter(name), GRIDS[name], parts.sizes.levels
    best: tuple[float, dict[str, Any], Predict] | None = None
    for values in itertools.product(*grid.values()):
        settings = dict(zip(grid, values, strict=True))
        predict = fit(name, parts, settings)
        error = mse(predict, parts.valid, levels)
        if best is None or error < best[0]:
            best = (error, settings, predict)
    assert best is not None, "a grid has at least one place"
    error, settings, predict = best
    seconds = round(time.monotonic() - began, 1)
    facts = {"valid_mse": error, "test_mse": mse(predict, parts.test, levels), "seconds": seconds}
    return {"model": name, "settings": settings, **facts}


def table(lines: Iterable[Mapping[str, Any]]) -> str:
    """Mean errors of each model and its counterpart on the splits that both ran on."""
    lines = list(lines)
    rows = ["| corpus | ours | theirs | splits | ours, test MSE | theirs, test MSE | ratio | validation ratio |"]
    rows.append("|---" * 8 + "|")
    for corpus in dict.fromkeys(line["corpus"] for line in lines):
        for ours, theirs in COUNTERPARTS.items():
            found = {
                name: {x["split_seed"]: x for x in lines if x["corpus"] == corpus and x["model"] == name}
                for name in (ours, theirs)
            }
            shared = sorted(found[ours].keys() & found[theirs].keys())
            if not shared:
                continue
            a, b, c, d = (
                np.mean([found[name][seed][part] for seed in shared])
                for part in ("test_mse", "valid_mse")
                for name in (ours, theirs)
            )
            rows.append(
                f"| {corpus} | {ours} | {theirs} | {len(shared)} | {a:.4f} | {b:.4f} | {a / b:.4f} | {c / d:.4f} |"
            )
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", nargs="*", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--models", nargs="+", default=list(COUNTERPARTS), choices=list(COUNTERPARTS))
    parser.add_argument("--out", type=Path, help="append one JSON line a model and split")
    parser.add_argument("--table", type=Path, help="print the table of a file of runs")
    given = parser.parse_args()
    if given.table:
        print(table(json.loads(line) for line in given.table.read_text().splitlines()))
        return
    lines = []
    for corpus, seed in itertools.product(given.corpora, given.seeds):
        parts = parts_of(corpus, seed)
        for name in (n for ours in given.models for n in (ours, COUNTERPARTS[ours])):
            line = {"corpus": corpus.stem, "split_seed": seed, **tuned(name, parts)}
            lines.append(line)
            print(f"{line['corpus']}, split {seed}, {name}: validation {line['valid_mse']:.4f}, "
                  f"{line['seconds']} s, {line['settings']}", file=sys.stderr, flush=True)  # fmt: skip
            if given.out:
                with given.out.open("a") as file:
                    file.write(json.dumps(line) + "\n")
    print(table(lines))


if __name__ == "__main__":
    main()
