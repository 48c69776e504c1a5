"""Are our rating-only models the libraries' models to the last digit? No tuning, no luck.

    pip install -e '.[compare]'
    python benchmarks/agreement_exact.py CORPUS... --seeds 0 --out results/agreement.jsonl

Two checks a model. Prediction: the library's fitted parameters, loaded into our model, predict its test ratings.
Training: our objective, taken through the library's own steps from the same start, ends where the library ends:

    bias   Surprise BaselineOnly   the alternating solutions of both, after ten rounds
    mf     Surprise SVD            one pass of gradient steps, rating by rating, on the gradient of our loss
    pmf    cornac PMF              the same with RMSprop kept for each row; its steps are so small that updating the
                                   items after the users, as it does, is no difference

A check that does not hold ends the run with an error. `agreement.py` compares the same models once tuned.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from agreement import Parts, Settings, about_the_run, known_to_cornac, parts_of, trainset
from carp.models.base import RatingModel
from carp.models.batch import Batch, Pairs, Sizes
from carp.models.bias import Bias, NoConfig
from carp.models.layers import solve_biases
from carp.models.mf import Mf, MfConfig
from carp.models.pmf import Pmf, PmfConfig

PREDICTED = TRAINED = 1e-5
STEPPED = 1e-4  # of the way: cornac keeps errors as 32-bit numbers
STEPS = 2000  # ratings in a checked pass; our side of it takes them one by one
NOTHING = torch.zeros(0, 0, dtype=torch.int32)


@dataclass(frozen=True)
class Check:
    model: str
    theirs: str
    check: str
    difference: float  # the largest of all, or a share of the way
    allowed: float


def batch_of(users: Any, items: Any, ratings: Any) -> Batch:
    ids = torch.as_tensor(users), torch.as_tensor(items)
    known = torch.as_tensor(ratings, dtype=torch.float64)
    return Batch(*ids, NOTHING, NOTHING, NOTHING, NOTHING, known, training=True)


@torch.no_grad()
def predicted(model: RatingModel, pairs: Pairs) -> NDArray[np.float64]:
    rating: NDArray[np.float64] = model(batch_of(pairs.users, pairs.items, pairs.ratings)).rating.double().numpy()
    return rating


def apart(ours: Any, theirs: Any) -> float:
    return float(np.abs(np.asarray(ours, np.float64) - np.asarray(theirs, np.float64)).max())


def rows_of(table: NDArray[Any], places: dict[int, int], count: int) -> torch.Tensor:
    """A library's table, whose rows are in its own order, with a row for every id of ours."""
    whole = np.zeros((count, *table.shape[1:]))
    whole[list(places)] = table[list(places.values())]
    return torch.from_numpy(whole)


@torch.no_grad()
def with_surprise(model: Bias | Mf, library: Any, sizes: Sizes) -> None:
    known = library.trainset
    users, items = ({raw: of(raw) for raw in raws} for raws, of in _ids(known))
    model.biases.mean.fill_(known.global_mean)
    user, item = rows_of(library.bu, users, sizes.users), rows_of(library.bi, items, sizes.items)
    if isinstance(model, Bias):
        model.biases.user.copy_(user)
        model.biases.item.copy_(item)
        return
    model.user_bias.copy_(user)
    model.item_bias.copy_(item)
    model.user_factors.copy_(rows_of(library.pu, users, sizes.users))
    model.item_factors.copy_(rows_of(library.qi, items, sizes.items))


def _ids(known: Any) -> tuple[tuple[list[int], Any], tuple[list[int], Any]]:
    users = [known.to_raw_uid(place) for place in known.all_users()]
    items = [known.to_raw_iid(place) for place in known.all_items()]
    return (users, known.to_inner_uid), (items, known.to_inner_iid)


def surprise_ratings(library: Any, pairs: Pairs) -> list[float]:
    rows = zip(pairs.users.tolist(), pairs.items.tolist(), strict=True)
    return [library.predict(user, item, clip=False).est for user, item in rows]


def check_bias(parts: Parts) -> Iterator[Check]:
    import surprise

    options: Settings = {"method": "als", "reg_u": 5, "reg_i": 10, "n_epochs": 10}
    library = surprise.BaselineOnly(bsl_options=options, verbose=False).fit(trainset(parts))
    model = Bias(NoConfig(), parts.sizes)
    with_surprise(model, library, parts.sizes)
    difference = apart(predicted(model, parts.test), surprise_ratings(library, parts.test))
    yield Check("bias", "Surprise BaselineOnly", "prediction", difference, PREDICTED)
    mean, user, item = solve_biases(parts.train, 5, 10, parts.sizes.users, parts.sizes.items, rounds=10)
    theirs = (model.biases.mean, model.biases.user, model.biases.item)
    difference = max(map(apart, (mean, user, item), theirs))
    yield Check("bias", "Surprise BaselineOnly", "training", difference, TRAINED)


