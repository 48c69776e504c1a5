"""Only what two or more models share."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from carp.models.batch import Pairs, Sizes, TrainingData
from carp.models.divided_table import word_rows
from carp.models.leave_one_out import MOST_ROUNDS, alternate, own_growth

SHRINKAGES = (0.5, 1.0, 2.0, 3.0, 5.0, 7.0, 10.0, 15.0, 20.0, 30.0, 50.0, 100.0)


def squash(vectors: Tensor, epsilon: float = 1e-12) -> Tensor:
    """Shorten vectors to a length in [0, 1) and keep their direction (Equation 5 of CARP).

    ε stands under the square root alone: the gradient at the zero vector exists, elsewhere nothing changes.
    """
    square = vectors.square().sum(-1, keepdim=True)
    return square / (1 + square) * vectors / (square + epsilon).sqrt()


def masked_softmax(scores: Tensor, mask: Tensor, dim: int) -> Tensor:
    """Softmax over the true places of the mask; all zero where there is none. Padding never takes attention."""
    scores = scores.masked_fill(~mask, float("-inf"))
    highest = scores.amax(dim, keepdim=True).clamp_min(torch.finfo(scores.dtype).min)
    weights = (scores - highest.detach()).exp()
    return weights / weights.sum(dim, keepdim=True).clamp_min(torch.finfo(scores.dtype).tiny)


class WordConvolution(nn.Module):
    """A convolution over word embeddings, as sums of look-ups.

    Every distinct word of the batch is multiplied by the window's filter slices once; the feature of a place is
    the sum of its neighbours' slices. Words of another review (or beyond the document) are no neighbours unless
    `across_reviews`: so a left-out review leaves no trace in the words beside it.
    """

    def __init__(self, dimension: int, filters: int, window: int, *, across_reviews: bool = False) -> None:
        super().__init__()
        self.window = window
        self.across_reviews = across_reviews
        self.weight = nn.Parameter(torch.empty(window, dimension, filters))
        self.bias = nn.Parameter(torch.zeros(filters))
        nn.init.normal_(self.weight, std=(window * dimension) ** -0.5)

    def forward(self, table: Tensor, words: Tensor, reviews: Tensor, dropout: float = 0.0) -> Tensor:
        """Features [B, L, n]; `dropout` is the share of the filters' weights that is left out."""
        distinct, slots = torch.unique(words, return_inverse=True)
        weight = F.dropout(self.weight, dropout, self.training) if dropout else self.weight
        slices = word_rows(table, distinct) @ weight  # [window, V', n]
        slices = slices * (distinct > 0).unsqueeze(-1)
        half = self.window // 2
        nowhere = len(distinct)  # a row of zeros for neighbours that are not there
        slices = F.pad(slices, (0, 0, 0, 1))
        slots = F.pad(slots, (half, half), value=nowhere)
        neighbours = F.pad(reviews, (half, half), value=-1)
        width = words.shape[1]
        features = self.bias.expand(*words.shape, -1)
        for step in range(self.window):
            places = slots[:, step : step + width]
            if step != half and not self.across_reviews:
                same = neighbours[:, step : step + width] == reviews
                places = torch.where(same, places, nowhere)
            features = features + F.embedding(places, slices[step])
        return features  # [B, L, n]


class WindowSum(nn.Module):
    """A convolution over weighted words, as sums of look-ups.

    W ∗ (s_j x_j) is a sum of s_j (W x_j): each distinct word meets each slice of the window once, and its weight at
    each place afterwards. An even window has one word more before its middle than after it.
    """

    def __init__(self, dimension: int, filters: int, window: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(window, dimension, filters) * (window * dimension) ** -0.5)
        self.bias = nn.Parameter(torch.zeros(filters))

    def forward(self, rows: Tensor, slots: Tensor, reviews: Tensor, attention: Tensor | None = None) -> Tensor:
        """Features [B, L, n]; neighbours are words of the same review. The row of the padding is zero."""
        window, nowhere = len(self.weight), len(rows)
        slices = F.pad(rows @ self.weight, (0, 0, 0, 1))  # [window, V' + 1, n], the last a row of zeros
        before, width = window // 2, slots.shape[1]
        around = (before, window - 1 - before)
        slots = F.pad(slots, around, value=nowhere)
        neighbours = F.pad(reviews, around, value=-1)
        weights = None if attention is None else F.pad(attention, around).unsqueeze(-1)
        features: Tensor = self.bias
        for step in range(window):
            reach = slice(step, step + width)
            places = torch.where(neighbours[:, reach] == reviews, slots[:, reach], nowhere)
            part = F.embedding(places, slices[step])
            features = features + (part if weights is None else part * weights[:, reach])
        return features


