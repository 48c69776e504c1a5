"""What people write about and what they say of a thing, by aspects of the reading guide and without a pair in mind."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from carp.explain.explainer import AspectOpinion
from carp.explain.explanation import Side
from carp.explain.pulling_sentences import ReadSentences
from carp.explain.sentence_reading import GuidedReader
from carp.reviews.readable import ReadableDocument


def own_viewpoints(reader: GuidedReader, document: ReadableDocument, sentences: int) -> tuple[Side, ...]:
    """What a person writes about, as shares of their sentences."""
    read, shares = _apart(reader, document)
    return tuple(
        _side(reader, index, aspect, share, document, read, read.mostly_about(aspect, sentences))
        for index, (aspect, share) in enumerate(shares, start=1)
    )


def opinions_by_tone(
    reader: GuidedReader, document: ReadableDocument, sentences: int
) -> tuple[tuple[AspectOpinion, ...], tuple[AspectOpinion, ...]]:
    """What is praised in the document of a thing and what is complained of, aspect by aspect."""
    read, shares = _apart(reader, document)
    writer = np.array([document.sources[record].user for record, _ in document.sentences])
    liked: list[AspectOpinion] = []
    disliked: list[AspectOpinion] = []
    for aspect, share in shares:
        for sign, found in ((1.0, liked), (-1.0, disliked)):
            said = (read.aspect == aspect) & read.says(sign)
            if said.any():
                worth = np.where(said, sign * read.tone, 0)
                chosen = [int(place) for place in np.argsort(-worth, kind="stable")[:sentences] if worth[place] > 0]
                side = _side(reader, 1, aspect, share, document, read, chosen)
                found.append(_opinion(side, writer[said], float(worth[said].mean())))
    return _ranked(liked), _ranked(disliked)


def _apart(reader: GuidedReader, document: ReadableDocument) -> tuple[ReadSentences, list[tuple[int, float]]]:
    """A document read without a pair in mind, and its aspects by their shares, the largest first."""
    read = reader.read(document, np.ones(len(document.words)))
    counts = np.bincount(read.aspect, minlength=len(reader.guide.aspects))[:-1]
    largest = [int(a) for a in np.argsort(-counts, kind="stable") if counts[a]]
    return read, [(aspect, float(counts[aspect] / max(len(read.tone), 1))) for aspect in largest]


def _side(
    reader: GuidedReader,
    index: int,
    aspect: int,
    share: float,
    document: ReadableDocument,
    read: ReadSentences,
    chosen: list[int],
) -> Side:
    """An aspect with chosen sentences, in which the words are marked that belong to it."""
    belongs = reader.guide.aspects.membership[document.words, aspect].astype(np.float64)
    name = reader.guide.aspects.names[aspect]
    return Side(index, reader.quoted(document, read, chosen, belongs, 1.0), tuple(name.split(", ")), share, name=name)


def _opinion(side: Side, writers: NDArray[np.str_], strength: float) -> AspectOpinion:
    who = len(np.unique(writers))
    return AspectOpinion(side, who, who, strength, ())


def _ranked(found: list[AspectOpinion]) -> tuple[AspectOpinion, ...]:
    """Those of many people first, and numbered so."""
    ranked = sorted(found, key=lambda one: -one.raters * one.strength)
    return tuple(replace(one, aspect=replace(one.aspect, index=place)) for place, one in enumerate(ranked, start=1))
