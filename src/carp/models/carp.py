"""CARP: a capsule network for rating prediction that says what you like and dislike.

Li, Quan, Peng, Qi, Deng, Wu: "A Capsule Network for Recommendation and Explaining What You Like and Dislike",
SIGIR 2019. Equation numbers below are the paper's, in the paper's order.

    paper          here                       shape             meaning
    D_u, D_i       words                      [B, L]            documents as word numbers
    e_j            table                      [V + 1, d]        word embeddings
    c_j            features                   [B, L, n]         context of a word
    q_x            queries                    [M, n]            what a viewpoint is about, for all users
    s_{u,x,j}      gated                      [T, M, n]         the part of a context a viewpoint listens to
    p_{u,x,j}      contextual                 [B, L, M, k]      the same, projected
    attn_{u,x,j}   attention                  [B, L, M]         how much of the viewpoint is this word
    v_{u,x}        viewpoints                 [B, M, k]         a person's viewpoints
    a_{i,y}        aspects                    [B, M, k]         a thing's aspects
    g_{x,y}        logic_units                [B, M, M, 2k]     a viewpoint that meets an aspect
    t_{s,x,y}      votes                      [B, 2, M·M, k]    what a logic unit tells a capsule
    c_{s,x,y}      coupling                   [B, 2, M·M]       how much a capsule listens to it
    o_{s,u,i}      capsules                   [B, 2, k]         the sentiment; its length is its probability
    r_{s,u,i}      degrees                    [B, 2]            to what extent
    C, π, ε, λ, τ  levels, liked_above, margin, rating_weight, routing_iterations

Sentiment 0 is positive, 1 negative.

Where the paper is silent, or its released code does something else, there is an option in CarpConfig. Two things in
the paper's form are not the paper's: a window ends with its review (`across_reviews`), where the paper slides it over
the whole document, and b_{s,3} starts at 3 for the positive capsule and at 1 for the negative one, of which the paper
says nothing. In training, the review whose rating is fitted is left out (`target_reviews`). The defaults are the
paper's; `variant="released"` is the released code's set; `variant="calibrated"` is ours: tuned biases as an input,
each training pair's without its own rating, a squared hinge and more dropout, so that the capsules learn what the
biases cannot know.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from carp.models.base import Prediction, RatingModel
from carp.models.batch import Batch, Sizes, TrainingData
from carp.models.batch_share import drop_rows
from carp.models.divided_table import WordEmbedding
from carp.models.layers import TunedBiases, WordConvolution, masked_softmax, squash, take_or

POSITIVE, NEGATIVE = 0, 1


@dataclass(frozen=True)
class CarpConfig:
    """The paper's values; below the line, one option for every point the paper leaves open."""

    variant: Literal["paper", "released", "calibrated"] = "paper"
    dimension: int = 300  # d, of word embeddings
    window: int = 3  # c
    filters: int = 50  # n
    latent_size: int = 25  # k
    viewpoints: int = 5  # M, and as many aspects
    routing: Literal["bi-agreement", "agreement"] = "bi-agreement"  # "agreement" is CARP-RA
    routing_iterations: int = 3  # τ
    liked_above: float | None = None  # π; the middle of the rating range if not given: 3 of 5
    margin: float = 0.8  # ε
    rating_weight: float = 0.5  # λ
    mutual_exclusion: bool = True  # Equation 13 instead of 12
    dropout: float = 0.1  # the paper keeps 0.9, and does not say of what
    # ---- what the paper leaves open
    dropout_on: Literal["features", "weights"] = "features"
    across_reviews: bool = False  # may a window reach into the neighbouring review?
    projection: Literal["shared", "per viewpoint"] = "shared"
    attention: Literal["softmax", "routed"] = "softmax"
    attention_scale: float = 1.0  # multiplies pᵀv before the softmax; above 1, fewer words share the attention
    padding_attends: bool = False
    logic_unit: Literal["difference first", "product first", "appended"] = "difference first"
    capsule_bias: bool = False  # a learned bias, 0.1 at first, before the squash
    routing_gradient: Literal["all", "last"] = "all"  # through every iteration, or the last alone
    routing_epsilon: float = 0.0  # under the root and in the normalisation
    highway: Literal["paper", "reversed"] = "paper"
    hinge: Literal["linear", "squared"] = "linear"
    opposite_weight: float = 1.0  # of the second term of Equation 13
    biases: Literal["learned", "tuned", "leave-one-out"] = "learned"
    bias_spread: float = 0.0  # of the learned biases' start
    embedding_start: Literal["normal", "uniform"] = "normal"
    filter_spread: float | None = None  # of the convolution's start; 1/√(c·d) if not given
    filter_bias: float = 0.0


