"""Our rating-only models beside the same models of well-kept libraries, on the same splits.

    pip install -e '.[compare]'
    python benchmarks/agreement.py CORPUS... --seeds 0 1 2 3 --out results/agreement.jsonl
    python benchmarks/agreement.py --table results/agreement.jsonl

    bias            Surprise BaselineOnly     μ + b_u + b_i
    mf              Surprise SVD              μ + b_u + b_i + p·q
    pmf             cornac PMF                a sigmoid of u·v, neither biases nor a mean

Like is held against like: the same objective, a start of the same spread, the same grid of penalties and latent
sizes, steps of the same kind, and as many passes as validation asks for. Only then are the test pairs looked at. A
ratio of test MSE near 1 says that ours is the model it claims to be, and no weaker. Without mean and biases PMF is
still on its way when validation stops it, and where it stands depends on every step: so `pmf` is walked in cornac's own
steps, from the same numbers, at the settings that validation chose for cornac (`cornac_steps.py`).
`mf` and `pmf` as they ship stand beside that, and differ: `mf` begins with tuned biases, `pmf` further from zero, and
both take torch's RMSprop steps in batches of 100.
`agreement_exact.py` checks the equations themselves. CORPUS is a folder made by `carp prepare`. The grids were set on
split seeds 0 and 1; that `pmf` needs the same steps was seen on 2 and 3 as well.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import source_tree  # noqa: F401  carp of this checkout
from carp.models.batch import Pairs, Sizes, TrainingData
from carp.models.layers import SHRINKAGES
from carp.reviews.documents import Documents

Settings = dict[str, Any]
COMPARED = {
    "bias": "Surprise BaselineOnly",
    "mf, SVD's form": "Surprise SVD",
    "mf as shipped": "Surprise SVD",
    "pmf, cornac's steps": "cornac PMF, its usual rate",
    "pmf as shipped": "cornac PMF",
}
GRIDS: dict[str, dict[str, tuple[Any, ...]]] = {
    "mf, SVD's form": {"latent_size": (5, 25), "bias_penalty": (0.1, 0.3), "penalty": (0.1, 0.4)},
    "Surprise BaselineOnly": {"reg_u": SHRINKAGES, "reg_i": SHRINKAGES, "n_epochs": (10,)},
    "Surprise SVD": {
        "latent_size": (5, 25),
        "bias_penalty": (0.1, 0.3),
        "penalty": (0.1, 0.4),
        "lr_all": (0.005,),
        "n_epochs": (10, 20, 30, 40, 60, 80),
    },
    "cornac PMF": {
        "latent_size": (5, 25),
        "penalty": (0.001, 0.01),
        "learning_rate": (0.001, 0.005),
        "max_iter": (10, 20, 30, 50, 100, 200),
    },
    "cornac PMF, its usual rate": {
        "latent_size": (5, 25),
        "penalty": (0.001, 0.01),
        "learning_rate": (0.001,),
        "max_iter": (20, 50, 100),  # its usual number, and fewer
    },
}
# Under so large an ε RMSprop is plain gradient descent; a batch's mean of squares has 2/200 of a rating's slope, so a
# rating moves what it moves in SVD at 0.005. Stopped early, such steps hold those with few ratings more: RMSprop, whose
# steps are as long for them as for others, does not.
AS_SVD: Settings = {"learning_rate": 0.5, "optimizer_epsilon": 1.0, "batch_size": 200, "epochs": 80, "patience": 10}
EXPLORED = (0, 1)  # the split seeds the grids were set on
Predict = Callable[[Pairs], NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Parts:
    train: Pairs
    valid: Pairs
    test: Pairs
    sizes: Sizes

    def first(self, ratings: int) -> Parts:
        """The same with fewer training ratings."""
        known, some = self.train, slice(ratings)
        return replace(
            self, train=Pairs(known.users[some], known.items[some], known.ratings[some], known.records[some])
        )


def parts_of(corpus_path: Path, seed: int) -> Parts:
    from carp.reviews.corpora.corpus import Corpus
    from carp.reviews.split import random_split

    corpus = Corpus.load(corpus_path)
    split = random_split(corpus.user, corpus.item, seed=seed)

    def pairs(records: NDArray[np.int64]) -> Pairs:
        user, item = corpus.user[records].astype(np.int64), corpus.item[records].astype(np.int64)
        return Pairs(user, item, corpus.rating[records], records)

    sizes = Sizes(len(corpus.users), len(corpus.items), 1, int(corpus.facts["levels"]))
    return Parts(pairs(split.train), pairs(split.valid), pairs(split.test), sizes)


def our_form(name: str, settings: Settings) -> tuple[str, Settings, Settings]:
    """The model behind a name of the table, its configuration, and how it is trained."""
    if name == "mf, SVD's form":
        spread = 0.1**2 * settings["latent_size"] ** 0.5  # of a product of factors that spread by 0.1
        return "mf", {**settings, "biases": "learned", "spread": spread}, AS_SVD
    return name.split()[0], settings, {}


def fit_ours(name: str, parts: Parts, settings: Settings) -> Predict:
    """Trained as anywhere else, on documents without words: none of these models reads them."""
    import torch

    from carp.models import model_class
    from carp.models.base import from_settings, make_config
    from carp.models.predict import predict_pairs
    from carp.training.loop import TrainingSettings, train

    registered, config, training = our_form(name, settings)
    kind = model_class(registered)
    none = np.zeros(0, np.int32)
    users = Documents(none, none, none, np.zeros(parts.sizes.users + 1, np.int64))
    items = Documents(none, none, none, np.zeros(parts.sizes.items + 1, np.int64))
    data = TrainingData(parts.train, parts.valid, users, items, parts.sizes)
    cpu = torch.device("cpu")
    torch.set_num_threads(1)  # these steps are too small to share
    torch.manual_seed(0)
    model = kind(make_config(kind, config), parts.sizes)
    how = from_settings(TrainingSettings, {**kind.training_defaults, **training})
    train(model, data, how, seed=0, device=cpu)
    return lambda pairs: predict_pairs(model, data, pairs, cpu)


@functools.lru_cache(maxsize=1)
def trainset(parts: Parts) -> Any:
    """The training ratings as Surprise takes them."""
    import pandas
    import surprise

    columns = {"user": parts.train.users, "item": parts.train.items, "rating": parts.train.ratings}
    reader = surprise.Reader(rating_scale=(1, parts.sizes.levels))
    return surprise.Dataset.load_from_df(pandas.DataFrame(columns), reader).build_full_trainset()


def fit_surprise(name: str, parts: Parts, settings: Settings) -> Predict:
    import surprise

    if name == "Surprise BaselineOnly":
        model = surprise.BaselineOnly(bsl_options={"method": "als", **settings}, verbose=False)
    else:
        penalty, bias_penalty = settings["penalty"], settings["bias_penalty"]
        model = surprise.SVD(
            settings["latent_size"],
            settings["n_epochs"],
            lr_all=settings["lr_all"],
            reg_bu=bias_penalty,
            reg_bi=bias_penalty,
            reg_pu=penalty,
            reg_qi=penalty,
            random_state=0,
        )
    model.fit(trainset(parts))

    def predict(pairs: Pairs) -> NDArray[Any]:
        rows = zip(pairs.users.tolist(), pairs.items.tolist(), strict=True)
        return np.array([model.predict(user, item).est for user, item in rows])

    return predict


def known_to_cornac(parts: Parts) -> Any:
    """The training ratings as cornac takes them."""
    import cornac

    rows = zip(parts.train.users.tolist(), parts.train.items.tolist(), parts.train.ratings.tolist(), strict=True)
    return cornac.data.Dataset.from_uir(list(rows), seed=0)


def fitted_cornac(known: Any, sizes: Sizes, settings: Settings) -> list[NDArray[np.float64]]:
    """Its factors U and V, a row for every id of ours; with `max_iter` 0 those it begins with."""
    import cornac

    k, rest = settings["latent_size"], {key: settings[key] for key in ("learning_rate", "max_iter")}
    model = cornac.models.PMF(k, lambda_reg=settings["penalty"], seed=0, **rest).fit(known)
    tables = []
    for fitted, places, count in ((model.U, known.uid_map, sizes.users), (model.V, known.iid_map, sizes.items)):
        tables.append(np.zeros((count, k)))
        tables[-1][list(places)] = np.asarray(fitted)[list(places.values())]
    return tables


def fit_cornac(name: str, parts: Parts, settings: Settings) -> Predict:
    known = known_to_cornac(parts)
    users, items = fitted_cornac(known, parts.sizes, settings)

    def predict(pairs: Pairs) -> NDArray[Any]:
        share = 1 / (1 + np.exp(-(users[pairs.users] * items[pairs.items]).sum(-1)))
        return np.asarray(known.min_rating + (known.max_rating - known.min_rating) * share)

    return predict


def walk_with_cornac(name: str, parts: Parts, settings: Settings) -> Predict:
    """Our `pmf` in cornac's steps, from the numbers it begins with and for as many passes."""
    import torch

    from carp.models.batch import Batch
    from carp.models.pmf import Pmf, PmfConfig
    from cornac_steps import NOTHING, walk

    torch.set_num_threads(1)
    start = fitted_cornac(known_to_cornac(parts), parts.sizes, {**settings, "max_iter": 0})
    model = Pmf(PmfConfig(settings["latent_size"], settings["penalty"], settings["penalty"]), parts.sizes).double()
    model.load_state_dict(dict(zip(("user_factors", "item_factors"), map(torch.from_numpy, start), strict=True)))
    walk(parts.train, model, settings["learning_rate"], settings["max_iter"])

    def predict(pairs: Pairs) -> NDArray[Any]:
        ids = torch.from_numpy(pairs.users), torch.from_numpy(pairs.items)
        return np.asarray(model(Batch(*ids, NOTHING, NOTHING, NOTHING, NOTHING)).rating.detach())

    return predict


