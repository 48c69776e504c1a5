"""Do the reasons know what reviewers scored low, aspect by aspect? No model has seen those scores.

For each aspect of which the data has scores (Service, taste, …) and we have words, readings of how badly a thing does
on it, each for a pair and, averaged over an item's pairs, for an item:

    units      negative coupling minus positive, of the logic units whose aspect side attends to the aspect's words
    capsules   the same, each coupling times the length of its capsule: what the sentiments take from those units
    lengths    the negative capsule's length minus the positive one's: what is felt of the thing as a whole
    pull       what those words do to the balance of sentiments through all logic units, downwards
    words      no model: the share of the item's document that those words are
    stars      no model: how low the reviews were rated that those words stand in, beside the corpus' mean

Each is rank-correlated with how low the aspect was scored: as it stands, and beside the overall rating (what a straight
line from the overall rating does not explain). Above 0 means that what is scored low is read as bad. A reading that
does no better than words knows no sentiment, and one that does no better than lengths knows no aspect.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carp.errors import InputError
from carp.evaluate.significance import percentile_interval
from carp.explain.faithfulness.aspect_words import aspect_words
from carp.explain.faithfulness.rank_correlation import rank_correlation, resampled_correlations
from carp.explain.named_words import CapsuleFigures, NamedReasons
from carp.explain.pair_texts import Floats, PairTexts
from carp.models.carp import NEGATIVE, POSITIVE
from carp.reviews.split_parts import TRAIN
from carp.training.fitted_corpus import FittedCorpus

READINGS = ("units", "capsules", "lengths", "pull", "words", "stars")
FIX = "give the JSON lines the corpus was prepared from, with user, item and aspects"
FEWEST = 30  # pairs (items) that a correlation is worth telling of

Scores = dict[str, Floats]  # of every record of the corpus; NaN where the reviewer gave none


@dataclass(frozen=True)
class AspectCorrelation:
    """Spearman's, with 95 % intervals by bootstrap over pairs (items)."""

    aspect: str
    of: str  # pairs or items
    low: str  # "score" as it stands, or "beside rating"
    number: int
    correlation: dict[str, float | None]  # by reading
    interval: dict[str, tuple[float, float] | None]
    over_words: dict[str, tuple[float, float] | None]  # of the reading's minus that of words
    over_lengths: dict[str, tuple[float, float] | None]  # of the reading's minus that of lengths


# ---- the scores


def read_aspects(path: Path, fitted: FittedCorpus) -> Scores:
    """The reviewers' own scores of aspects, joined to the records of the corpus on user and item."""
    users, items = fitted.users.index(), fitted.items.index()
    scores: Scores = {}
    for line, row in _rows(path):
        pair = users.get(str(row.get("user")), -1), items.get(str(row.get("item")), -1)
        record = fitted.record_of_pair.get(pair, -1)
        given = row.get("aspects")
        if record < 0 or not isinstance(given, dict):
            continue
        for name, score in given.items():
            if score is None:
                continue
            if isinstance(score, bool) or not isinstance(score, int | float) or not math.isfinite(score):
                what = f"the score of {name!r} is {score!r}"
                raise InputError(what, where=f"{path}, line {line}", fix="give numbers")
            scores.setdefault(str(name), np.full(len(fitted.user), np.nan))[record] = score
    if not scores:
        raise InputError("it holds no aspect score of a pair of this corpus", where=str(path), fix=FIX)
    return scores


def _rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    line = 0
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            for line, text in enumerate(file, start=1):
                row = json.loads(text) if text.strip() else {}
                if not isinstance(row, dict):
                    raise InputError("this is no JSON object", where=f"{path}, line {line}", fix=FIX)
                yield line, row
    except (FileNotFoundError, IsADirectoryError):
        raise InputError("there is no such file", where=str(path), fix=FIX) from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"this is no JSON ({error})", where=f"{path}, line {line}", fix=FIX) from None
    except (OSError, EOFError) as error:
        raise InputError(f"cannot be read ({error})", where=str(path), fix="give a file that can be read") from None


# ---- the readings


def aspect_correlations(
    fitted: FittedCorpus, held: PairTexts, reasons: NamedReasons, scores: Scores, *, draws: int = 1000
) -> tuple[AspectCorrelation, ...]:
    """All aspects that have both scores and words of ours; empty for models without capsules."""
    if reasons.capsules is None:
        return ()
    found = []
    for name in sorted(scores):
        words = aspect_words(name)
        if not words:
            continue
        spoken = _is_among(fitted, words)[held.item.words] & held.item.there
        readings = _readings(fitted, held, reasons, reasons.capsules, spoken)
        for low, score in (("score", scores[name]), ("beside rating", beside_rating(scores[name], fitted.rating))):
            found += _correlated(name, low, -score, fitted, held, readings, draws)
    return tuple(found)