RELEASED: dict[str, Any] = {
    "dropout_on": "weights",
    "across_reviews": True,
    "projection": "per viewpoint",
    "attention": "routed",
    "padding_attends": True,
    "logic_unit": "product first",
    "capsule_bias": True,
    "routing_gradient": "last",
    "routing_epsilon": 1e-9,
    "highway": "reversed",
    "hinge": "squared",
    "opposite_weight": 0.8,
    "bias_spread": 0.02,
    "embedding_start": "uniform",
    "filter_spread": 0.3,
    "filter_bias": 0.1,
}
RELEASED_TRAINING: dict[str, Any] = {
    "optimizer_epsilon": 1e-10,
    "epochs": 150,
    "patience": 150,  # it never stops early; what is kept is still the epoch that is best on validation
    "target_reviews": "keep",
}
CALIBRATED: dict[str, Any] = {"hinge": "squared", "biases": "leave-one-out", "dropout": 0.3}


class DocumentReading(NamedTuple):
    """What a side takes from its documents."""

    viewpoints: Tensor  # [B, M, k]
    attention: Tensor  # [B, L, M] that made them
    contextual: Tensor  # [B, L, M, k] of what


class Viewpoints(nn.Module):
    """Viewpoints of users from their documents; the same, with its own parameters, gives aspects of items."""

    def __init__(self, config: CarpConfig, sizes: Sizes, number: int = 0) -> None:
        super().__init__()
        self.config = config
        self.number = number  # 0 for users, 1 for items
        self.max_words = sizes.max_words
        n, m = config.filters, config.viewpoints
        self.convolution = WordConvolution(config.dimension, n, config.window, across_reviews=config.across_reviews)
        nn.init.constant_(self.convolution.bias, config.filter_bias)
        if config.filter_spread is not None:
            nn.init.trunc_normal_(self.convolution.weight, std=config.filter_spread, a=-0.6, b=0.6)
        self.gate_context = nn.Parameter(torch.randn(m, n, n) * n**-0.5)  # W_{x,1}
        self.gate_query = nn.Parameter(torch.randn(m, n, n) * n**-0.5)  # W_{x,2}
        self.gate_bias = nn.Parameter(torch.zeros(m, n))  # b_x
        self.queries = nn.Parameter(torch.randn(m, n))  # q_x
        if config.projection == "shared":
            self.projection = nn.Parameter(torch.randn(config.latent_size, n) * n**-0.5)  # W_p
        else:
            self.projection = nn.Parameter(torch.randn(m, n, n) * n**-0.5)
        if config.attention == "routed":
            self.attention_bias = nn.Parameter(torch.full((m, side_size(config)), 0.1))

    def forward(self, table: Tensor, words: Tensor, reviews: Tensor) -> DocumentReading:
        width = words.shape[1]
        if self.config.padding_attends:
            words = F.pad(words, (0, self.max_words - width))
            reviews = F.pad(reviews, (0, self.max_words - width), value=-1)
        there = words > 0 if not self.config.padding_attends else torch.ones_like(words, dtype=torch.bool)

        dropout = self.config.dropout if self.config.dropout_on == "weights" else 0.0
        features = F.relu(self.convolution(table, words, reviews, dropout))  # c_j, [B, L, n]
        features = self.drop_features(features)
        filled = there.flatten().nonzero().squeeze(1)  # only words that are there are worth the arithmetic
        contextual = self._gate_and_project(features.flatten(0, 1)[filled])  # [T, M, k]
        empty = contextual.new_zeros(there.numel(), *contextual.shape[1:])
        contextual = empty.index_copy(0, filled, contextual).view(
            *there.shape, *contextual.shape[1:]
        )  # p_{u,x,j}, [B, L, M, k]
        viewpoints, attention = self._attend(contextual, there)
        return DocumentReading(viewpoints, attention[:, :width], contextual[:, :width])

    def _gate_and_project(self, context: Tensor) -> Tensor:
        """Equation 1 and the projection, for words one after another [T, n]."""
        w1, w2 = self.drop(self.gate_context, "weights"), self.drop(self.gate_query, "weights")
        query = torch.einsum("xmn,xn->xm", w2, self.queries) + self.gate_bias  # [M, n]
        gate = torch.sigmoid((context @ w1.flatten(0, 1).T).view(-1, *query.shape) + query)
        gated = context.unsqueeze(1) * gate  # s_{u,x,j} (1), [T, M, n]
        if self.config.projection == "shared":
            return gated @ self.projection.T  # p_{u,x,j} = W_p s_{u,x,j}
        return torch.einsum("txn,xkn->txk", gated, self.projection)

    def _attend(self, contextual: Tensor, there: Tensor) -> tuple[Tensor, Tensor]:
        """Equation 2: the mean of the words asks each of them; their weighted sum is the viewpoint."""
        length = there.sum(1).clamp_min(1)[:, None, None]
        if self.config.attention == "softmax":
            rudiment = contextual.sum(1) / length  # [B, M, k]
        else:
            rudiment = squash(contextual.detach().sum(1) / length + self.attention_bias)
        scores = (contextual * rudiment.unsqueeze(1)).sum(-1)  # pᵀv, [B, L, M]
        attention = masked_softmax(self.config.attention_scale * scores, there.unsqueeze(-1), dim=1)
        viewpoints = (attention.unsqueeze(-1) * contextual).sum(1)  # v_{u,x} (2)
        if self.config.attention == "routed":
            viewpoints = squash(viewpoints + self.attention_bias)
        return viewpoints, attention

    def drop(self, tensor: Tensor, what: str) -> Tensor:
        return F.dropout(tensor, self.config.dropout, self.training) if self.config.dropout_on == what else tensor

    def drop_features(self, features: Tensor) -> Tensor:
        """Dropout of the features [B, L, n]; a process that trains with others takes it as one process would."""
        if self.config.dropout_on != "features" or not self.training:
            return features
        return drop_rows(features, self.config.dropout, self.training)


