"""A model judged on its test pairs, beside the mean and the tuned biases."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from carp.errors import UsageError
from carp.evaluate.metrics import area_under_curve, errors
from carp.evaluate.significance import bootstrap_intervals
from carp.models.base import RatingModel
from carp.models.batch import Pairs
from carp.models.predict import Sides, predict_pairs, score_blocks
from carp.training.fitted_model import FittedModel


def evaluate_model(fitted: FittedModel) -> dict[str, Any]:
    """Errors on the paper's scale from 1 to `levels`, on the same pairs, with a paired interval of the difference."""
    name, model, baseline, corpus = fitted.name, fitted.model, fitted.baseline, fitted.corpus
    test, data = corpus.test_pairs(), corpus.training_data()
    if not len(test):
        raise UsageError(
            "the model was fitted on all reviews: none was held out, so no test figure belongs to it",
            fix="train without --all-reviews on the same corpus and evaluate that model",
        )
    biases = fitted.biases_alone(test.users, test.items)
    guesses = {
        name: predict_pairs(model, data, test, fitted.device),
        "mean": np.full(len(test), data.train.ratings.mean(dtype=np.float64)),
        "bias": biases.cpu().numpy(),
    }
    rows = {name: errors(guess, test.ratings) for name, guess in guesses.items()}
    ours, theirs = (np.square(guesses[n] - test.ratings, dtype=np.float64) for n in (name, "bias"))
    low, high = bootstrap_intervals(ours - theirs)
    found: dict[str, Any] = {
        "model": name,
        "test_pairs": len(test),
        "split": corpus.facts["split"],
        "rows": rows,
        "rating_range": [corpus.scale.low, corpus.scale.high],
        "levels": corpus.levels,
        "ratio_to_bias": rows[name]["mse"] / rows["bias"]["mse"] if rows["bias"]["mse"] else None,
        "mse_minus_bias_interval": (float(low), float(high)),
        "shrinkage": {"user": float(baseline.shrinkage[0]), "item": float(baseline.shrinkage[1])},
    }
    if model.separates and type(model).sentiment is not RatingModel.sentiment:
        found["sentiment_auc"] = sentiment_auc(model, fitted.sides, test)
    return found


def sentiment_auc(model: RatingModel, sides: Sides, test: Pairs) -> float | None:
    """How well a model that tells liking from disliking tells liked test pairs from disliked ones."""
    found = [model.sentiment(scored) for scored in score_blocks(model, sides, test)]
    balance = torch.cat([one for one in found if one is not None]).cpu().numpy()
    return area_under_curve(balance, test.ratings > model.liked_above)
