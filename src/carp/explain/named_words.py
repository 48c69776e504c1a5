"""What explanations name, for many pairs at once and as places of words instead of texts.

The sentences and phrases are those that `Recommender.explain` shows; a test holds the two together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from carp.explain.pair_texts import Flags, Floats, Keys, PairTexts
from carp.explain.phrases import phrase_weights
from carp.explain.question import Detail

UNITS = 3  # logic units of the prevailing sentiment, or sides that a model without them listens to most
DETAIL = Detail(prevailing_units=UNITS, other_units=0)


@dataclass(frozen=True, eq=False)
class NamedWords:
    """Of one side: the words an explanation names, and what every word does."""

    shown: Flags  # [N, L] words of the sentences shown
    marked: Flags  # [N, L] words of the phrases marked in them
    pull: Floats  # [N, L] what a word adds to the rating's balance; its attention where the model knows no direction
    told: Flags | None = (
        None  # [N, L] words of all sentences shown, of those too that pull the other way; None: all are `shown`
    )


@dataclass(frozen=True, eq=False)
class CapsuleFigures:
    """What models with logic units say beside."""

    balance: Floats  # [N] of the two sentiments: what the texts add to the rating, before it meets the biases
    lengths: Floats  # [N, 2]
    coupling: Floats  # [N, 2, M, M]
    item_attention: NDArray[np.float32]  # [N, L, M]


@dataclass(frozen=True, eq=False)
class NamedReasons:
    """What the explanations of many pairs name, and how far they move the ratings."""

    rating: Floats  # [N] stars, not clipped
    user: NamedWords
    item: NamedWords
    capsules: CapsuleFigures | None = None
    direction: Floats | None = None  # +1 where the texts speak for the thing, -1 where against it; None: nobody knows

    @property
    def sides(self) -> tuple[NamedWords, NamedWords]:
        return self.user, self.item


def nothing_named(pairs: PairTexts) -> tuple[NamedWords, NamedWords]:
    user, item = (
        NamedWords(np.zeros(shape, bool), np.zeros(shape, bool), np.zeros(shape))
        for shape in (pairs.user.words.shape, pairs.item.words.shape)
    )
    return user, item


def sentence_numbers(keys: Keys) -> NDArray[np.int64]:
    """Sentences numbered in the order in which a document has them, as its explanation numbers them."""
    _, first, place = np.unique(keys, return_index=True, return_inverse=True)
    return np.asarray(np.argsort(np.argsort(first))[place], dtype=np.int64)


def words_of_sentences(
    attention: Floats, sentence: NDArray[np.int64], window: int, chosen: Sequence[int]
) -> tuple[Flags, Flags]:
    """Words of these sentences, and of the phrases that one viewpoint marks in them: its top ones, or their best."""
    weights = phrase_weights(attention[:, None], sentence, window)[:, 0]
    top = np.argsort(-weights, kind="stable")[: DETAIL.top_phrases]
    top = top[weights[top] > 0]
    marked = np.zeros(len(sentence), dtype=bool)
    for number in chosen:
        centres = top[sentence[top] == number]
        if not len(centres):
            inside = np.flatnonzero(sentence == number)
            centres = inside[[weights[inside].argmax()]]
        for centre in centres.tolist():
            reach = slice(max(0, centre - window // 2), centre + window // 2 + 1)
            marked[reach] |= sentence[reach] == number
    return np.isin(sentence, list(chosen)), marked


def named_words(attention: Floats, sentence: Keys, window: int, top_share: float = 1.0) -> tuple[Flags, Flags]:
    """Words of the sentences that an explanation shows for one side, and of the phrases it marks in them.

    Of the sentences with one of the top phrases the best is shown, and a second that weighs half as much, by the top
    phrases centred in them.

    >>> attention, sentence = np.array([0.1, 0.2, 0.4, 0.1, 0.1, 0.1]), np.array([3, 3, 3, 5, 5, 7])
    >>> [flags.astype(int).tolist() for flags in named_words(attention, sentence, 3)]
    [[1, 1, 1, 0, 0, 0], [1, 1, 1, 0, 0, 0]]
    """
    weights = phrase_weights(attention[:, None], sentence, window)[:, 0] * (attention > 0)
    most = min(DETAIL.top_phrases, math.ceil(top_share * np.count_nonzero(attention)))
    best = np.argsort(-weights, kind="stable")[:most]
    best = best[weights[best] > 0]
    keys, number = np.unique(sentence, return_inverse=True)
    total = np.bincount(number[best], weights[best], len(keys))
    eligible = np.unique(number[best])
    ranked = eligible[np.argsort(-total[eligible], kind="stable")][: DETAIL.sentences]
    chosen = ranked[total[ranked] >= total[ranked[0]] / 2] if len(ranked) else ranked
    shown = np.isin(number, chosen)
    marked = np.zeros(len(sentence), dtype=bool)
    for centre in best[shown[best]]:
        reach = slice(max(0, int(centre) - window // 2), int(centre) + window // 2 + 1)
        marked[reach] |= sentence[reach] == sentence[centre]
    return shown, marked