def check_mf(parts: Parts) -> Iterator[Check]:
    import surprise

    k, rate = 10, 0.01
    penalties: Settings = {"reg_bu": 0.1, "reg_bi": 0.1, "reg_pu": 0.4, "reg_qi": 0.4}
    config = MfConfig(latent_size=k, penalty=0.4, biases="learned", bias_penalty=0.1)

    def fitted(passes: int, parts: Parts) -> tuple[Any, Mf]:
        library = surprise.SVD(k, n_epochs=passes, lr_all=rate, random_state=0, **penalties).fit(trainset(parts))
        model = Mf(config, parts.sizes).double()
        with_surprise(model, library, parts.sizes)
        return library, model

    library, model = fitted(20, parts)
    difference = apart(predicted(model, parts.test), surprise_ratings(library, parts.test))
    yield Check("mf", "Surprise SVD", "prediction", difference, PREDICTED)
    few = parts.first(STEPS)
    (library, ours), (_, theirs) = fitted(0, few), fitted(1, few)
    optimizer = torch.optim.SGD(ours.parameters(), lr=rate / 2)  # a square's slope has a factor of two
    known = library.trainset
    for user, item, rating in known.all_ratings():
        batch = batch_of([known.to_raw_uid(user)], [known.to_raw_iid(item)], [rating])
        optimizer.zero_grad()
        ours.loss(batch, ours(batch)).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    pairs = zip(ours.parameters(), theirs.parameters(), strict=True)
    difference = max(apart(a.detach(), b.detach()) for a, b in pairs)
    yield Check("mf", "Surprise SVD", "training", difference, TRAINED)


def check_pmf(parts: Parts) -> Iterator[Check]:
    import cornac

    known = known_to_cornac(parts)
    library = cornac.models.PMF(10, 20, 0.005, lambda_reg=0.01, seed=0).fit(known)
    model = Pmf(PmfConfig(latent_size=10), parts.sizes).double()
    with_cornac(model, library, known, parts.sizes)
    seen = parts.test.users, parts.test.items  # every test pair's user and item are rated in training
    theirs = [library.score(known.uid_map[user], known.iid_map[item]) for user, item in zip(*seen, strict=True)]
    yield Check("pmf", "cornac PMF", "prediction", apart(predicted(model, parts.test), theirs), PREDICTED)
    yield Check("pmf", "cornac PMF", "training", pmf_pass(parts.first(STEPS)), STEPPED)


@torch.no_grad()
def with_cornac(model: Pmf, library: Any, known: Any, sizes: Sizes) -> None:
    model.user_factors.copy_(rows_of(np.asarray(library.U), known.uid_map, sizes.users))
    model.item_factors.copy_(rows_of(np.asarray(library.V), known.iid_map, sizes.items))


def pmf_pass(parts: Parts) -> float:
    """How far both ways of a pass end from each other, as a share of the way.

    No largest difference here: RMSprop's first step on a row has the same length however small the slope, so a slope
    of nearly zero may go either way by rounding.
    """
    import cornac

    known, rate, k, penalty = known_to_cornac(parts), 1e-8, 10, 0.03
    rng = np.random.default_rng(0)
    shapes = {"U": (known.num_users, k), "V": (known.num_items, k)}
    start = {name: rng.normal(0, 0.3, shape) for name, shape in shapes.items()}  # products under 6: it cuts those off
    same: Settings = {"k": k, "lambda_reg": penalty, "learning_rate": rate, "seed": 0}
    copies = {name: table.copy() for name, table in start.items()}  # they are trained in place
    library = cornac.models.PMF(max_iter=1, init_params=copies, **same).fit(known)
    before, ours, theirs = (Pmf(PmfConfig(k, penalty, penalty), parts.sizes).double() for _ in range(3))
    with_cornac(theirs, library, known, parts.sizes)
    for model in (before, ours):
        with_cornac(model, cornac.models.PMF(init_params=start, **same), known, parts.sizes)
    users, items = ({place: raw for raw, place in ids.items()} for ids in (known.uid_map, known.iid_map))
    kept = [torch.zeros_like(table) for table in ours.parameters()]  # RMSprop's running squares
    for user, item, rating in zip(*known.uir_tuple, strict=True):
        rows = users[user], items[item]
        batch = batch_of([rows[0]], [rows[1]], [rating])
        slopes = torch.autograd.grad(ours.loss(batch, ours(batch)), list(ours.parameters()))
        for table, squares, slope, row in zip(ours.parameters(), kept, slopes, rows, strict=True):
            squares[row] = 0.9 * squares[row] + 0.1 * slope[row].square()
            table.data[row] -= rate * slope[row] / (squares[row].sqrt() + 1e-8)
    start_at, we_end, they_end = (torch.cat(list(model.parameters())).detach() for model in (before, ours, theirs))
    return float((we_end - they_end).norm() / (they_end - start_at).norm())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", nargs="+", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--out", type=Path, help="append one JSON line a check")
    given = parser.parse_args()
    torch.set_num_threads(1)
    wrong = 0
    for corpus, seed in itertools.product(given.corpora, given.seeds):
        parts = parts_of(corpus, seed)
        for found in itertools.chain(check_bias(parts), check_mf(parts), check_pmf(parts)):
            holds = found.difference <= found.allowed
            wrong += not holds
            what = f"{corpus.stem}, split {seed}, {found.model} and {found.theirs}, {found.check}"
            verdict = "holds" if holds else "DOES NOT HOLD"
            print(f"{what}: {found.difference:.1e} apart, {found.allowed:g} allowed: {verdict}", flush=True)
            if given.out:
                line = {"corpus": corpus.stem, "split_seed": seed, **asdict(found), **about_the_run()}
                with given.out.open("a") as file:
                    file.write(json.dumps(line) + "\n")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
