"""Do the sentences shown as for a thing praise it, and those shown as against it complain?

In the made-up shop it is known what every sentence says. Elsewhere a sentence is as good as the review it stands in:
the reviews behind sentences for a thing should have more stars than those behind sentences against it. Where the
explanation itself looks at those stars to choose its sentences, part of that difference is built in, so the same is
measured with an explanation that looks at the words alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from carp.evaluate.significance import percentile_interval, resampled
from carp.explain.explainer import Explainer
from carp.explain.explanation import Explanation, Sentence
from carp.explain.pair_texts import Floats
from carp.explain.reading_guide import ReadingGuide
from carp.reviews.shop.made_up_shop import Shop

DIRECTIONS = {"raises the rating": 1, "lowers the rating": -1}  # sides of models whose words add up
LOWEST, HIGHEST = 1.0, 5.0  # stars that the ratings of any corpus are shown as here
DRAWS = 1000


@dataclass(frozen=True)
class SignedSentence:
    """A sentence about the thing, and what it is shown as."""

    sentence: Sentence
    sign: int  # 1 is for the thing, -1 against it
    turned: bool = False  # the explanation says that this person's taste turns it round


@dataclass(frozen=True)
class StarsApart:
    """Stars, from 1 to 5, of the reviews that the sentences come from: means over sentences."""

    for_it: float
    against_it: float
    difference: float
    interval: tuple[float, float] | None  # 95 %, bootstrap over pairs


@dataclass(frozen=True)
class KnownSigns:
    """Of the made-up shop, where it is known what each sentence says."""

    praise: float | None  # share of the sentences shown as for a thing that praise; None where there are none
    complaint: float | None  # share of those shown as against it that complain
    silent: float  # share of all of them that say neither


@dataclass(frozen=True)
class Signs:
    """Sentences about the things of many pairs, by what they are shown as. Turned ones are counted apart."""

    pairs: int
    for_it: int
    against_it: int
    turned: int
    stars: StarsApart | None  # None where all sentences are for it, or all against
    stars_by_words: StarsApart | None  # the same where the explanation does not look at the reviews' ratings
    known: KnownSigns | None  # None but for the made-up shop


def signs(explanations: Sequence[Explanation], by_words: Sequence[Explanation], shop: Shop | None) -> Signs | None:
    """Of the explanations of many pairs, and of the same by words alone; None where the model says nothing of for and
    against."""
    said = [signed_sentences(one) for one in explanations]
    told = [found for found in said if found is not None]
    if not told:
        return None
    straight = [one for found in told for one in found if not one.turned]
    return Signs(
        pairs=sum(bool(found) for found in told),
        for_it=sum(one.sign > 0 for one in straight),
        against_it=sum(one.sign < 0 for one in straight),
        turned=sum(one.turned for found in told for one in found),
        stars=stars_apart(explanations),
        stars_by_words=stars_apart(by_words),
        known=None if shop is None else known_signs(straight, shop),
    )


def signed_sentences(explanation: Explanation) -> list[SignedSentence] | None:
    """The thing's sentences that are shown for or against it, each once; None where nothing is said of that."""
    if explanation.parts:
        found = [
            SignedSentence(sentence, 1 if finding.amount > 0 else -1, finding.turned)
            for finding in explanation.findings
            for sentence in finding.sentences
        ]
    elif explanation.positive is not None:
        found = [
            SignedSentence(sentence, 1 if unit.sentiment == "positive" else -1)
            for unit in explanation.units
            for sentence in unit.aspect.sentences
        ]
    elif any(side.name in DIRECTIONS for side in explanation.aspects):
        found = [
            SignedSentence(sentence, DIRECTIONS[side.name])
            for side in explanation.aspects
            for sentence in side.sentences
        ]
    else:
        return None
    once = {(one.sentence.user, one.sentence.item, one.sentence.text, one.sign): one for one in found}
    return list(once.values())


# ---- by the stars of the reviews


def stars_apart(explanations: Sequence[Explanation]) -> StarsApart | None:
    """None where the sentences of one sign are missing."""
    totals = np.array([_stars_of(one) for one in explanations]).reshape(-1, 4).T
    means = _means(totals.sum(1))
    if not np.isfinite(means).all():
        return None
    drawn = resampled(lambda places: _apart(totals[:, places].sum(2)), totals.shape[1], draws=DRAWS)
    known = drawn[np.isfinite(drawn)]
    low, high = percentile_interval(known).tolist() if len(known) else (np.nan, np.nan)
    interval = (float(low), float(high)) if len(known) else None
    return StarsApart(float(means[0]), float(means[1]), float(means[0] - means[1]), interval)


def _stars_of(explanation: Explanation) -> tuple[float, float, float, float]:
    """Of the sentences for the thing their stars and number, and of those against it."""
    low, high = explanation.rating_range
    found = np.zeros((2, 2))
    for one in signed_sentences(explanation) or []:
        if not one.turned and one.sentence.rating is not None:
            stars = LOWEST + (HIGHEST - LOWEST) * (one.sentence.rating - low) / (high - low)
            found[0 if one.sign > 0 else 1] += (stars, 1)
    (for_it, number), (against_it, of_these) = found.tolist()
    return for_it, number, against_it, of_these


def _means(totals: Floats) -> Floats:
    with np.errstate(invalid="ignore"):
        return np.array([totals[0] / totals[1], totals[2] / totals[3]])


def _apart(totals: Floats) -> Floats:
    for_it, against_it = _means(totals)
    return np.asarray(for_it - against_it)


# ---- by what the shop wrote


def known_signs(sentences: Sequence[SignedSentence], shop: Shop) -> KnownSigns:
    """A sentence that says nothing for or against is a wrong one wherever it is shown."""
    says = _polarities(shop, [one.sentence for one in sentences])
    sign = np.array([one.sign for one in sentences])
    return KnownSigns(
        praise=_share(says[sign > 0] > 0),
        complaint=_share(says[sign < 0] < 0),
        silent=_share(says == 0) or 0.0,
    )


def _polarities(shop: Shop, sentences: Sequence[Sentence]) -> NDArray[np.int64]:
    written = {(review.user, review.item): review for review in shop.reviews}
    found = []
    for sentence in sentences:
        review = written[str(sentence.user), str(sentence.item)]
        start = review.text.index(sentence.text)
        end = start + len(sentence.text)
        inside = {one.sentiment for one in review.sentences if one.start < end and one.end > start}
        found.append(("positive" in inside) - ("negative" in inside))
    return np.array(found, dtype=np.int64)


def _share(flags: NDArray[np.bool_]) -> float | None:
    return float(flags.mean()) if len(flags) else None


# ---- without a look at the ratings


class WordsAloneGuide(ReadingGuide):
    """A guide to whom a sentence is its words, whatever its review was rated."""

    def of_rating(self, stars: float) -> float:
        return 0.0


def by_words_alone(explainer: Explainer) -> Explainer | None:
    """An explainer of the same model that does not look at the ratings of the reviews; None where ours does not
    either."""
    if not explainer.chooses_by_guide:
        return None
    found, guide = type(explainer)(explainer.fitted), explainer.guide
    found.guide = WordsAloneGuide(guide.praise, guide.aspects, guide.mean_rating, guide.clear_tone)
    return found