class Carp(RatingModel):
    Config = CarpConfig
    presets: ClassVar[dict[str, dict[str, Any]]] = {"paper": {}, "released": RELEASED, "calibrated": CALIBRATED}
    training_presets: ClassVar[dict[str, dict[str, Any]]] = {"released": RELEASED_TRAINING}
    needs = frozenset({"ids", "documents"})
    separates = True
    explained_by = "capsules"
    config: CarpConfig

    def __init__(self, config: CarpConfig, sizes: Sizes) -> None:
        super().__init__(config, sizes)
        k, m = config.latent_size, config.viewpoints
        self.embedding = WordEmbedding(sizes.words + 1, config.dimension, padding_idx=0)
        if config.embedding_start == "uniform":
            nn.init.uniform_(self.embedding.weight[1:])
        self.user_side = Viewpoints(config, sizes)
        self.item_side = Viewpoints(config, sizes, 1)
        g = logic_unit_parts(config) * side_size(config)
        self.vote_weight = nn.Parameter(torch.randn(2, m * m, g, k) * g**-0.5)  # W_{s,x,y}
        self.capsule_bias = nn.Parameter(torch.full((2, k), 0.1)) if config.capsule_bias else None
        self.highway_gate = nn.Parameter(torch.randn(2, k, k) * k**-0.5)  # H_{s,1}
        self.highway_gate_bias = nn.Parameter(torch.zeros(2, k))  # b_{s,1}
        self.highway = nn.Parameter(torch.randn(2, k, k) * k**-0.5)  # H_{s,2}
        self.highway_bias = nn.Parameter(torch.zeros(2, k))  # b_{s,2}
        self.regression = nn.Parameter(torch.randn(2, k) * k**-0.5)  # w_s
        self.biases = TunedBiases(sizes)
        if config.biases == "leave-one-out":
            self.regression_bias = nn.Parameter(torch.zeros(2))  # the baseline is the start: add nothing to it
        else:
            self.regression_bias = nn.Parameter(torch.tensor([3.0, 1.0]))  # b_{s,3}, the released code's start
            self.user_bias = nn.Parameter(torch.randn(sizes.users) * config.bias_spread)  # b_u
            self.item_bias = nn.Parameter(torch.randn(sizes.items) * config.bias_spread)  # b_i

    @property
    def liked_above(self) -> float:
        return (1 + self.sizes.levels) / 2 if self.config.liked_above is None else self.config.liked_above

    @property
    def reads_gaps(self) -> bool:
        return not self.config.padding_attends

    def sentiment(self, prediction: Prediction) -> Tensor:
        lengths = prediction.tensors["lengths"]
        return lengths[:, POSITIVE] - lengths[:, NEGATIVE]

    def start(self, data: TrainingData) -> None:
        self.biases.fit(data.train, data.valid, self.sizes.levels)
        if self.config.biases == "leave-one-out":
            self.biases.leave_out(data.train)
        if self.config.biases == "tuned":
            with torch.no_grad():
                self.user_bias.copy_(self.biases.user)
                self.item_bias.copy_(self.biases.item)

    def forward(self, batch: Batch) -> Prediction:
        viewpoints = self.encode_users(batch.user_words, batch.user_reviews)
        aspects = self.encode_items(batch.item_words, batch.item_reviews)
        return self.score(batch.users, batch.items, viewpoints, aspects, batch.own_ratings)

    def read_users(self, words: Tensor, reviews: Tensor) -> DocumentReading:
        reading: DocumentReading = self.user_side(self.embedding.weight, words, reviews)
        return reading

    def read_items(self, words: Tensor, reviews: Tensor) -> DocumentReading:
        reading: DocumentReading = self.item_side(self.embedding.weight, words, reviews)
        return reading

    def encode_users(self, words: Tensor, reviews: Tensor) -> Tensor:
        return self.read_users(words, reviews).viewpoints

    def encode_items(self, words: Tensor, reviews: Tensor) -> Tensor:
        return self.read_items(words, reviews).viewpoints

    def score(
        self, users: Tensor, items: Tensor, user_sides: Tensor, item_sides: Tensor, own_ratings: Tensor | None = None
    ) -> Prediction:
        """From viewpoints and aspects [B, M, k] to ratings."""
        shown = self.judge(self.pair(user_sides, item_sides))
        return Prediction(self.combine(shown["balance"], users, items, own_ratings), shown)

    def judge(self, logic_units: Tensor) -> dict[str, Tensor]:
        """From logic units [B, M·M, 2k] to the balance of the two sentiments, with what led to it."""
        votes = torch.einsum("bug,sugk->bsuk", logic_units, self.vote_weight)  # t_{s,x,y}
        coupling, capsules = self.route(votes)
        degrees = self.rate(capsules)
        lengths = capsules.square().sum(-1).add(1e-12).sqrt()  # ‖o_s‖, [B, 2]
        balance = (degrees * lengths)[:, POSITIVE] - (degrees * lengths)[:, NEGATIVE]
        m = self.config.viewpoints
        shown = {"capsules": capsules, "lengths": lengths, "degrees": degrees, "balance": balance}
        return {**shown, "coupling": coupling.view(-1, 2, m, m)}

    def pair(self, viewpoints: Tensor, aspects: Tensor) -> Tensor:
        """Equation 3: every viewpoint with every aspect. g_{x,y} = (v − a) ⊕ (v ⊙ a).

        "appended" is what the paper tried besides, and found to bring nothing: g_{x,y} = (v − a) ⊕ (v ⊙ a) ⊕ v ⊕ a.
        """
        v, a = viewpoints.unsqueeze(2), aspects.unsqueeze(1)  # [B, M, 1, k], [B, 1, M, k]
        parts = [v - a, v * a]
        if self.config.logic_unit == "product first":
            parts.reverse()
        if self.config.logic_unit == "appended":
            parts += [v.expand_as(parts[0]), a.expand_as(parts[0])]
        return torch.cat(parts, -1).flatten(1, 2)  # [B, M·M, 2k], appended [B, M·M, 4k]

    def route(self, votes: Tensor) -> tuple[Tensor, Tensor]:
        """Algorithm 1 (or Equation 6 alone for "agreement"): coupling [B, 2, U] and capsules [B, 2, k]."""
        config = self.config
        agreement = votes.new_zeros(votes.shape[:3])  # b_{s,x,y}
        couple = bi_agreement if config.routing == "bi-agreement" else by_agreement
        for iteration in range(config.routing_iterations):
            last = iteration == config.routing_iterations - 1
            heard = votes if last or config.routing_gradient == "all" else votes.detach()
            coupling = couple(agreement, config.routing_epsilon)
            mixture = (coupling.unsqueeze(-1) * heard).sum(2)  # s_{s,u,i} (4), [B, 2, k]
            if self.capsule_bias is not None:
                mixture = mixture + self.capsule_bias
            capsules = squash(mixture)  # o_{s,u,i} (5)
            if not last:
                agreement = agreement + (heard * capsules.unsqueeze(2)).sum(-1)
        return coupling, capsules

    def rate(self, capsules: Tensor) -> Tensor:
        """Equations 7 to 9: each capsule through its highway to a degree [B, 2]."""
        h1, h2 = self._drop_weight(self.highway_gate), self._drop_weight(self.highway)
        gate = torch.sigmoid(torch.einsum("bsk,sjk->bsj", capsules, h1) + self.highway_gate_bias)  # η_s (8)
        changed = torch.tanh(torch.einsum("bsk,sjk->bsj", capsules, h2) + self.highway_bias)
        if self.config.highway == "reversed":
            gate = 1 - gate
        hidden = gate * capsules + (1 - gate) * changed  # h_{s,u,i} (9)
        return (hidden * self._drop_weight(self.regression)).sum(-1) + self.regression_bias  # r_{s,u,i} (7)

    def combine(self, balance: Tensor, users: Tensor, items: Tensor, own_ratings: Tensor | None) -> Tensor:
        """Equation 10; with `biases="leave-one-out"` the balance moves the tuned biases' rating instead."""
        span = self.sizes.levels - 1
        if self.config.biases == "leave-one-out":
            baseline = self.biases(users, items, own_ratings)
            share = ((baseline - 1) / span).clamp(0.01, 0.99)
            return 1 + span * torch.sigmoid(torch.logit(share) + balance)
        b_u = take_or(self.user_bias, users, self.user_bias.mean())
        b_i = take_or(self.item_bias, items, self.item_bias.mean())
        return 1 + span * torch.sigmoid(balance) + b_u + b_i  # f_C(·) + b_u + b_i (10)

    def loss(self, batch: Batch, prediction: Prediction) -> Tensor:
        """Equation 14, of Equation 11 and Equation 13 (or 12)."""
        assert batch.ratings is not None
        square_error = (batch.ratings - prediction.rating).square().mean()  # L_sqr (11)
        lengths = prediction.tensors["lengths"]
        liked = batch.ratings > self.liked_above
        holds = torch.where(liked, lengths[:, POSITIVE], lengths[:, NEGATIVE])
        opposite = torch.where(liked, lengths[:, NEGATIVE], lengths[:, POSITIVE])
        sentiment = self._hinge(self.config.margin - holds)  # L_stm (12)
        if self.config.mutual_exclusion:
            sentiment = sentiment + self.config.opposite_weight * self._hinge(opposite - 1 + self.config.margin)  # (13)
        weight = self.config.rating_weight
        return weight * square_error + (1 - weight) * sentiment.mean()  # L (14)

    def _hinge(self, distance: Tensor) -> Tensor:
        positive = distance.clamp_min(0)
        return positive.square() if self.config.hinge == "squared" else positive

    def _drop_weight(self, weight: Tensor) -> Tensor:
        config = self.config
        return F.dropout(weight, config.dropout, self.training) if config.dropout_on == "weights" else weight


