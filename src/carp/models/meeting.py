"""Viewpoints meet aspects, in the open: every part of the rating is a sum that can be read.

Ours, after the idea of Li et al.: "A Capsule Network for Recommendation and Explaining What You Like and Dislike",
SIGIR 2019: what a person writes about meets what is written about a thing, and each meeting speaks for or against it.

    r̂_ui = g(f_ui),  f_ui = μ + b_u + b_i + w_U · x_u + w_I · x_i + p_u · z_i + q_i · z_u + z_uᵀ M z_i

    b_u, b_i   biases                                                 user, item
    x_u, x_i   TF-IDF of all a person wrote, of all that was written of a thing: words and bigrams
    w_U, w_I   what each of these words adds                          user_side.weight, item_side.weight
    z_u        the person's words in k directions, at length 1: what they write about, the viewpoints
    z_i        the thing's words in k directions, at length 1: what is written about it, the aspects
    p_u        what this person makes of each aspect                  of_user
    q_i        what each viewpoint makes of this thing                of_item
    M          what each viewpoint makes of each aspect               meetings
    g          a cubic that knows how ratings crowd at an end         curve

The directions are singular vectors of the TF-IDF rows; a training pair's own review is left out of all its rows.

All of b, w, p, q and M are Gaussian, each group with a strength of its own: f is a Gaussian process over pairs, with
the covariance of `pair_covariance`. Its strengths climb the marginal likelihood of the training ratings, so that no
validation pair is used: a part that does not help gets the strength 0. The posterior mean is found by conjugate
gradients, first with the same noise for every pair, then with a noise for each person and thing that follows from
the errors on held-out tenths of the training pairs; the model is the mean of the two, which is one with the mean of
their weights. The same held-out predictions give the curve g, and the standard deviation that each prediction has.

The solution is unique: there is no seed. Time and memory are linear in the reviews.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from carp.models.base import Attention, Prediction, RatingModel, additive_attention
from carp.models.batch import Batch, Pairs, Sizes, TrainingData
from carp.models.calibration import RatingCurve, interval_scale, noise_by_owner, noise_without_own
from carp.models.layers import SizedByData, take_or, take_rows
from carp.models.pair_covariance import START, PairCovariance, ProcessWeights, TextRows, at_length_one
from carp.models.tfidf import NO_BIGRAM, WHOLE_DOCUMENTS, Terms, frequent_bigrams, spread_over_words, term_occurrences

FOLDS = 10
ENOUGH_TO_LEARN = 20  # pairs; with fewer, the strengths stay where they start


@dataclass(frozen=True)
class MeetingConfig:
    directions: int = 128  # k
    bigrams: int = 50_000  # at most so many, those in most reviews first
    min_bigram_reviews: int = 20  # a bigram must be in as many training reviews
    learn_from: Literal["training", "training and validation"] = "training"  # no validation pair chooses anything here
    rounds: int = 12  # of learning the strengths
    probes: int = 5  # random vectors of signs that estimate a trace


class MeetingSide(SizedByData):
    """What documents of users, or of items, say: w · x in the first number, z in the k others."""

    idf: Tensor
    weight: Tensor
    directions: Tensor
    sized_by_data = ("idf", "weight", "directions")  # by the known bigrams

    def __init__(self, words: int, directions: int) -> None:
        super().__init__()
        self.register_buffer("idf", torch.ones(words + 2))
        self.register_buffer("weight", torch.zeros(words + 2))
        self.register_buffer("directions", torch.zeros(words + 2, directions))

    def forward(self, rows: Tensor, terms: Tensor, size: int) -> Tensor:
        """Sides [size, 1 + k] from the terms of documents, each as often as it occurs."""
        row, term, value, _, _ = self._values(rows, terms)
        square = value.new_zeros(size).index_add_(0, row, value.square())
        text = value.new_zeros(size).index_add_(0, row, value * self.weight[term])
        image = self.directions[term] * value.unsqueeze(1)
        place = value.new_zeros(size, image.shape[1]).index_add_(0, row, image)
        return torch.cat([(text / square.sqrt().clamp_min(1e-9)).unsqueeze(1), at_length_one(place)], 1)

    def parts(self, rows: Tensor, terms: Tensor, size: int, wanted: Tensor) -> Tensor:
        """What each occurrence adds to w · x + wanted · z, where each document has its own wanted [size, k]."""
        row, term, value, count, place = self._values(rows, terms)
        square = value.new_zeros(size).index_add_(0, row, value.square())
        added = value * self.weight[term] / square.sqrt().clamp_min(1e-9)[row]
        image = self.directions[term] * value.unsqueeze(1)
        whole = value.new_zeros(size, image.shape[1]).index_add_(0, row, image)
        length = whole.square().sum(1).sqrt()
        heard = torch.where(length > 1e-9, 1 / length.clamp_min(1e-9), 0.0)[row]
        parts: Tensor = ((added + (image * wanted[row]).sum(1) * heard) / count)[place]
        return parts

    def _values(self, rows: Tensor, terms: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Document, term, TF-IDF before lengths, and count of each distinct term; where each occurrence's stands."""
        key, place, count = torch.unique(rows * len(self.idf) + terms, return_inverse=True, return_counts=True)
        row, term = key // len(self.idf), key % len(self.idf)
        return row, term, (1 + count.to(self.idf.dtype).log()) * self.idf[term], count, place