class SizedByData(nn.Module):
    """A module with buffers whose sizes only the data know: they take the size of a state that is loaded."""

    sized_by_data: ClassVar[tuple[str, ...]] = ()
    absent_before: ClassVar[tuple[str, ...]] = ()  # of those, what earlier versions did not save: it stays empty

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        for name in self.absent_before:
            state_dict.setdefault(f"{prefix}{name}", getattr(self, name)[:0])
        for name in self.sized_by_data:
            if f"{prefix}{name}" in state_dict:
                setattr(self, name, torch.empty_like(state_dict[f"{prefix}{name}"], device=getattr(self, name).device))
        super()._load_from_state_dict(state_dict, prefix, *rest)


class TunedBiases(SizedByData):
    """μ + b_u + b_i with ridge penalties on both, their strengths chosen on validation.

    Minimises Σ (r − μ − b_u − b_i)² + λ_u Σ b_u² + λ_i Σ b_i² by alternating exact solutions.
    For a training pair the biases are taken without its own rating: that rating sits in both sums and in μ, and a
    bias fitted on the very rating it predicts looks better than it is. `leave_out` prepares that, in closed form.
    """

    sized_by_data = ("pairs", "growth")
    absent_before = sized_by_data  # what models saved with the other side's bias fixed do without
    mean: Tensor
    user: Tensor
    item: Tensor
    user_weight: Tensor  # n_u + λ_u
    item_weight: Tensor
    shrinkage: Tensor  # λ_u, λ_i
    pairs: Tensor  # [P] user · items + item of training pairs, in order
    growth: Tensor  # [P, 2] of e and of r − μ in the error of a prediction that has not seen r

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(()))
        self.register_buffer("user", torch.zeros(sizes.users))
        self.register_buffer("item", torch.zeros(sizes.items))
        self.register_buffer("user_weight", torch.ones(sizes.users))
        self.register_buffer("item_weight", torch.ones(sizes.items))
        self.register_buffer("shrinkage", torch.zeros(2))
        self.register_buffer("pairs", torch.zeros(0, dtype=torch.int64))
        self.register_buffer("growth", torch.zeros(0, 2))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        super()._load_from_state_dict(state_dict, prefix, *rest)
        if self.growth.shape != (len(self.pairs), 2):
            raise ValueError(f"{prefix}growth is not two numbers for each of {prefix}pairs")

    @torch.no_grad()
    def fit(self, train: Pairs, valid: Pairs, levels: int) -> None:
        best: tuple[float, float, float] | None = None
        known = train.apart_from(valid)  # fitted on all reviews, the validation pairs are among them
        for user_shrinkage in SHRINKAGES:
            for item_shrinkage in SHRINKAGES:
                mean, user, item = solve_biases(
                    known, user_shrinkage, item_shrinkage, len(self.user), len(self.item), rounds=5
                )
                guess = np.clip(mean + user[valid.users] + item[valid.items], 1, levels)
                error = float(np.square(guess - valid.ratings).mean())
                if best is None or error < best[0]:
                    best = (error, user_shrinkage, item_shrinkage)
        assert best is not None
        _, user_shrinkage, item_shrinkage = best
        mean, user, item = solve_biases(
            train, user_shrinkage, item_shrinkage, len(self.user), len(self.item), rounds=MOST_ROUNDS
        )
        self.mean.fill_(mean)
        self.user.copy_(torch.from_numpy(user))
        self.item.copy_(torch.from_numpy(item))
        self.user_weight.copy_(torch.from_numpy(np.bincount(train.users, minlength=len(user)) + user_shrinkage))
        self.item_weight.copy_(torch.from_numpy(np.bincount(train.items, minlength=len(item)) + item_shrinkage))
        self.shrinkage.copy_(torch.tensor([user_shrinkage, item_shrinkage]))

    @torch.no_grad()
    def leave_out(self, train: Pairs) -> None:
        """Work out what each rating of `train`, on which the biases were fitted, does to its own prediction."""
        weights = [weight.double().cpu().numpy() for weight in (self.user_weight, self.item_weight)]
        pairs, growth = own_growth(train.users, train.items, *weights)
        self.pairs = torch.from_numpy(pairs).to(self.pairs.device)
        self.growth = torch.from_numpy(growth).to(self.growth)

    def forward(self, users: Tensor, items: Tensor, own_ratings: Tensor | None = None) -> Tensor:
        """The biases' rating [B]; with `own_ratings`, each pair's as if its own rating had not been there."""
        rating = self.mean + take_or(self.user, users, 0.0) + take_or(self.item, items, 0.0)
        if own_ratings is None:
            return rating
        of_error, of_rating = self._growth(users, items).unbind(-1)
        return own_ratings - of_error * (own_ratings - rating) - of_rating * (own_ratings - self.mean)

    def _growth(self, users: Tensor, items: Tensor) -> Tensor:
        """What `leave_out` found [B, 2]; of pairs it was not given, what holds with the other side's bias fixed."""
        both = 1 + 1 / (self.user_weight[users] - 1) + 1 / (self.item_weight[items] - 1)
        fixed = torch.stack([both, torch.zeros_like(both)], -1)
        if not len(self.pairs):
            return fixed
        key = users * len(self.item) + items
        place = torch.searchsorted(self.pairs, key).clamp_max(len(self.pairs) - 1)
        return torch.where((self.pairs[place] == key).unsqueeze(-1), self.growth[place], fixed)


