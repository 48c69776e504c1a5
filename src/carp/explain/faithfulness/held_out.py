"""Held-out pairs, and their documents with words taken away."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from carp.explain.pair_texts import PLACES, Flags, Floats, Keys, PaddedTexts, PairTexts, batch_of, blocks
from carp.models.base import RatingModel
from carp.models.batch import Pairs
from carp.reviews.documents import Documents, padded
from carp.training.fitted_corpus import FittedCorpus


def held_out_pairs(fitted: FittedCorpus, number: int | None = None, seed: int = 0) -> PairTexts:
    """So many test pairs, chosen by the seed alone, in the corpus' order; all of them where there are no more."""
    test = fitted.test_pairs()
    chosen = np.arange(len(test))
    if number is not None and number < len(test):
        chosen = np.sort(np.random.default_rng(seed).choice(len(test), size=number, replace=False))
    pairs = Pairs(test.users[chosen], test.items[chosen], test.ratings[chosen], test.records[chosen])
    return PairTexts(
        pairs,
        _texts(fitted, fitted.user_documents, pairs.users),
        _texts(fitted, fitted.item_documents, pairs.items),
    )


def _texts(fitted: FittedCorpus, documents: Documents, owners: NDArray[np.int64]) -> PaddedTexts:
    words, reviews = padded(documents, owners)
    sentences = np.full(words.shape, -1, dtype=np.int64)
    distinct, row_of = np.unique(owners, return_inverse=True)
    keys = [_sentence_keys(fitted, documents, int(owner)) for owner in distinct]
    for row, place in enumerate(row_of.tolist()):
        sentences[row, : len(keys[place])] = keys[place]
    return PaddedTexts(words, reviews, sentences)


def _sentence_keys(fitted: FittedCorpus, documents: Documents, owner: int) -> Keys:
    found = fitted.readable(documents, owner).sentence
    return np.array([record * PLACES + place for record, place in found], dtype=np.int64)


def with_texts(held: PairTexts, user: PaddedTexts, item: PaddedTexts) -> PairTexts:
    """The same pairs with other documents."""
    return replace(held, user=user, item=item)


# ---- rating from words


@torch.no_grad()
def ratings(model: RatingModel, held: PairTexts, device: torch.device) -> Floats:
    """What the model predicts from these documents, in stars and not clipped, so that no move is hidden. [N]"""
    found = np.zeros(len(held))
    for chosen in blocks(held):
        found[chosen] = model(batch_of(held, chosen, device)).rating.double().cpu().numpy()
    return found


# ---- taking words away


def without(texts: PaddedTexts, gone: Flags) -> PaddedTexts:
    """Documents from which words are deleted; the others close up, as if they had never been written."""
    kept = texts.there & ~gone
    order = np.argsort(~kept, axis=1, kind="stable")
    width = max(1, int(kept.sum(1).max(initial=0)))
    there = np.take_along_axis(kept, order, 1)[:, :width]

    def moved(column: NDArray[np.generic], padding: int) -> NDArray[np.generic]:
        return np.where(there, np.take_along_axis(column, order, 1)[:, :width], column.dtype.type(padding))

    return PaddedTexts(moved(texts.words, 0), moved(texts.reviews, -1), moved(texts.sentences, -1))  # type: ignore[arg-type]


def blanked(texts: PaddedTexts, gone: Flags) -> PaddedTexts:
    """Documents in which words are padding where they stood: their neighbours meet nobody new."""
    return PaddedTexts(np.where(gone, np.int32(0), texts.words), texts.reviews, texts.sentences)


def random_words(texts: PaddedTexts, number: NDArray[np.int64], rng: np.random.Generator) -> Flags:
    """So many words of each document [N], any as likely as any other. [N, L]"""
    return _first(np.where(texts.there, rng.random(texts.words.shape), np.inf), number)


def random_sentences(texts: PaddedTexts, number: NDArray[np.int64], rng: np.random.Generator) -> Flags:
    """As many words, from whole sentences in a random order; the last one is cut where the number is reached."""
    distinct, sentence = np.unique(texts.sentences, return_inverse=True)
    owner = np.arange(len(texts.words))[:, None] * len(distinct)
    _, sentence = np.unique(sentence.reshape(texts.words.shape) + owner, return_inverse=True)
    drawn = rng.random(int(sentence.max(initial=0)) + 1)[sentence.reshape(texts.words.shape)]
    return _first(np.where(texts.there, drawn, np.inf), number)


def _first(drawn: Floats, number: NDArray[np.int64]) -> Flags:
    order = np.argsort(drawn, axis=1, kind="stable")
    chosen = np.zeros(drawn.shape, dtype=bool)
    np.put_along_axis(chosen, order, np.arange(drawn.shape[1]) < number[:, None], 1)
    return chosen
