"""D-Attn: convolutional networks with a local and a global attention over the words of a document.

Seo, Huang, Yang, Liu: "Interpretable Convolutional Neural Networks with Dual Local and Global Attention for Review
Rating Prediction", RecSys 2017.

    paper            here               shape        meaning
    x_i              rows, slots        [V', d]      the embeddings of the words
    s_l(i)           local_attention    [B, L]       sigmoid(W_l ∗ (x_{i-(w-1)/2} … x_{i+(w-1)/2}) + b_l)
    Z_l              features           [B, L, n]    tanh(W (s_l(i) x_i) + b): a filter sees one word
    s_g(i)           global_attention   [B, L]       a score of each word that knows the whole document
    Z_g              features           [B, L, n]    tanh(W ∗ (s_g(j) x_j) + b): a filter sees 2, 3 or 4 words
    γ_u, γ_i         vectors            [B, k]       W₂ ReLU(W₁ (max Z_l, max Z_{g,2}, max Z_{g,3}, max Z_{g,4}))
    r̂                rating             [B]          μ + γ_u · γ_i

trained on the squared error, with dropout after the first dense layer.

Ours: how the global attention scores a word. A filter as long as the padded document has no meaning where documents
differ in length, so s_g(i) = sigmoid(w_g·x_i + c_g·x̄ + b_g) with x̄ the mean of the document's words.
The paper's rating is the dot product alone; μ, learned and started at the mean rating of training, spares it from
having to make the mean. The words are learned from scratch and shared by both sides, and start small, which
did better on validation and keeps the features where tanh is not flat. Windows end where a review ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from carp.models.base import NO_DIRECTION, Attention, Prediction, RatingModel, first_order_influence, shares
from carp.models.batch import Batch, Sizes, TrainingData
from carp.models.batch_share import drop_rows
from carp.models.divided_table import WordEmbedding, word_rows
from carp.models.layers import WindowSum, max_over_words

GLOBAL_WINDOWS = (2, 3, 4)
SIDES = ("local attention", "global attention")


@dataclass(frozen=True)
class DAttnConfig:
    dimension: int = 300  # d, of word embeddings; the paper has 100
    window: int = 5  # w, of the local attention
    filters: int = 50  # n, of each convolution; the paper has 200 and 100, CARP's comparison 50
    hidden: int = 500  # of the first dense layer
    latent_size: int = 50  # k, of γ_u and γ_i
    dropout: float = 0.5
    embedding_spread: float = 0.1  # of the words' start


class AttendedDocument(NamedTuple):
    """What a side takes from its documents."""

    pooled: Tensor  # [B, 4n], the n of the local attention first
    local_attention: Tensor  # [B, L]
    global_attention: Tensor


class DAttn(RatingModel):
    Config = DAttnConfig
    needs = frozenset({"documents"})
    explained_by = "attention"
    separates = True
    config: DAttnConfig

    def __init__(self, config: DAttnConfig, sizes: Sizes) -> None:
        super().__init__(config, sizes)
        self.embedding = WordEmbedding(sizes.words + 1, config.dimension, padding_idx=0)
        with torch.no_grad():
            self.embedding.weight.mul_(config.embedding_spread)
        self.user_side = DualAttention(config)
        self.item_side = DualAttention(config)
        self.mean = nn.Parameter(torch.zeros(()))  # μ

    @torch.no_grad()
    def start(self, data: TrainingData) -> None:
        self.mean.fill_(float(data.train.ratings.mean()))

    def encode_users(self, words: Tensor, reviews: Tensor) -> Tensor:
        vectors: Tensor = self.user_side(self.embedding.weight, words, reviews)  # γ_u, [B, k]
        return vectors

    def encode_items(self, words: Tensor, reviews: Tensor) -> Tensor:
        vectors: Tensor = self.item_side(self.embedding.weight, words, reviews)  # γ_i, [B, k]
        return vectors

    def score(self, users: Tensor, items: Tensor, user_sides: Tensor, item_sides: Tensor) -> Prediction:
        return Prediction(self.mean + (user_sides * item_sides).sum(-1))

    def explain(self, batch: Batch, prediction: Prediction) -> Attention:
        """s_l and s_g of both documents; each attention weighs what its features move the rating."""
        user = self.user_side.read(self.embedding.weight, batch.user_words, batch.user_reviews)
        item = self.item_side.read(self.embedding.weight, batch.item_words, batch.item_reviews)

        def rating(user_pooled: Tensor, item_pooled: Tensor) -> Tensor:
            sides = self.user_side.vector(user_pooled), self.item_side.vector(item_pooled)
            return self.score(batch.users, batch.items, *sides).rating

        user_pull, item_pull = (
            self._by_attention(pull) for pull in first_order_influence(rating, user.pooled, item.pooled)
        )
        return Attention(
            user_words=_both(user, batch.user_words > 0),
            item_words=_both(item, batch.item_words > 0),
            user_names=SIDES,
            item_names=SIDES,
            meaning=(
                "An attention lets some words through more than others; what it lets through is then read for the "
                "rating. " + NO_DIRECTION
            ),
            user_weights=user_pull,
            item_weights=item_pull,
        )

    def _by_attention(self, pull: Tensor) -> Tensor:
        """The share of the local and of the global attention [B, 2] in what the features [B, 4n] move."""
        n = self.config.filters
        both = torch.stack([pull[:, :n].sum(1), pull[:, n:].sum(1)], 1)
        return shares(both, torch.ones_like(both, dtype=torch.bool))


def _both(reading: AttendedDocument, there: Tensor) -> Tensor:
    """Both attentions as shares of the document's words. [B, L, 2]"""
    return shares(torch.stack([reading.local_attention, reading.global_attention], -1), there.unsqueeze(-1))


