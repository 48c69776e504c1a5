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
    g          a cubic that knows how ratings crowd at an end,        curve
               then each person's own width of rating                 width

The directions are singular vectors of the TF-IDF rows; a training pair's own review is left out of all its rows. How
much rare words count (the power of idf), and whether z is taken from the origin or from the mean of all texts, are
chosen by the errors on held-out training pairs (`ways_of_seeing`): from the mean, only what sets a text apart is heard.
Held-out pairs flatter rare words a little, which must therefore be better by a margin. Where things have names, the
words of its name are more columns of x_i.

All of b, w, p, q and M are Gaussian, each group with a strength of its own: f is a Gaussian process over pairs, with
the covariance of `pair_covariance`. Its strengths climb the marginal likelihood of the training ratings, so that no
validation pair is used: a part that does not help gets the strength 0. The posterior mean is found by conjugate
gradients, first with the same noise for every pair, then with a noise for each person and thing that follows from
the errors on held-out tenths of the training pairs; the model is the mean of the two, which is one with the mean of
their weights. The same held-out predictions give the curve g, how widely each person rates, and the standard deviation
that each prediction has.

New reviews need no new fit: those who are touched are solved for with everything else held (`touched_levels`).

The solution is unique: there is no seed. Time and memory are linear in the reviews.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from carp.models.base import Attention, Prediction, RatingModel, additive_attention
from carp.models.batch import Batch, Pairs, Sizes, TrainingData
from carp.models.calibration import (
    OwnWidth,
    RatingCurve,
    interval_scale,
    noise_by_owner,
    noise_of_some,
    noise_without_own,
)
from carp.models.covariance_solving import HeldOut
from carp.models.layers import SizedByData, take_or, take_rows
from carp.models.meeting_sides import (
    KeptTerms,
    KeptTogether,
    MeetingParts,
    MeetingSide,
    PaddedTerms,
    SideTerms,
    to_length_one,
)
from carp.models.pair_covariance import START, PairCovariance, ProcessWeights, SparseProduct, TextRows
from carp.models.segments import Segments
from carp.models.tfidf import NO_BIGRAM, WHOLE_DOCUMENTS, Occurrences, Terms, term_occurrences
from carp.models.touched_levels import OwnedTerms, TouchedCovariance
from carp.models.ways_of_seeing import SeenData, WayOfSeeing
from carp.reviews.documents import Documents

ENOUGH_TO_LEARN = 20  # pairs; with fewer, the strengths stay where they start


@dataclass(frozen=True)
class MeetingConfig:
    directions: int = 128  # k
    bigrams: int = 50_000  # at most so many, those in most reviews first
    min_bigram_reviews: int = 20  # a bigram must be in as many training reviews
    learn_from: Literal["training", "training and validation"] = "training"  # no validation pair chooses anything here
    rounds: int = 12  # of learning the strengths
    probes: int = 5  # random vectors of signs that estimate a trace
    rarity: float | None = None  # power of idf; chosen on held-out training pairs if not given
    name_weight: float = 0.6  # of a thing's name beside its text, where it has one
    own_noise: bool = True  # average with the solution in which each person and thing has a noise of its own
    curved: bool = True  # g is a cubic, else the sum itself
    own_width: bool = True  # each person's own width of rating, else the same for all
    from_mean: bool | None = None  # z from the mean of all texts; chosen on held-out training pairs if not given


