"""Held-out pairs with their documents as rectangles, every word knowing its sentence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from carp.models.base import RatingModel
from carp.models.batch import Batch, Pairs
from carp.reviews.documents import Documents, padded
from carp.training.fitted_corpus import FittedCorpus

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Keys = NDArray[np.int64]

PLACES = 1 << 20  # sentences a review can have before keys of two reviews would meet
BLOCK_WORDS = 30_000  # of one side, read at once: bounds memory whatever the documents' lengths
BLOCK_PAIRS = 256


@dataclass(frozen=True, eq=False)
class PaddedTexts:
    """One side's documents, padded: word 0, review and sentence -1."""

    words: NDArray[np.int32]  # [N, L]
    reviews: NDArray[np.int32]  # [N, L]
    sentences: Keys  # [N, L] record · PLACES + place of the sentence in it: the same in every model

    @property
    def there(self) -> Flags:
        return self.words > 0

    @property
    def widths(self) -> NDArray[np.int64]:
        """How far each document reaches, gaps inside it counted. [N]"""
        ends: NDArray[np.int64] = (self.there * np.arange(1, self.words.shape[1] + 1)).max(1, initial=0)
        return ends

    def rows(self, chosen: NDArray[np.int64]) -> PaddedTexts:
        """Some documents, no wider than they need to be."""
        width = max(1, int(self.widths[chosen].max(initial=0)))
        return PaddedTexts(self.words[chosen, :width], self.reviews[chosen, :width], self.sentences[chosen, :width])


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Pairs of the test part and what may speak for them."""

    pairs: Pairs
    user: PaddedTexts
    item: PaddedTexts

    def __len__(self) -> int:
        return len(self.pairs)

    @property
    def sides(self) -> tuple[PaddedTexts, PaddedTexts]:
        return self.user, self.item


def held_out_pairs(fitted: FittedCorpus, number: int | None = None, seed: int = 0) -> HeldOut:
    """So many test pairs, chosen by the seed alone, in the corpus' order; all of them where there are no more."""
    test = fitted.test_pairs()
    chosen = np.arange(len(test))
    if number is not None and number < len(test):
        chosen = np.sort(np.random.default_rng(seed).choice(len(test), size=number, replace=False))
    pairs = Pairs(test.users[chosen], test.items[chosen], test.ratings[chosen], test.records[chosen])
    return HeldOut(
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


def with_texts(held: HeldOut, user: PaddedTexts, item: PaddedTexts) -> HeldOut:
    """The same pairs with other documents."""
    return replace(held, user=user, item=item)


# ---- rating from words


def blocks(held: HeldOut) -> Iterator[NDArray[np.int64]]:
    """Pairs with documents of like length together, so that little is padded; few enough for memory."""
    widths = np.maximum(held.user.widths, held.item.widths)
    order = np.argsort(widths, kind="stable")
    start = 0
    while start < len(order):
        end = min(len(order), start + BLOCK_PAIRS)
        while end - start > 1 and (end - start) * int(widths[order[end - 1]]) > BLOCK_WORDS:
            end = start + (end - start) // 2
        yield order[start:end]
        start = end


def batch_of(held: HeldOut, chosen: NDArray[np.int64], device: torch.device) -> Batch:
    user, item = held.user.rows(chosen), held.item.rows(chosen)
    columns = (held.pairs.users[chosen], held.pairs.items[chosen], user.words, user.reviews, item.words, item.reviews)
    users, items, user_words, user_reviews, item_words, item_reviews = (
        torch.from_numpy(np.ascontiguousarray(column)).to(device) for column in columns
    )
    return Batch(users, items, user_words, user_reviews, item_words, item_reviews)


@torch.no_grad()
def ratings(model: RatingModel, held: HeldOut, device: torch.device) -> Floats:
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
