"""A model judged on its test pairs, beside the mean and the tuned biases."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from carp.evaluate.metrics import area_under_curve, errors
from carp.evaluate.significance import bootstrap_intervals
from carp.models.base import Prediction, RatingModel
from carp.models.batch import Pairs
from carp.models.carp import NEGATIVE, POSITIVE, Carp
from carp.models.layers import TunedBiases
from carp.models.predict import BLOCK_PAIRS, predict_pairs
from carp.reviews.split_parts import TRAIN
from carp.training.fitted_corpus import FittedCorpus

Sides = tuple[Tensor, Tensor]  # of all users, of all items


def evaluate_model(
    name: str,
    model: RatingModel,
    baseline: TunedBiases,
    fitted: FittedCorpus,
    sides: Sides | None,
    device: torch.device,
) -> dict[str, Any]:
    """Errors on the paper's scale, the same pairs for all three, with a paired interval of the difference."""
    test, data = fitted.test_pairs(), fitted.training_data()
    with torch.no_grad():
        biases = baseline(torch.from_numpy(test.users).to(device), torch.from_numpy(test.items).to(device))
    guesses = {
        name: predict_pairs(model, data, test, device),
        "mean": np.full(len(test), data.train.ratings.mean(dtype=np.float64)),
        "bias": biases.clamp(1, fitted.levels).cpu().numpy(),
    }
    rows = {name: errors(guess, test.ratings) for name, guess in guesses.items()}
    ours, theirs = (np.square(guesses[n] - test.ratings, dtype=np.float64) for n in (name, "bias"))
    low, high = bootstrap_intervals(ours - theirs)
    found: dict[str, Any] = {
        "model": name,
        "test_pairs": len(test),
        "split": fitted.facts["split"],
        "rows": rows,
        "ratio_to_bias": rows[name]["mse"] / rows["bias"]["mse"] if rows["bias"]["mse"] else None,
        "mse_minus_bias_interval": (float(low), float(high)),
        "shrinkage": {"user": float(baseline.shrinkage[0]), "item": float(baseline.shrinkage[1])},
    }
    if isinstance(model, Carp) and sides is not None:
        found["sentiment_auc"] = sentiment_auc(model, sides, test)
    return found


def sentiment_auc(model: Carp, sides: Sides, test: Pairs) -> float | None:
    """How well the two capsules' lengths tell liked test pairs from disliked ones."""
    lengths = torch.cat([scored.tensors["lengths"] for scored in scored_blocks(model, sides, test)]).cpu().numpy()
    return area_under_curve(lengths[:, POSITIVE] - lengths[:, NEGATIVE], test.ratings > model.liked_above)


def degree_scale(model: RatingModel, fitted: FittedCorpus, sides: Sides | None) -> list[float]:
    """The largest |r_s| over training pairs, by which the paper divides the degrees it shows."""
    if not isinstance(model, Carp) or sides is None:
        return [1.0, 1.0]
    largest = torch.zeros(2, device=sides[0].device)
    for scored in scored_blocks(model, sides, fitted.pairs(TRAIN)):
        largest = torch.maximum(largest, scored.tensors["degrees"].abs().amax(0))
    return [float(value) for value in largest]


@torch.no_grad()
def scored_blocks(model: RatingModel, sides: Sides, pairs: Pairs) -> Iterator[Prediction]:
    """Predictions of pairs from sides that are ready, a block at a time."""
    users, items = sides
    for start in range(0, len(pairs), BLOCK_PAIRS):
        u = torch.from_numpy(pairs.users[start : start + BLOCK_PAIRS]).to(users.device)
        i = torch.from_numpy(pairs.items[start : start + BLOCK_PAIRS]).to(users.device)
        yield model.score(u, i, users[u], items[i])