class Meeting(SizedByData, RatingModel):
    sized_by_data = ("bigrams",)
    Config = MeetingConfig
    text_defaults = WHOLE_DOCUMENTS
    needs = frozenset({"ids", "documents"})
    separates = True
    explained_by = "attention"
    learns = False
    config: MeetingConfig
    bigrams: Tensor
    mean: Tensor
    user: Tensor
    item: Tensor
    of_user: Tensor
    of_item: Tensor
    meetings: Tensor
    strengths: Tensor
    user_noise: Tensor
    item_noise: Tensor
    deviation: Tensor

    def __init__(self, config: MeetingConfig, sizes: Sizes) -> None:
        super().__init__(config, sizes)
        k = config.directions
        self.user_side = MeetingSide(sizes.words, k)
        self.item_side = MeetingSide(sizes.words, k)
        self.curve = RatingCurve()
        self.register_buffer(
            "bigrams", torch.full((1,), NO_BIGRAM)
        )  # the known ones, sorted; codes of carp.models.tfidf
        self.register_buffer("mean", torch.zeros(()))
        self.register_buffer("user", torch.zeros(sizes.users))
        self.register_buffer("item", torch.zeros(sizes.items))
        self.register_buffer("of_user", torch.zeros(sizes.users, k))
        self.register_buffer("of_item", torch.zeros(sizes.items, k))
        self.register_buffer("meetings", torch.zeros(k, k))
        self.register_buffer("strengths", torch.zeros(2, len(START)))  # with equal noise, with each one's own
        self.register_buffer("user_noise", torch.ones(sizes.users))  # v_u
        self.register_buffer("item_noise", torch.ones(sizes.items))
        self.register_buffer("deviation", torch.zeros(()))  # of ratings around predictions, usual pairs

    def forward(self, batch: Batch) -> Prediction:
        users = self.encode_users(batch.user_words, batch.user_reviews)
        items = self.encode_items(batch.item_words, batch.item_reviews)
        return self.score(batch.users, batch.items, users, items)

    def encode_users(self, words: Tensor, reviews: Tensor) -> Tensor:
        return self._encode(self.user_side, words, reviews)

    def encode_items(self, words: Tensor, reviews: Tensor) -> Tensor:
        return self._encode(self.item_side, words, reviews)

    def _encode(self, side: MeetingSide, words: Tensor, reviews: Tensor) -> Tensor:
        rows, terms, _ = term_occurrences(words, reviews, self.bigrams, self.sizes.words)
        found: Tensor = side(rows, terms, len(words))
        return found  # [B, 1 + k]

    def score(self, users: Tensor, items: Tensor, user_sides: Tensor, item_sides: Tensor) -> Prediction:
        baseline = self.mean + take_or(self.user, users, 0.0) + take_or(self.item, items, 0.0)
        zu, zi = user_sides[:, 1:], item_sides[:, 1:]
        by_person = (take_rows(self.of_user, users) * zi).sum(1)
        by_thing = (take_rows(self.of_item, items) * zu).sum(1)
        by_both = ((zu @ self.meetings) * zi).sum(1)
        text = user_sides[:, 0] + item_sides[:, 0] + by_person + by_thing + by_both
        noise = take_or(self.user_noise, users, 1.0) * take_or(self.item_noise, items, 1.0)
        shown = {"baseline": baseline, "text": text, "deviation": self.deviation * noise.sqrt()}
        return Prediction(self.curve(baseline + text), shown)

    # ---- explanation

    def explain(self, batch: Batch, prediction: Prediction) -> Attention:
        """What the words of both documents add to the rating, and what they take away; a meeting goes in halves."""
        user, item = self.words_add(batch)
        meaning = "Every word adds to the rating or takes away from it, by itself and where it meets the other text."
        return additive_attention(batch, user, item, prediction.tensors["text"], meaning)

    def words_add(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """What each word of both documents adds to f, together `text`; of a meeting, each side has half."""
        zu = self.encode_users(batch.user_words, batch.user_reviews)[:, 1:]
        zi = self.encode_items(batch.item_words, batch.item_reviews)[:, 1:]
        of_user = take_rows(self.of_item, batch.items) + zi @ self.meetings.T / 2
        of_item = take_rows(self.of_user, batch.users) + zu @ self.meetings / 2
        return (
            self.added(self.user_side, batch.user_words, batch.user_reviews, of_user),
            self.added(self.item_side, batch.item_words, batch.item_reviews, of_item),
        )

    def added(self, side: MeetingSide, words: Tensor, reviews: Tensor, wanted: Tensor) -> Tensor:
        """What each word adds to f [B, L]; a bigram's part goes to its two words in halves."""
        rows, terms, places = term_occurrences(words, reviews, self.bigrams, self.sizes.words)
        parts = side.parts(rows, terms, len(words), wanted)
        return spread_over_words(parts, words.shape, (rows, terms, places), self.sizes.words)

    # ---- fitting

    @torch.no_grad()
    def start(self, data: TrainingData) -> None:
        pairs = joined(data.train, data.valid) if self.config.learn_from == "training and validation" else data.train
        ratings = torch.from_numpy(pairs.ratings).to(self.mean)
        self.mean.copy_(ratings.mean())
        target = ratings - ratings.mean()
        variance = float(target.square().mean())
        if variance < 1e-12:
            return  # all ratings alike: the mean says everything
        covariance = self.covariance(data, pairs)
        fit = _Fit(covariance, target)
        start = torch.tensor(START).to(target) * variance
        few = len(target) < ENOUGH_TO_LEARN
        rounds, probes = (0 if few else self.config.rounds), self.config.probes
        equal = torch.ones_like(target)
        first, alike = fit.run(start, equal, rounds, probes)
        user, item = noise_by_owner(target - alike, covariance.users, covariance.items, covariance.sizes)
        noise = user[covariance.users] * item[covariance.items]
        begin = first.clone()
        begin[-1] /= float(noise.log().mean().exp())
        second, differing = fit.run(begin, noise, rounds // 3, probes)
        weights = [covariance.weights(fit.solution(s, n), s) for s, n in ((first, equal), (second, noise))]
        self._take(weights)
        self.strengths.copy_(torch.stack([first, second]))
        self._calibrate(covariance, ratings, (alike + differing) / 2 + ratings.mean(), user, item)

    def covariance(self, data: TrainingData, pairs: Pairs) -> PairCovariance:
        """The covariance of the pairs; the sides' idf and directions are set on the way."""
        words, config = self.sizes.words, self.config
        bigrams = frequent_bigrams(data.user_documents, words, config.bigrams, config.min_bigram_reviews)
        bigrams = bigrams if len(bigrams) else np.array([NO_BIGRAM])
        self.bigrams = torch.from_numpy(bigrams).to(self.mean.device)
        leave_out = pairs.records if data.target_reviews == "leave out" else None
        rows, places = [], []
        for side, documents, owner in (
            (self.user_side, data.user_documents, pairs.users),
            (self.item_side, data.item_documents, pairs.items),
        ):
            terms = Terms.of(documents, bigrams, words, words + 1 + len(bigrams))
            side.idf = torch.from_numpy(terms.idf()).to(self.mean)
            side.weight = torch.zeros_like(side.idf)
            texts = TextRows(terms.features(owner, leave_out), self.mean)
            side.directions = texts.directions(config.directions)
            rows.append(texts)
            places.append(at_length_one(texts.times(side.directions)))
        users, items = (torch.from_numpy(of).to(self.mean.device) for of in (pairs.users, pairs.items))
        sizes = self.sizes.users, self.sizes.items
        return PairCovariance(users, items, sizes, rows[0], rows[1], places[0], places[1])

    def _take(self, solutions: list[ProcessWeights]) -> None:
        """The mean of several solutions' weights."""

        def mean(name: str) -> Tensor:
            return torch.stack([getattr(weights, name) for weights in solutions]).mean(0)

        for name in ("user", "item", "of_user", "of_item", "meetings"):
            getattr(self, name).copy_(mean(name))
        for side, name in ((self.user_side, "user_words"), (self.item_side, "item_words")):
            side.weight.copy_(mean(name))

    def _calibrate(
        self, covariance: PairCovariance, ratings: Tensor, held_out: Tensor, user: Tensor, item: Tensor
    ) -> None:
        self.curve.fit(held_out, ratings)
        errors = ratings - self.curve(held_out)
        self.user_noise.copy_(user)
        self.item_noise.copy_(item)
        noise = noise_without_own(errors, covariance.users, covariance.items, user, item)
        self.deviation.fill_(interval_scale(errors, noise.sqrt()))


def joined(first: Pairs, second: Pairs) -> Pairs:
    """Pairs one after the other, each once."""
    second = Pairs(*(getattr(second, f.name)[~np.isin(second.records, first.records)] for f in fields(Pairs)))
    columns = [np.concatenate([getattr(first, f.name), getattr(second, f.name)]) for f in fields(Pairs)]
    return Pairs(*columns)


class _Fit:
    """Strengths, solutions and held-out predictions of one target."""

    def __init__(self, covariance: PairCovariance, target: Tensor) -> None:
        self.covariance = covariance
        self.target = target
        folds = min(FOLDS, len(target))
        fold = torch.from_numpy(np.random.default_rng(2).permutation(len(target)) % folds).to(target.device)
        self.given = (fold.unsqueeze(1) != torch.arange(folds, device=target.device)).to(target)  # [n, folds]

    def run(self, start: Tensor, noise: Tensor, rounds: int, probes: int) -> tuple[Tensor, Tensor]:
        """Strengths, and what each rating is predicted to be by the pairs of the other folds [n]."""
        strengths, alpha = self.covariance.learn_strengths(self.target, start, noise, rounds=rounds, probes=probes)
        right = self.target.unsqueeze(1).expand_as(self.given)
        begin = alpha.unsqueeze(1).expand_as(self.given)
        solved = self.covariance.solve(right, strengths, noise, begin, given=self.given, tolerance=1e-3)
        without_noise = strengths.clone()
        without_noise[-1] = 0
        predicted = self.covariance.times(solved * self.given, without_noise, noise)
        return strengths, (predicted * (1 - self.given)).sum(1)

    def solution(self, strengths: Tensor, noise: Tensor) -> Tensor:
        return self.covariance.solve(self.target.unsqueeze(1), strengths, noise).squeeze(1)
