"""Rating-only references: the global mean, and μ + b_u + b_i with both shrinkages chosen on validation.

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