def beside_rating(score: Floats, rating: NDArray[np.float32]) -> Floats:
    """What is left of the scores after the straight line from the overall rating that fits them best.

    >>> beside_rating(np.array([1.0, 2.0, 3.0, np.nan]), np.array([1, 2, 3, 4], np.float32)).round(6).tolist()
    [0.0, 0.0, 0.0, nan]
    """
    known = np.isfinite(score)
    x, y = rating[known].astype(np.float64), score[known]
    spread = float(np.square(x - x.mean()).sum())
    slope = float(((x - x.mean()) * (y - y.mean())).sum()) / spread if spread else 0.0
    rest: Floats = score - y.mean() - slope * (rating.astype(np.float64) - x.mean())
    return rest + 0.0


def _is_among(fitted: FittedCorpus, words: frozenset[str]) -> NDArray[np.bool_]:
    return np.array([False, *(word in words for word in fitted.vocabulary.words)])


def _readings(
    fitted: FittedCorpus, held: PairTexts, reasons: NamedReasons, capsules: CapsuleFigures, spoken: NDArray[np.bool_]
) -> dict[str, Floats]:
    """How badly each pair's item does on an aspect, by each reading; NaN where nothing is said of it. [N]"""
    number, length = spoken.sum(1), held.item.there.sum(1)
    about = np.einsum("nl,nlm->nm", spoken, capsules.item_attention.astype(np.float64))
    share = about / np.maximum(about.sum(1, keepdims=True), 1e-300)
    coupling = capsules.coupling.sum(2)  # over viewpoints, [N, 2, M]
    taken = coupling * capsules.lengths[:, :, None]
    mean = float(fitted.rating[fitted.part == TRAIN].mean())
    stars = np.where(spoken, mean - fitted.rating[held.item.reviews].astype(np.float64), 0.0).sum(1)
    silent = np.where(number > 0, 0.0, np.nan)
    return {
        "units": (share * (coupling[:, NEGATIVE] - coupling[:, POSITIVE])).sum(1) + silent,
        "capsules": (share * (taken[:, NEGATIVE] - taken[:, POSITIVE])).sum(1) + silent,
        "lengths": capsules.lengths[:, NEGATIVE] - capsules.lengths[:, POSITIVE] + silent,
        "pull": -np.where(spoken, reasons.item.pull, 0.0).sum(1) + silent,
        "words": number / np.maximum(length, 1) + silent,
        "stars": stars / np.maximum(number, 1) + silent,
    }


# ---- the correlations


def _correlated(
    name: str, low: str, badness: Floats, fitted: FittedCorpus, held: PairTexts, readings: dict[str, Floats], draws: int
) -> list[AspectCorrelation]:
    of_pairs = badness[held.pairs.records]
    items, place = np.unique(held.pairs.items, return_inverse=True)
    of_items = _means(badness, fitted.item, len(fitted.items))[items]
    by_item = {reading: _means(values, place, len(items)) for reading, values in readings.items()}
    found = (
        _one(name, "pairs", low, readings, of_pairs, draws),
        _one(name, "items", low, by_item, of_items, draws),
    )
    return [one for one in found if one is not None]


def _means(values: Floats, owner: NDArray[np.integer[Any]], owners: int) -> Floats:
    """Of the known values of each owner; NaN where there are none."""
    known = np.isfinite(values)
    count = np.bincount(owner[known], minlength=owners)
    total = np.bincount(owner[known], values[known], minlength=owners)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _one(
    name: str, of: str, low: str, readings: dict[str, Floats], badness: Floats, draws: int
) -> AspectCorrelation | None:
    columns = np.array([readings[reading] for reading in READINGS])
    known = np.isfinite(badness) & np.isfinite(columns).all(0)
    if known.sum() < FEWEST:
        return None
    columns, badness = columns[:, known], badness[known]
    drawn = resampled_correlations(columns, badness, draws=draws)
    return AspectCorrelation(
        aspect=name,
        of=of,
        low=low,
        number=int(known.sum()),
        correlation={r: rank_correlation(column, badness) for r, column in zip(READINGS, columns, strict=True)},
        interval={r: _interval(values) for r, values in zip(READINGS, drawn, strict=True)},
        over_words=_over(drawn, "words"),
        over_lengths=_over(drawn, "lengths"),
    )


def _over(drawn: Floats, reading: str) -> dict[str, tuple[float, float] | None]:
    """How much more the other readings correlate than this one, over the same draws."""
    base = drawn[READINGS.index(reading)]
    return {other: _interval(row - base) for other, row in zip(READINGS, drawn, strict=True) if other != reading}


def _interval(drawn: Floats) -> tuple[float, float] | None:
    if not np.isfinite(drawn).all():
        return None
    low, high = percentile_interval(drawn)
    return float(low), float(high)
