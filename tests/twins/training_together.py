"""Trains small models, alone or as one of several processes, and writes down what came of it.

    python tests/twins/training_together.py FOLDER MODEL... (with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set)

Each model is trained from its beginning, and a checkpoint that lies in FOLDER/MODEL is gone on from. MODEL is trained
in double precision, and MODEL:single in single precision, for which there are kernels in C.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import torch

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
from carp.training.loop import train

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


def trained(name: str, epochs: int, folder: Path | None = None) -> Found:
    """Losses of each epoch, and the weights."""
    name, _, single = name.partition(":")
    recommender = recommender_of(name)
    fitted, data = corpus_for(recommender)
    torch.manual_seed(3)
    model = recommender.kind(recommender.config, fitted.sizes).to(torch.float32 if single else torch.float64)
    settings = dataclasses.replace(recommender.training, epochs=epochs, patience=epochs)
    reached = train(model, data, settings, seed=3, device=CPU, folder=folder, resume=folder is not None, exactly=epochs)
    return [record["loss"] for record in reached.history], model.state_dict()


def main(folder: Path, names: list[str]) -> None:
    torch.set_num_threads(1)
    with joined(CPU):
        company = Company.present()
        assert company is not None
        for name in names:
            losses, _ = trained(name, 3)
            _, weights = trained(name, 2, folder / name) if (folder / name).exists() else (None, {})
            if company.leads:
                (folder / f"{name}.json").write_text(json.dumps(losses))
                save_arrays(folder / f"{name}.safetensors", {key: value.numpy() for key, value in weights.items()})


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
