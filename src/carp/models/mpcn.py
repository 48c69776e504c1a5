"""MPCN: pointers that choose one review of the user and one of the item, and compare them word by word.

Tay, Luu, Hui: "Multi-Pointer Co-Attention Networks for Recommendation", KDD 2018.

    paper           here                 shape             meaning
    —               words                [B, R, W]         documents as sets of reviews, word numbers
    w               vectors              [B, R, W, k]      word embeddings
    x_i             —                    [B, R, k]         a review: the sum of its words
    x̄_i             reviews              [B, R, k]         the same through the review gates
    φ_{ij}          affinity             [B, P, R, R]      how well a user's review goes with an item's
    p_a, p_b        user, item pointers  [B, P, R]         one review each, a one-hot row
    w_{ij}          —                    [B, P, W, W]      the same for the words of the two chosen reviews
    a'_f, b'_f      pooled               [B, P, k]         what a pointer found
    a_f, b_f        sides                [B, k]            the pointers together
    P, R, W         pointers, reviews, review_words

    x̄_i   = σ(W_g x_i + b_g) ⊙ tanh(W_u x_i + b_u)
    φ_{ij} = F(ā_i)ᵀ M F(b̄_j),                    F one dense layer with relu, shared by both sides
    p_a   = gumbel(max over j of φ_{ij}),  p_b = gumbel(max over i of φ_{ij})
    w_{ij} = F'(w_i)ᵀ M' F'(w_j)  over the words of the two reviews pointed at
    a'_f  = Σ_i softmax over i of (mean over j of w_{ij}) · w_i,   b'_f = Σ_j softmax over j of (mean over i) · w_j
    a_f   = relu(W (a'_1; …; a'_P; x̄'s mean) + b),  rating = factorisation machine of (a_f; b_f)

Every pointer has an F, M, F', M' of its own. The Gumbel softmax is straight-through: forwards a one-hot choice,
backwards the softmax at `temperature`. Noise is drawn in training only; a prediction takes the largest.

How it is computed: the mean over j of F'(w_i)ᵀ M' F'(w_j) is F'(w_i)ᵀ M' (mean over j of F'(w_j)), so the W × W
words of two reviews are never formed.

Ours: words are embedded in `dimension` and mapped to `latent_size` k by one matrix, everything after is in k (the
paper's word embeddings are as long as its layers); the gated reviews join the pointers as their mean, so that how
much somebody wrote does not move the rating; w₀ starts at the mean rating; dropout is on the words' vectors and on
the two sides; a document without reviews points nowhere and has zeros for all it could have found.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from carp.models.base import NO_DIRECTION, Attention, Prediction, RatingModel, first_order_influence, shares
from carp.models.batch import Batch, Sizes, TrainingData
from carp.models.batch_share import distinct_words, drawn_rows, drop_rows
from carp.models.divided_table import WordEmbedding, word_rows
from carp.models.layers import FactorizationMachine, masked_softmax
from carp.models.review_sets import REVIEWS_ALONE, as_reviews, places_in_reviews
from carp.reviews.documents import ReviewCut


@dataclass(frozen=True)
class MpcnConfig:
    dimension: int = 300  # of word embeddings
    latent_size: int = 50  # k, of everything else
    reviews: int = 30  # R: at most so many reviews of one person or thing are read
    review_words: int = 20  # W: at most so many words of each review are read
    pointers: int = 3  # P
    temperature: float = 0.5  # of the softmax that gradients go through
    factors: int = 10  # of the factorisation machine
    dropout: float = 0.2


class Shelf(NamedTuple):
    """One side's documents as sets of reviews."""

    vectors: Tensor  # [B, R, W, k] of words, zeros where there is none
    there: Tensor  # [B, R, W]
    reviews: Tensor  # x̄, [B, R, k]

    @property
    def any_words(self) -> Tensor:
        return self.there.any(-1)  # [B, R]


