"""Do the named sentences resemble what the person then wrote more than other sentences of the same documents do?

Sentences and the held-out review are TF-IDF vectors of the words the model sees, the weights of words counted on
training reviews alone; resemblance is their cosine. Long sentences resemble anything more than short ones do, and
explanations name long sentences, so chance is taken twice: any sentence of the same document, and the sentences of
the same document nearest in length.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from carp.explain.faithfulness.against_chance import ChanceComparison, compared
from carp.explain.named_words import NamedReasons
from carp.explain.pair_texts import Flags, Floats, PairTexts
from carp.reviews.split_parts import TRAIN
from carp.training.fitted_corpus import FittedCorpus

NEIGHBOURS = 5  # sentences of like length that a named one is held against


@dataclass(frozen=True)
class Resemblance:
    sentences: float  # named, of both documents
    any: ChanceComparison | None  # beside any sentence of the same document
    like_length: ChanceComparison | None  # beside those nearest in length


def resemblance(fitted: FittedCorpus, held: PairTexts, reasons: NamedReasons) -> Resemblance:
    """Means over the named sentences of a pair; chance is the mean over all the sentences it could have been."""
    rarity = inverse_document_frequency(fitted)
    named, anywhere, nearest = (np.full(len(held), np.nan) for _ in range(3))
    counts = np.zeros(len(held))
    for row, record in enumerate(held.pairs.records.tolist()):
        review = _vector(fitted, fitted.texts[record], rarity)
        found = []
        for texts, words in zip(held.sides, reasons.sides, strict=True):
            length = int(texts.there[row].sum())
            found += _beside(texts.words[row, :length], texts.sentences[row, :length], words.shown[row, :length],
                             review, rarity)  # fmt: skip
        counts[row] = len(found)
        if found and review.any():
            named[row], anywhere[row], nearest[row] = np.mean(found, axis=0)
    return Resemblance(float(counts.mean()), compared(named, anywhere), compared(named, nearest))


def inverse_document_frequency(fitted: FittedCorpus) -> Floats:
    """log((1 + reviews) / (1 + reviews with the word)) + 1 of every model word. [words + 1]

    Counted on training reviews as they stand in the documents, which are cut where they grow too long.
    """
    number = len(fitted.vocabulary) + 1
    sides = (fitted.user_documents, fitted.item_documents)
    met = np.unique(np.concatenate([side.review.astype(np.int64) * number + side.words for side in sides]))
    with_word = np.bincount(met % number, minlength=number)
    rarity: Floats = np.log((1 + int((fitted.part == TRAIN).sum())) / (1 + with_word)) + 1
    return rarity


def _vector(fitted: FittedCorpus, text: str, rarity: Floats) -> Floats:
    counts = np.bincount(np.array(fitted.vocabulary.encode(text)[0], dtype=np.int64), minlength=len(rarity))
    counts[0] = 0
    vector = counts * rarity
    return np.asarray(vector / max(float(np.linalg.norm(vector)), 1e-12))


def _beside(
    words: NDArray[np.int32], sentence: NDArray[np.int64], shown: Flags, review: Floats, rarity: Floats
) -> list[tuple[float, float, float]]:
    """For each named sentence its cosine, that of any sentence, and that of the sentences nearest in length."""
    keys, number = np.unique(sentence, return_inverse=True)
    if len(keys) < 2:
        return []  # nothing else could have been named
    cells, count = np.unique(number * len(rarity) + words, return_counts=True)
    norm = np.sqrt(np.bincount(cells // len(rarity), np.square(count * rarity[cells % len(rarity)]), len(keys)))
    cosine = np.bincount(number, rarity[words] * review[words], len(keys)) / norm
    length = np.bincount(number, minlength=len(keys))
    found = []
    for place in np.unique(number[shown]).tolist():
        others = np.delete(np.arange(len(keys)), place)
        like = others[np.argsort(np.abs(length[others] - length[place]), kind="stable")[:NEIGHBOURS]]
        found.append((float(cosine[place]), float(cosine.mean()), float(cosine[like].mean())))
    return found
