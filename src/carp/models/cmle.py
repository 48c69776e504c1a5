"""CMLE: words, reviews and ratings embedded together, one level projected onto the next.

Zhang, Yuan, Han, Wang: "Collaborative Multi-Level Embedding Learning from Reviews for Rating Prediction",
IJCAI 2016. No implementation was published; this is our reading.

    paper       here                         shape        meaning
    e_w         embedding                    [V + 1, d]   a word as context
    o_w         output                       [V + 1, d]   a word as what is predicted
    d_ui        reviews                      [B, d]       a review
    p_u, q_i    user_factors, item_factors   [·, k]       of the matrix factorisation, see mf.py
    P, Q        user_projection, item_projection  [d, k]
    λ_w, λ_p    word_weight, projection_weight

Word level: the words around a word and its review's embedding predict it, against n words s drawn from noise,

    h_c = (Σ_{0<|j|≤window} e_{c+j} + d_ui) / (neighbours + 1)
    L_w = − log σ(o_c·h_c) − n E_s log σ(−o_s·h_c)                     mean over words

Projection level: a user's and an item's factors lie near linear projections of each of their reviews, not on them:

    L_p = ‖p_u − P d_ui‖² + ‖q_i − Q d_ui‖²                            mean over reviews

Rating level: r̂ = μ + b_u + b_i + p_u·q_i with the objective of mf.py. Together: minimise L_r + λ_w L_w + λ_p L_p.
Reviews are read in training alone; a prediction is the rating level's, from ids.

Ours: d_ui is the mean of e over the words of the review rather than a free vector for each review, so the model does
not grow with the number of reviews; for predicting a word it is the mean of the review's other words, since a word
would give itself away. Ours: window and n are those usual for paragraph vectors, noise follows word counts to the
power ¾, and one draw of S words serves a whole batch (E_s is their mean: the same in expectation, one product of
matrices). The three levels share each batch, a review's words entering with its rating. λ_w is 1; λ_p of 0.01, 0.1 and
1 gave the same validation error to a thousandth on Musical Instruments, and the middle one is the default.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from carp.models.base import Prediction
from carp.models.batch import Batch, Sizes, TrainingData
from carp.models.batch_share import counted, mean_of
from carp.models.layers import take_rows
from carp.models.mf import Mf, MfConfig


@dataclass(frozen=True)
class CmleConfig(MfConfig):
    dimension: int = 300  # d
    window: int = 5  # words on each side
    noise_weight: float = 5.0  # n
    noise_words: int = 100  # S, drawn for a whole batch
    word_weight: float = 1.0  # λ_w
    projection_weight: float = 0.1  # λ_p


class Cmle(Mf):
    Config = CmleConfig
    needs = frozenset({"ids", "target_review"})
    config: CmleConfig
    noise: Tensor

    def __init__(self, config: CmleConfig, sizes: Sizes) -> None:
        super().__init__(config, sizes)
        d, k = config.dimension, config.latent_size
        self.embedding = nn.Embedding(sizes.words + 1, d, padding_idx=0)
        nn.init.normal_(self.embedding.weight[1:], std=d**-0.5)
        self.output = nn.Embedding(sizes.words + 1, d, padding_idx=0)
        nn.init.zeros_(self.output.weight)
        self.user_projection = nn.Parameter(torch.randn(d, k) * d**-0.5)  # P
        self.item_projection = nn.Parameter(torch.randn(d, k) * d**-0.5)  # Q
        self.register_buffer("noise", torch.zeros(sizes.words + 1, dtype=torch.float64))  # share of words up to each

    def start(self, data: TrainingData) -> None:
        super().start(data)
        assert data.reviews is not None, "a model that needs target reviews is trained on data that has them"
        share = np.bincount(data.reviews.words, minlength=self.sizes.words + 1) ** 0.75
        self.noise.copy_(torch.from_numpy(np.cumsum(share) / max(share.sum(), 1.0)))

    def loss(self, batch: Batch, prediction: Prediction) -> Tensor:
        loss = super().loss(batch, prediction)
        if batch.target_words is None:
            return loss
        row, _ = torch.nonzero(batch.target_words, as_tuple=True)
        words = batch.target_words[batch.target_words > 0].long()  # [T], one review after another
        written = batch.target_words.any(1)
        all_words, all_written = counted(len(words), written.sum())
        if not all_words:
            return loss
        noise = self.draw_noise(words.device)  # [S]
        if not len(words):
            return loss
        vectors = self.embedding(words)  # e, [T, d]
        lengths = torch.bincount(row, minlength=len(batch))  # [B]
        totals = vectors.new_zeros(len(batch), vectors.shape[1]).index_add(0, row, vectors)
        words_loss = mean_of(self.word_losses(words, self.context(vectors, row, totals, lengths), noise), all_words)
        apart = self.projection_losses(batch, totals / lengths.clamp_min(1).unsqueeze(-1), written)
        pull = mean_of(apart, all_written)
        return loss + self.config.word_weight * words_loss + self.config.projection_weight * pull

    def context(self, vectors: Tensor, row: Tensor, totals: Tensor, lengths: Tensor) -> Tensor:
        """h: the mean of the neighbours of each word in its review and of the review without it [T, d]."""
        others = (F.embedding(row, totals) - vectors) / (lengths[row] - 1).clamp_min(1).unsqueeze(-1)
        neighbours = self.neighbours(row)  # [T, 2·window]
        around = F.embedding_bag(neighbours, F.pad(vectors, (0, 0, 0, 1)), mode="sum")
        count = 1 + (neighbours < len(row)).sum(-1, keepdim=True)
        return (around + others) / count

    def neighbours(self, row: Tensor) -> Tensor:
        """The places of the words around each word, of the same review alone; T where there is none [T, 2·window]."""
        window, nowhere = self.config.window, len(row)
        steps = torch.arange(-window, window + 1, device=row.device)
        places = torch.arange(nowhere, device=row.device).unsqueeze(-1) + steps[steps != 0]
        inside = (places >= 0) & (places < nowhere)
        places = places.clamp(0, nowhere - 1)
        return torch.where(inside & (row[places] == row.unsqueeze(-1)), places, nowhere)

    def word_losses(self, words: Tensor, context: Tensor, noise: Tensor) -> Tensor:
        """L_w of all words together; a word drawn as noise against itself does not count."""
        heard = F.logsigmoid((self.output(words) * context).sum(-1))
        refused = F.logsigmoid(-context @ self.output(noise).T) * (noise != words.unsqueeze(-1))  # [T, S]
        return -(heard + self.config.noise_weight * refused.mean(-1)).sum()

    def draw_noise(self, device: torch.device) -> Tensor:
        draws = torch.rand(self.config.noise_words, dtype=self.noise.dtype, device=device)
        return torch.searchsorted(self.noise, draws, right=True).clamp_max(self.sizes.words)

    def projection_losses(self, batch: Batch, reviews: Tensor, written: Tensor) -> Tensor:
        """L_p of all reviews that have words together; an empty one says nothing of anybody."""
        users = take_rows(self.user_factors, batch.users) - reviews @ self.user_projection
        items = take_rows(self.item_factors, batch.items) - reviews @ self.item_projection
        apart = users.square().sum(-1) + items.square().sum(-1)
        return (apart * written).sum()
