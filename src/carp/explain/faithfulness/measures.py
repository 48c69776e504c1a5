"""All measures of one model's explanations, as plain data."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from carp.errors import UsageError
from carp.explain.explainer import Explainer, explains
from carp.explain.explanation import Explanation
from carp.explain.faithfulness.aspect_impressions import Impressions, impressions
from carp.explain.faithfulness.aspect_scores import AspectCorrelation, Scores, aspect_correlations, read_aspects
from carp.explain.faithfulness.aspect_words import aspect_words
from carp.explain.faithfulness.capsule_agreement import Agreement, agreement
from carp.explain.faithfulness.held_out import held_out_pairs
from carp.explain.faithfulness.planted_causes import CausesFound, planted_causes_found
from carp.explain.faithfulness.resemblance import Resemblance, resemblance
from carp.explain.faithfulness.signs import Signs, by_words_alone, signs
from carp.explain.faithfulness.stability import Stability, stability
from carp.explain.faithfulness.told_amounts import Sums, TextsMove, sums, texts_move
from carp.explain.faithfulness.word_removal import DRAWS, Chosen, Removal, Trial, removal
from carp.explain.named_words import UNITS, NamedReasons
from carp.explain.pair_texts import Floats, PairTexts
from carp.explain.question import known_pair
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
    impressions: Impressions | None  # None where the model's reasons are not told by aspects
    planted: CausesFound | None
    signs: Signs | None  # None where the model does not say what speaks for a thing and what against it
    texts_move: TextsMove | None
    sums: Sums | None  # None where the rating is not told as a sum
    notes: tuple[str, ...]
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """The same as JSON-ready data."""
        return asdict(self)


def measure_explanations(
    explainer: Explainer,
    *,
    pairs: int = PAIRS,
    against: Sequence[Explainer] = (),
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
    fitted, corpus = explainer.fitted, explainer.corpus
    _check(explainer, against)
    scores = None if aspects is None else read_aspects(aspects, corpus)
    tell("Asking for the reasons")
    held = held_out_pairs(corpus, pairs, seed)
    reasons = explainer.name_words(held)
    biases = fitted.biases_alone(held.pairs.users, held.pairs.items).double().cpu().numpy()
    trial = Trial(fitted.model, held, reasons, fitted.device)
    tell("Taking named words away")
    shown = reasons.user.shown, reasons.item.shown
    sentences = removal(trial, shown, alone=_told(reasons), blank=True, draws=draws, seed=seed)
    phrases = removal(trial, (reasons.user.marked, reasons.item.marked), draws=draws, seed=seed)
    tell("Reading what was written afterwards")
    alike = resemblance(corpus, held, reasons)
    steady = _stability(held, reasons, against, biases, pairs, seed, tell) if against else None
    ranked, relative = _by_scores(explainer, held, reasons, scores, tell)
    tell("Reading the explanations as they are shown")
    told = explained(explainer, held)
    return Faithfulness(
        model=fitted.name,
        seed=fitted.facts["seed"],
        split=str(corpus.facts["split"]),
        pairs=len(held),
        units=UNITS,
        draws=draws,
        moved=float(np.abs(reasons.rating - biases).mean()),
        sentences=sentences,
        phrases=phrases,
        agreement=_agreement(explainer, held, reasons, biases),
        resemblance=alike,
        stability=steady,
        aspects=ranked,
        impressions=relative,
        planted=_planted(explainer, shop, pairs, tell),
        signs=_signs(explainer, held, told, shop, tell),
        texts_move=texts_move(told),
        sums=sums(told),
        notes=_notes(explainer, sentences, scores),
        seconds=time.monotonic() - began,
    )


def _by_scores(
    explainer: Explainer, held: PairTexts, reasons: NamedReasons, scores: Scores | None, tell: Tell
) -> tuple[tuple[AspectCorrelation, ...], Impressions | None]:
    """How the reasons go with the reviewers' own scores, where these are given."""
    if scores is None:
        return (), None
    tell("Ranking by the reviewers' own scores")
    ranked = aspect_correlations(explainer.corpus, held, reasons, scores)
    told_by_aspects = explainer.chooses_by_guide
    return ranked, impressions(explainer.corpus, explainer.guide, scores) if told_by_aspects else None


