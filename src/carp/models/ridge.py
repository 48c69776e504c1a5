"""Ridge regression on leave-one-out biases and the TF-IDF of both documents: the least a text model must beat.

Hoerl, Kennard: "Ridge Regression: Biased Estimation for Nonorthogonal Problems", Technometrics 12 (1), 1970; term
weights after Salton, Buckley: "Term-Weighting Approaches in Automatic Text Retrieval", IP&M 24 (5), 1988.

    r̂_ui  = c₀ + c₁ (μ + b_u + b_i) + w_U · x_u + w_I · x_i

    x_dt  = (1 + ln tf_dt) · idf_t for the words and bigrams t of document d; x_d then divided by its length
    idf_t = 1 + ln((1 + D) / (1 + df_t)); D documents, t is in df_t of them; each side by itself

    minimise Σ_(u,i) (r_ui − r̂_ui)² + λ (‖w_U‖² + ‖w_I‖²)

    here: coefficients (c₀, c₁), user_text and item_text (idf and w of a side), bigrams (the known ones)

For a training pair, b_u and b_i are taken without its own rating and x_u and x_i without its own review: else the
biases know the answer and the text learns to stay silent. λ is chosen on validation; c is not penalised.

Ours: all of it. The two words of a bigram are neighbours in one review, so a review that is left out leaves none
behind. A document without one of its reviews differs from the whole one in that review's terms alone: the design
matrix is kept as whole documents and a small difference for each training pair, is never written out, and the
normal equations are solved by conjugate gradients from there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from carp.models.base import Attention, Prediction, RatingModel, additive_attention
from carp.models.batch import Batch, Pairs, Sizes, TrainingData
from carp.models.layers import TunedBiases
from carp.models.tfidf import NO_BIGRAM, Features, Occurrences, Terms, spread_over_words, term_occurrences

PENALTIES = (1000.0, 500.0, 250.0, 120.0, 60.0, 30.0, 15.0, 8.0, 4.0, 2.0, 1.0)


@dataclass(frozen=True)
class RidgeConfig:
    bigrams: int = 50_000  # at most so many, those in most reviews first
    min_bigram_reviews: int = 20  # a bigram must be in as many training reviews; rarer ones cost on validation
    penalty: float | None = None  # λ; chosen on validation if not given


class TextSide(nn.Module):
    """Documents of users, or of items, as one number each: w · x."""

    idf: Tensor
    weight: Tensor

    def __init__(self, terms: int) -> None:
        super().__init__()
        self.register_buffer("idf", torch.ones(terms))
        self.register_buffer("weight", torch.zeros(terms))

    def forward(self, row: Tensor, term: Tensor, rows: int) -> Tensor:
        """Text parts [rows] from the terms of documents, each as often as it occurs."""
        key, count = torch.unique(row * len(self.idf) + term, return_counts=True)
        row, added, length = self._weigh(key, count, rows)
        text: Tensor = added.new_zeros(rows).index_add(0, row, added) / length
        return text

    def parts(self, row: Tensor, term: Tensor, rows: int) -> Tensor:
        """The same text parts, as what each occurrence of a term adds: those of one term add alike."""
        key, place, count = torch.unique(row * len(self.idf) + term, return_inverse=True, return_counts=True)
        row, added, length = self._weigh(key, count, rows)
        parts: Tensor = (added / length[row] / count)[place]
        return parts

    def _weigh(self, key: Tensor, count: Tensor, rows: int) -> tuple[Tensor, Tensor, Tensor]:
        """Of each distinct term of a document its row and w · x before x is divided by its length, which is last."""
        row, term = key // len(self.idf), key % len(self.idf)
        value = (1 + count.to(self.idf.dtype).log()) * self.idf[term]
        square = value.new_zeros(rows).index_add(0, row, value.square())
        return row, value * self.weight[term], square.clamp_min(torch.finfo(value.dtype).tiny).sqrt()


class Ridge(RatingModel):
    Config = RidgeConfig
    needs = frozenset({"ids", "documents"})
    explained_by = "attention"
    separates = True
    learns = False
    config: RidgeConfig

    def __init__(self, config: RidgeConfig, sizes: Sizes) -> None:
        super().__init__(config, sizes)
        self.biases = TunedBiases(sizes)
        terms = sizes.words + 1 + config.bigrams  # term 0 is the padding, which no document has
        self.user_text, self.item_text = TextSide(terms), TextSide(terms)
        self.bigrams = nn.Buffer(torch.full((config.bigrams,), NO_BIGRAM))  # sorted; codes of carp.models.tfidf
        self.coefficients = nn.Buffer(torch.tensor([0.0, 1.0]))  # c₀, c₁
        self.penalty = nn.Buffer(torch.zeros(()))  # λ, as it was chosen

    def forward(self, batch: Batch) -> Prediction:
        users = self.encode_users(batch.user_words, batch.user_reviews)
        items = self.encode_items(batch.item_words, batch.item_reviews)
        return self.score(batch.users, batch.items, users, items, batch.own_ratings)

    def encode_users(self, words: Tensor, reviews: Tensor) -> Tensor:
        return self._encode(self.user_text, words, reviews)

    def encode_items(self, words: Tensor, reviews: Tensor) -> Tensor:
        return self._encode(self.item_text, words, reviews)

    def _encode(self, side: TextSide, words: Tensor, reviews: Tensor) -> Tensor:
        rows, terms, _ = self._terms(words, reviews)
        text: Tensor = side(rows, terms, len(words))
        return text.unsqueeze(-1)  # [B, 1]

    def _terms(self, words: Tensor, reviews: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return term_occurrences(words, reviews, self.bigrams, self.sizes.words)

    def score(
        self, users: Tensor, items: Tensor, user_sides: Tensor, item_sides: Tensor, own_ratings: Tensor | None = None
    ) -> Prediction:
        baseline = self.biases(users, items, own_ratings)
        text = user_sides.reshape(len(users)) + item_sides.reshape(len(users))
        rating = self.coefficients[0] + self.coefficients[1] * baseline + text
        return Prediction(rating, {"baseline": baseline, "text": text})

    def explain(self, batch: Batch, prediction: Prediction) -> Attention:
        """What the words of both documents add to the rating, and what they take away: two sides of each."""
        user = self.added(self.user_text, batch.user_words, batch.user_reviews)
        item = self.added(self.item_text, batch.item_words, batch.item_reviews)
        meaning = "Every word, and every pair of neighbours, adds to the rating or takes away from it by itself."
        return additive_attention(batch, user, item, prediction.tensors["text"], meaning)

    def added(self, side: TextSide, words: Tensor, reviews: Tensor) -> Tensor:
        """What each word adds to the rating [B, L]; a bigram's part goes to its two words in halves."""
        rows, terms, places = self._terms(words, reviews)
        parts = side.parts(rows, terms, len(words))
        return spread_over_words(parts, words.shape, (rows, terms, places), self.sizes.words)

    def chosen_settings(self) -> dict[str, Any]:
        return {"penalty": float(self.penalty)}

    @torch.no_grad()
    def start(self, data: TrainingData) -> None:
        self.biases.fit(data.train, data.valid, self.sizes.levels)
        self.biases.leave_out(data.train)
        words, config, device = self.sizes.words, self.config, self.bigrams.device
        places = Occurrences.of(data.user_documents, device)
        bigrams = places.frequent_bigrams(words, config.bigrams, config.min_bigram_reviews)
        self.bigrams.fill_(NO_BIGRAM)
        self.bigrams[: len(bigrams)] = bigrams
        leave_out = torch.from_numpy(data.train.records).to(device) if data.target_reviews == "leave out" else None
        sides = []
        for text, documents, pairs in (
            (self.user_text, data.user_documents, "users"),
            (self.item_text, data.item_documents, "items"),
        ):
            terms = Terms.of(Occurrences.of(documents, device), bigrams, words, len(text.idf))
            text.idf.copy_(terms.idf())
            train, valid = (torch.from_numpy(getattr(part, pairs)).to(device) for part in (data.train, data.valid))
            sides.append((text, terms.features(train, leave_out), terms.features(valid, None)))
        self._solve(data, *sides)

    def _solve(self, data: TrainingData, *sides: tuple[TextSide, Features, Features]) -> None:
        """Coefficients and weights at the penalty that predicts the validation pairs best."""
        ratings, wanted = (self._given(part.ratings).double() for part in (data.train, data.valid))
        regression = Regression(self._baseline(data.train, own=True), [train for _, train, _ in sides], ratings)
        known = self._baseline(data.valid)
        best, weights = float("inf"), regression.zeros()
        for penalty in PENALTIES if self.config.penalty is None else (self.config.penalty,):
            weights, coefficients = regression.solve(penalty, weights)
            text = torch.stack([valid.times(w) for (_, _, valid), w in zip(sides, weights, strict=True)]).sum(0)
            guess = (coefficients[0] + coefficients[1] * known + text).clamp(1, self.sizes.levels)
            error = float((guess - wanted).square().mean()) if len(data.valid) else 0.0
            if error < best:
                best = error
                self.penalty.fill_(penalty)
                self.coefficients.copy_(coefficients)
                for (side, _, _), w in zip(sides, weights, strict=True):
                    side.weight.copy_(w)

    def _baseline(self, pairs: Pairs, *, own: bool = False) -> Tensor:
        users, items = self._given(pairs.users), self._given(pairs.items)
        found: Tensor = self.biases(users, items, self._given(pairs.ratings) if own else None)
        return found.double()

    def _given(self, column: NDArray[Any]) -> Tensor:
        return torch.from_numpy(column).to(self.bigrams.device)