def side_size(config: CarpConfig) -> int:
    """Length of a viewpoint: k, but n where each viewpoint has its own square projection."""
    return config.latent_size if config.projection == "shared" else config.filters


def logic_unit_parts(config: CarpConfig) -> int:
    """Of how many vectors as long as a viewpoint a logic unit is made."""
    return 4 if config.logic_unit == "appended" else 2


def by_agreement(agreement: Tensor, epsilon: float = 0.0) -> Tensor:
    """Equation 6: a softmax over the two capsules, for each logic unit. [B, 2, U]"""
    return agreement.softmax(1)


def bi_agreement(agreement: Tensor, epsilon: float = 0.0) -> Tensor:
    """Lines 5 to 7 of Algorithm 1: the normalised geometric mean of the softmax over the capsules (č) and the
    softmax inside a capsule (ĉ). [B, 2, U]

    ĉ's denominator is the same for all logic units of a capsule and falls out of the normalisation, so that
    c = softmax over the units of ½(b + log č): no root whose slope grows without bound near zero.
    """
    if epsilon == 0:
        return ((agreement + agreement.log_softmax(1)) / 2).softmax(2)
    between, within = agreement.softmax(1), agreement.softmax(2)
    geometric = (between * within + epsilon).sqrt()
    return geometric / (geometric.sum(2, keepdim=True) + 10 * epsilon)


def uniform_coupling(config: CarpConfig) -> float:
    """What every coupling coefficient of bi-agreement would be if no logic unit stood out."""
    return 1 / math.prod((config.viewpoints, config.viewpoints))