def _check(explainer: Explainer, against: Sequence[Explainer]) -> None:
    """Refuse before the work what cannot be measured."""
    ours = explainer.corpus
    if not len(ours.test_pairs()):
        raise UsageError("there are no held-out pairs to explain", fix="train with a split that has a test part")
    for other in (explainer, *against):
        if not explains(type(other.fitted.model)):
            raise other.silent()
        theirs = other.corpus
        if ours.facts["fingerprint"] != theirs.facts["fingerprint"] or not np.array_equal(ours.part, theirs.part):
            named = f"{other.fitted.name} of seed {other.fitted.facts['seed']}"
            raise UsageError(
                f"stability is measured on the same held-out pairs, and {named} has others",
                fix="train it on the same corpus with the same --split-seed and another --seed",
            )


def _agreement(explainer: Explainer, held: PairTexts, reasons: NamedReasons, biases: Floats) -> Agreement | None:
    if reasons.capsules is None:
        return None
    liked = held.pairs.ratings > explainer.fitted.model.liked_above
    return agreement(reasons.capsules.lengths, liked, reasons.rating, biases)


def _stability(
    held: PairTexts,
    reasons: NamedReasons,
    against: Sequence[Explainer],
    biases: Floats,
    pairs: int,
    seed: int,
    tell: Tell,
) -> Stability:
    all_held, all_reasons = [held], [reasons]
    for other in against:
        tell(f"Asking {other.fitted.name} of seed {other.fitted.facts['seed']}")
        all_held.append(held_out_pairs(other.corpus, pairs, seed))
        all_reasons.append(other.name_words(all_held[-1]))
    return stability(all_held, all_reasons, biases, seed=seed)


def _told(reasons: NamedReasons) -> Chosen:
    """The words of all sentences that the explanations show."""
    user, item = (side.shown if side.told is None else side.told for side in reasons.sides)
    return user, item


def explained(explainer: Explainer, held: PairTexts) -> list[Explanation]:
    """The explanations of the pairs, as a reader sees them."""
    pairs = zip(held.pairs.users.tolist(), held.pairs.items.tolist(), strict=True)
    return [explainer.explain([known_pair(explainer.corpus, user, item)])[0] for user, item in pairs]


def _signs(
    explainer: Explainer, held: PairTexts, told: list[Explanation], shop: Shop | None, tell: Tell
) -> Signs | None:
    other = by_words_alone(explainer)
    if other is not None:
        tell("Explaining again, by words alone")
    return signs(told, [] if other is None else explained(other, held), shop)


def _planted(explainer: Explainer, shop: Shop | None, pairs: int, tell: Tell) -> CausesFound | None:
    if shop is None:
        return None
    tell("Looking for planted causes")
    return planted_causes_found(explainer, shop, pairs=pairs)


def _notes(explainer: Explainer, sentences: Removal, scores: dict[str, Floats] | None) -> tuple[str, ...]:
    notes = []
    moves = sentences.beside_words.comprehensiveness
    if moves is not None and moves.named == 0 and moves.chance == 0:
        notes.append("no rating moved whatever was removed: for known people and things this model reads no document")
    if not explainer.for_and_against:
        unsigned = "" if sentences.beside_words.signed_comprehensiveness else "signs, "
        notes.append(f"the model has no capsules: {unsigned}agreement and aspects cannot be measured")
    left = sorted(name for name in scores or {} if not aspect_words(name))
    if left:
        notes.append(f"we have no words for the aspects {', '.join(left)}: they were left out")
    return tuple(notes)
