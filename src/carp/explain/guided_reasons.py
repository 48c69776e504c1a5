"""What the reading guide adds to the reasons of any model: names for what its sides are about, and tones of sentences.

A viewpoint or an aspect of CARP is a row of numbers without a name. It is called by the aspect of the guide that its
sentences and the words it listens to are mostly about, no two of one explanation alike. What a capsule makes of a
sentence is the model's own; whether the sentence praises or complains is the guide's, so the two can disagree.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from carp.explain.explanation import Reasons, Sentence, Side, Tone, opposed_to
from carp.explain.named_aspects import NamedAspects
from carp.explain.reading_guide import ReadingGuide
from carp.training.fitted_corpus import FittedCorpus

Floats = NDArray[np.float64]
Quoted = TypeVar("Quoted", bound=Sentence)
Toned = Mapping[Sentence, Sentence]  # each sentence, and the same with what it says
OF_SHOWN = 2.0  # how much the sentences shown for a side count for its name, beside all words it listens to
LEAST_OF_BEST = 0.4  # of what a side has most of, for it to be called by what another side leaves it


def side_names(
    guide: ReadingGuide,
    words: NDArray[np.int32],  # [L]
    attention: Floats,  # [L, M]
    shown: Floats,  # [M, L] how much each word counts as one of the sentences shown for a side
    kind: str,
) -> list[str]:
    """What each side is called: by an aspect of the guide, each by another one; by its number where none is left that
    fits."""
    about = _about(guide.aspects, words)
    return called_by_worth(guide.aspects, _shares(attention.T @ about), shown @ about, kind)


@dataclass(frozen=True, eq=False)
class Topics:
    """What a document is about, as a guide reads it: the same whatever the document is paired with."""

    aspects: NamedAspects  # of the guide
    heard: Floats  # [M, A] what each side listens to, as shares
    said: Floats  # [S, A] how much of each sentence is about each aspect

    @staticmethod
    def of(aspects: NamedAspects, words: NDArray[np.int32], sentence: NDArray[np.int64], attention: Floats) -> Topics:
        about = _about(aspects, words)
        said = np.zeros((int(sentence.max()) + 1 if len(sentence) else 0, about.shape[1]))
        np.add.at(said, sentence, about)
        return Topics(aspects, _shares(attention.T @ about), said)

    def names(self, counts: Floats, kind: str) -> list[str]:
        """What each side is called where sentences count so much as those shown for it. `counts` [M, S]"""
        return called_by_worth(self.aspects, self.heard, counts @ self.said, kind)


def called_by_worth(aspects: NamedAspects, heard: Floats, shown: Floats, kind: str) -> list[str]:
    """By the aspects that sides listen to (shares) and that the sentences shown for them are about (amounts), both
    [M, A]; by its number where no aspect is left that fits a side."""
    from scipy.optimize import linear_sum_assignment

    numbered = [f"{kind} {place + 1}" for place in range(len(shown))]
    if len(aspects.names) < 3:  # one of them is of what belongs nowhere
        return numbered
    worth = heard + OF_SHOWN * _shares(shown)
    least = np.maximum(LEAST_OF_BEST * worth.max(1), 1e-9).tolist()
    for side, aspect in zip(*(found.tolist() for found in linear_sum_assignment(-worth)), strict=True):
        if worth[side, aspect] >= least[side]:
            numbered[side] = aspects.names[aspect]
    return numbered


def _about(aspects: NamedAspects, words: NDArray[np.int32]) -> Floats:
    """How much each word is about each aspect that has a name. [L, A]"""
    return aspects.membership[words, :-1].astype(np.float64)


def _shares(amounts: Floats) -> Floats:
    """Each row as shares of its sum; a row of nothing stays so."""
    return np.asarray(amounts / np.maximum(amounts.sum(1, keepdims=True), 1e-12))


def with_tones(reasons: Reasons, guide: ReadingGuide, corpus: FittedCorpus) -> Reasons:
    """The same reasons, every sentence with what it says, and every side with how many of its sentences oppose it."""
    said = with_their_tones(_sentences(reasons), guide, corpus)
    return replace(
        reasons,
        viewpoints=tuple(toned(side, said) for side in reasons.viewpoints),
        aspects=tuple(toned(side, said) for side in reasons.aspects),
        units=tuple(
            replace(unit, viewpoint=toned(unit.viewpoint, said), aspect=toned(unit.aspect, said))
            for unit in reasons.units
        ),
        findings=tuple(
            replace(one, sentences=_toned(one.sentences, said), own_sentences=_toned(one.own_sentences, said))
            for one in reasons.findings
        ),
    )


def with_their_tones(sentences: Iterable[Quoted], guide: ReadingGuide, corpus: FittedCorpus) -> dict[Quoted, Quoted]:
    """Each of these sentences with what it says. Most say neither, and are given back as they are."""
    quoted = list(dict.fromkeys(sentences))
    found = [quoted_tone(one.text, one.rating, guide, corpus) for one in quoted]
    return {one: one if tone == one.tone else replace(one, tone=tone) for one, tone in zip(quoted, found, strict=True)}


def quoted_tone(text: str, rating: float | None, guide: ReadingGuide, corpus: FittedCorpus) -> Tone | None:
    """What a sentence says that is quoted from a review with this rating, on the scale of the data."""
    stars = None if rating is None else float(corpus.scale.to_stars(rating, corpus.levels))
    return guide.tone_of_quoted(text, stars)


def toned(side: Side, said: Toned) -> Side:
    """The side with the tones of its sentences, and how many of them say the opposite of what it is shown as."""
    sentences = _toned(side.sentences, said)
    return replace(side, sentences=sentences, opposed=opposed_to(side.sentiment, sentences))


def _toned(sentences: Iterable[Sentence], said: Toned) -> tuple[Sentence, ...]:
    return tuple(said[sentence] for sentence in sentences)


def _sentences(reasons: Reasons) -> Iterator[Sentence]:
    sides = [side for unit in reasons.units for side in (unit.viewpoint, unit.aspect)]
    for side in (*sides, *reasons.viewpoints, *reasons.aspects):
        yield from side.sentences
    for finding in reasons.findings:
        yield from (*finding.sentences, *finding.own_sentences)
