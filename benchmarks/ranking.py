"""Lists of ten recommendations judged on held-out pairs: every way to rank beside popularity and a ranking library.

    python benchmarks/ranking.py CORPUS... --seeds 0 1 2 3 4 --out results/ranking.jsonl

Relevant is a test pair rated 4 or more of 5. Candidates are all things that the person did not rate in training or
validation. What was learned was learned from training; validation chose epochs and settings, as always. NDCG and recall
are means over the people who have a relevant thing, coverage and likeness are of everybody's lists.

One JSON line a cell, with command, commit and split seed. Cells that the file has already are not run again. `--keep`
names a folder for everybody's predicted ratings, so that a second run need not fit the models again.
"""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from carp.bench.cells import current_commit, machine
from carp.bench.datasets import load_corpus
from carp.evaluate.list_measures import Lists, coverage, hits, likeness, ndcg, recall
from carp.explain.similar_things import TextLikeness
from carp.models.base import RatingModel
from carp.models.batch import Pairs
from carp.models.predict import encode_documents, score_pairs
from carp.ranking.best_first import rank_by_scores
from carp.ranking.taste import USUAL_DIVERSITY, Taste
from carp.recommender import Recommender
from carp.reviews.corpora.corpus import Corpus
from carp.reviews.documents import Documents
from carp.reviews.split import Split, split_corpus
from carp.reviews.split_parts import TEST
from carp.training.fitted_corpus import FittedCorpus, fit_corpus

PLACES = 10
LIKED = 4.0
MODELS = ("bias", "mf", "ridge", "carp", "meeting")
MOST_ACCURATE = "meeting"
DIVERSITIES = (0.0, 1.0)  # of the most accurate model, besides the usual one
ALS: dict[str, Any] = {"factors": 16, "regularization": 10.0, "alpha": 10.0}  # both chosen on split seeds 100 and 101
BPR: dict[str, Any] = {"factors": 64, "learning_rate": 0.05, "regularization": 0.1, "iterations": 100}
Floats = NDArray[np.float64]


@dataclass
class Board:
    """A corpus on one split: what is known, and what is to be found."""

    name: str
    corpus: Corpus
    split: Split
    seed: int

    @cached_property
    def shape(self) -> tuple[int, int]:
        return len(self.corpus.users), len(self.corpus.items)

    def without_test(self, fitted: FittedCorpus) -> FittedCorpus:
        """The same corpus as if the test pairs had not been written: they may be recommended."""
        known = fitted.part != TEST
        columns = {name: getattr(fitted, name)[known] for name in ("user", "item", "rating", "part")}
        return replace(fitted, **columns)

    def judge(self, lists: Lists) -> dict[str, float]:
        liked = (self.split.part == TEST) & (np.asarray(self.corpus.rating) >= LIKED)
        users, items = (np.asarray(side, np.int64)[liked] for side in (self.corpus.user, self.corpus.item))
        relevant = np.bincount(users, minlength=self.shape[0])
        found = hits(lists, users, items)
        return {
            "ndcg": ndcg(found, relevant),
            "recall": recall(found, relevant),
            "coverage": coverage(lists, self.shape[1]),
            "likeness": likeness(lists),
        }


def main() -> None:
    given = parsed()
    torch.set_num_threads(given.threads)
    done = cells_in(given.out)
    for folder in given.corpora:
        corpus = load_corpus(folder)
        for seed in given.seeds:
            board = Board(folder.name, corpus, split_corpus(corpus, seed=seed), seed)
            for system, lists, facts in ranked(board, given.models, given.keep, done):
                judged = board.judge(lists)
                line = {"corpus": board.name, "fingerprint": corpus.fingerprint, "split_seed": seed, "system": system}
                line |= {**judged, "places": PLACES, "liked": LIKED, **facts}
                line |= {"command": command(given), "commit": current_commit(), "machine": machine("cpu")}
                with given.out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")
                print(board.name, seed, system, *(f"{name} {value:.4f}" for name, value in judged.items()), flush=True)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", nargs="+", type=Path)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument(
        "--models", nargs="*", default=list(MODELS), help="whose ratings; none: popularity and implicit alone"
    )
    parser.add_argument("--out", type=Path, default=Path("results/ranking.jsonl"))
    parser.add_argument("--keep", type=Path, help="folder for predicted ratings")
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


def command(given: argparse.Namespace) -> str:
    """The command without the places of folders."""
    seeds = [str(seed) for seed in given.seeds]
    words = [*(folder.name for folder in given.corpora), "--seeds", *seeds, "--models", *given.models]
    return f"python benchmarks/ranking.py {shlex.join(words)} --out {given.out.name}"


def cells_in(file: Path) -> set[tuple[str, int, str]]:
    if not file.exists():
        return set()
    lines = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    return {(line["fingerprint"], line["split_seed"], line["system"]) for line in lines}


Ranked = tuple[str, Lists, dict[str, Any]]


def ranked(board: Board, models: list[str], keep: Path | None, done: set[tuple[str, int, str]]) -> Iterator[Ranked]:
    """Every system's lists on one split, except those of cells that are there already."""

    def missing(*systems: str) -> bool:
        return any((board.corpus.fingerprint, board.seed, system) not in done for system in systems)

    if missing("popularity", "implicit ALS", "implicit BPR"):
        yield from without_models(board)
    for name in models:
        if missing(f"{name}, by rating"):
            yield from with_model(board, name, keep)