@torch.no_grad()
def start_at_biases(data: TrainingData, sizes: Sizes, mean: Tensor, *sides: Tensor) -> None:
    """Copy the tuned mean and, if they are given, the tuned biases of users and items to where a model learns them."""
    biases = TunedBiases(sizes)
    biases.fit(data.train, data.valid, sizes.levels)
    for learned, tuned in zip((mean, *sides), (biases.mean, biases.user, biases.item), strict=False):
        learned.copy_(tuned)


def take_or(values: Tensor, places: Tensor, unknown: float | Tensor) -> Tensor:
    """Values at the places, and `unknown` where a place is -1.

    >>> take_or(torch.tensor([3.0, 4.0]), torch.tensor([1, -1]), 0.5).tolist()
    [4.0, 0.5]
    """
    other = unknown if isinstance(unknown, float) else unknown.to(values.dtype)
    return torch.where(places >= 0, values[places.clamp_min(0)], other)


def take_rows(table: Tensor, places: Tensor) -> Tensor:
    """Rows of a table [B, k], zero where a place is -1."""
    return F.embedding(places.clamp_min(0), table) * (places >= 0).unsqueeze(-1)


def max_over_words(features: Tensor, there: Tensor) -> Tensor:
    """The largest of each feature [B, L, n] over the words that are there [B, L]; zero where there is none.

    >>> features = torch.tensor([[[-3.0], [-2.0], [9.0]], [[1.0], [2.0], [3.0]]])
    >>> max_over_words(features, torch.tensor([[True, True, False], [False, False, False]])).tolist()
    [[-2.0], [0.0]]
    """
    largest = features.masked_fill(~there.unsqueeze(-1), torch.finfo(features.dtype).min).amax(1)
    return torch.where(there.any(1, keepdim=True), largest, 0.0)


def solve_biases(
    train: Pairs, user_shrinkage: float, item_shrinkage: float, users: int, items: int, *, rounds: int
) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
    """Mean, user and item biases in float64 by alternating between the two exact solutions, at most so many rounds."""
    ratings = train.ratings.astype(np.float64)
    mean = float(ratings.mean())
    rest = ratings - mean
    user_weight = np.bincount(train.users, minlength=users).astype(np.float64) + user_shrinkage
    item_weight = np.bincount(train.items, minlength=items).astype(np.float64) + item_shrinkage
    user, item = alternate(train.users, train.items, rest, user_weight, item_weight, rounds=rounds)
    return mean, user, item


class FactorizationMachine(nn.Module):
    """w₀ + w·x + Σ_{i<j} ⟨f_i, f_j⟩ x_i x_j over a feature vector (Rendle, ICDM 2010)."""

    def __init__(self, features: int, factors: int) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(()))  # w₀; models start it at the mean rating
        self.weight = nn.Parameter(torch.randn(features) * 0.01)
        self.factors = nn.Parameter(torch.randn(features, factors) * 0.01)

    def forward(self, features: Tensor) -> Tensor:
        both = (features @ self.factors).square().sum(-1)
        each = (features.square() @ self.factors.square()).sum(-1)
        return self.mean + features @ self.weight + (both - each) / 2  # [B]
