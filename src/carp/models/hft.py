"""HFT: hidden factors that are hidden topics too: what a thing's reviews speak of is tied to its factors.

McAuley, Leskovec: "Hidden Factors and Hidden Topics: Understanding Rating Dimensions with Review Text", RecSys 2013.

    paper         here                         shape     meaning
    α             biases.mean                  []
    β_u, β_i      user_bias, item_bias         [·]
    γ_u, γ_i      user_factors, item_factors   [·, K]
    K             latent_size                            factors, and as many topics
    κ             peakiness                    []        how far the largest factor stands out among the topics
    θ_i           topics                       [B, K]    shares of the topics in what is written of an item
    ψ             word_scores                  [V + 1, K]  of padding too, which is never looked at
    φ             exp(log_words)               [V, K]    shares of the words in a topic
    μ             text_weight                            how much the words count beside the ratings

    rec(u, i) = α + β_u + β_i + γ_u · γ_i                                               (1)
    θ_{i,k}   = exp(κ γ_{i,k}) / Σ_k' exp(κ γ_{i,k'})                                   (4)
    φ_{k,w}   = exp(ψ_{k,w}) / Σ_w' exp(ψ_{k,w'})
    p(T)      = Π_i Π_{w written of i} θ_{i,z_w} φ_{z_w,w}                              (3)
    minimise    Σ_(u,i) (rec(u, i) − r_ui)² − μ log p(T)                                (6)

Reviews are read in training alone; a prediction is (1), from ids. `topics_of=user` ties the topics to the factors of
people instead, and to what they write: the paper's other form, HFT(user).

Ours: each word's topic z_w is summed over, log Σ_k θ_{i,k} φ_{k,w}, where the paper draws it anew between two fits of
the rest; everything is then learned together, by gradient steps, a review's words entering with its rating. The
factors also have the penalty λ of mf.py, and biases start at the tuned ones (`biases=learned` starts them at zero, as
the paper does); without words this is `mf`. ψ starts at the log of word counts, as its released code has it, with a
little noise to tell the topics apart. K is 25 as for the other factorisations; the paper has 5 and 10.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from carp.models.base import Prediction
from carp.models.batch import Batch, Sizes, TrainingData
from carp.models.layers import take_rows
from carp.models.mf import Mf, MfConfig


@dataclass(frozen=True)
class HftConfig(MfConfig):
    text_weight: float = 0.1  # μ
    topics_of: Literal["item", "user"] = "item"  # whose factors are the topics of its reviews
    topic_noise: float = 0.1  # how differently the topics' words (ψ) start


class Hft(Mf):
    Config = HftConfig
    needs = frozenset({"ids", "target_review"})
    config: HftConfig

    def __init__(self, config: HftConfig, sizes: Sizes) -> None:
        super().__init__(config, sizes)
        self.peakiness = nn.Parameter(torch.ones(()))  # κ
        self.word_scores = nn.Parameter(torch.randn(sizes.words + 1, config.latent_size) * config.topic_noise)  # ψ

    def start(self, data: TrainingData) -> None:
        super().start(data)
        assert data.reviews is not None, "a model that needs target reviews is trained on data that has them"
        counts = np.bincount(data.reviews.words, minlength=self.sizes.words + 1)
        with torch.no_grad():
            self.word_scores.add_(torch.from_numpy(np.log(counts + 1.0)).to(self.word_scores).unsqueeze(-1))

    def loss(self, batch: Batch, prediction: Prediction) -> Tensor:
        loss = super().loss(batch, prediction)
        if batch.target_words is None or not self.sizes.words:
            return loss
        return loss - self.config.text_weight * self.log_likelihoods(batch, batch.target_words).mean()

    def log_likelihoods(self, batch: Batch, reviews: Tensor) -> Tensor:
        """log p of each review's words [B]; 0 where it has none."""
        row, column = torch.nonzero(reviews, as_tuple=True)
        words = reviews[row, column].long() - 1  # [T]
        log_words = self.word_scores[1:].log_softmax(0)  # log φ, [V, K]
        both = F.embedding(row, self.log_topics(batch)) + F.embedding(words, log_words)  # log θ_{i,k} φ_{k,w}
        return both.new_zeros(len(reviews)).index_add(0, row, both.logsumexp(-1))

    def log_topics(self, batch: Batch) -> Tensor:
        """log θ [B, K]."""
        of_items = self.config.topics_of == "item"
        factors = take_rows(self.item_factors, batch.items) if of_items else take_rows(self.user_factors, batch.users)
        return (self.peakiness * factors).log_softmax(-1)
