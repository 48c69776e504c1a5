"""NARRE: reviews weighed by how useful they are, beside factors of ratings.

Chen, Zhang, Liu, Ma: "Neural Attentional Rating Regression with Review-level Explanations", WWW 2018.

    paper          here                    shape        meaning
    V_{i,l}        words                   [B, R, W]    documents as sets of reviews, word numbers
    O_{i,l}        pooled                  [B, R, n]    a review: each filter's largest value in it
    u_{il}, i_{ul} writers, things         [B, R, k]    who wrote a thing's review, what a person's review is about
    a_{il}         attention               [B, R]       how useful a review is
    O_i            attended                [B, n]       the reviews together
    X_u, Y_i       sides                   [B, k]       what the reviews say of the person, of the thing
    q_u, p_i, W_1  in FactorProduct                     what the ratings say of them, and how it counts
    b_u, b_i, μ    in FactorProduct                     biases
    R, W           reviews, review_words

    O_{il,j} = max over the words of ReLU(V_{i,l} ∗ K_j + b_j)
    a*_{il}  = hᵀ ReLU(W_O O_{il} + W_u u_{il} + b_1),      a_{il} = softmax over the reviews of a*_{il}
    O_i      = Σ_l a_{il} O_{il},   Y_i = W_0 O_i + b_0
    rating   = W_1ᵀ ((q_u + X_u) ⊙ (p_i + Y_i)) + b_u + b_i + μ

trained on the squared error. Each side has filters, attention and W_0 of its own.

Ours: the words are learned from scratch and shared by both sides; the attention's last bias is left out, since
a softmax does not hear it; b_u, b_i and μ start at the tuned biases (`biases="zero"`: only μ does) and W_1 at ones, so
that the product starts as that of a factorisation; dropout is on the product; somebody unknown by number has zeros for
q_u, and a review that was not trained on has zeros for its writer and its thing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from carp.models.base import NO_DIRECTION, Attention, Prediction, first_order_influence, shares
from carp.models.batch import Batch, Sizes, TrainingData
from carp.models.divided_table import WordEmbedding
from carp.models.factor_product import FactorProduct, quiet_dense
from carp.models.layers import WordConvolution, masked_softmax, max_over_words, take_rows
from carp.models.review_sets import REVIEWS_ALONE, ReviewPartners, ReviewSets, in_documents, review_sets
from carp.reviews.documents import ReviewCut


@dataclass(frozen=True)
class NarreConfig:
    dimension: int = 300  # of word embeddings
    window: int = 3
    filters: int = 50  # n; the paper has 100, CARP's comparison 50
    latent_size: int = 32  # k
    hidden_size: int = 32  # of the attention's hidden layer
    reviews: int = 30  # R: at most so many reviews of one person or thing are read
    review_words: int = 60  # W: at most so many words of each review are read
    dropout: float = 0.5
    biases: Literal["zero", "tuned"] = "tuned"  # where b_u and b_i start


class UsefulReviews(NamedTuple):
    """What a side takes from its documents."""

    pooled: Tensor  # [B, R, n]
    attention: Tensor  # [B, R]
    words: Tensor  # [B, R, W]

    @property
    def weighed(self) -> Tensor:
        return self.attention.unsqueeze(-1) * self.pooled  # [B, R, n]


class ReviewReader(nn.Module):
    """One side: a convolution over each review, an attention over the reviews, and W_0."""

    def __init__(self, config: NarreConfig, partners: int) -> None:
        super().__init__()
        n, k, t = config.filters, config.latent_size, config.hidden_size
        self.cut = Narre.review_cut(config)
        self.convolution = WordConvolution(config.dimension, n, config.window)  # K_j, b_j
        self.partners = nn.Parameter(torch.randn(partners, k) * 0.1)  # u_{il} or i_{ul}
        self.of_review = nn.Linear(n, t)  # W_O, b_1
        self.of_partner = nn.Parameter(torch.randn(k, t) * k**-0.5)  # W_u
        self.usefulness = nn.Parameter(torch.randn(t) * t**-0.5)  # h
        self.dense = quiet_dense(n, k)  # W_0, b_0

    def read(self, table: Tensor, sets: ReviewSets, partners: Tensor) -> UsefulReviews:
        """From sets of reviews, and whom else each concerns [B, R]."""
        filled = sets.filled()
        rows = sets.words.flatten(0, 1)[filled]
        largest = max_over_words(self.features(table, rows), rows > 0)
        pooled = sets.spread(F.relu(largest), filled)  # ReLU rises: the largest stays the largest
        hidden = F.relu(self.of_review(pooled) + take_rows(self.partners, partners) @ self.of_partner)
        attention = masked_softmax(hidden @ self.usefulness, sets.there, dim=1)
        return UsefulReviews(pooled, attention, sets.words)

    def features(self, table: Tensor, rows: Tensor) -> Tensor:
        """What each filter finds around each word of reviews [N, W]; padding is no neighbour. [N, W, n]"""
        found: Tensor = self.convolution(table, rows, (rows > 0).int() - 1)
        return found

    def shared_out(self, table: Tensor, read: UsefulReviews, pull: Tensor) -> Tensor:
        """The attention of reviews among their words, by how much what was found there moves the rating. [B, R, W]"""
        rows = read.words.flatten(0, 1)
        features = self.features(table, rows)
        lowest = torch.finfo(features.dtype).min
        strongest = features.masked_fill(~(rows > 0).unsqueeze(-1), lowest).argmax(1)  # [B · R, n]
        amounts = pull.new_zeros(rows.shape).scatter_add(1, strongest, pull.flatten(0, 1))
        return shares(amounts, rows > 0).view(read.words.shape) * read.attention.unsqueeze(-1)

    def side(self, weighed: Tensor) -> Tensor:
        """X_u or Y_i [B, k] from weighed reviews [B, R, n]."""
        found: Tensor = self.dense(weighed.sum(1))
        return found


class Narre(FactorProduct):
    Config = NarreConfig
    text_defaults = REVIEWS_ALONE
    explained_by = "attention"
    config: NarreConfig

    def __init__(self, config: NarreConfig, sizes: Sizes) -> None:
        super().__init__(config, sizes)
        self.embedding = WordEmbedding(sizes.words + 1, config.dimension, padding_idx=0)
        self.records = ReviewPartners(sizes)
        self.user_reader = ReviewReader(config, sizes.items)
        self.item_reader = ReviewReader(config, sizes.users)

    @classmethod
    def review_cut(cls, config: NarreConfig) -> ReviewCut:
        return ReviewCut(config.reviews, config.review_words)

    def start(self, data: TrainingData) -> None:
        super().start(data)
        self.records.fit(data.train)

    def encode_users(self, words: Tensor, reviews: Tensor) -> Tensor:
        return self.user_reader.side(self.read_users(words, reviews).weighed)  # X_u

    def encode_items(self, words: Tensor, reviews: Tensor) -> Tensor:
        return self.item_reader.side(self.read_items(words, reviews).weighed)  # Y_i

    def read_users(self, words: Tensor, reviews: Tensor) -> UsefulReviews:
        found = review_sets(words, reviews, self.config.reviews, self.config.review_words)
        return self.user_reader.read(self.embedding.weight, found, self.records.things(found.records))

    def read_items(self, words: Tensor, reviews: Tensor) -> UsefulReviews:
        found = review_sets(words, reviews, self.config.reviews, self.config.review_words)
        return self.item_reader.read(self.embedding.weight, found, self.records.writers(found.records))

    def explain(self, batch: Batch, prediction: Prediction) -> Attention:
        """a of both documents; inside a review, what the filters kept at each word moves the rating."""
        user = self.read_users(batch.user_words, batch.user_reviews)
        item = self.read_items(batch.item_words, batch.item_reviews)

        def rating(of_user: Tensor, of_item: Tensor) -> Tensor:
            sides = self.user_reader.side(of_user), self.item_reader.side(of_item)
            return self.score(batch.users, batch.items, *sides).rating

        user_pull, item_pull = first_order_influence(rating, user.weighed, item.weighed)
        return Attention(
            user_words=self._heard(self.user_reader, user, user_pull, batch.user_words, batch.user_reviews),
            item_words=self._heard(self.item_reader, item, item_pull, batch.item_words, batch.item_reviews),
            user_names=("useful reviews",),
            item_names=("useful reviews",),
            meaning=(
                "A review counts as much as the model finds it useful; inside it, a word is listened to as much as "
                "what was kept there moves the rating. " + NO_DIRECTION
            ),
            window=self.config.window,
        )

    def _heard(self, reader: ReviewReader, read: UsefulReviews, pull: Tensor, words: Tensor, reviews: Tensor) -> Tensor:
        """The attention of each review, shared out among its words. [B, L, 1]"""
        shared = reader.shared_out(self.embedding.weight, read, pull)
        return in_documents(shared, words, reviews, self.config.reviews).unsqueeze(-1)