class Mpcn(RatingModel):
    Config = MpcnConfig
    text_defaults = REVIEWS_ALONE
    needs = frozenset({"documents"})
    explained_by = "attention"
    config: MpcnConfig

    def __init__(self, config: MpcnConfig, sizes: Sizes) -> None:
        super().__init__(config, sizes)
        k, p = config.latent_size, config.pointers
        self.embedding = WordEmbedding(sizes.words + 1, config.dimension, padding_idx=0)
        # A review is the sum of up to W words: at this scale the gates do not start saturated.
        self.projection = nn.Parameter(
            torch.randn(config.dimension, k) * (config.dimension * config.review_words) ** -0.5
        )
        self.gate = nn.Linear(k, k)  # W_g, b_g
        self.content = nn.Linear(k, k)  # W_u, b_u
        self.review_layer = nn.Parameter(torch.randn(p, k, k) * k**-0.5)  # F
        self.review_bias = nn.Parameter(torch.zeros(p, 1, k))
        self.review_affinity = nn.Parameter(torch.randn(p, k, k) * k**-0.5)  # M
        self.word_layer = nn.Parameter(torch.randn(p, k, k) * k**-0.5)  # F'
        self.word_bias = nn.Parameter(torch.zeros(p, 1, k))
        self.word_affinity = nn.Parameter(torch.randn(p, k, k) * k**-0.5)  # M'
        self.together = nn.Linear((p + 1) * k, k)  # W, b
        self.head = FactorizationMachine(2 * k, config.factors)

    @classmethod
    def review_cut(cls, config: MpcnConfig) -> ReviewCut:
        return ReviewCut(config.reviews, config.review_words)

    def start(self, data: TrainingData) -> None:
        with torch.no_grad():
            self.head.mean.fill_(float(data.train.ratings.mean()))

    def forward(self, batch: Batch) -> Prediction:
        user = self.shelve(batch.user_words, batch.user_reviews)
        item = self.shelve(batch.item_words, batch.item_reviews)
        user_pointers, item_pointers = self.point(user, item)
        user_words, user_there = choose(user, user_pointers)
        item_words, item_there = choose(item, item_pointers)
        across = self.word_affinity  # M', from a user's word to an item's
        user_attention = self.compare(user_words, user_there, item_words, item_there, across)
        item_attention = self.compare(item_words, item_there, user_words, user_there, across.mT)
        user_pooled = (user_attention.unsqueeze(-1) * user_words).sum(2)  # a'_f
        item_pooled = (item_attention.unsqueeze(-1) * item_words).sum(2)  # b'_f
        user_side, item_side = self.combine(user_pooled, user), self.combine(item_pooled, item)
        return Prediction(
            self.rate(user_side, item_side),
            {
                "user_pointers": user_pointers,
                "item_pointers": item_pointers,
                "user_attention": user_attention,
                "item_attention": item_attention,
                "user_pooled": user_pooled,
                "item_pooled": item_pooled,
                "user_side": user_side,
                "item_side": item_side,
            },
        )

    def rate(self, user_side: Tensor, item_side: Tensor) -> Tensor:
        features = drop_rows(torch.cat([user_side, item_side], -1), self.config.dropout, self.training)
        rating: Tensor = self.head(features)
        return rating

    def explain(self, batch: Batch, prediction: Prediction) -> Attention:
        """The words' attention in the review of each pointer, which weighs what it found moves the rating."""
        user = self.shelve(batch.user_words, batch.user_reviews)
        item = self.shelve(batch.item_words, batch.item_reviews)
        shown = prediction.tensors
        found = first_order_influence(
            lambda of_user, of_item: self.rate(self.combine(of_user, user), self.combine(of_item, item)),
            shown["user_pooled"],
            shown["item_pooled"],
        )
        user_pull, item_pull = (pull.sum(-1) for pull in found)  # [B, P]
        names = tuple(f"pointer {p + 1}" for p in range(self.config.pointers))
        return Attention(
            user_words=self._in_document(batch.user_words, batch.user_reviews, shown, "user"),
            item_words=self._in_document(batch.item_words, batch.item_reviews, shown, "item"),
            user_names=names,
            item_names=names,
            meaning=(
                "A pointer picks one review of each and compares their words; besides, all reviews together have "
                "a say in the rating. " + NO_DIRECTION
            ),
            user_weights=shares(user_pull, torch.ones_like(user_pull, dtype=torch.bool)),
            item_weights=shares(item_pull, torch.ones_like(item_pull, dtype=torch.bool)),
        )

    def _in_document(self, words: Tensor, reviews: Tensor, shown: dict[str, Tensor], side: str) -> Tensor:
        """What the pointers attend to in the reviews [B, P, W], at the words' places in the document. [B, L, P]"""
        config = self.config
        number, place, kept = places_in_reviews(words, reviews, config.reviews, config.review_words)
        pointers, attention = shown[f"{side}_pointers"], shown[f"{side}_attention"]
        number, place = (
            at.where(kept, torch.zeros_like(at)).unsqueeze(1).expand(-1, config.pointers, -1) for at in (number, place)
        )
        heard = (pointers.gather(2, number) > 0.5) * attention.gather(2, place) * kept.unsqueeze(1)
        return heard.transpose(1, 2)

    def shelve(self, words: Tensor, reviews: Tensor) -> Shelf:
        words = as_reviews(words, reviews, self.config.reviews, self.config.review_words)  # [B, R, W]
        there = words > 0
        distinct, slots = distinct_words(words)
        vectors = word_rows(self.embedding.weight, distinct) @ self.projection  # [V', k]
        vectors = F.dropout(vectors, self.config.dropout, self.training)
        vectors = F.embedding(slots, vectors * (distinct > 0).unsqueeze(-1))
        written = vectors.sum(2)  # x_i
        gated = torch.sigmoid(self.gate(written)) * torch.tanh(self.content(written))  # x̄_i
        return Shelf(vectors, there, gated * there.any(-1, keepdim=True))

    def point(self, user: Shelf, item: Shelf) -> tuple[Tensor, Tensor]:
        """p_a and p_b [B, P, R]: the review that goes best with any of the other side's, for each pointer."""
        left, right = (self._review_level(side.reviews) for side in (user, item))  # [B, P, R, k]
        affinity = left @ self.review_affinity @ right.transpose(2, 3)  # φ, [B, P, Ru, Ri]
        user_there, item_there = user.any_words.unsqueeze(1), item.any_words.unsqueeze(1)  # [B, 1, R]
        user_best = masked_max(affinity, item_there.unsqueeze(2), dim=3)
        item_best = masked_max(affinity, user_there.unsqueeze(3), dim=2)
        return self._gumbel(user_best, user_there), self._gumbel(item_best, item_there)

    def _review_level(self, reviews: Tensor) -> Tensor:
        return F.relu(reviews.unsqueeze(1) @ self.review_layer + self.review_bias)

    def _gumbel(self, scores: Tensor, there: Tensor) -> Tensor:
        if self.training:
            drawn = drawn_rows(scores, Tensor.exponential_).clamp_min(torch.finfo(scores.dtype).tiny)
            scores = scores - drawn.log()
        soft = masked_softmax(scores / self.config.temperature, there, dim=-1)
        return one_hot_largest(scores, there) + soft - soft.detach()

    def compare(self, own: Tensor, own_there: Tensor, other: Tensor, other_there: Tensor, affinity: Tensor) -> Tensor:
        """How the words of the own chosen review are weighed by those of the other's. [B, P, W]"""
        others = self._word_level(other) * other_there.unsqueeze(-1)  # [B, P, W, k]
        mean = others.sum(2) / other_there.sum(-1, keepdim=True).clamp_min(1)  # [B, P, k]
        asked = affinity @ mean.unsqueeze(-1)  # [B, P, k, 1]
        return masked_softmax((self._word_level(own) @ asked).squeeze(-1), own_there, dim=-1)

    def _word_level(self, vectors: Tensor) -> Tensor:
        return F.relu(vectors @ self.word_layer + self.word_bias)

    def combine(self, pooled: Tensor, side: Shelf) -> Tensor:
        """a_f [B, k] from what the pointers found and from all reviews."""
        count = side.any_words.sum(-1, keepdim=True).clamp_min(1)
        found = torch.cat([pooled.flatten(1), side.reviews.sum(1) / count], -1)
        return F.relu(self.together(found))