class DualAttention(nn.Module):
    """A document as a vector [B, k]; of an empty one, both attentions see nothing."""

    def __init__(self, config: DAttnConfig) -> None:
        super().__init__()
        d, n = config.dimension, config.filters
        self.dropout = config.dropout
        self.local_score = WindowSum(d, 1, config.window)  # W_l, b_l
        self.local_filters = WindowSum(d, n, 1)
        self.global_score = WindowSum(d, 1, 1)  # w_g, b_g
        self.document_score = nn.Parameter(torch.randn(d) * d**-0.5)  # c_g
        self.global_filters = nn.ModuleList(WindowSum(d, n, window) for window in GLOBAL_WINDOWS)
        self.hidden = nn.Linear(n * (1 + len(GLOBAL_WINDOWS)), config.hidden)  # W₁
        self.dense = nn.Linear(config.hidden, config.latent_size)  # W₂

    def forward(self, table: Tensor, words: Tensor, reviews: Tensor) -> Tensor:
        return self.vector(self.read(table, words, reviews).pooled)

    def read(self, table: Tensor, words: Tensor, reviews: Tensor) -> AttendedDocument:
        there = words > 0
        distinct, slots = torch.unique(words, return_inverse=True)
        rows = word_rows(table, distinct) * (distinct > 0).unsqueeze(-1)  # [V', d]
        local_attention, global_attention = self.attend(rows, slots, reviews, there)
        features = [self.local_filters(rows, slots, reviews, local_attention)]
        features += [filters(rows, slots, reviews, global_attention) for filters in self.global_filters]
        # tanh rises: the largest stays the largest
        pooled = torch.tanh(torch.cat([max_over_words(each, there) for each in features], -1))
        return AttendedDocument(pooled, local_attention, global_attention)

    def vector(self, pooled: Tensor) -> Tensor:
        """γ [B, k]."""
        hidden = drop_rows(F.relu(self.hidden(pooled)), self.dropout, self.training)
        vectors: Tensor = self.dense(hidden)
        return vectors

    def attend(self, rows: Tensor, slots: Tensor, reviews: Tensor, there: Tensor) -> tuple[Tensor, Tensor]:
        """s_l and s_g [B, L]."""
        of_words = F.embedding(slots, (rows @ self.document_score).unsqueeze(-1)).squeeze(-1)  # zero for padding
        of_document = of_words.sum(1, keepdim=True) / there.sum(1, keepdim=True).clamp_min(1)  # c_g·x̄
        local_attention = torch.sigmoid(self.local_score(rows, slots, reviews).squeeze(-1))
        global_attention = torch.sigmoid(self.global_score(rows, slots, reviews).squeeze(-1) + of_document)
        return local_attention, global_attention
