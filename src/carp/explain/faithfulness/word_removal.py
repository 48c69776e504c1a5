"""Take the named words away, or keep nothing else, and see the rating move.

Comprehensiveness is the move when the named words go: large where the rating rested on them. Sufficiency is the
move when only they stay: small where they carry the rating by themselves; where an explanation also tells what speaks
for another rating, that stays too, since its reader reads both. Both stand beside the same for random
words of the same two documents, as many on each side, and beside random whole sentences of as many words.
Words are deleted, and the rest of the document closes up; where a model can read gaps, the same is measured with the
words blanked out in their place, where no word gets new neighbours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from carp.explain.faithfulness.against_chance import ChanceComparison, compared
from carp.explain.faithfulness.held_out import (
    Floats,
    blanked,
    random_sentences,
    random_words,
    ratings,
    with_texts,
    without,
)
from carp.explain.named_words import NamedReasons
from carp.explain.pair_texts import Flags, PaddedTexts, PairTexts
from carp.models.base import RatingModel

DRAWS = 5
Draw = Callable[[PaddedTexts, NDArray[np.int64], np.random.Generator], Flags]
Take = Callable[[PaddedTexts, Flags], PaddedTexts]
Chosen = tuple[Flags, Flags]  # words of the user's side and of the item's


@dataclass(frozen=True)
class Moves:
    """Named words beside random ones. With its sign, a move counts against the sentiment that prevails."""

    comprehensiveness: ChanceComparison | None  # |move| without the named words: more is better
    signed_comprehensiveness: ChanceComparison | None  # how far the prevailing sentiment gives way: more is better
    sufficiency: ChanceComparison | None  # |move| with the named words alone: less is better
    signed_sufficiency: ChanceComparison | None


@dataclass(frozen=True)
class Removal:
    """How the rating moves, in stars. Random words are drawn several times for each pair and their moves averaged."""

    words: float  # named words, of both documents
    share: float  # of all words of both documents
    unnamed: int  # pairs for which nothing is named
    beside_words: Moves  # random words
    beside_sentences: Moves  # random whole sentences
    blanked_beside_words: ChanceComparison | None  # |move| without the named words, blanked out in their place
    blanked_beside_sentences: ChanceComparison | None


@dataclass(frozen=True, eq=False)
class Trial:
    """A model, its pairs, and the ratings that words are taken from."""

    model: RatingModel
    held: PairTexts
    reasons: NamedReasons
    device: torch.device

    def moved(self, chosen: Chosen, take: Take = without) -> Floats:
        """Rating of the whole documents minus that of what is left. [N]"""
        left = (take(texts, words) for texts, words in zip(self.held.sides, chosen, strict=True))
        return self.reasons.rating - ratings(self.model, with_texts(self.held, *left), self.device)

    def all_but(self, chosen: Chosen) -> Chosen:
        user, item = (texts.there & ~words for texts, words in zip(self.held.sides, chosen, strict=True))
        return user, item


def removal(
    trial: Trial,
    chosen: Chosen,
    *,
    alone: Chosen | None = None,
    blank: bool = False,
    draws: int = DRAWS,
    seed: int = 0,
) -> Removal:
    """The moves of removing the chosen words, and of keeping them alone, beside chance; with `blank`, of blanking them
    out too. Other words are kept with `alone`: an explanation that tells both sides names one and is read whole.
    """
    alone = chosen if alone is None else alone
    numbers = [words.sum(1) for words in chosen]
    in_all = sum(texts.there.sum(1) for texts in trial.held.sides)
    number = numbers[0] + numbers[1]
    kept_numbers = [words.sum(1) for words in alone]
    words, sentences = (
        [_drawn(trial, many, draw, draws, seed + place) for many in (numbers, kept_numbers)]
        for place, draw in enumerate((random_words, random_sentences))
    )
    gone, kept = trial.moved(chosen), trial.moved(trial.all_but(alone))
    out = trial.moved(chosen, blanked) if blank and trial.model.reads_gaps else None
    return Removal(
        words=float(number.mean()),
        share=float((number / np.maximum(in_all, 1)).mean()),
        unnamed=int((number == 0).sum()),
        beside_words=_moves(trial, gone, kept, *words),
        beside_sentences=_moves(trial, gone, kept, *sentences),
        blanked_beside_words=_blanked(trial, out, words[0]),
        blanked_beside_sentences=_blanked(trial, out, sentences[0]),
    )


def _drawn(trial: Trial, numbers: list[NDArray[np.int64]], draw: Draw, draws: int, seed: int) -> list[Chosen]:
    found = []
    for number in range(draws):
        rng = np.random.default_rng([seed, number])
        user, item = (draw(texts, many, rng) for texts, many in zip(trial.held.sides, numbers, strict=True))
        found.append((user, item))
    return found


def _moves(trial: Trial, gone: Floats, kept: Floats, drawn: list[Chosen], alone: list[Chosen]) -> Moves:
    random_gone = np.array([trial.moved(words) for words in drawn])  # [draws, N]
    random_kept = np.array([trial.moved(trial.all_but(words)) for words in alone])
    direction = trial.reasons.direction

    def sized(named: Floats, chance: Floats) -> ChanceComparison | None:
        return compared(np.abs(named), np.abs(chance).mean(0))

    def signed(named: Floats, chance: Floats) -> ChanceComparison | None:
        return None if direction is None else compared(direction * named, direction * chance.mean(0))

    return Moves(
        sized(gone, random_gone), signed(gone, random_gone), sized(kept, random_kept), signed(kept, random_kept)
    )


def _blanked(trial: Trial, out: Floats | None, drawn: list[Chosen]) -> ChanceComparison | None:
    if out is None:
        return None
    return compared(np.abs(out), np.mean([np.abs(trial.moved(words, blanked)) for words in drawn], axis=0))