def choose(side: Shelf, pointers: Tensor) -> tuple[Tensor, Tensor]:
    """The words of the reviews pointed at: vectors [B, P, W, k], and which of them are there [B, P, W]."""
    vectors = torch.einsum("bpr,brwk->bpwk", pointers, side.vectors)
    there = torch.einsum("bpr,brw->bpw", pointers.detach(), side.there.to(pointers.dtype)) > 0.5
    return vectors, there


def masked_max(values: Tensor, mask: Tensor, dim: int) -> Tensor:
    """The maximum over the true places; 0 where there is none."""
    highest = values.masked_fill(~mask, float("-inf")).amax(dim)
    return highest.masked_fill(~mask.any(dim), 0.0)


def one_hot_largest(scores: Tensor, mask: Tensor) -> Tensor:
    """One at the first of the largest true places of the last dimension; all zero where there is none.

    >>> one_hot_largest(torch.tensor([1.0, 7.0, 3.0, 3.0]), torch.tensor([True, False, True, True])).tolist()
    [0.0, 0.0, 1.0, 0.0]
    """
    scores = scores.masked_fill(~mask, float("-inf"))
    places = torch.arange(scores.shape[-1], device=scores.device)
    largest = (scores == scores.amax(-1, keepdim=True)) & mask
    first = torch.where(largest, places, len(places)).amin(-1, keepdim=True)
    return (places == first).to(scores.dtype)
