"""DeepCoNN: two cooperative convolutional networks, one over what a user wrote, one over what was written of an item.

Zheng, Noroozi, Yu: "Joint Deep Modeling of Users and Items Using Reviews for Recommendation", WSDM 2017.

    paper          here              shape         meaning
    V_{1:n}        table, words      [V + 1, d]    word embeddings, and a document as word numbers
    z_j            features          [B, L, n]     z_j = ReLU(V ∗ K_j + b_j), windows of t words
    o_j            pooled            [B, n]        o_j = max(z_j over the words)
    x_u, y_i       vectors           [B, k]        x = ReLU(W o + g)
    ẑ              features          [B, 2k]       (x_u, y_i)
    J              rating            [B]           ŵ₀ + Σ ŵ_m ẑ_m + Σ_{m<l} ⟨v̂_m, v̂_l⟩ ẑ_m ẑ_l

trained on the squared error.

Ours: the words are learned from scratch, as in CARP's comparison, and both networks share them; a window ends where
a review ends; ŵ₀ starts at the mean rating of training; dropout, which the paper puts on the dense layers without
saying how much, takes half of x_u and y_i; 8 factors in the factorisation machine, of which the paper says nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from carp.models.base import NO_DIRECTION, Attention, Prediction, RatingModel, first_order_influence, shares
from carp.models.batch import Batch, Sizes, TrainingData
from carp.models.batch_share import drop_rows
from carp.models.divided_table import WordEmbedding
from carp.models.layers import FactorizationMachine, WordConvolution, max_over_words


@dataclass(frozen=True)
class DeepConnConfig:
    dimension: int = 300  # d, of word embeddings
    window: int = 3  # t
    filters: int = 50  # n; the paper has 100, CARP's comparison 50
    latent_size: int = 50  # k, of x_u and y_i
    factors: int = 8  # of the factorisation machine
    dropout: float = 0.5


class DeepConn(RatingModel):
    Config = DeepConnConfig
    training_defaults: ClassVar[dict[str, Any]] = {"learning_rate": 0.002}
    needs = frozenset({"documents"})
    explained_by = "attention"
    separates = True
    config: DeepConnConfig

    def __init__(self, config: DeepConnConfig, sizes: Sizes) -> None:
        super().__init__(config, sizes)
        shape = config.dimension, config.window, config.filters, config.latent_size
        self.embedding = WordEmbedding(sizes.words + 1, config.dimension, padding_idx=0)
        self.user_side = TextNetwork(*shape, F.relu)
        self.item_side = TextNetwork(*shape, F.relu)
        self.machine = FactorizationMachine(2 * config.latent_size, config.factors)

    @torch.no_grad()
    def start(self, data: TrainingData) -> None:
        self.machine.mean.fill_(float(data.train.ratings.mean()))

    def encode_users(self, words: Tensor, reviews: Tensor) -> Tensor:
        return self._drop(self.user_side(self.embedding.weight, words, reviews))  # x_u, [B, k]

    def encode_items(self, words: Tensor, reviews: Tensor) -> Tensor:
        return self._drop(self.item_side(self.embedding.weight, words, reviews))  # y_i, [B, k]

    def score(self, users: Tensor, items: Tensor, user_sides: Tensor, item_sides: Tensor) -> Prediction:
        return Prediction(self.machine(torch.cat([user_sides, item_sides], -1)))

    def explain(self, batch: Batch, prediction: Prediction) -> Attention:
        return explain_pooled(self, self.user_side, self.item_side, self.embedding.weight, batch)

    def _drop(self, vectors: Tensor) -> Tensor:
        return drop_rows(vectors, self.config.dropout, self.training)


class TextNetwork(nn.Module):
    """Convolution, ReLU, max over the words, a dense layer: a text as a vector [B, k]. An empty text pools to zero."""

    def __init__(
        self, dimension: int, window: int, filters: int, size: int, activation: Callable[[Tensor], Tensor]
    ) -> None:
        super().__init__()
        self.convolution = WordConvolution(dimension, filters, window)  # K_j, b_j
        self.dense = nn.Linear(filters, size)  # W, g
        self.activation = activation

    def forward(self, table: Tensor, words: Tensor, reviews: Tensor) -> Tensor:
        features = self.convolution(table, words, reviews)  # [B, L, n]
        pooled = F.relu(max_over_words(features, words > 0))  # ReLU rises: the largest stays the largest
        return self.vector(pooled)

    def vector(self, pooled: Tensor) -> Tensor:
        return self.activation(self.dense(pooled))

    def read(self, table: Tensor, words: Tensor, reviews: Tensor) -> tuple[Tensor, Tensor]:
        """What was pooled [B, n], and at which word each feature was largest [B, n]."""
        features = self.convolution(table, words, reviews)
        there = (words > 0).unsqueeze(-1)
        place = features.masked_fill(~there, torch.finfo(features.dtype).min).argmax(1)
        return F.relu(max_over_words(features, words > 0)), place


def explain_pooled(
    model: RatingModel, user_side: TextNetwork, item_side: TextNetwork, table: Tensor, batch: Batch
) -> Attention:
    """Of each feature the max over the words keeps one window: its middle word gets what the feature moves the rating.

    A feature that is zero moves nothing; where all are, no word is heard more than another.
    """
    user, user_place = user_side.read(table, batch.user_words, batch.user_reviews)
    item, item_place = item_side.read(table, batch.item_words, batch.item_reviews)

    def rating(user_pooled: Tensor, item_pooled: Tensor) -> Tensor:
        sides = user_side.vector(user_pooled), item_side.vector(item_pooled)
        return model.score(batch.users, batch.items, *sides).rating

    user_pull, item_pull = first_order_influence(rating, user, item)
    return Attention(
        user_words=_at_words(user_pull, user_place, batch.user_words > 0),
        item_words=_at_words(item_pull, item_place, batch.item_words > 0),
        user_names=("strongest words",),
        item_names=("strongest words",),
        meaning=(
            "Each filter keeps the one place of a text where it is strongest; a word is listened to as much as what "
            "was kept there moves the rating. " + NO_DIRECTION
        ),
        window=user_side.convolution.window,
    )


def _at_words(pull: Tensor, place: Tensor, there: Tensor) -> Tensor:
    """What each feature moves [B, n], as shares of the words it was found at. [B, L, 1]"""
    amounts = pull.new_zeros(there.shape).scatter_add(1, place, pull)
    return shares(amounts, there).unsqueeze(-1)