def fitter(name: str) -> Callable[[str, Parts, Settings], Predict]:
    if name == "pmf, cornac's steps":
        return walk_with_cornac
    if name in COMPARED:
        return fit_ours
    return fit_cornac if name.startswith("cornac") else fit_surprise


def mse(predict: Predict, pairs: Pairs, levels: int) -> float:
    guess = np.clip(predict(pairs).astype(np.float64), 1, levels)
    return float(np.square(guess - pairs.ratings).mean())


def tuned(name: str, parts: Parts, grid: Mapping[str, Iterable[Any]]) -> Settings:
    """The settings with the lowest validation error, and the test error of those alone."""
    began = time.monotonic()
    fit, levels = fitter(name), parts.sizes.levels
    best: tuple[float, Settings, Predict] | None = None
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
    """Mean errors of each model and its counterpart, on the splits the grids were set on and on fresh ones."""
    found = {(x["corpus"], x["model"], x["split_seed"]): x for x in lines if "test_mse" in x}
    rows = ["| corpus | ours | theirs | splits | ours, test MSE | theirs, test MSE | ratio | by split |"]
    rows.append("|---" * 8 + "|")
    corpora, seeds = (list(dict.fromkeys(key[place] for key in found)) for place in (0, 2))
    groups = ([s for s in seeds if s in EXPLORED], [s for s in seeds if s not in EXPLORED])
    for corpus, (ours, theirs), group in itertools.product(corpora, COMPARED.items(), groups):
        shared = [s for s in sorted(group) if (corpus, ours, s) in found and (corpus, theirs, s) in found]
        if not shared:
            continue
        a, b = (np.array([found[corpus, name, s]["test_mse"] for s in shared]) for name in (ours, theirs))
        splits, each = ", ".join(map(str, shared)), ", ".join(f"{ratio:.3f}" for ratio in a / b)
        means = f"{a.mean():.4f} | {b.mean():.4f} | {a.mean() / b.mean():.4f}"
        rows.append(f"| {corpus} | {ours} | {theirs} | {splits} | {means} | {each} |")
    return "\n".join(rows)


