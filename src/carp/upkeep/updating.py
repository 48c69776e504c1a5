"""New reviews for a model that is trained already."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from carp.errors import InputError, UsageError
from carp.recommender import Recommender, load
from carp.reviews.corpora.cleaning import DaysKept
from carp.reviews.rating_scale import RatingScale
from carp.reviews.sources.ledger import Ledger, Reviews
from carp.storage import sole_writer
from carp.training.fitted_corpus import FittedCorpus
from carp.upkeep.answer_moves import AnswerMoves, answer_moves
from carp.upkeep.learned_records import without
from carp.upkeep.new_reviews import new_reviews
from carp.upkeep.revised_corpus import RevisedCorpus, revise
from carp.upkeep.revised_model import revised_model
from carp.upkeep.revised_sides import carried_sides, has_sides, reads_alike

# How the ledger begins a reason that tells of another scale, and what is said of such ratings.
OTHER_SCALES = {
    "rating lies outside": "outside {low:g} to {high:g}, the range of this model",
    "rating is not out of": "out of another number than {high:g}, the highest rating of this model",
}
ENOUGH_TO_DOUBT = 20  # new ratings
RARE = 0.05  # of the ratings a model knows
SHOWN_REJECTIONS = 5


@dataclass(frozen=True)
class UpdateReport:
    """What new reviews did to a model."""

    reviews: int  # taken in
    replaced: int  # of them, that stand in the place of an earlier review of the same pair
    known_already: int  # word for word, and left out
    new_users: int
    new_items: int
    touched_users: int  # documents that changed
    touched_items: int
    fitted_again: bool  # the whole model, which is in closed form
    moved: AnswerMoves | None  # None where nothing came in
    doubt: str | None = None  # whether the new ratings are on the model's scale
    rejected: int = 0  # records that could not be used
    reasons: dict[str, int] = field(default_factory=dict)  # why, and how many of each
    first_rejected: list[dict[str, Any]] = field(default_factory=list)  # file, line, reason and value
    dropped: dict[str, int] = field(default_factory=dict)  # reviews that cleaning left out, by reason


def update_model(
    folder: Path | str,
    source: Any,
    *,
    device: str = "auto",
    refit: bool = False,
    days: DaysKept | None = None,
    rejects: Path | None = None,
    **reading: Any,
) -> UpdateReport:
    """Put new reviews into a saved model, which is replaced as a whole or not at all.

    Args:
        folder: A saved model.
        source: What `read_reviews` reads.
        device: auto, cpu, cuda or cuda:N.
        refit: Fit a model in closed form again on all reviews, instead of solving for those who are touched.
        days: Leave out reviews of other days.
        rejects: A file for all records that could not be used, as JSON lines.
        **reading: What else `read_reviews` takes, except for the range of ratings, which is the model's.

    Returns:
        What came in, and how far the answers moved.
    """
    folder = Path(folder)
    with sole_writer(folder) as place:
        before = load(place, device=device)
        reviews = read_for(before, source, **reading)
        after, report = update(before, reviews, refit=refit, days=days)
        if rejects is not None:
            reviews.ledger.save(rejects)
        if report.reviews:
            after.save(place, overwrite=True)
    return report


def read_for(recommender: Recommender, source: Any, **reading: Any) -> Reviews:
    """Reviews on the rating scale of a model. Ratings that are on another one are refused."""
    from carp.reviews.sources.formats import read_reviews

    scale = recommender.fitted_corpus.scale
    try:
        reviews = read_reviews(source, rating_range=(scale.low, scale.high), **reading)
    except InputError as error:
        told = next((told for begin, told in OTHER_SCALES.items() if begin in error.what), None)
        if told is not None:
            raise _other_scale("all ratings are", told, scale, error.where) from error
        raise
    for reason, count in reviews.ledger.counts.items():
        told = next((told for begin, told in OTHER_SCALES.items() if reason.startswith(begin)), None)
        if told is not None:
            first = reviews.ledger.first[reason]
            which = "1 rating is" if count == 1 else f"{count:,} ratings are"
            raise _other_scale(which, told, scale, f"{first.file} line {first.line}")
    return reviews


def _other_scale(which: str, told: str, scale: RatingScale, where: str | None) -> InputError:
    what = f"{which} {told.format(low=scale.low, high=scale.high)}"
    return InputError(what, where=where, fix="map the ratings to the model's range, or train a new model")


def _doubt(corpus: FittedCorpus, stars: NDArray[np.float64]) -> str | None:
    """What is said of many ratings that all lie where hardly any of the model's do, though inside its range."""
    low, high = stars.min(), stars.max()
    share = float(((corpus.rating >= low) & (corpus.rating <= high)).mean())
    if len(stars) < ENOUGH_TO_DOUBT or share >= RARE:
        return None
    low, high = corpus.scale.from_stars(np.array([low, high]), corpus.levels)
    return (
        f"all {len(stars):,} new ratings are from {low:g} to {high:g}, as {100 * share:.2g} % of the model's are: "
        "are they on another scale?"
    )


