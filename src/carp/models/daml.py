"""DAML: two documents that attend to each other, and a neural factorisation of what was read and of the ratings.

Liu, Li, Du, Chang, Gao: "DAML: Dual Attention Mutual Learning between Ratings and Reviews for Item Recommendation",
KDD 2019.

    paper        here                    shape           meaning
    D_u, D_i     words                   [B, L]          documents as word numbers, x_j their embeddings
    s(j)         local_attention         [B, L]          how much a word says, by the words around it
    U, V         features                [B, L, n]       what the filters find in the weighed words
    A            relatedness             [B, Lu, Li]     how near a place of one document is to one of the other
    g_u, g_i     mutual_attention        [B, L]          how near a place is to the whole other document
    T_u, T_i     texts                   [B, k]          what was read of the person, of the thing
    p_u, p_i     user_factors, …         [users, k]      what the ratings say of them
    z            features                [B, 2k]         (T_u + p_u, T_i + p_i)
    v_m          factors                 [2k, f]         of the factorisation

    s(j)   = sigmoid(W_l ∗ (x_{j−2} … x_{j+2}) + b_l)
    U_j    = ReLU(W_c ∗ (s(j−1) x_{j−1} … s(j+1) x_{j+1}) + b_c)
    A_{jl} = 1 / (1 + ‖U_j − V_l‖),   g_u(j) = Σ_l A_{jl},   g_i(l) = Σ_j A_{jl}
    t_j    = Σ over the window of g(j) U_j,   h_j = ReLU(W_a ∗ (t_{j−1}, t_j, t_{j+1}) + b_a)
    T      = ReLU(W_t (mean over the words of h_j) + b_t)
    rating = w₀ + b_u + b_i + w·z + hᵀ ReLU(W_f Σ_{m<l} z_m v_m ⊙ z_l v_l + b_f)

trained on the squared error. Each side has filters and a dense layer of its own; the local attention is shared.

Ours: the words are learned from scratch and shared; g is the mean over the other document, so that how much somebody
wrote does not move the rating; windows end where a review ends; w₀, b_u and b_i start at the tuned biases
(`biases="zero"`: only w₀ does), the words and p small, so that texts are heard before each one's own numbers; dropout
is on what the factorisation's hidden layer reads, of which there is one; somebody unknown by number has zeros for p_u.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from carp.models.base import NO_DIRECTION, Attention, Prediction, RatingModel, shares
from carp.models.batch import Batch, Sizes, TrainingData
from carp.models.batch_share import drop_rows
from carp.models.divided_table import WordEmbedding, word_rows
from carp.models.layers import WindowSum, start_at_biases, take_or, take_rows

NEAREST = 1e-6  # added to squared distances: at two equal places the gradient exists


@dataclass(frozen=True)
class DamlConfig:
    dimension: int = 300  # of word embeddings
    attention_window: int = 5  # words by which the local attention judges one
    window: int = 3
    filters: int = 50  # n; the paper has 100, CARP's comparison 50
    latent_size: int = 32  # k
    factors: int = 16  # f, of the factorisation
    hidden_size: int = 32  # of the factorisation's hidden layer
    dropout: float = 0.5
    embedding_spread: float = 0.1  # of the words' start
    biases: Literal["zero", "tuned"] = "tuned"  # where b_u and b_i start


class LocalReading(NamedTuple):
    """A document before it has met the other."""

    features: Tensor  # U or V, [B, L, n], zeros where there is no word
    local_attention: Tensor  # s, [B, L]
    there: Tensor  # [B, L]


class MutualReader(nn.Module):
    """The convolutions of one side."""

    def __init__(self, config: DamlConfig) -> None:
        super().__init__()
        n = config.filters
        self.window = config.window
        self.filters = WindowSum(config.dimension, n, config.window)  # W_c, b_c
        self.abstracting = nn.Linear(config.window * n, n)  # W_a, b_a
        self.dense = nn.Linear(n, config.latent_size)  # W_t, b_t
        for layer in (self.abstracting, self.dense):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            nn.init.zeros_(layer.bias)

    def text(self, read: LocalReading, mutual_attention: Tensor, reviews: Tensor) -> Tensor:
        """T [B, k]."""
        weighed = mutual_attention.unsqueeze(-1) * read.features
        pooled = windows_of(weighed, reviews, self.window).sum(2)  # t_j
        around = windows_of(pooled * read.there.unsqueeze(-1), reviews, self.window)
        found = F.relu(self.abstracting(around.flatten(2))) * read.there.unsqueeze(-1)  # h_j
        mean = found.sum(1) / read.there.sum(1, keepdim=True).clamp_min(1)
        return F.relu(self.dense(mean))


class Daml(RatingModel):
    Config = DamlConfig
    needs = frozenset({"ids", "documents"})
    explained_by = "attention"
    config: DamlConfig

    def __init__(self, config: DamlConfig, sizes: Sizes) -> None:
        super().__init__(config, sizes)
        k = config.latent_size
        self.embedding = WordEmbedding(sizes.words + 1, config.dimension, padding_idx=0)
        with torch.no_grad():
            self.embedding.weight.mul_(config.embedding_spread)
        self.local_score = WindowSum(config.dimension, 1, config.attention_window)  # W_l, b_l
        self.user_reader = MutualReader(config)
        self.item_reader = MutualReader(config)
        self.user_factors = nn.Parameter(torch.randn(sizes.users, k) * 0.01)  # p_u
        self.item_factors = nn.Parameter(torch.randn(sizes.items, k) * 0.01)  # p_i
        self.linear = nn.Parameter(torch.zeros(2 * k))  # w
        self.factors = nn.Parameter(torch.randn(2 * k, config.factors) * 0.2)  # v_m
        self.hidden = nn.Linear(config.factors, config.hidden_size)  # W_f, b_f
        self.output = nn.Parameter(torch.randn(config.hidden_size) * 0.2)  # h
        self.mean = nn.Parameter(torch.zeros(()))  # w₀
        self.user_bias = nn.Parameter(torch.zeros(sizes.users))  # b_u
        self.item_bias = nn.Parameter(torch.zeros(sizes.items))  # b_i

    def start(self, data: TrainingData) -> None:
        sides = (self.user_bias, self.item_bias) if self.config.biases == "tuned" else ()
        start_at_biases(data, self.sizes, self.mean, *sides)

    def forward(self, batch: Batch) -> Prediction:
        user = self.read(self.user_reader, batch.user_words, batch.user_reviews)
        item = self.read(self.item_reader, batch.item_words, batch.item_reviews)
        user_mutual, item_mutual = mutual_attention(user, item)
        user_text = self.user_reader.text(user, user_mutual, batch.user_reviews)  # T_u
        item_text = self.item_reader.text(item, item_mutual, batch.item_reviews)  # T_i
        z = torch.cat(
            [
                user_text + take_rows(self.user_factors, batch.users),
                item_text + take_rows(self.item_factors, batch.items),
            ],
            -1,
        )
        biases = take_or(self.user_bias, batch.users, 0.0) + take_or(self.item_bias, batch.items, 0.0) + self.mean
        heard = {"user": user.local_attention * user_mutual, "item": item.local_attention * item_mutual}
        return Prediction(biases + self.factorise(z), heard)

    def read(self, reader: MutualReader, words: Tensor, reviews: Tensor) -> LocalReading:
        """s and U of documents."""
        there = words > 0
        distinct, slots = torch.unique(words, return_inverse=True)
        rows = word_rows(self.embedding.weight, distinct) * (distinct > 0).unsqueeze(-1)
        attention = torch.sigmoid(self.local_score(rows, slots, reviews).squeeze(-1))
        features = F.relu(reader.filters(rows, slots, reviews, attention)) * there.unsqueeze(-1)
        return LocalReading(features, attention, there)

    def factorise(self, z: Tensor) -> Tensor:
        """What z adds to the rating [B]: by itself, and by each two of its numbers together."""
        both = ((z @ self.factors).square() - z.square() @ self.factors.square()) / 2  # [B, f]
        hidden = F.relu(self.hidden(drop_rows(both, self.config.dropout, self.training)))
        return z @ self.linear + hidden @ self.output

    def explain(self, batch: Batch, prediction: Prediction) -> Attention:
        """s and g of both documents: what both attentions let through."""
        heard = prediction.tensors
        return Attention(
            user_words=shares(heard["user"], batch.user_words > 0).unsqueeze(-1),
            item_words=shares(heard["item"], batch.item_words > 0).unsqueeze(-1),
            user_names=("dual attention",),
            item_names=("dual attention",),
            meaning=(
                "A word is listened to as much as the words around it and the other text let it through; what comes "
                "through is then read for the rating. " + NO_DIRECTION
            ),
            window=self.config.window,
        )


def mutual_attention(user: LocalReading, item: LocalReading) -> tuple[Tensor, Tensor]:
    """g_u [B, Lu] and g_i [B, Li]; nothing is near a document without words."""
    squares = user.features.square().sum(-1).unsqueeze(2) + item.features.square().sum(-1).unsqueeze(1)
    squares = (squares - 2 * user.features @ item.features.mT).clamp_min(0)
    relatedness = 1 / (1 + (squares + NEAREST).sqrt())  # A, [B, Lu, Li]
    relatedness = relatedness * user.there.unsqueeze(2) * item.there.unsqueeze(1)
    of_user = relatedness.sum(2) / item.there.sum(1, keepdim=True).clamp_min(1)
    of_item = relatedness.sum(1) / user.there.sum(1, keepdim=True).clamp_min(1)
    return of_user, of_item


def windows_of(features: Tensor, reviews: Tensor, window: int) -> Tensor:
    """The features [B, L, n] of each place and of those around it, zeros for places of another review. [B, L, c, n]

    >>> features = torch.tensor([[[1.0], [2.0], [3.0]]])
    >>> windows_of(features, torch.tensor([[7, 7, 8]]), 3).squeeze(-1).tolist()
    [[[0.0, 1.0, 2.0], [1.0, 2.0, 0.0], [0.0, 3.0, 0.0]]]
    """
    before, width = window // 2, features.shape[1]
    around = (before, window - 1 - before)
    neighbours = F.pad(reviews, around, value=-1)
    padded = F.pad(features, (0, 0, *around))
    steps = [slice(step, step + width) for step in range(window)]
    return torch.stack([padded[:, at] * (neighbours[:, at] == reviews).unsqueeze(-1) for at in steps], 2)
