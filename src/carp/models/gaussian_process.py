"""A Gaussian process over pairs, exactly: what the texts can give at most, at a cost that grows with the cube.

Rasmussen, Williams: "Gaussian Processes for Machine Learning", MIT Press 2006, sections 2.2 (prediction), 5.4.1
(marginal likelihood) and 5.4.2 (leave-one-out); the steps after Gilmour, Thompson, Cullis: "Average Information REML",
Biometrics 51 (4), 1995.

    r̂_ui = g(μ + k(ui, ·)ᵀ Σ⁻¹ (r − μ)),   Σ = Σ_j s_j K_j + diag(σ²_ui)

    K₁ = [u = u']       K₃ = x_u · x_u'      K₅ = [u = u'] x_i · x_i'      K₇ = (x_u · x_u') (x_i · x_i')
    K₂ = [i = i']       K₄ = x_i · x_i'      K₆ = [i = i'] x_u · x_u'

    x       TF-IDF rows of whole documents, words and bigrams, a training pair's own review left out of both of its rows
    s, σ²   maximise ln p(r) = −½ rᵀ Σ⁻¹ r − ½ ln |Σ| + constant, with its exact gradient
    g       a cubic, then each person's own width of rating, both fitted on leave-one-out predictions
            r − α / diag Σ⁻¹, where α = Σ⁻¹ (r − μ)

As in `meeting`, the solution with the same noise for all and the one with a noise for each person and thing are
averaged. `meeting` has the same terms in weight space, with directions of the texts instead of all their words, and is
linear in the reviews; this one refuses corpora of more than 15,000 training pairs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from carp.errors import UsageError
from carp.models.base import Attention, Prediction, RatingModel, additive_attention
from carp.models.batch import Batch, Sizes, TrainingData
from carp.models.calibration import OwnWidth, RatingCurve, interval_scale, noise_by_owner, noise_without_own
from carp.models.layers import SizedByData, take_or
from carp.models.pair_covariance import START, TERMS, TextRows
from carp.models.segments import Segments
from carp.models.tfidf import (
    NO_BIGRAM,
    WHOLE_DOCUMENTS,
    Entries,
    Features,
    Occurrences,
    Terms,
    spread_over_words,
    term_occurrences,
)
from carp.models.ways_of_seeing import MARGIN, RARITIES

MOST_PAIRS = 15_000  # a matrix of as many rows and columns has 1.8 GB, and four of them are needed
BLOCK = 512  # pairs, or columns, at once


@dataclass(frozen=True)
class GaussianProcessConfig:
    bigrams: int = 50_000  # at most so many, those in most reviews first
    min_bigram_reviews: int = 20  # a bigram must be in as many training reviews
    steps: int = 12  # towards the strengths, at most
    rarity: float | None = None  # power of idf; chosen by the leave-one-out errors if not given


class TrainingRows(SizedByData):
    """The texts of one side of all training pairs, and the kernel of any document with each of them."""

    idf: Tensor
    whole_place: Tensor
    owner: Tensor
    scale: Tensor
    sized_by_data = ("whole_place", "whole_value", "left_place", "left_value", "owner", "scale")

    def __init__(self, terms: int) -> None:
        super().__init__()
        self.register_buffer("idf", torch.ones(terms))
        self.ready: TextRows | None = None  # what is kept, made ready for products
        for name in self.sized_by_data:
            kind = torch.int32 if name.endswith(("place", "owner")) else torch.float32
            self.register_buffer(name, torch.zeros((2, 0) if name.endswith("place") else (0,), dtype=kind))

    def take(self, features: Features) -> None:
        for name, entries in (("whole", features.whole), ("left", features.difference)):
            self._set(f"{name}_place", torch.stack([entries.row, entries.column]).to(torch.int32))
            self._set(f"{name}_value", entries.value)
        self._set("owner", features.owner.to(torch.int32))
        self._set("scale", features.scale)
        self.ready = None

    def _set(self, name: str, value: Tensor) -> None:
        setattr(self, name, value.to(self.idf.device, value.dtype if value.dtype == torch.int32 else self.idf.dtype))

    def rows(self) -> TextRows:
        if self.ready is None or self.ready.scale.device != self.idf.device or self.ready.scale.dtype != self.idf.dtype:
            owner = self.owner.long()
            documents = max(_size(owner), _size(self.whole_place[0].long()))
            whole = self._entries("whole", (documents, len(self.idf)))
            left = self._entries("left", (len(owner), len(self.idf)))
            self.ready = TextRows(Features(whole, left, owner, self.scale.double()), self.idf)
        return self.ready

    def _entries(self, name: str, shape: tuple[int, int]) -> Entries:
        row, column = getattr(self, f"{name}_place").long()
        return Entries(row, column, getattr(self, f"{name}_value").double(), shape)

    def values(self, rows: Tensor, terms: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Row, term and entry of x of each distinct term; how often it occurs, and where each occurrence's stands."""
        key, place, count = torch.unique(rows * len(self.idf) + terms, return_inverse=True, return_counts=True)
        row, term = key // len(self.idf), key % len(self.idf)
        value = (1 + count.to(self.idf.dtype).log()) * self.idf[term]
        square = Segments.of(row, size).sums(value.square())
        return row, term, value / square.sqrt().clamp_min(1e-9)[row], count, place

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        self.ready = None
        super()._load_from_state_dict(state_dict, prefix, *rest)


