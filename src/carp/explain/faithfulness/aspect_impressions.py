"""Does the reading guide know what a thing is better or worse at than it is on the whole? Nobody has told it.

For each aspect that reviewers score by themselves (Service, taste, …), over things: how far what is written about it
praises more than what is written about the thing in all, against how far its scores lie above the overall ratings. Both
are relative to the whole impression, so a reading that only knows how much a thing is liked gets nothing.

The aspects of the guide are found without labels. Each goes to the scored one whose words, as often as they are
written, hold most of it, and a scored one is all that go to it. A clause counts for an aspect by the share of its words
that belong there. What a clause says is by its words alone: the ratings, which the scores are held against, have
no part in it. Beside it stand two readings without found aspects:

    matching   the clauses with one of the aspect's words, and what they say
    share      the share of the clauses that have one: words matched, no sentiment
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carp.evaluate.significance import percentile_interval, resampled
from carp.explain.faithfulness.aspect_scores import Scores
from carp.explain.faithfulness.aspect_words import aspect_words
from carp.explain.faithfulness.rank_correlation import rank_correlation
from carp.explain.named_aspects import NamedAspects
from carp.explain.pair_texts import Floats
from carp.explain.reading_guide import ReadingGuide, clause_ends
from carp.training.fitted_corpus import FittedCorpus

READINGS = ("found", "matching", "share")
LEAST = 15  # clauses about the aspect, and scores of it, that a thing must have to count
FEWEST_THINGS = 30
SCORED = 1 / 3  # of all reviews must score an aspect, for it to be one of those that all reviewers were asked for
DRAWS = 300

Interval = tuple[float, float]


@dataclass(frozen=True)
class AspectImpression:
    """Rank correlations over things, of each reading, with 95 % intervals by bootstrap over things."""

    aspect: str
    found: tuple[str, ...]  # the guide's names of what belongs to it
    things: int
    correlation: dict[str, float]  # by reading
    interval: dict[str, Interval]


@dataclass(frozen=True)
class Impressions:
    """All aspects that count, and their mean."""

    least: int  # clauses and scores that a thing must have
    standardised: bool  # whether scores and ratings were brought to one spread, as their scales differ
    aspects: tuple[AspectImpression, ...]
    mean: dict[str, float]
    mean_interval: dict[str, Interval]
    over: dict[str, Interval]  # of the found aspects' mean minus that of the other reading


@dataclass(frozen=True, eq=False)
class Clauses:
    """What was written about things in training reviews, clause by clause."""

    thing: NDArray[np.int64]  # [C]
    tone: Floats  # [C] by its words alone
    words: NDArray[np.int32]  # [W] as models see them
    clause: NDArray[np.int64]  # [W] of each word


def impressions(
    corpus: FittedCorpus, guide: ReadingGuide, scores: Scores, *, least: int = LEAST, draws: int = DRAWS
) -> Impressions | None:
    """None where no aspect has words of ours and enough scores, or too few things count."""
    asked = [name for name in sorted(scores) if aspect_words(name) and np.isfinite(scores[name]).mean() >= SCORED]
    if not asked:
        return None
    clauses = clauses_of(corpus, guide)
    about = shares_of_clauses(guide.aspects, clauses)
    often = np.bincount(clauses.words, minlength=len(guide.aspects.membership))
    belongs = matched_aspects(guide.aspects, corpus.vocabulary.words, often, asked)
    standardised = not _on_one_scale(corpus, scores, asked)
    measured: list[tuple[str, Floats, Floats]] = []
    for name in asked:
        spoken = _has_word(corpus, clauses, aspect_words(name))
        truth, number = _relative_scores(corpus, scores[name], standardised=standardised)
        readings, clauses_about = _readings(clauses, about[:, belongs[name]].sum(1), spoken, len(corpus.items))
        counts = (clauses_about >= least) & (number >= least)
        if counts.sum() >= FEWEST_THINGS:
            measured.append((name, np.where(counts, readings, np.nan), np.where(counts, truth, np.nan)))
    return _summary(measured, guide.aspects, belongs, standardised, least, draws) if measured else None


def matched_aspects(
    aspects: NamedAspects, vocabulary: Sequence[str], often: NDArray[np.integer[Any]], asked: Sequence[str]
) -> dict[str, list[int]]:
    """The found aspects that go to each scored one: those of which its words, as often as each is written, hold more
    than those of any other."""
    number = {word: place for place, word in enumerate(vocabulary, start=1)}
    written = often[:, None] * aspects.membership[:, :-1].astype(np.float64)
    mass = np.array(
        [written[[number[word] for word in sorted(aspect_words(name)) if word in number]].sum(0) for name in asked]
    )
    most = mass.argmax(0)
    there = mass.max(0) > 0
    return {name: [int(k) for k in np.flatnonzero((most == row) & there)] for row, name in enumerate(asked)}


# ---- what was written


def shares_of_clauses(aspects: NamedAspects, clauses: Clauses) -> Floats:
    """How much of each clause is about each aspect [C, aspects]; words that belong nowhere count half, as they do where
    sentences are chosen."""
    about = np.zeros((len(clauses.thing), len(aspects)))
    np.add.at(about, clauses.clause, aspects.membership[clauses.words])
    about[:, -1] *= 0.5
    return np.asarray(about / np.maximum(about.sum(1, keepdims=True), 1e-12))


def clauses_of(corpus: FittedCorpus, guide: ReadingGuide) -> Clauses:
    """The clauses of training reviews with a word that models see."""
    documents = corpus.item_documents
    order = np.argsort(documents.review, kind="stable")
    words, review, start = documents.words[order], documents.review[order], documents.characters[order, 0]
    records, begins = np.unique(review, return_index=True)
    clause = np.zeros(len(words), np.int64)
    texts: list[str] = []
    owners: list[int] = []
    for record, begin, end in zip(records.tolist(), begins, [*begins[1:], len(words)], strict=True):
        text = corpus.texts[record]
        ends = np.array(clause_ends(text))
        own, place = np.unique(np.searchsorted(ends, start[begin:end], side="right"), return_inverse=True)
        clause[begin:end] = len(texts) + place
        starts = np.append(0, ends)
        texts += [text[starts[one] : starts[min(one + 1, len(ends))]] for one in own.tolist()]
        owners += [int(corpus.item[record])] * len(own)
    return Clauses(np.array(owners, np.int64), guide.praise.of_texts(texts), words, clause)


def _has_word(corpus: FittedCorpus, clauses: Clauses, words: frozenset[str]) -> NDArray[np.bool_]:
    among = np.array([False, *(word in words for word in corpus.vocabulary.words)])
    found = np.zeros(len(clauses.thing), bool)
    found[clauses.clause[among[clauses.words]]] = True
    return found


def _readings(clauses: Clauses, found: Floats, spoken: NDArray[np.bool_], things: int) -> tuple[Floats, Floats]:
    """Each reading of every thing [readings, things], and how many clauses are about the aspect [things]."""
    everything = np.bincount(clauses.thing, minlength=things)
    whole = np.bincount(clauses.thing, clauses.tone, things) / np.maximum(everything, 1)

    def relative(weight: Floats) -> Floats:
        total = np.bincount(clauses.thing, weight * clauses.tone, things)
        return np.asarray(total / np.maximum(np.bincount(clauses.thing, weight, things), 1e-12) - whole)

    share = np.bincount(clauses.thing[spoken], minlength=things) / np.maximum(everything, 1)
    number = np.bincount(clauses.thing, found, things).astype(np.float64)
    return np.array([relative(found), relative(spoken.astype(np.float64)), share]), number


# ---- what was scored


def _on_one_scale(corpus: FittedCorpus, scores: Scores, asked: list[str]) -> bool:
    ends = {(float(np.nanmin(scores[name])), float(np.nanmax(scores[name]))) for name in asked}
    return ends == {(corpus.scale.low, corpus.scale.high)}


def _relative_scores(corpus: FittedCorpus, score: Floats, *, standardised: bool) -> tuple[Floats, Floats]:
    """The mean of score minus overall rating of every thing, and how many there are."""
    rating = np.array([corpus.own_rating(float(stars)) for stars in np.arange(1, corpus.levels + 1)])
    overall = np.interp(corpus.rating, np.arange(1, corpus.levels + 1), rating)
    known = np.isfinite(score)
    if standardised:
        score = (score - np.nanmean(score)) / max(float(np.nanstd(score)), 1e-12)
        overall = (overall - overall.mean()) / max(float(overall.std()), 1e-12)
    things = len(corpus.items)
    number = np.bincount(corpus.item[known], minlength=things)
    total = np.bincount(corpus.item[known], (score - overall)[known], things)
    return total / np.maximum(number, 1), number.astype(np.float64)


# ---- the correlations


def _summary(
    measured: list[tuple[str, Floats, Floats]],
    aspects: NamedAspects,
    belongs: dict[str, list[int]],
    standardised: bool,
    least: int,
    draws: int,
) -> Impressions:
    things = len(measured[0][2])
    whole = _correlations(measured, np.arange(things)[None])[:, :, 0]  # [aspects, readings]
    drawn = resampled(lambda places: _correlations(measured, places), things, draws=draws)  # [aspects, readings, draws]
    means = drawn.mean(0)
    found = tuple(
        AspectImpression(
            aspect=name,
            found=tuple(aspects.names[k] for k in belongs[name]),
            things=int(np.isfinite(truth).sum()),
            correlation=_by_reading(whole[row]),
            interval=_intervals(drawn[row]),
        )
        for row, (name, _, truth) in enumerate(measured)
    )
    over = _intervals(means[0] - means)
    return Impressions(
        least=least,
        standardised=standardised,
        aspects=found,
        mean=_by_reading(whole.mean(0)),
        mean_interval=_intervals(means),
        over={reading: interval for reading, interval in over.items() if reading != "found"},
    )


def _correlations(measured: list[tuple[str, Floats, Floats]], places: NDArray[np.int64]) -> Floats:
    """Of the drawn things [block, things] that count, by aspect and reading [aspects, readings, block]."""
    found = np.zeros((len(measured), len(READINGS), len(places)))
    for draw, chosen in enumerate(places):
        for row, (_, readings, truth) in enumerate(measured):
            counts = chosen[np.isfinite(truth[chosen])]
            found[row, :, draw] = [rank_correlation(reading[counts], truth[counts]) or 0.0 for reading in readings]
    return found


def _by_reading(values: Floats) -> dict[str, float]:
    return dict(zip(READINGS, values.tolist(), strict=True))


def _intervals(drawn: Floats) -> dict[str, Interval]:
    ends = percentile_interval(drawn)
    return {reading: (float(low), float(high)) for reading, (low, high) in zip(READINGS, ends, strict=True)}