def update(
    before: Recommender, reviews: Reviews, *, refit: bool = False, days: DaysKept | None = None
) -> tuple[Recommender, UpdateReport]:
    """A recommender that knows these reviews too.

    Args:
        before: Stays as it is.
        reviews: On the model's own rating scale. They are cleaned as the model's own were.
        refit: Fit a model in closed form again on all reviews.
        days: Leave out reviews of other days.

    Returns:
        The new recommender, and what the reviews did to it.
    """
    _refuse_other_words(before)
    _refuse_refit(before, refit)
    corpus = before.fitted_corpus
    added, replaced, known_already, dropped = new_reviews(corpus, reviews, days)
    refit = refit or not (before.model.learns or before.model.takes_in)
    left_out: dict[str, Any] = {**_rejected(reviews.ledger), "dropped": dropped}
    if not len(added):
        return before, UpdateReport(0, 0, known_already, 0, 0, 0, 0, False, None, **left_out)
    revision = revise(corpus, gone=replaced, added=added)
    after, moves = revised(before, revision, refit=refit)
    new_users, new_items = (int((old < 0).sum()) for old in (revision.old.users, revision.old.items))
    report = UpdateReport(
        reviews=len(added),
        replaced=len(replaced),
        known_already=known_already,
        new_users=new_users,
        new_items=new_items,
        touched_users=len(revision.users),
        touched_items=len(revision.items),
        fitted_again=refit,
        moved=moves,
        doubt=_doubt(corpus, np.asarray(added.stars)),
        **left_out,
    )
    _note(after.facts, "updated", len(added))
    if before.model.learns:
        after.facts.update(without(before, replaced, replaced=True))
    return after, report


def _rejected(ledger: Ledger) -> dict[str, Any]:
    """What a report says of records that could not be used: how many, why, and the first of them."""
    first = [msgspec.structs.asdict(one) for one in ledger.rejections[:SHOWN_REJECTIONS]]
    return {"rejected": ledger.rejected, "reasons": dict(ledger.counts), "first_rejected": first}


def revised(before: Recommender, revision: RevisedCorpus, *, refit: bool) -> tuple[Recommender, AnswerMoves]:
    """The recommender on a revised corpus, its model fitted again or not, and how far its answers moved."""
    old = before.fitted_model
    fitted = revised_model(old, revision, refit=refit)
    carries = not refit and reads_alike(fitted)
    if carries and has_sides(old):
        fitted.sides = carried_sides(old.sides, fitted, revision)
    # Where words went, what they say of each other is learned again; else the guide stays where weights do.
    keep = not refit and fitted.corpus.vocabulary.words == old.corpus.vocabulary.words
    guide = before.explainer.guide if keep and before.explainer.reads_by_guide else None
    after = Recommender.of(fitted, training_log=before.training_log, guide=guide)
    if refit:
        measure_again(after)
    return after, answer_moves(old, fitted, revision, carries=carries)


def measure_again(recommender: Recommender) -> None:
    """What was measured of the model on its own reviews: the spread of its degrees and of its errors."""
    recommender.facts["degree_scale"] = recommender.explainer.degree_scale()
    recommender.facts["margin"] = recommender.fitted_model.measure_margin()


def _refuse_other_words(recommender: Recommender) -> None:
    if "tokeniser" in recommender.facts:
        what = "the words of this model were cut by another version of the tokeniser"
        raise InputError(what, fix="train the model again, then update it")


def _refuse_refit(recommender: Recommender, refit: bool) -> None:
    if refit and recommender.model.learns:
        what = f"the model {recommender.name} learns by training, so an update cannot fit it again"
        raise UsageError(what, fix="leave out --refit, or train it on all reviews: carp train CORPUS --from MODEL")


def _note(facts: dict[str, Any], name: str, count: int) -> None:
    facts[name] = int(facts.get(name, 0)) + count
