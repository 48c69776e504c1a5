"""A transformer over reviews, trained from scratch: words attend to each other, then a side attends to its reviews.

Ours, of usual parts: the encoder of Vaswani et al.: "Attention Is All You Need", NeurIPS 2017, with the norms in front
(Xiong et al., ICML 2020), over each review by itself; then two attentions that pool, words to a review and reviews to a
side, and the product of NARRE (`carp.models.narre`). No weights are brought along: all are learned on the reviews of
the corpus.

    paper      here                    shape             meaning
    —          words                   [B, R, W]         documents as sets of reviews, word numbers
    X          states                  [N, W, d]         the words of the N reviews that have any
    —          word_attention          [B, R, W]         how much of a review is this word
    y_l        pooled                  [B, R, d]         a review
    a_l        review_attention        [B, R]            how useful it is
    t_u, t_i   sides                   [B, k]            what the reviews say of the person, of the thing
    q_u, p_i   in FactorProduct                          what the ratings say of them
    R, W       reviews, review_words

    X      = word embeddings + place embeddings
    X      ← X + W_o softmax(Q Kᵀ / √(d / heads)) V,   Q, K, V linear in norm(X)       `layers` times, then
    X      ← X + W_2 ReLU(W_1 norm(X) + b_1) + b_2                                      each time
    y_l    = Σ_j softmax over the words of (v · tanh(W_v X_j)) X_j,                     X after a last norm
    t      = W_t Σ_l softmax over the reviews of (h · tanh(W_h y_l)) y_l + b_t
    rating = μ + b_u + b_i + w · ((q_u + t_u) ⊙ (p_i + t_i))

trained on the squared error. Both sides share the encoder and the attention to words, and have the rest of their own.
μ, b_u and b_i start at the tuned biases and w at ones. Dropout is on the words' vectors and on the product. Somebody
unknown by number has zeros for q_u.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from carp.errors import UsageError
from carp.models.base import NO_DIRECTION, Attention, Prediction
from carp.models.batch import Batch, Sizes
from carp.models.batch_share import distinct_words
from carp.models.divided_table import WordEmbedding, word_rows
from carp.models.factor_product import FactorProduct, quiet_dense
from carp.models.layers import masked_softmax
from carp.models.review_sets import REVIEWS_ALONE, in_documents, review_sets
from carp.reviews.documents import ReviewCut


@dataclass(frozen=True)
class TransformerConfig:
    dimension: int = 64  # d, of words and of everything in the encoder
    layers: int = 2  # of the encoder
    heads: int = 4  # attentions side by side in each layer, which share the dimension
    hidden_size: int = 128  # of the layers' dense part
    latent_size: int = 32  # k
    reviews: int = 30  # R: at most so many reviews of one person or thing are read
    review_words: int = 40  # W: at most so many words of each review are read
    dropout: float = 0.2
    biases: Literal["zero", "tuned"] = "tuned"  # where b_u and b_i start

    def __post_init__(self) -> None:
        if self.dimension % self.heads:
            what = f"{self.heads} heads cannot share a dimension of {self.dimension}"
            raise UsageError(what, fix="choose a dimension that is a multiple of heads")


class EncoderLayer(nn.Module):
    """Words of a review attend to each other, and each is then read by itself."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        d = config.dimension
        self.heads = config.heads
        self.attention_norm = nn.LayerNorm(d)
        self.asked = nn.Linear(d, 3 * d)  # Q, K, V
        self.answered = nn.Linear(d, d)  # W_o
        self.dense_norm = nn.LayerNorm(d)
        self.widen = nn.Linear(d, config.hidden_size)  # W_1, b_1
        self.narrow = nn.Linear(config.hidden_size, d)  # W_2, b_2

    def forward(self, states: Tensor, there: Tensor) -> Tensor:
        """States [N, W, d] of reviews whose words are there [N, W]; padding is never attended to."""
        n, w, d = states.shape
        asked = self.asked(self.attention_norm(states)).view(n, w, 3, self.heads, d // self.heads)
        queries, keys, values = asked.permute(2, 0, 3, 1, 4)  # [N, heads, W, d / heads]
        found = F.scaled_dot_product_attention(queries, keys, values, there[:, None, None, :].expand(-1, -1, w, -1))
        states = states + self.answered(found.transpose(1, 2).reshape(n, w, d))
        dense: Tensor = self.narrow(F.relu(self.widen(self.dense_norm(states))))
        return states + dense


class AttentionPool(nn.Module):
    """Vectors weighed by how much they matter: Σ softmax(v · tanh(W x)) x."""

    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(dimension, dimension)
        self.query = nn.Parameter(torch.randn(dimension) * dimension**-0.5)

    def forward(self, vectors: Tensor, there: Tensor) -> tuple[Tensor, Tensor]:
        """The weighed sum [N, d] of vectors [N, W, d], and the weights [N, W]; zeros where nothing is there."""
        weights = masked_softmax(torch.tanh(self.hidden(vectors)) @ self.query, there, dim=1)
        return (weights.unsqueeze(1) @ vectors).squeeze(1), weights


class ReviewReading(NamedTuple):
    """What a side takes from its documents."""

    side: Tensor  # [B, k]
    word_attention: Tensor  # [B, R, W]
    review_attention: Tensor  # [B, R]


class SidePool(nn.Module):
    """One side: an attention over reviews, and a dense layer."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.pool = AttentionPool(config.dimension)
        self.dense = quiet_dense(config.dimension, config.latent_size)  # W_t, b_t


class Transformer(FactorProduct):
    Config = TransformerConfig
    text_defaults = REVIEWS_ALONE
    training_defaults: ClassVar[dict[str, Any]] = {"learning_rate": 0.0005}
    explained_by = "attention"
    config: TransformerConfig

    def __init__(self, config: TransformerConfig, sizes: Sizes) -> None:
        super().__init__(config, sizes)
        d = config.dimension
        self.embedding = WordEmbedding(sizes.words + 1, d, padding_idx=0)
        self.places = nn.Parameter(torch.randn(config.review_words, d) * 0.1)
        self.encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.layers))
        self.last_norm = nn.LayerNorm(d)
        self.word_pool = AttentionPool(d)
        self.user_pool = SidePool(config)
        self.item_pool = SidePool(config)

    @classmethod
    def review_cut(cls, config: TransformerConfig) -> ReviewCut:
        return ReviewCut(config.reviews, config.review_words)

    def encode_users(self, words: Tensor, reviews: Tensor) -> Tensor:
        return self.read(self.user_pool, words, reviews).side

    def encode_items(self, words: Tensor, reviews: Tensor) -> Tensor:
        return self.read(self.item_pool, words, reviews).side

    def read(self, side: SidePool, words: Tensor, reviews: Tensor) -> ReviewReading:
        found = review_sets(words, reviews, self.config.reviews, self.config.review_words)
        distinct, slots = distinct_words(found.words)
        vectors = F.dropout(word_rows(self.embedding.weight, distinct), self.config.dropout, self.training)
        filled = found.filled()
        slots, rows = slots.flatten(0, 1)[filled], found.words.flatten(0, 1)[filled]
        of_review, of_word = self.word_pool(self.encode(F.embedding(slots, vectors), rows > 0), rows > 0)
        summed, review_attention = side.pool(found.spread(of_review, filled), found.there)
        return ReviewReading(side.dense(summed), found.spread(of_word, filled), review_attention)

    def encode(self, vectors: Tensor, there: Tensor) -> Tensor:
        """The words of reviews [N, W, d] after they have read each other."""
        states = vectors + self.places[: vectors.shape[1]]
        for layer in self.encoder:
            states = layer(states, there)
        found: Tensor = self.last_norm(states)
        return found

    def explain(self, batch: Batch, prediction: Prediction) -> Attention:
        """The attention of each review, shared out among its words by theirs."""
        return Attention(
            user_words=self._heard(self.user_pool, batch.user_words, batch.user_reviews),
            item_words=self._heard(self.item_pool, batch.item_words, batch.item_reviews),
            user_names=("attended words",),
            item_names=("attended words",),
            meaning=(
                "A review counts as much as the model attends to it, and a word as much as it attends to the word "
                "there, which has read the words around it. " + NO_DIRECTION
            ),
        )

    def _heard(self, side: SidePool, words: Tensor, reviews: Tensor) -> Tensor:
        read = self.read(side, words, reviews)
        heard = read.word_attention * read.review_attention.unsqueeze(-1)
        return in_documents(heard, words, reviews, self.config.reviews).unsqueeze(-1)