def without_models(board: Board) -> Iterator[Ranked]:
    """Popularity, and two models of implicit that are made for ranking."""
    from implicit.als import AlternatingLeastSquares
    from implicit.bpr import BayesianPersonalizedRanking
    from scipy.sparse import csr_matrix

    def pairs(part: NDArray[np.bool_]) -> csr_matrix:
        where = np.asarray(board.corpus.user)[part], np.asarray(board.corpus.item)[part]
        return csr_matrix((np.ones(int(part.sum()), np.float32), where), shape=board.shape)

    train, known = pairs(board.split.part == 0), pairs(board.split.part != TEST)
    count = np.asarray(train.sum(0), np.float64).ravel()
    open_to = np.where(known.toarray() > 0, -np.inf, count)
    yield "popularity", np.argsort(-open_to, axis=1, kind="stable")[:, :PLACES], {}
    for name, kind, settings in (
        ("implicit ALS", AlternatingLeastSquares, ALS),
        ("implicit BPR", BayesianPersonalizedRanking, BPR),
    ):
        model = kind(**settings, random_state=0, num_threads=1)
        model.fit(train, show_progress=False)
        lists, _ = model.recommend(np.arange(board.shape[0]), known, N=PLACES, filter_already_liked_items=True)
        yield name, lists.astype(np.int64), {"settings": settings}


def with_model(board: Board, name: str, keep: Path | None) -> Iterator[Ranked]:
    """A model's ratings as they are, and as a part of what suits a person."""
    recommender = Recommender(name, seed=0, split_seed=board.seed, device="cpu")
    fitted = fit_corpus(board.corpus, board.split, recommender.text)
    stars = kept_ratings(keep and keep / f"{board.name}-{name}-{board.seed}.npy", recommender, fitted)
    shown = board.without_test(fitted)
    taste = Taste(shown, TextLikeness(shown))

    def described(system: str, scores: Any, **more: Any) -> Ranked:
        lists = lists_of(shown, stars, scores)
        predicted = float(np.take_along_axis(stars, lists, 1).clip(1, fitted.levels).mean())
        return system, lists, {"model": name, "predicted": predicted, **more}

    level = stars.mean(0)
    yield described(f"{name}, by rating", lambda some, rated: rated)
    yield described(f"{name}, by rating less the thing's level", lambda some, rated: rated - level)
    for diversity in (USUAL_DIVERSITY, *(DIVERSITIES if name == MOST_ACCURATE else ())):
        system = f"{name}, by taste" + ("" if diversity == USUAL_DIVERSITY else f", diversity {diversity:g}")
        yield described(system, partial(taste.scores, diversity=diversity), diversity=diversity)


def lists_of(fitted: FittedCorpus, stars: Floats, scores: Any) -> Lists:
    """Everybody's lists, as `carp recommend --all` makes them."""
    index = fitted.items.index()
    lists = np.full((len(fitted.users), PLACES), -1, np.int64)
    people = range(len(fitted.users))
    for user, found in rank_by_scores(fitted, lambda some: stars[np.asarray(some)], scores, people, PLACES):
        lists[user, : len(found)] = [index[one.item] for one in found]
    return lists


def kept_ratings(file: Path | None, recommender: Recommender, fitted: FittedCorpus) -> Floats:
    """Everybody's predicted ratings of everything, before they are clipped [users, items]."""
    if file is not None and file.exists():
        return np.asarray(np.load(file, allow_pickle=False), np.float64)
    data = fitted.training_data(recommender.fit_settings.target_reviews)
    model, _ = recommender.train_model(fitted, data)
    stars = all_ratings(model.eval(), fitted)
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        np.save(file, stars)
    return stars.astype(np.float64)


@torch.no_grad()
def all_ratings(model: RatingModel, fitted: FittedCorpus) -> NDArray[np.float32]:
    users, items, cpu = len(fitted.users), len(fitted.items), torch.device("cpu")
    count = users * items
    everyone, everything = np.repeat(np.arange(users), items), np.tile(np.arange(items), users)
    pairs = Pairs(everyone, everything, np.zeros(count, np.float32), np.full(count, -1))
    if model.separates:
        sides = (
            encode_documents(model.encode_users, fitted.user_documents, cpu),
            encode_documents(model.encode_items, fitted.item_documents, cpu),
        )
        rated = score_pairs(model, *sides, pairs)
    else:
        data = fitted.training_data()
        if model.needs == {"ids"}:  # nobody reads the documents of a million pairs
            data = replace(data, user_documents=emptied(users), item_documents=emptied(items))
        rated = torch.cat([model(batch).rating for batch in data.batches(pairs, 4_000)])
    return np.asarray(rated.numpy().reshape(users, items), np.float32)


def emptied(owners: int) -> Documents:
    """Documents without a word."""
    none = np.zeros(0, np.int32)
    return Documents(none, none, none.reshape(0, 2), np.zeros(owners + 1, np.int64))


if __name__ == "__main__":
    main()
