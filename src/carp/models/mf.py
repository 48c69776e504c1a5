"""Biased matrix factorisation: ratings only.

Koren, Bell, Volinsky: "Matrix Factorization Techniques for Recommender Systems", IEEE Computer 42 (8), 2009.

    r̂_ui = μ + b_u + b_i + p_u · q_i

    minimise Σ_(u,i) (r_ui − r̂_ui)² + λ (‖p_u‖² + ‖q_i‖²) + λ_u Σ_u b_u² + λ_i Σ_i b_i²

    paper      here                         shape
    μ          biases.mean                  []
    b_u, b_i   user_bias, item_bias         [users], [items]
    p_u, q_i   user_factors, item_factors   [users, k], [items, k]
    λ          penalty                      of the factors, once a rating: who rates more is held more

Ours: the biases start where `bias` ends, with the two shrinkages λ_u, λ_i it chose on validation, and keep those
penalties (the biases' objective is the same to the letter, so factors of zero give `bias` back). The paper gives one
λ to biases and factors alike; with that, biased matrix factorisation loses to the biases alone on small corpora.
Somebody unknown has no bias and factors of zero.

The paper's own form is `biases=learned`: they start at zero and are held once a rating, as the factors are,

    minimise Σ_(u,i) (r_ui − r̂_ui)² + λ (‖p_u‖² + ‖q_i‖²) + λ_b (b_u² + b_i²)

with λ_b the `bias_penalty` (the paper's λ_b is λ).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from carp.models.base import Prediction, RatingModel
from carp.models.batch import Batch, Sizes, TrainingData
from carp.models.layers import TunedBiases, take_rows


@dataclass(frozen=True)
class MfConfig:
    latent_size: int = 25  # k
    penalty: float = 0.3  # λ
    spread: float = 0.1  # of a fresh p_u · q_i, whatever the latent size
    biases: Literal["tuned", "learned"] = "tuned"  # from those of `bias` and held like them, or from zero
    bias_penalty: float = 0.1  # λ_b, of learned biases


class Mf(RatingModel):
    Config = MfConfig
    training_defaults: ClassVar[Mapping[str, Any]] = {"epochs": 60}
    searched: ClassVar[tuple[str, ...]] = ("latent_size", "penalty")
    config: MfConfig

    def __init__(self, config: MfConfig, sizes: Sizes) -> None:
        super().__init__(config, sizes)
        k = config.latent_size
        spread = (config.spread / k**0.5) ** 0.5  # so that p_u · q_i, a sum of k products, spreads as configured
        self.biases = TunedBiases(sizes)
        self.user_bias = nn.Parameter(torch.zeros(sizes.users))
        self.item_bias = nn.Parameter(torch.zeros(sizes.items))
        self.user_factors = nn.Parameter(torch.randn(sizes.users, k) * spread)
        self.item_factors = nn.Parameter(torch.randn(sizes.items, k) * spread)

    def start(self, data: TrainingData) -> None:
        self.biases.fit(data.train, data.valid, self.sizes.levels)
        if self.config.biases == "learned":
            return  # the mean is all that is taken
        with torch.no_grad():
            self.user_bias.copy_(self.biases.user)
            self.item_bias.copy_(self.biases.item)

    def forward(self, batch: Batch) -> Prediction:
        p, q = self.factors(batch)
        interaction = (p * q).sum(-1)
        user_bias, item_bias = self._biases(batch)
        return Prediction(self.biases.mean + user_bias + item_bias + interaction, {"interaction": interaction})

    def _biases(self, batch: Batch) -> tuple[Tensor, Tensor]:
        user = take_rows(self.user_bias.unsqueeze(-1), batch.users)
        return user.squeeze(-1), take_rows(self.item_bias.unsqueeze(-1), batch.items).squeeze(-1)

    def loss(self, batch: Batch, prediction: Prediction) -> Tensor:
        p, q = self.factors(batch)
        held = p.square().sum(-1) + q.square().sum(-1)
        return (self.rating_losses(batch, prediction) + self.config.penalty * held).mean()

    def factors(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """p_u and q_i of each pair [B, k]."""
        return take_rows(self.user_factors, batch.users), take_rows(self.item_factors, batch.items)

    def rating_losses(self, batch: Batch, prediction: Prediction) -> Tensor:
        """What is minimised for each pair, apart from what holds the factors [B]."""
        assert batch.ratings is not None
        return (prediction.rating - batch.ratings).square() + self._bias_penalty(batch)

    def _bias_penalty(self, batch: Batch) -> Tensor:
        user_bias, item_bias = self._biases(batch)
        if self.config.biases == "learned":
            return self.config.bias_penalty * (user_bias.square() + item_bias.square())
        # A bias's penalty is spread over its ratings, so that an epoch adds it up to λ_u b_u².
        user_shrinkage, item_shrinkage = self.biases.shrinkage
        user_share = user_shrinkage / (self.biases.user_weight[batch.users] - user_shrinkage)
        item_share = item_shrinkage / (self.biases.item_weight[batch.items] - item_shrinkage)
        tuned: Tensor = user_share * user_bias.square() + item_share * item_bias.square()
        return tuned
