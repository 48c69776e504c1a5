"""All measures of one model's explanations, as plain data."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from carp.errors import UsageError
from carp.explain.explainer import explainable
from carp.explain.faithfulness.aspect_scores import AspectCorrelation, aspect_correlations, read_aspects
from carp.explain.faithfulness.aspect_words import aspect_words
from carp.explain.faithfulness.capsule_agreement import Agreement, agreement
from carp.explain.faithfulness.held_out import Floats, HeldOut, held_out_pairs
from carp.explain.faithfulness.named_words import UNITS, Reasons, reasons_of
from carp.explain.faithfulness.planted_causes import CausesFound, planted_causes_found
from carp.explain.faithfulness.resemblance import Resemblance, resemblance
from carp.explain.faithfulness.stability import Stability, stability
from carp.explain.faithfulness.word_removal import DRAWS, Removal, Trial, removal
from carp.models.batch import Pairs
from carp.models.carp import Carp
from carp.recommender import Recommender
from carp.reviews.shop.made_up_shop import Shop

Tell = Callable[[str], None]
PAIRS = 1000


@dataclass(frozen=True)
class Faithfulness:
    """How true a model's explanations are, each figure beside chance; None where it could not be measured."""

    model: str
    seed: int
    split: str
    pairs: int
    units: int
    draws: int
    moved: float  # mean distance in stars between the prediction and the biases' alone
    sentences: Removal  # the words of the sentences shown
    phrases: Removal  # the words of the phrases marked in them
    agreement: Agreement | None
    resemblance: Resemblance
    stability: Stability | None
    aspects: tuple[AspectCorrelation, ...]
    planted: CausesFound | None
    notes: tuple[str, ...]
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """The same as JSON-ready data."""
        return asdict(self)


def measure_explanations(
    recommender: Recommender,
    *,
    pairs: int = PAIRS,
    against: Sequence[Recommender] = (),
    aspects: Path | None = None,
    shop: Shop | None = None,
    draws: int = DRAWS,
    seed: int = 0,
    tell: Tell = lambda _: None,
) -> Faithfulness:
    """Ask for the reasons of so many held-out pairs and hold them against chance.

    `against` are models of other seeds on the same split; `aspects` a file with the reviewers' own scores; `shop` the
    made-up shop that the corpus came from.
    """
    began = time.monotonic()
    fitted, device = recommender.fitted_corpus, recommender.device
    _check(recommender, against)
    scores = None if aspects is None else read_aspects(aspects, fitted)
    tell("Asking for the reasons")
    held = held_out_pairs(fitted, pairs, seed)
    reasons = reasons_of(recommender.model, held, device, recommender.name)
    biases = _biases(recommender, held.pairs)
    trial = Trial(recommender.model, held, reasons, device)
    tell("Taking named words away")
    sentences = removal(trial, (reasons.user.shown, reasons.item.shown), blank=True, draws=draws, seed=seed)
    phrases = removal(trial, (reasons.user.marked, reasons.item.marked), draws=draws, seed=seed)
    tell("Reading what was written afterwards")
    alike = resemblance(fitted, held, reasons)
    steady = _stability(held, reasons, against, biases, pairs, seed, tell) if against else None
    if scores is not None:
        tell("Ranking by the reviewers' own scores")
    ranked = () if scores is None else aspect_correlations(fitted, held, reasons, scores)
    return Faithfulness(
        model=recommender.name,
        seed=recommender.seed,
        split=str(fitted.facts["split"]),
        pairs=len(held),
        units=UNITS,
        draws=draws,
        moved=float(np.abs(reasons.rating - biases).mean()),
        sentences=sentences,
        phrases=phrases,
        agreement=_agreement(recommender, held, reasons, biases),
        resemblance=alike,
        stability=steady,
        aspects=ranked,
        planted=_planted(recommender, shop, pairs, tell),
        notes=_notes(recommender, sentences, scores),
        seconds=time.monotonic() - began,
    )


def _check(recommender: Recommender, against: Sequence[Recommender]) -> None:
    """Refuse before the work what cannot be measured."""
    ours = recommender.fitted_corpus
    if not len(ours.test_pairs()):
        raise UsageError("there are no held-out pairs to explain", fix="train with a split that has a test part")
    for other in (recommender, *against):
        explainable(other.model, other.name)
        theirs = other.fitted_corpus
        if ours.facts["fingerprint"] != theirs.facts["fingerprint"] or not np.array_equal(ours.part, theirs.part):
            raise UsageError(
                f"stability is measured on the same held-out pairs, and {other.name} of seed {other.seed} has others",
                fix="train it on the same corpus with the same --split-seed and another --seed",
            )


@torch.no_grad()
def _biases(recommender: Recommender, pairs: Pairs) -> Floats:
    users, items = (torch.from_numpy(side).to(recommender.device) for side in (pairs.users, pairs.items))
    stars = recommender.baseline(users, items).clamp(1, recommender.fitted_corpus.levels)
    found: NDArray[np.float64] = stars.double().cpu().numpy()
    return found


def _agreement(recommender: Recommender, held: HeldOut, reasons: Reasons, biases: Floats) -> Agreement | None:
    if reasons.capsules is None or not isinstance(recommender.model, Carp):
        return None
    liked = held.pairs.ratings > recommender.model.liked_above
    return agreement(reasons.capsules.lengths, liked, reasons.rating, biases)


def _stability(
    held: HeldOut,
    reasons: Reasons,
    against: Sequence[Recommender],
    biases: Floats,
    pairs: int,
    seed: int,
    tell: Tell,
) -> Stability:
    all_held, all_reasons = [held], [reasons]
    for other in against:
        tell(f"Asking {other.name} of seed {other.seed}")
        all_held.append(held_out_pairs(other.fitted_corpus, pairs, seed))
        all_reasons.append(reasons_of(other.model, all_held[-1], other.device, other.name))
    return stability(all_held, all_reasons, biases, seed=seed)


def _planted(recommender: Recommender, shop: Shop | None, pairs: int, tell: Tell) -> CausesFound | None:
    if shop is None:
        return None
    tell("Looking for planted causes")
    return planted_causes_found(recommender, shop, pairs=pairs)


def _notes(recommender: Recommender, sentences: Removal, scores: dict[str, Floats] | None) -> tuple[str, ...]:
    notes = []
    moves = sentences.beside_words.comprehensiveness
    if moves is not None and moves.named == 0 and moves.chance == 0:
        notes.append("no rating moved whatever was removed: for known people and things this model reads no document")
    if not isinstance(recommender.model, Carp):
        unsigned = "" if sentences.beside_words.signed_comprehensiveness else "signs, "
        notes.append(f"the model has no capsules: {unsigned}agreement and aspects cannot be measured")
    left = sorted(name for name in scores or {} if not aspect_words(name))
    if left:
        notes.append(f"we have no words for the aspects {', '.join(left)}: they were left out")
    return tuple(notes)
