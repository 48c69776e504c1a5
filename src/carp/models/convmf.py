"""ConvMF: a matrix factorisation in which an item's factors lie around what a convolutional network reads of it.

Kim, Park, Oh, Lee, Yu: "Convolutional Matrix Factorization for Document Context-Aware Recommendation", RecSys 2016.

    paper         here                         shape         meaning
    u_i, v_j      user_factors, item_factors   [·, k]        of a user, of an item
    X_j           words                        [B, L]        an item's document as word numbers
    D             embedding                    [V + 1, p]    word vectors
    W_c, b_c      convolutions                               shared weights, windows of 3, 4 and 5 words
    d_f           pooled                       [B, 3n]       the largest of each feature over the document
    cnn(W, X_j)   text_factors                 [B, k]
    λ             penalty                                    λ_U and λ_V
    λ_W           network_penalty

    v_j = cnn(W, X_j) + ε_j,  ε_j ~ N(0, 1/λ_V)                                             (2), (3)
    c   = tanh(W_c ∗ D + b_c),  d_f = max over the document of c                            (5), (6)
    cnn(W, X_j) = tanh(W_f2 tanh(W_f1 d_f + b_f1) + b_f2)                                   (7)
    minimise Σ_(i,j) (r_ij − r̂_ij)² + λ_U Σ ‖u_i‖² + λ_V Σ ‖v_j − cnn(W, X_j)‖² + λ_W Σ w²  (9)

Documents are read in training alone: a prediction is of ids, from u and v.

Ours: r̂ = μ + b_u + b_i + u·v with the tuned biases of mf.py, where the paper has u·v alone (`biases=learned` starts the
biases at zero). λ_U and λ_V are one number and count once a rating, as in mf.py, so the same sizes and penalties can be
tried for both models: without words this is `mf` but for the constant that v lies around. Everything is learned
together by gradient steps, where the paper alternates exact solutions of u and v with steps of the network. The
pair's own review is left out of the document, a window ends where a review ends, and words start at random.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from carp.models.base import Prediction
from carp.models.batch import Batch, Sizes
from carp.models.batch_share import drop_rows
from carp.models.divided_table import WordEmbedding
from carp.models.layers import WordConvolution, max_over_words
from carp.models.mf import Mf, MfConfig

WINDOWS = (3, 4, 5)


@dataclass(frozen=True)
class ConvMfConfig(MfConfig):
    dimension: int = 200  # p, of word vectors
    filters: int = 100  # n, features of each of the three windows
    hidden_size: int = 200  # of the layer between features and factors
    dropout: float = 0.2  # of that layer
    network_penalty: float = 0.0001  # λ_W


class ConvMf(Mf):
    Config = ConvMfConfig
    needs = frozenset({"ids", "documents"})
    config: ConvMfConfig

    def __init__(self, config: ConvMfConfig, sizes: Sizes) -> None:
        super().__init__(config, sizes)
        self.embedding = WordEmbedding(sizes.words + 1, config.dimension, padding_idx=0)
        self.convolutions = nn.ModuleList(
            WordConvolution(config.dimension, config.filters, window) for window in WINDOWS
        )
        self.hidden = nn.Linear(len(WINDOWS) * config.filters, config.hidden_size)  # W_f1
        self.output = nn.Linear(config.hidden_size, config.latent_size)  # W_f2

    @property
    def reads_documents(self) -> bool:
        return False  # a prediction is of ids

    def text_factors(self, words: Tensor, reviews: Tensor) -> Tensor:
        """cnn(W, X_j) [B, k]."""
        features = [convolution(self.embedding.weight, words, reviews) for convolution in self.convolutions]
        pooled = torch.tanh(max_over_words(torch.cat(features, -1), words > 0))  # tanh rises: the largest stays so
        hidden = drop_rows(torch.tanh(self.hidden(pooled)), self.config.dropout, self.training)
        return torch.tanh(self.output(hidden))

    def loss(self, batch: Batch, prediction: Prediction) -> Tensor:
        u, v = self.factors(batch)
        apart = v - self.text_factors(batch.item_words, batch.item_reviews)
        held = self.config.penalty * (u.square().sum(-1) + apart.square().sum(-1))
        network = self.config.network_penalty * self.network_size()
        return (self.rating_losses(batch, prediction) + held).mean() + network

    def network_size(self) -> Tensor:
        """Σ w² over the weights of the network, words aside."""
        layers = (*self.convolutions, self.hidden, self.output)
        return torch.stack([one.square().sum() for layer in layers for one in layer.parameters()]).sum()
