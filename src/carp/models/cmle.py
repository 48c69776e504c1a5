"""CMLE: words, reviews and ratings embedded together, one level projected onto the next.

Zhang, Yuan, Han, Wang: "Collaborative Multi-Level Embedding Learning from Reviews for Rating Prediction",
IJCAI 2016. No implementation was published; this is our reading.

    paper       here                         shape        meaning
    e_w         embedding                    [V + 1, d]   a word as context
    o_w         output                       [V + 1, d]   a word as what is predicted
    d_ui        review_vectors               [B, d]       a review
    p_u, q_i    user_factors, item_factors   [·, k]       of the matrix factorisation, see mf.py
    P, Q        user_projection, item_projection  [d, k]
    λ_w, λ      word_weight, penalty

Word level: the words around a word and its review's vector predict it, against n words s drawn from noise,

    h_c  = (Σ_{0<|j|≤window} e_{c+j} + d_ui) / (neighbours + 1)
    L_w  = Σ_c − log σ(o_c·h_c) − n E_s log σ(−o_s·h_c)                   sum over a review's words

Projection level: a user's and an item's factors lie near linear projections of each of their reviews, not on them:

    L_p  = ‖p_u − P d_ui‖² + ‖q_i − Q d_ui‖²

Rating level: r̂ = μ + b_u + b_i + p_u·q_i with L_r the squared error and the biases' penalties of mf.py. Together:

    minimise the mean over reviews of L_r + λ_w L_w + λ L_p

So λ holds factors to what was written, where `mf` holds them to zero; both at once would draw them to zero after all.
`projection_weight` w mixes the two, λ (w L_p + (1 − w)(‖p_u‖² + ‖q_i‖²)): 1 is the paper's form, 0 is `mf`.
Reviews are read in training alone; a prediction is the rating level's, from ids.

Ours: d_ui is the mean of e over the review's words, and so e learns from the projections too. The paper's form,
`vectors=free`, gives every review a vector of its own. No table of them grows with the reviews: whenever a review comes
up, its vector starts at the mean and takes `vector_steps` steps down λ_w L_w + λ w L_p, each as long as is sure to
descend; then the rest learns with d_ui held. But a free vector fits whatever factors there are. On the made-up shop
texts then take 16 % off the error, where they take 45 % off with the mean; and on RateBeer nothing holds the factors
any more: validation errors of 0.451, where `mf` has 0.433 (split seed 100, d = 300).

Ours: the biases start at the tuned ones (`biases=learned` starts them at zero). Window and n are those usual for
paragraph vectors, noise follows word counts to the power ¾, and one draw of S words serves a whole batch (E_s is
their mean: the same in expectation, one product of matrices). The three levels share each batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from carp.models.base import Prediction
from carp.models.batch import Batch, Sizes, TrainingData
from carp.models.divided_table import WordEmbedding
from carp.models.mf import Mf, MfConfig


@dataclass(frozen=True)
class CmleConfig(MfConfig):
    dimension: int = 100  # d
    window: int = 5  # words on each side
    noise_weight: float = 5.0  # n
    noise_words: int = 50  # S, drawn for a whole batch
    word_weight: float = 0.1  # λ_w
    projection_weight: float = 1.0  # what people and things are held to: their reviews at 1, zero at 0
    vectors: Literal["free", "mean"] = "mean"  # of reviews: each its own, or the mean of its words' vectors
    vector_steps: int = 3  # of a free one, from that mean


class ReviewWords(NamedTuple):
    """The words of a batch's reviews, one review after another, and what is drawn against them."""

    words: Tensor  # [T]
    row: Tensor  # [T] the review of each
    around: Tensor  # [T, d] the sum of its neighbours' e
    parts: Tensor  # [T, 1] what h is the mean of: the neighbours and the review
    noise: Tensor  # [S]


