"""Trains small models, alone or as one of several processes, and writes down what came of it.

    python tests/twins/training_together.py FOLDER MODEL... (with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set)

Each model is trained from its beginning, and a checkpoint that lies in FOLDER/MODEL is gone on from. MODEL is trained
in double precision, and MODEL:single in single precision, for which there are kernels in C. MODEL:divided has its word
table divided among the processes, looks at validation, and writes down how many rows of the table each process holds.
MODEL:kept looks at validation too, and finds no later epoch better than the checkpoint's.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import json
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import torch

import carp.training.loop as loop
from carp.models import model_class
from carp.models.batch import TrainingData
from carp.recommender import Recommender
from carp.reviews.corpora.corpus import build_corpus
from carp.reviews.shop.made_up_shop import make_shop
from carp.reviews.sources.formats import read_reviews
from carp.reviews.split import split_corpus
from carp.storage import save_arrays
from carp.training.company import Company, joined
from carp.training.fitted_corpus import FittedCorpus, fit_corpus
from carp.training.loop import Silent, Watcher, train

SMALL: dict[str, Any] = {
    "dimension": 6, "filters": 5, "latent_size": 4, "viewpoints": 2, "factors": 3, "hidden": 6, "hidden_size": 5,
    "aspects": 2, "reviews": 4, "review_words": 8, "topic_passes": 2, "vocabulary_size": 60, "max_words": 25,
    "batch_size": 20, "min_reviews": 1, "learning_rate": 0.01, "heads": 2,
}  # fmt: skip
CPU = torch.device("cpu")
Found = tuple[list[float], dict[str, torch.Tensor]]


def recommender_of(name: str) -> Recommender:
    plain = Recommender("mean")
    known = {f.name for g in (plain.fit_settings, plain.text, plain.training) for f in dataclasses.fields(g)}
    known |= {f.name for f in dataclasses.fields(model_class(name).Config)}
    return Recommender(name, device="cpu", **{key: value for key, value in SMALL.items() if key in known})


def corpus_for(recommender: Recommender) -> tuple[FittedCorpus, TrainingData]:
    """41 training pairs: two batches of 20, and a last one of a single pair, which no two processes can divide."""
    shop = make_shop(people=9, things=7, reviews_per_person=6, seed=2)
    corpus = build_corpus(read_reviews(shop.frame()), min_reviews=1)
    fitted = fit_corpus(corpus, split_corpus(corpus, seed=0), recommender.text)
    data = fitted.training_data()
    assert len(data.train) == 2 * SMALL["batch_size"] + 1
    return fitted, data


class HeldRows(Silent):
    """Sees how many rows the largest tensor has that is as wide as a table, of all that this process holds."""

    def __init__(self, wide: int) -> None:
        self.wide, self.most = wide, 0

    def epoch_begins(self, epoch: int, batches: int) -> None:
        gc.collect()
        held = [one for one in gc.get_objects() if issubclass(type(one), torch.Tensor)]
        self.most = max([self.most, *(len(one) for one in held if one.ndim == 2 and one.shape[1] == self.wide)])


def trained(name: str, epochs: int, folder: Path | None = None, watcher: Watcher | None = None) -> Found:
    """Losses of each epoch, with errors on validation where they are looked at, and the weights."""
    name, _, way = name.partition(":")
    recommender = recommender_of(name)
    fitted, data = corpus_for(recommender)
    torch.manual_seed(3)
    model = recommender.kind(recommender.config, fitted.sizes).to(torch.float32 if way == "single" else torch.float64)
    settings = dataclasses.replace(recommender.training, epochs=epochs, patience=epochs)
    if (
        way == "divided"
    ):  # kernels know no decay, so one process takes the ordinary path as well: they drop other features
        settings = dataclasses.replace(settings, weight_decay=0.001)
    how: dict[str, Any] = {"exactly": None if way in {"divided", "kept"} else epochs}
    if way == "divided" and Company.present() is not None:
        how |= {"word_table": "divided", "watcher": watcher}
    none_better = mock.patch.object(loop._Run, "_is_best", return_value=False)
    with none_better if way == "kept" and Company.present() is not None else contextlib.nullcontext():
        reached = train(model, data, settings, seed=3, device=CPU, folder=folder, resume=folder is not None, **how)
    found = [record[what] for record in reached.history for what in ("loss", "valid_mse") if what in record]
    return found, model.state_dict()


def write_down(name: str, folder: Path, company: Company) -> None:
    held = HeldRows(SMALL["dimension"])
    losses, _ = trained(name, 3, watcher=held)
    (folder / f"{name}.{company.rank}.rows").write_text(str(held.most))
    _, weights = trained(name, 2, folder / name) if (folder / name).exists() else (None, {})
    save_arrays(folder / f"{name}.{company.rank}.safetensors", {key: value.numpy() for key, value in weights.items()})
    if company.leads:
        (folder / f"{name}.json").write_text(json.dumps(losses))


def main(folder: Path, names: list[str]) -> None:
    torch.set_num_threads(1)
    with joined(CPU):
        company = Company.present()
        assert company is not None
        for name in names:
            write_down(name, folder, company)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
