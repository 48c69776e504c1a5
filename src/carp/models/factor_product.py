"""The rating of models that add what they read to factors of ratings."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from carp.models.base import Prediction, RatingModel
from carp.models.batch import Sizes, TrainingData
from carp.models.batch_share import drop_rows
from carp.models.layers import start_at_biases, take_or, take_rows


class FactorProduct(RatingModel):
    """rating = w · ((q_u + t_u) ⊙ (p_i + t_i)) + b_u + b_i + μ, where t_u and t_i are what was read of both sides.

    Subclasses read documents in `encode_users` and `encode_items`; their Config has latent_size, dropout and biases.
    """

    needs = frozenset({"ids", "documents"})
    separates = True

    def __init__(self, config: Any, sizes: Sizes) -> None:
        super().__init__(config, sizes)
        k = config.latent_size
        self.user_factors = nn.Parameter(torch.randn(sizes.users, k) * 0.1)  # q_u
        self.item_factors = nn.Parameter(torch.randn(sizes.items, k) * 0.1)  # p_i
        self.product_weight = nn.Parameter(torch.ones(k))  # w
        self.mean = nn.Parameter(torch.zeros(()))  # μ
        self.user_bias = nn.Parameter(torch.zeros(sizes.users))  # b_u
        self.item_bias = nn.Parameter(torch.zeros(sizes.items))  # b_i

    def start(self, data: TrainingData) -> None:
        sides = (self.user_bias, self.item_bias) if self.config.biases == "tuned" else ()
        start_at_biases(data, self.sizes, self.mean, *sides)

    def score(self, users: Tensor, items: Tensor, user_sides: Tensor, item_sides: Tensor) -> Prediction:
        user, item = take_rows(self.user_factors, users) + user_sides, take_rows(self.item_factors, items) + item_sides
        met = drop_rows(user * item, self.config.dropout, self.training) @ self.product_weight
        biases = take_or(self.user_bias, users, 0.0) + take_or(self.item_bias, items, 0.0) + self.mean
        return Prediction(met + biases)


def quiet_dense(read: int, size: int) -> nn.Linear:
    """The layer from what was read to t, small at first, so that training starts at the biases."""
    layer = nn.Linear(read, size)
    nn.init.normal_(layer.weight, std=0.1 * read**-0.5)
    nn.init.zeros_(layer.bias)
    return layer