def _size(places: Tensor) -> int:
    """One more than the largest place."""
    return int(places.max()) + 1 if len(places) else 0


class GaussianProcess(SizedByData, RatingModel):
    sized_by_data = ("pair_users", "pair_items", "dual")
    Config = GaussianProcessConfig
    text_defaults = WHOLE_DOCUMENTS
    needs = frozenset({"ids", "documents"})
    separates = True
    explained_by = "attention"
    learns = False
    config: GaussianProcessConfig
    bigrams: Tensor
    mean: Tensor
    pair_users: Tensor
    pair_items: Tensor
    dual: Tensor
    strengths: Tensor
    user_noise: Tensor
    item_noise: Tensor
    deviation: Tensor

    def __init__(self, config: GaussianProcessConfig, sizes: Sizes) -> None:
        super().__init__(config, sizes)
        terms = sizes.words + 1 + config.bigrams
        self.user_text, self.item_text = TrainingRows(terms), TrainingRows(terms)
        self.curve = RatingCurve()
        self.width = OwnWidth(sizes.users)
        self.register_buffer("bigrams", torch.full((config.bigrams,), NO_BIGRAM))  # sorted; codes of carp.models.tfidf
        self.register_buffer("mean", torch.zeros(()))
        self.register_buffer("pair_users", torch.zeros(0, dtype=torch.int64))
        self.register_buffer("pair_items", torch.zeros(0, dtype=torch.int64))
        self.register_buffer("dual", torch.zeros(TERMS, 0))  # s_j α, the mean of both solutions
        self.register_buffer("strengths", torch.zeros(2, TERMS + 1))  # with equal noise, with each one's own
        self.register_buffer("user_noise", torch.ones(sizes.users))
        self.register_buffer("item_noise", torch.ones(sizes.items))
        self.register_buffer("deviation", torch.zeros(()))

    def encode_users(self, words: Tensor, reviews: Tensor) -> Tensor:
        return self._encode(self.user_text, words, reviews)

    def encode_items(self, words: Tensor, reviews: Tensor) -> Tensor:
        return self._encode(self.item_text, words, reviews)

    def _encode(self, side: TrainingRows, words: Tensor, reviews: Tensor) -> Tensor:
        """Inner products of documents with those of the training pairs [B, n]."""
        rows, terms, _ = term_occurrences(words, reviews, self.bigrams, self.sizes.words)
        row, term, value, _, _ = side.values(rows, terms, len(words))
        dense = value.new_zeros(len(side.idf), len(words))
        dense[term, row] = value
        return side.rows().times(dense).T

    def score(self, users: Tensor, items: Tensor, user_sides: Tensor, item_sides: Tensor) -> Prediction:
        parts = [
            self._sums(users[b : b + BLOCK], items[b : b + BLOCK], user_sides[b : b + BLOCK], item_sides[b : b + BLOCK])
            for b in range(0, len(users), BLOCK)
        ]
        baseline, text = torch.cat(parts, 1) if parts else self.mean.new_zeros(2, 0)
        rating = self.width(self.curve(baseline + text), users)
        return Prediction(rating, {"baseline": baseline, "text": text})

    def deviations(self, users: Tensor, items: Tensor) -> Tensor:
        """From the errors on held-out training pairs, of this person and of this thing."""
        noise = take_or(self.user_noise, users, 1.0) * take_or(self.item_noise, items, 1.0)
        return self.deviation * noise.sqrt()

    def _sums(self, users: Tensor, items: Tensor, like_user: Tensor, like_item: Tensor) -> Tensor:
        """The biases' part and the texts' [2, B]."""
        same_user, same_item = self._same(users, items)
        of_user, of_item = self._of_user(same_item, like_item), self._of_item(same_user, like_user)
        baseline = self.mean + same_user @ self.dual[0] + same_item @ self.dual[1]
        return torch.stack([baseline, (of_user * like_user + of_item * like_item).sum(1)])

    def _same(self, users: Tensor, items: Tensor) -> tuple[Tensor, Tensor]:
        same_user = users.unsqueeze(1) == self.pair_users
        same_item = items.unsqueeze(1) == self.pair_items
        return same_user.to(self.dual), same_item.to(self.dual)

    def _of_user(self, same_item: Tensor, like_item: Tensor) -> Tensor:
        """What likeness to each training pair's person adds [B, n]; of K₇, each side has half."""
        return self.dual[2] + same_item * self.dual[5] + like_item * self.dual[6] / 2

    def _of_item(self, same_user: Tensor, like_user: Tensor) -> Tensor:
        return self.dual[3] + same_user * self.dual[4] + like_user * self.dual[6] / 2

    # ---- explanation

    def explain(self, batch: Batch, prediction: Prediction) -> Attention:
        """What the words of both documents add to the rating, and what they take away."""
        user, item = self.words_add(batch)
        meaning = "Every word adds to the rating or takes away from it, by itself and where it meets the other text."
        return additive_attention(batch, user, item, prediction.tensors["text"], meaning)

    def words_add(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """What each word of both documents adds before the curve, together `text`."""
        like_user = self.encode_users(batch.user_words, batch.user_reviews)
        like_item = self.encode_items(batch.item_words, batch.item_reviews)
        same_user, same_item = self._same(batch.users, batch.items)
        return (
            self._added(self.user_text, batch.user_words, batch.user_reviews, self._of_user(same_item, like_item)),
            self._added(self.item_text, batch.item_words, batch.item_reviews, self._of_item(same_user, like_user)),
        )

    def _added(self, side: TrainingRows, words: Tensor, reviews: Tensor, wanted: Tensor) -> Tensor:
        """What each word adds [B, L], where each document has its own wanted [B, n]; a bigram's part goes in halves."""
        rows, terms, places = term_occurrences(words, reviews, self.bigrams, self.sizes.words)
        row, term, value, count, place = side.values(rows, terms, len(words))
        weight = side.rows().transposed_times(wanted.T)  # [terms, B]
        parts = (value * weight[term, row] / count)[place]
        return spread_over_words(parts, words.shape, (rows, terms, places), self.sizes.words)

    # ---- fitting

    @torch.no_grad()
    def start(self, data: TrainingData) -> None:
        if len(data.train) > MOST_PAIRS:
            raise UsageError(
                f"{len(data.train):,} training pairs are too many for an exact Gaussian process, which takes at most "
                f"{MOST_PAIRS:,}",
                fix="use --model meeting, which has the same terms and is linear in the reviews",
            )
        device = self.mean.device
        self.pair_users, self.pair_items = (
            torch.from_numpy(of).to(device) for of in (data.train.users, data.train.items)
        )
        ratings = torch.from_numpy(data.train.ratings).to(device).double()
        self.mean.copy_(ratings.mean())
        self.dual = self.mean.new_zeros(TERMS, len(ratings))
        target = ratings - ratings.mean()
        if float(target.square().mean()) < 1e-12:
            self._take_texts(data, 1.0)
            return  # all ratings alike: the mean says everything
        equal = torch.ones_like(target)
        best = None
        for rarity in RARITIES if self.config.rarity is None else (self.config.rarity,):
            process = self._process(data, rarity)
            start = torch.tensor(START).to(target) * target.square().mean() if best is None else best[0].strengths
            first = process.fit(target, start, equal, self.config.steps if best is None else self.config.steps // 2)
            if best is None or _mean_square(first) * (1 + MARGIN) < _mean_square(best[0]):
                best = first, rarity
        assert best is not None
        first, best_rarity = best
        if best_rarity != rarity:
            process = self._process(data, best_rarity)
        by_user, by_item = self._segments()
        user, item = noise_by_owner(first.errors, by_user, by_item)
        noise = user[self.pair_users] * item[self.pair_items]
        second = process.fit(target, first.strengths, noise, self.config.steps // 3)
        duals = [fit.strengths[:TERMS, None] * fit.alpha for fit in (first, second)]
        self.dual.copy_((duals[0] + duals[1]) / 2)
        self.strengths.copy_(torch.stack([first.strengths, second.strengths]))
        self._calibrate(ratings, ratings - (first.errors + second.errors) / 2, user, item)

    def _process(self, data: TrainingData, rarity: float) -> ExactProcess:
        self._take_texts(data, rarity)
        return ExactProcess(self.pair_users, self.pair_items, gram(self.user_text), gram(self.item_text))

    def _take_texts(self, data: TrainingData, rarity: float) -> None:
        words, config, device = self.sizes.words, self.config, self.mean.device
        users, items, records = (
            torch.from_numpy(of).to(device) for of in (data.train.users, data.train.items, data.train.records)
        )
        places = Occurrences.of(data.user_documents, device)
        bigrams = places.frequent_bigrams(words, config.bigrams, config.min_bigram_reviews)
        self.bigrams.fill_(NO_BIGRAM)
        self.bigrams[: len(bigrams)] = bigrams
        leave_out = records if data.target_reviews == "leave out" else None
        for side, documents, owner in (
            (self.user_text, data.user_documents, users),
            (self.item_text, data.item_documents, items),
        ):
            terms = Terms.of(Occurrences.of(documents, device), bigrams, words, len(side.idf), rarity)
            side.idf.copy_(terms.idf())
            side.take(terms.features(owner, leave_out))

    def _segments(self) -> tuple[Segments, Segments]:
        return Segments.of(self.pair_users, self.sizes.users), Segments.of(self.pair_items, self.sizes.items)

    def _calibrate(self, ratings: Tensor, held_out: Tensor, user: Tensor, item: Tensor) -> None:
        self.curve.fit(held_out, ratings)
        errors = ratings - self.width.fit(self.curve(held_out.to(self.mean)), ratings, self._segments()[0])
        self.user_noise.copy_(user)
        self.item_noise.copy_(item)
        noise = noise_without_own(errors, *self._segments(), user, item)
        self.deviation.fill_(interval_scale(errors, noise.sqrt()))


def gram(side: TrainingRows) -> Tensor:
    """Inner products between the texts of all training pairs [n, n], in single precision."""
    rows, pairs = side.rows(), len(side.owner)
    found = side.idf.new_empty(pairs, pairs)
    for begin in range(0, pairs, BLOCK):
        end = min(pairs, begin + BLOCK)
        some = found.new_zeros(pairs, end - begin)
        some[begin:end].fill_diagonal_(1)
        found[:, begin:end] = rows.times(rows.transposed_times(some))
    return found


@dataclass(frozen=True)
class ExactFit:
    strengths: Tensor  # [8]
    likelihood: float
    alpha: Tensor  # Σ⁻¹ y
    errors: Tensor  # y − its leave-one-out prediction
    slope: Tensor  # of the likelihood by each strength
    information: Tensor  # [8, 8], the average information


def _mean_square(fit: ExactFit) -> float:
    return float(fit.errors.square().mean())


@dataclass(frozen=True)
class ExactProcess:
    users: Tensor
    items: Tensor
    like_user: Tensor  # [n, n]
    like_item: Tensor

    def term(self, number: int, begin: int, end: int) -> Tensor:
        """Some rows of one term [end - begin, n]."""
        like_user, like_item = self.like_user[begin:end], self.like_item[begin:end]
        same_user = self.users[begin:end, None] == self.users
        same_item = self.items[begin:end, None] == self.items
        if number in (0, 1):
            return (same_user if number == 0 else same_item).to(like_user)
        if number in (2, 3):
            return like_user if number == 2 else like_item
        if number in (4, 5):
            return same_user * like_item if number == 4 else same_item * like_user
        return like_user * like_item

    def fit(self, target: Tensor, start: Tensor, noise: Tensor, steps: int) -> ExactFit:
        """Newton's steps on the logarithms of the strengths, shortened until the likelihood rises."""
        best = self.evaluate(target, start, noise)
        caution = 0.1
        for _ in range(steps):
            s = best.strengths
            slope, curvature = s * best.slope, s[:, None] * best.information * s
            damping = 0.5 * slope.abs() + caution * curvature.diagonal() + 1e-3
            step = torch.linalg.solve((curvature + torch.diag(damping)).cpu(), slope.cpu()).to(s).clamp(-1.5, 1.5)
            tried = self.evaluate(target, (s * step.exp()).clamp_min(1e-7 * float(start.sum())), noise)
            if tried.likelihood < best.likelihood:
                caution = 10 * caution + 0.1
                continue
            risen, best, caution = tried.likelihood - best.likelihood, tried, caution / 3
            if risen < 0.01:
                break
        return best

    def evaluate(self, target: Tensor, strengths: Tensor, noise: Tensor) -> ExactFit:
        factor = torch.linalg.cholesky(self.written_out(strengths, noise))
        inverse = torch.cholesky_inverse(factor)
        alpha = inverse @ target
        constant = 0.5 * len(target) * math.log(2 * math.pi)
        likelihood = float(-0.5 * (target @ alpha) - factor.diagonal().log().sum() - constant)
        del factor
        images, traces = self._images(inverse, alpha, noise)
        return ExactFit(
            strengths=strengths,
            likelihood=likelihood,
            alpha=alpha,
            errors=alpha / inverse.diagonal(),
            slope=0.5 * (images.T @ alpha - traces),
            information=0.5 * images.T @ (inverse @ images),
        )

    def written_out(self, strengths: Tensor, noise: Tensor) -> Tensor:
        """Σ [n, n]."""
        pairs = len(self.users)
        total = strengths.new_zeros(pairs, pairs)
        for begin in range(0, pairs, BLOCK):
            end = min(pairs, begin + BLOCK)
            for term in range(TERMS):
                total[begin:end] += strengths[term] * self.term(term, begin, end)
        total.diagonal().add_(strengths[TERMS] * noise)
        return total

    def _images(self, inverse: Tensor, alpha: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """K α [n, 8] and tr(Σ⁻¹ K) [8] of every term and of the noise."""
        pairs = len(alpha)
        images, traces = alpha.new_zeros(pairs, TERMS + 1), alpha.new_zeros(TERMS + 1)
        for begin in range(0, pairs, BLOCK):
            end = min(pairs, begin + BLOCK)
            for number in range(TERMS):
                term = self.term(number, begin, end).double()
                images[begin:end, number] = term @ alpha
                traces[number] += (inverse[begin:end] * term).sum()
        images[:, TERMS] = noise * alpha
        traces[TERMS] = (inverse.diagonal() * noise).sum()
        return images, traces