def exact_table(lines: Iterable[Mapping[str, Any]]) -> str:
    """The checks of `agreement_exact.py`: the largest difference of all splits."""
    checks = [line for line in lines if "difference" in line]
    rows = ["| corpus | ours | theirs | check | largest difference | allowed |", "|---" * 6 + "|"]
    for key in dict.fromkeys((x["corpus"], x["model"], x["theirs"], x["check"], x["allowed"]) for x in checks):
        same = [x for x in checks if key == (x["corpus"], x["model"], x["theirs"], x["check"], x["allowed"])]
        largest = max(x["difference"] for x in same)
        rows.append(f"| {' | '.join(key[:4])} | {largest:.1e} | {key[4]:g} |")
    return "\n".join(rows) if checks else ""


def about_the_run() -> Settings:
    from importlib.metadata import version

    from carp.bench.cells import current_commit, machine

    libraries = {name: version(name) for name in ("scikit-surprise", "cornac", "torch")}
    return {"libraries": libraries, "commit": current_commit(), "machine": machine("cpu")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", nargs="*", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--models", nargs="+", default=list(COMPARED), choices=list(COMPARED))
    parser.add_argument("--out", type=Path, help="append one JSON line a model and split")
    parser.add_argument("--table", type=Path, help="print the tables of a file of runs")
    given = parser.parse_args()
    if given.table:
        lines = [json.loads(line) for line in given.table.read_text().splitlines()]
        print(table(lines), exact_table(lines), sep="\n\n")
        return
    lines = []
    for corpus, seed in itertools.product(given.corpora, given.seeds):
        parts = parts_of(corpus, seed)
        chosen: dict[str, Settings] = {}
        for name in dict.fromkeys(n for ours in given.models for n in (COMPARED[ours], ours)):
            grid = GRIDS.get(name, {})
            if name == "pmf, cornac's steps":  # at the very place that was chosen for cornac
                grid = {key: (value,) for key, value in chosen[COMPARED[name]].items()}
            line = {"corpus": corpus.stem, "split_seed": seed, **tuned(name, parts, grid), **about_the_run()}
            chosen[name] = line["settings"]
            lines.append(line)
            print(f"{line['corpus']}, split {seed}, {name}: validation {line['valid_mse']:.4f}, "
                  f"{line['seconds']} s, {line['settings']}", file=sys.stderr, flush=True)  # fmt: skip
            if given.out:
                with given.out.open("a") as file:
                    file.write(json.dumps(line) + "\n")
    print(table(lines))


if __name__ == "__main__":
    main()
