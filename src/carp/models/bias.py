"""Rating-only references: the global mean, and the mean with a bias for each user and each item.

Koren: "Factorization Meets the Neighborhood: a Multifaceted Collaborative Filtering Model", KDD 2008, section 2.1.

    mean:  r̂_ui = μ                  μ the average of the training ratings
    bias:  r̂_ui = μ + b_u + b_i

    minimise Σ_(u,i) (r_ui − μ − b_u − b_i)² + λ_u Σ_u b_u² + λ_i Σ_i b_i²

    paper      here                      shape
    μ          mean, biases.mean         []
    b_u, b_i   biases.user, biases.item  [users], [items]
    λ          biases.shrinkage          λ_u and λ_i

Ours: the paper has one λ for users and items alike; here each side has its own, and the two with the smallest
validation error are taken. The least squares are solved exactly for one side with the other held fast, in turns.
Somebody unknown has no bias. Neither model learns in epochs: no training setting concerns them.

Every honest table needs them: they cost nothing, and published review models have lost to them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from carp.models.base import Prediction, RatingModel
from carp.models.batch import Batch, Sizes, TrainingData
from carp.models.layers import TunedBiases


@dataclass(frozen=True)
class NoConfig:
    """Nothing to set."""


class Mean(RatingModel):
    """Everybody gives everything the average rating of training."""

    Config = NoConfig
    learns = False
    mean: Tensor

    def __init__(self, config: NoConfig, sizes: Sizes) -> None:
        super().__init__(config, sizes)
        self.register_buffer("mean", torch.zeros(()))

    def start(self, data: TrainingData) -> None:
        self.mean.fill_(float(data.train.ratings.mean()))

    def forward(self, batch: Batch) -> Prediction:
        return Prediction(self.mean.expand(len(batch)))


class Bias(RatingModel):
    """μ + b_u + b_i; somebody unknown has no bias."""

    Config = NoConfig
    learns = False

    def __init__(self, config: NoConfig, sizes: Sizes) -> None:
        super().__init__(config, sizes)
        self.biases = TunedBiases(sizes)

    def start(self, data: TrainingData) -> None:
        self.biases.fit(data.train, data.valid, self.sizes.levels)

    def forward(self, batch: Batch) -> Prediction:
        return Prediction(self.biases(batch.users, batch.items))