class Regression:
    """Least squares on a constant and the baseline, and on the text of both sides with a penalty on its weights."""

    def __init__(self, baseline: Tensor, sides: list[Features], ratings: Tensor) -> None:
        self.sides = sides
        self.ratings = ratings
        known = torch.stack([torch.ones_like(baseline), baseline], 1).cpu()  # see pair_covariance.at_right_angles
        # What is not penalised is taken out of both sides of the regression by projection.
        self.basis = torch.linalg.qr(known)[0].to(ratings)
        self.coefficients_of = torch.linalg.pinv(known).to(ratings)
        self.target = self._transposed_times(self._rest(ratings))

    def zeros(self) -> Tensor:
        return self.ratings.new_zeros(len(self.sides), self.sides[0].whole.shape[1])

    def solve(self, penalty: float, start: Tensor) -> tuple[Tensor, Tensor]:
        """Weights [sides, terms] and the two coefficients."""

        def normal(weights: Tensor) -> Tensor:
            return self._transposed_times(self._rest(self._times(weights))) + penalty * weights

        weights = conjugate_gradients(normal, self.target, start)
        rest = self.ratings - self._times(weights)
        return weights, self.coefficients_of @ rest

    def _times(self, weights: Tensor) -> Tensor:
        parts = torch.stack([side.times(w) for side, w in zip(self.sides, weights, strict=True)])
        return parts.sum(0)

    def _transposed_times(self, vector: Tensor) -> Tensor:
        return torch.stack([side.transposed_times(vector) for side in self.sides])

    def _rest(self, vector: Tensor) -> Tensor:
        rest: Tensor = vector - self.basis @ (self.basis.T @ vector)
        return rest


def conjugate_gradients(
    times: Callable[[Tensor], Tensor], target: Tensor, start: Tensor, *, tolerance: float = 1e-5, most: int = 300
) -> Tensor:
    """Solve A x = target for a symmetric positive A, given as its product with a vector."""
    x = start
    rest = target - times(x)
    direction, square = rest, float((rest * rest).sum())
    enough = tolerance**2 * float((target * target).sum())
    for _ in range(most):
        if square <= enough:
            break
        image = times(direction)
        step = square / float((direction * image).sum())
        x, rest = x + step * direction, rest - step * image
        before, square = square, float((rest * rest).sum())
        direction = rest + square / before * direction
    return x