class Meeting(SizedByData, RatingModel):
    sized_by_data = ("bigrams",)
    Config = MeetingConfig
    text_defaults = WHOLE_DOCUMENTS
    needs = frozenset({"ids", "documents", "names"})
    separates = True
    reads_alone = True
    explained_by = "sum"
    learns = False
    takes_in = True
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
    name_text: Tensor
    name_place: Tensor
    deviation: Tensor

    def __init__(self, config: MeetingConfig, sizes: Sizes) -> None:
        super().__init__(config, sizes)
        k = config.directions
        self.user_side = MeetingSide(sizes.words, k)
        self.item_side = MeetingSide(sizes.words, k)
        self.curve = RatingCurve()
        self.width = OwnWidth(sizes.users)
        self.register_buffer(
            "bigrams", torch.full((1,), NO_BIGRAM)
        )  # the known ones, sorted; codes of carp.models.tfidf
        self.register_buffer("mean", torch.zeros(()))
        self.register_buffer("user", torch.zeros(sizes.users))
        self.register_buffer("item", torch.zeros(sizes.items))
        self.register_buffer("of_user", torch.zeros(sizes.users, k))
        self.register_buffer("of_item", torch.zeros(sizes.items, k))
        self.register_buffer("meetings", torch.zeros(k, k))
        self.register_buffer("name_text", torch.zeros(sizes.items))  # what a thing's name adds by itself
        self.register_buffer("name_place", torch.zeros(sizes.items, k))  # the name in the directions
        self.register_buffer("strengths", torch.zeros(2, len(START)))  # with equal noise, with each one's own
        self.register_buffer("user_noise", torch.ones(sizes.users))  # v_u
        self.register_buffer("item_noise", torch.ones(sizes.items))
        self.register_buffer("deviation", torch.zeros(()))  # of ratings around predictions, usual pairs

    def check_loaded(self) -> None:
        terms, directions = self.sizes.words + 1 + len(self.bigrams), self.config.directions
        for side in (self.user_side, self.item_side):
            if not len(side.idf) == len(side.weight) == len(side.directions) == terms:
                raise ValueError("the terms of a side are not the known words and bigrams")
            if side.directions.shape[1] != directions:
                raise ValueError(f"the terms of a side do not have {directions} directions")
        if bool((self.bigrams[1:] < self.bigrams[:-1]).any()):
            raise ValueError("the known bigrams are not in order")

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
        zu, _ = self.user_side.seen(user_sides[:, 1:])
        zi, _ = self.item_side.seen(item_sides[:, 1:] + take_rows(self.name_place, items))
        by_person = (take_rows(self.of_user, users) * zi).sum(1)
        by_thing = (take_rows(self.of_item, items) * zu).sum(1)
        by_both = ((zu @ self.meetings) * zi).sum(1)
        words = user_sides[:, 0] + item_sides[:, 0] + take_or(self.name_text, items, 0.0)
        text = words + by_person + by_thing + by_both
        return Prediction(self.as_rating(baseline + text, users), {"baseline": baseline, "text": text})

    def as_rating(self, sums: Tensor, users: Tensor) -> Tensor:
        """What these people's ratings are where f is this."""
        rating: Tensor = self.width(self.curve(sums), users)
        return rating

    def deviations(self, users: Tensor, items: Tensor) -> Tensor:
        """From the errors on held-out training pairs, of this person and of this thing."""
        noise = take_or(self.user_noise, users, 1.0) * take_or(self.item_noise, items, 1.0)
        return self.deviation * noise.sqrt()

    # ---- explanation

    def explain(self, batch: Batch, prediction: Prediction) -> Attention:
        """What the words of both documents add to the rating, and what they take away; a meeting goes in halves."""
        user, item, _ = self.words_add(batch)
        meaning = "Every word adds to the rating or takes away from it, by itself and where it meets the other text."
        return additive_attention(batch, user, item, prediction.tensors["text"], meaning)

    def words_add(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """What each word of both documents, and the name [B], add to f, together `text`; a meeting goes in halves."""
        user = self._terms(self.user_side, batch.user_words, batch.user_reviews)
        item = self._terms(self.item_side, batch.item_words, batch.item_reviews)
        of_user, of_item, name = self._words_want(batch.users, batch.items, user, item)
        return user.words_add(of_user), item.words_add(of_item), name

    def parts(self, batch: Batch, shares: Tensor) -> tuple[MeetingParts, Tensor, Tensor]:
        """f as a sum over groups of words, where each word has shares in groups [words + 1, G] that sum to 1; and what
        each word of both documents adds."""
        user = self._terms(self.user_side, batch.user_words, batch.user_reviews, shares)
        item = self._terms(self.item_side, batch.item_words, batch.item_reviews, shares)
        of_user, of_item, _ = self._words_want(batch.users, batch.items, user, item)
        parts = self._parts(batch.users, batch.items, user, item)
        return parts, user.words_add(of_user), item.words_add(of_item)

    def parts_of_kept(
        self, users: Tensor, items: Tensor, kept: Sequence[tuple[KeptTerms, KeptTerms]]
    ) -> tuple[MeetingParts, list[Tensor], list[Tensor]]:
        """The same of documents that were kept, in the groups that they were kept with."""
        user, item = (KeptTogether(side) for side in zip(*kept, strict=True))
        of_user, of_item, _ = self._words_want(users, items, user, item)
        return self._parts(users, items, user, item), user.words_add(of_user), item.words_add(of_item)

    def user_terms(self, words: Tensor, reviews: Tensor, shares: Tensor) -> KeptTerms:
        """What is the same of a person's document [1, L] whatever thing it meets, in groups as in `parts`."""
        return KeptTerms.of(self._terms(self.user_side, words, reviews, shares))

    def item_terms(self, words: Tensor, reviews: Tensor, shares: Tensor) -> KeptTerms:
        return KeptTerms.of(self._terms(self.item_side, words, reviews, shares))

    def _parts(self, users: Tensor, items: Tensor, user: SideTerms, item: SideTerms) -> MeetingParts:
        of_user, user_places = user.groups()
        of_item, item_places = item.groups()
        item_places = torch.cat([item_places, self._name_places(items, item).unsqueeze(1)], 1)
        user_places, item_places = (p * to_length_one(p.sum(1)).unsqueeze(2) for p in (user_places, item_places))
        meetings = self.meetings.expand(len(users), *self.meetings.shape)  # each pair by itself, whoever is beside it
        return MeetingParts(
            mean=self.mean.expand(len(users)),
            person=take_or(self.user, users, 0.0),
            thing=take_or(self.item, items, 0.0),
            person_words=of_user,
            thing_words=torch.cat([of_item, take_or(self.name_text, items, 0.0).unsqueeze(1)], 1),
            by_person=(item_places * take_rows(self.of_user, users).unsqueeze(1)).sum(2),
            by_thing=(user_places * take_rows(self.of_item, items).unsqueeze(1)).sum(2),
            by_both=torch.bmm(torch.bmm(user_places, meetings), item_places.transpose(1, 2)),
        )

    def _words_want(
        self, users: Tensor, items: Tensor, user: SideTerms, item: SideTerms
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Along which direction the words of both sides add to f [B, k], and what the name adds [B]."""
        name = self._name_places(items, item)
        user_place, item_place = user.places(), item.places() + name
        user_scale, item_scale = to_length_one(user_place), to_length_one(item_place)
        zu, zi = (place * scale for place, scale in ((user_place, user_scale), (item_place, item_scale)))
        meetings = self.meetings.expand(len(users), *self.meetings.shape)
        by_user, by_item = (
            torch.bmm(z.unsqueeze(1), m).squeeze(1) / 2 for z, m in ((zu, meetings), (zi, meetings.transpose(1, 2)))
        )
        of_user = user_scale * (take_rows(self.of_item, items) + by_item)
        of_item = item_scale * (take_rows(self.of_user, users) + by_user)
        return of_user, of_item, (name * of_item).sum(1) + take_or(self.name_text, items, 0.0)

    def _name_places(self, items: Tensor, item: SideTerms) -> Tensor:
        """The name in the directions [B, k], less the centre where there are no other words to take it off."""
        names = take_rows(self.name_place, items)
        silent = names.any(1, keepdim=True) & item.silent().unsqueeze(1)
        return names - self.item_side.centre * silent

    def _terms(self, side: MeetingSide, words: Tensor, reviews: Tensor, shares: Tensor | None = None) -> PaddedTerms:
        found = term_occurrences(words, reviews, self.bigrams, self.sizes.words)
        return PaddedTerms(side, words, found, self.sizes.words, shares)

    # ---- fitting

    @torch.no_grad()
    def start(self, data: TrainingData) -> None:
        pairs = self._pairs(data)
        ratings = torch.from_numpy(pairs.ratings).to(self.mean)
        self.mean.copy_(ratings.mean())
        target = ratings - ratings.mean()
        variance = float(target.square().mean())
        if variance < 1e-12:
            return  # all ratings alike: the mean says everything
        start = torch.tensor(START).to(target) * variance
        few = len(target) < ENOUGH_TO_LEARN
        rounds, probes = (0 if few else self.config.rounds), self.config.probes
        equal = torch.ones_like(target)
        seen = SeenData(data, self.config, self.sizes, self.mean)
        way, fit, first, alpha = seen.choose(pairs, target, start, rounds)
        covariance = way.covariance
        self._see(way, seen.bigrams)
        alike = fit.held_out(first, equal, alpha)
        user, item = noise_by_owner(target - alike, covariance.by_user, covariance.by_item)
        solutions, held_out = [(first, equal)], [alike]
        if self.config.own_noise:
            noise = user[covariance.users] * item[covariance.items]
            begin = first.clone()
            begin[-1] /= float(noise.log().mean().exp())
            second, alpha = fit.learn(begin, noise, rounds // 3, probes)
            solutions.append((second, noise))
            held_out.append(fit.held_out(second, noise, alpha))
        self._take([covariance.weights(fit.solution(s, n), s) for s, n in solutions], covariance.item_rows)
        self.strengths.copy_(torch.stack([solutions[0][0], solutions[-1][0]]))
        self._calibrate(covariance, ratings, torch.stack(held_out).mean(0) + ratings.mean(), user, item)

    def _pairs(self, data: TrainingData) -> Pairs:
        """The pairs that are learned from."""
        return data.train.joined_with(data.valid) if self.config.learn_from == "training and validation" else data.train

    def _see(self, way: WayOfSeeing, bigrams: Tensor) -> None:
        self.bigrams = bigrams
        for side, texts, centre in zip((self.user_side, self.item_side), way.sides, way.centres, strict=True):
            side.idf, side.weight = texts.idf, torch.zeros_like(texts.idf)
            side.directions = texts.directions[: texts.rows.terms]
            side.centre.copy_(centre)
            if texts.rows.names is not None:
                self.name_place.copy_(texts.rows.names.times(texts.directions[texts.rows.terms :]))

    def _take(self, solutions: list[ProcessWeights], item_rows: TextRows) -> None:
        """The mean of several solutions' weights."""

        def mean(name: str) -> Tensor:
            return torch.stack([getattr(weights, name) for weights in solutions]).mean(0)

        for name in ("user", "item", "of_user", "of_item", "meetings"):
            getattr(self, name).copy_(mean(name))
        self.user_side.weight.copy_(mean("user_words"))
        of_items = mean("item_words")
        self.item_side.weight.copy_(of_items[: item_rows.terms])
        if item_rows.names is not None:
            self.name_text.copy_(item_rows.names.times(of_items[item_rows.terms :].unsqueeze(1)).squeeze(1))

    def _calibrate(
        self, covariance: PairCovariance, ratings: Tensor, held_out: Tensor, user: Tensor, item: Tensor
    ) -> None:
        if self.config.curved:
            self.curve.fit(held_out, ratings)
        held_out = self.curve(held_out)
        if self.config.own_width:
            held_out = self.width.fit(held_out, ratings, covariance.by_user).to(held_out)
        errors = ratings - held_out
        self.user_noise.copy_(user)
        self.item_noise.copy_(item)
        noise = noise_without_own(errors, covariance.by_user, covariance.by_item, user, item)
        self.deviation.fill_(interval_scale(errors, noise.sqrt()))

    # ---- new reviews

    @torch.no_grad()
    def take_in(self, data: TrainingData, users: Tensor, items: Tensor) -> None:
        """Levels, own vectors, noises and widths of these people and things, found as in `start` with the rest held."""
        for noise in (self.user_noise, self.item_noise):
            noise[noise == 0] = 1  # of somebody new
        for table, places in ((self.user, users), (self.of_user, users), (self.item, items), (self.of_item, items)):
            table[places] = 0
        pairs = self._touching(self._pairs(data), users, items)
        if len(pairs) and self.strengths[0, -1] > 0:  # else all ratings were alike, and the mean says everything
            self._solve_touched(data, pairs, users, items)

    def _touching(self, pairs: Pairs, users: Tensor, items: Tensor) -> Pairs:
        """The pairs of these people or of these things."""
        of_users = np.isin(pairs.users, users.cpu().numpy())
        of_items = np.isin(pairs.items, items.cpu().numpy())
        return pairs.some(of_users | of_items)

    def _solve_touched(self, data: TrainingData, pairs: Pairs, users: Tensor, items: Tensor) -> None:
        user, item = (torch.from_numpy(of).to(self.mean.device) for of in (pairs.users, pairs.items))
        ratings = torch.from_numpy(pairs.ratings).to(self.mean)
        leave_out = data.target_reviews == "leave out"
        user_sides = self._sides_of_pairs(self.user_side, data.user_documents, pairs.users, pairs.records, leave_out)
        item_sides = self._sides_of_pairs(self.item_side, data.item_documents, pairs.items, pairs.records, leave_out)
        held = self.score(user, item, user_sides, item_sides).tensors
        rest = held["baseline"] + held["text"]
        seen_by = self.item_side.seen(item_sides[:, 1:] + take_rows(self.name_place, item))[0]
        seen_of = self.user_side.seen(user_sides[:, 1:])[0]
        covariance = TouchedCovariance(
            OwnedTerms(user, users, self.sizes.users, seen_by), OwnedTerms(item, items, self.sizes.items, seen_of)
        )
        by_user, by_item = Segments.of(user, self.sizes.users), Segments.of(item, self.sizes.items)
        fit, strengths = HeldOut(covariance, ratings - rest), self.strengths
        equal = torch.ones_like(rest)
        alpha = fit.solution(strengths[0], equal)
        found, held_out = [covariance.found(alpha, strengths[0])], [fit.held_out(strengths[0], equal, alpha)]
        errors, known = fit.target - held_out[0], (self.user_noise, self.item_noise)
        self.user_noise, self.item_noise = noise_of_some(errors, by_user, by_item, known, (users, items))
        if self.config.own_noise:
            noise = self.user_noise[user] * self.item_noise[item]
            alpha = fit.solution(strengths[1], noise)
            found.append(covariance.found(alpha, strengths[1]))
            held_out.append(fit.held_out(strengths[1], noise, alpha))
        tables = (self.user, self.of_user, self.item, self.of_item)
        for table, places, values in zip(tables, (users, users, items, items), zip(*found, strict=True), strict=True):
            table[places] = torch.stack(values).mean(0)
        if self.config.own_width:
            self.width.fit(self.curve(rest + torch.stack(held_out).mean(0)), ratings, by_user, only=users)

    def _sides_of_pairs(
        self,
        side: MeetingSide,
        documents: Documents,
        owners: NDArray[np.int64],
        records: NDArray[np.int64],
        leave_out: bool,
    ) -> Tensor:
        """Sides [n, 1 + k] of the owners of pairs, each without the pair's own review if that is left out."""
        device, words = self.mean.device, self.sizes.words
        known, owner = np.unique(owners, return_inverse=True)
        places = Occurrences.of(documents.some(known), device)
        terms = Terms.of(places, self.bigrams, words, len(side.idf))
        own = torch.from_numpy(records).to(device) if leave_out else None
        rows = terms.features(torch.from_numpy(owner).to(device), own, side.idf)
        table = torch.cat([side.weight.unsqueeze(1), side.directions], 1)
        whole, difference = (
            SparseProduct(of.row, of.column, of.value.to(table), of.shape).times(table)
            for of in (rows.whole, rows.difference)
        )
        found: Tensor = rows.scale.to(table).unsqueeze(1) * (whole[rows.owner] + difference)
        return found