class Cmle(Mf):
    Config = CmleConfig
    needs = frozenset({"ids", "target_review"})
    config: CmleConfig
    noise: Tensor

    def __init__(self, config: CmleConfig, sizes: Sizes) -> None:
        super().__init__(config, sizes)
        d, k = config.dimension, config.latent_size
        self.embedding = WordEmbedding(sizes.words + 1, d, padding_idx=0)
        nn.init.normal_(self.embedding.weight[1:], std=d**-0.5)
        self.output = WordEmbedding(sizes.words + 1, d, padding_idx=0)
        nn.init.zeros_(self.output.weight)
        self.user_projection = nn.Parameter(torch.randn(d, k) * 0.3 * d**-0.5)  # P
        self.item_projection = nn.Parameter(torch.randn(d, k) * 0.3 * d**-0.5)  # Q
        self.register_buffer("noise", torch.zeros(sizes.words + 1, dtype=torch.float64))  # share of words up to each

    def start(self, data: TrainingData) -> None:
        super().start(data)
        assert data.reviews is not None, "a model that needs target reviews is trained on data that has them"
        share = np.bincount(data.reviews.words, minlength=self.sizes.words + 1) ** 0.75
        self.noise.copy_(torch.from_numpy(np.cumsum(share) / max(share.sum(), 1.0)))

    def loss(self, batch: Batch, prediction: Prediction) -> Tensor:
        config = self.config
        if batch.target_words is None or not config.projection_weight:
            return super().loss(batch, prediction)
        p, q = self.factors(batch)
        text = self.read(batch.target_words)
        vectors = self.review_vectors(text, p.detach(), q.detach())
        to_zero = p.square().sum(-1) + q.square().sum(-1)
        held = config.projection_weight * self.projection_losses(vectors, p, q)
        held = held + (1 - config.projection_weight) * to_zero
        words = self.word_losses(text, vectors)
        return (self.rating_losses(batch, prediction) + config.penalty * held + config.word_weight * words).mean()

    def read(self, reviews: Tensor) -> ReviewWords:
        """The words of reviews [B, L] with their neighbours."""
        row, column = torch.nonzero(reviews, as_tuple=True)
        words = reviews[row, column].long()
        neighbours = self.neighbours(row)  # [T, 2·window]
        around = F.embedding_bag(neighbours, F.pad(self.embedding(words), (0, 0, 0, 1)), mode="sum")
        parts = 1 + (neighbours < len(row)).sum(-1, keepdim=True)
        return ReviewWords(words, row, around, parts, self.draw_noise(words.device))

    def neighbours(self, row: Tensor) -> Tensor:
        """The places of the words around each word, of the same review alone; T where there is none [T, 2·window]."""
        window, nowhere = self.config.window, len(row)
        steps = torch.arange(-window, window + 1, device=row.device)
        places = torch.arange(nowhere, device=row.device).unsqueeze(-1) + steps[steps != 0]
        inside = (places >= 0) & (places < nowhere)
        places = places.clamp(0, max(nowhere - 1, 0))
        return torch.where(inside & (row[places] == row.unsqueeze(-1)), places, nowhere)

    def draw_noise(self, device: torch.device) -> Tensor:
        draws = torch.rand(self.config.noise_words, dtype=self.noise.dtype, device=device)
        return torch.searchsorted(self.noise, draws, right=True).clamp_max(self.sizes.words)

    # ---- the word level

    def word_losses(self, text: ReviewWords, vectors: Tensor) -> Tensor:
        """L_w of each review [B]; a word drawn as noise against itself does not count."""
        context = (text.around + F.embedding(text.row, vectors)) / text.parts  # h, [T, d]
        heard = F.logsigmoid((self.output(text.words) * context).sum(-1))
        refused = F.logsigmoid(-context @ self.output(text.noise).T) * (text.noise != text.words.unsqueeze(-1))
        losses = -(heard + self.config.noise_weight * refused.mean(-1))
        return losses.new_zeros(len(vectors)).index_add(0, text.row, losses)

    # ---- the projection level

    def projection_losses(self, vectors: Tensor, p: Tensor, q: Tensor) -> Tensor:
        """L_p of each review [B]. One without words has a vector of zero: it holds factors to zero."""
        users, items = p - vectors @ self.user_projection, q - vectors @ self.item_projection
        apart: Tensor = users.square().sum(-1) + items.square().sum(-1)
        return apart

    # ---- the reviews' own vectors

    def review_vectors(self, text: ReviewWords, p: Tensor, q: Tensor) -> Tensor:
        """d_ui [B, d]."""
        e: Tensor = self.embedding(text.words)
        lengths = torch.bincount(text.row, minlength=len(p)).unsqueeze(-1)
        vectors = e.new_zeros(len(p), e.shape[1]).index_add(0, text.row, e) / lengths.clamp_min(1)
        if self.config.vectors == "mean":
            return vectors
        with torch.no_grad():
            step = (lengths > 0) / self.curvatures(text, len(p))
            for _ in range(self.config.vector_steps):
                vectors = vectors - step * self.slopes(text, vectors, p, q)
        return vectors

    def slopes(self, text: ReviewWords, vectors: Tensor, p: Tensor, q: Tensor) -> Tensor:
        """The gradient of λ_w L_w + λ w L_p in each review's vector [B, d]."""
        config, (own, drawn) = self.config, self.predicted(text)
        context = (text.around + F.embedding(text.row, vectors)) / text.parts
        unheard = torch.sigmoid(-(own * context).sum(-1, keepdim=True))
        taken = torch.sigmoid(context @ drawn.T) * (text.noise != text.words.unsqueeze(-1))  # [T, S]
        of_words = (config.noise_weight / len(drawn) * taken @ drawn - unheard * own) / text.parts
        words = torch.zeros_like(vectors).index_add(0, text.row, of_words)
        apart = (vectors @ self.user_projection - p) @ self.user_projection.T
        apart = apart + (vectors @ self.item_projection - q) @ self.item_projection.T
        return config.word_weight * words + 2 * config.penalty * config.projection_weight * apart

    def predicted(self, text: ReviewWords) -> tuple[Tensor, Tensor]:
        """o of the words [T, d] and of those drawn against them [S, d]."""
        return self.output(text.words), self.output(text.noise)

    def curvatures(self, text: ReviewWords, reviews: int) -> Tensor:
        """No smaller than the largest second derivative of the same [B, 1]: a step of one over it never climbs."""
        config, (own, drawn) = self.config, self.predicted(text)
        of_noise = config.noise_weight * drawn.square().sum(-1).mean()
        of_words = (own.square().sum(-1, keepdim=True) + of_noise) / (4 * text.parts.square())
        words = of_words.new_zeros(reviews, 1).index_add(0, text.row, of_words)
        both = torch.cat([self.user_projection, self.item_projection], 1)  # [d, 2k]
        largest = (both.T @ both).abs().sum(1).amax()  # at least the largest eigenvalue
        whole = config.word_weight * words + 2 * config.penalty * config.projection_weight * largest
        return whole.clamp_min(torch.finfo(whole.dtype).tiny)
