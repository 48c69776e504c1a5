"""ANR: an aspect-based neural recommender.

Chin, Zhao, Joty, Cong: "ANR: Aspect-based Neural Recommender", CIKM 2018.

    paper            here                  shape            meaning
    D_u, D_i         words                 [B, L]           documents as word numbers
    e_j              table                 [V + 1, d]       word embeddings
    W_a              projection            [K, d, h1]       what a word says of aspect a
    v_a              queries               [K, c, h1]       which windows of words are about aspect a
    attn_{a,j}       attention             [B, L, K]        how much of the aspect is this word
    p_{u,a}, q_{i,a} aspects               [B, K, h1]       a person's (a thing's) aspects
    S                affinity              [B, K, K]        which of the two sides' aspects go together
    β_{u,a}, β_{i,a} importance            [B, K]           how much an aspect counts for this pair
    K, c, h1, h2     aspects, window, latent_size, hidden_size

    z_{a,j}    = W_aᵀ e_j
    attn_{a,j} = softmax over the words of v_a · (z_{a,j−1}; z_{a,j}; z_{a,j+1})
    p_{u,a}    = Σ_j attn_{a,j} z_{a,j}
    S   = relu(P W_s Qᵀ)
    H_u = relu(P W_x + S (Q W_y)),   β_u = softmax over the aspects of H_u v_x
    H_i = relu(Q W_y + Sᵀ (P W_x)),  β_i = softmax over the aspects of H_i v_y
    rating = Σ_a β_{u,a} β_{i,a} (p_{u,a} · q_{i,a}) + b_u + b_i + b_0

Users and items share W_a and v_a, as in the paper.

How it is computed: v_a meets a word only through W_a v_a, so a distinct word is scored once by K·c numbers; and
since W_a does not depend on the place, words are mixed first and projected after: p_{u,a} = W_aᵀ Σ_j attn_{a,j} e_j.
Both are the equations above in another order.

Ours: b_0 starts at the mean rating and b_u, b_i at the tuned biases, which are most of what a rating is; in the paper's
own form, `biases=zero`, they start at zero. The other weights start at a scale that keeps p·q alive from the first
step, where the paper trains a simpler network first and takes its weights over; a window does not reach into another
review; no penalty on the biases.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from carp.models.base import NO_DIRECTION, Attention, Prediction, RatingModel
from carp.models.batch import Batch, Sizes, TrainingData
from carp.models.batch_share import drop_rows
from carp.models.divided_table import WordEmbedding, word_rows
from carp.models.layers import masked_softmax, start_at_biases, take_or


@dataclass(frozen=True)
class AnrConfig:
    dimension: int = 300  # d, of word embeddings
    aspects: int = 5  # K
    window: int = 3  # c
    latent_size: int = 10  # h1, of an aspect
    hidden_size: int = 50  # h2, of the importances' hidden layer
    dropout: float = 0.5  # of the aspects, where they make the rating
    biases: Literal["zero", "tuned"] = "tuned"  # where b_u and b_i start


class AspectReading(NamedTuple):
    """What a side takes from its documents."""

    aspects: Tensor  # [B, K, h1]
    attention: Tensor  # [B, L, K] that made them


class Anr(RatingModel):
    Config = AnrConfig
    needs = frozenset({"ids", "documents"})
    explained_by = "attention"
    separates = True
    config: AnrConfig

    def __init__(self, config: AnrConfig, sizes: Sizes) -> None:
        super().__init__(config, sizes)
        d, k, h1, h2 = config.dimension, config.aspects, config.latent_size, config.hidden_size
        self.embedding = WordEmbedding(sizes.words + 1, d, padding_idx=0)
        self.projection = nn.Parameter(torch.randn(k, d, h1) * d**-0.5)  # W_a
        self.queries = nn.Parameter(torch.randn(k, config.window, h1) * (config.window * h1) ** -0.5)  # v_a
        self.affinity = nn.Parameter(torch.randn(h1, h1) * h1**-0.5)  # W_s
        self.user_hidden = nn.Parameter(torch.randn(h1, h2) * h1**-0.5)  # W_x
        self.item_hidden = nn.Parameter(torch.randn(h1, h2) * h1**-0.5)  # W_y
        self.user_importance = nn.Parameter(torch.randn(h2) * h2**-0.5)  # v_x
        self.item_importance = nn.Parameter(torch.randn(h2) * h2**-0.5)  # v_y
        self.mean = nn.Parameter(torch.zeros(()))  # b_0
        self.user_bias = nn.Parameter(torch.zeros(sizes.users))  # b_u
        self.item_bias = nn.Parameter(torch.zeros(sizes.items))  # b_i

    def start(self, data: TrainingData) -> None:
        sides = (self.user_bias, self.item_bias) if self.config.biases == "tuned" else ()
        start_at_biases(data, self.sizes, self.mean, *sides)

    def encode_users(self, words: Tensor, reviews: Tensor) -> Tensor:
        return self.read(words, reviews).aspects

    def encode_items(self, words: Tensor, reviews: Tensor) -> Tensor:
        return self.read(words, reviews).aspects

    def read(self, words: Tensor, reviews: Tensor) -> AspectReading:
        distinct, slots = torch.unique(words, return_inverse=True)
        embedded = word_rows(self.embedding.weight, distinct)  # [V', d]
        asked = torch.einsum("kdh,kch->cdk", self.projection, self.queries)  # W_a v_a, for each place of a window
        scores = self._scores(embedded @ asked, slots, reviews)  # [B, L, K]
        attention = masked_softmax(scores, (words > 0).unsqueeze(-1), dim=1)  # attn_{a,j}
        mixed = attention.transpose(1, 2) @ F.embedding(slots, embedded)  # [B, K, d]
        return AspectReading(torch.einsum("bkd,kdh->bkh", mixed, self.projection), attention)

    def _scores(self, slices: Tensor, slots: Tensor, reviews: Tensor) -> Tensor:
        """The sum of what each neighbour in the window [c, V', K] says, at every place [B, L, K]."""
        window, nowhere, _ = slices.shape
        slices = F.pad(slices, (0, 0, 0, 1))  # a row of zeros for neighbours that are not there
        half, width = window // 2, slots.shape[1]
        slots = F.pad(slots, (half, half), value=nowhere)
        neighbours = F.pad(reviews, (half, half), value=-1)
        scores = slices.new_zeros(*reviews.shape, slices.shape[2])
        for step in range(window):
            same = neighbours[:, step : step + width] == reviews
            places = torch.where(same, slots[:, step : step + width], nowhere)
            scores = scores + F.embedding(places, slices[step])
        return scores

    def score(self, users: Tensor, items: Tensor, user_sides: Tensor, item_sides: Tensor) -> Prediction:
        """From the aspects of both [B, K, h1] to ratings."""
        user_importance, item_importance = self.importances(user_sides, item_sides)
        p, q = (drop_rows(side, self.config.dropout, self.training) for side in (user_sides, item_sides))
        rating_of_aspect = user_importance * item_importance * (p * q).sum(-1)  # [B, K]
        b_u, b_i = take_or(self.user_bias, users, 0.0), take_or(self.item_bias, items, 0.0)
        rating = rating_of_aspect.sum(-1) + b_u + b_i + self.mean
        shown = {"user_importance": user_importance, "item_importance": item_importance}
        return Prediction(rating, {**shown, "rating_of_aspect": rating_of_aspect})

    def explain(self, batch: Batch, prediction: Prediction) -> Attention:
        """attn of both documents; an aspect weighs its importance for the pair."""
        names = tuple(f"aspect {a + 1}" for a in range(self.config.aspects))
        return Attention(
            user_words=self.read(batch.user_words, batch.user_reviews).attention,
            item_words=self.read(batch.item_words, batch.item_reviews).attention,
            user_names=names,
            item_names=names,
            meaning=(
                "An aspect is made of the words it attends to, and counts as much as its importance says. "
                + NO_DIRECTION
            ),
            user_weights=prediction.tensors["user_importance"],
            item_weights=prediction.tensors["item_importance"],
            window=self.config.window,
            same_aspects=True,
        )

    def importances(self, p: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
        """β_u and β_i [B, K]: each side's aspects weighed in sight of the other's."""
        affinity = F.relu(p @ self.affinity @ q.transpose(1, 2))  # S, [B, K, K]
        user, item = p @ self.user_hidden, q @ self.item_hidden  # [B, K, h2]
        user_hidden = F.relu(user + affinity @ item)  # H_u
        item_hidden = F.relu(item + affinity.transpose(1, 2) @ user)  # H_i
        return (user_hidden @ self.user_importance).softmax(-1), (item_hidden @ self.item_importance).softmax(-1)
