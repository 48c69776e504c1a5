"""What a model's explanations name, for many pairs at once and as places of words instead of texts.

The sentences and phrases are those that `Recommender.explain` shows; a test holds the two together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from carp.explain.capsule_reasons import added, unit_reasons
from carp.explain.explainer import SHARE_MARKED, explainable
from carp.explain.faithfulness.held_out import Flags, Floats, HeldOut, Keys, PaddedTexts, batch_of, blocks
from carp.explain.influence import lost_sentences, sentence_influence, unit_slopes
from carp.explain.phrases import phrase_weights
from carp.explain.question import Detail
from carp.explain.selection import likeness
from carp.models.base import RatingModel
from carp.models.carp import NEGATIVE, POSITIVE, Carp, DocumentReading

UNITS = 3  # logic units of the prevailing sentiment, or sides that a model without them listens to most
DETAIL = Detail(prevailing_units=UNITS, other_units=0)


@dataclass(frozen=True, eq=False)
class NamedWords:
    """Of one side: the words an explanation names, and what every word does."""

    shown: Flags  # [N, L] words of the sentences shown
    marked: Flags  # [N, L] words of the phrases marked in them
    pull: Floats  # [N, L] what a word adds to the rating's balance; its attention where the model knows no direction


@dataclass(frozen=True, eq=False)
class Capsules:
    """What models with logic units say beside."""

    balance: Floats  # [N] of the two sentiments: what the texts add to the rating, before it meets the biases
    lengths: Floats  # [N, 2]
    coupling: Floats  # [N, 2, M, M]
    item_attention: NDArray[np.float32]  # [N, L, M]


@dataclass(frozen=True, eq=False)
class Reasons:
    rating: Floats  # [N] stars, not clipped
    user: NamedWords
    item: NamedWords
    capsules: Capsules | None = None
    direction: Floats | None = None  # +1 where the texts speak for the thing, -1 where against it; None: nobody knows

    @property
    def sides(self) -> tuple[NamedWords, NamedWords]:
        return self.user, self.item


def reasons_of(model: RatingModel, held: HeldOut, device: torch.device, name: str = "") -> Reasons:
    """The reasons of all pairs, a block at a time."""
    explainable(model, name)
    return _capsule_reasons(model, held, device) if isinstance(model, Carp) else _heard(model, held, device)


def _capsule_reasons(model: Carp, held: HeldOut, device: torch.device) -> Reasons:
    rating, balance = np.zeros(len(held)), np.zeros(len(held))
    user, item = _nothing_named(held)
    m = model.config.viewpoints
    lengths, coupling = np.zeros((len(held), 2)), np.zeros((len(held), 2, m, m))
    attention = np.zeros((*held.item.words.shape, m), dtype=np.float32)
    for chosen in blocks(held):
        batch = batch_of(held, chosen, device)
        with torch.no_grad():
            readings = (
                model.read_users(batch.user_words, batch.user_reviews),
                model.read_items(batch.item_words, batch.item_reviews),
            )
            shown = model.judge(model.pair(readings[0].viewpoints, readings[1].viewpoints))
            rating[chosen] = _numbers(model.combine(shown["balance"], batch.users, batch.items, None))
        balance[chosen], lengths[chosen] = _numbers(shown["balance"]), _numbers(shown["lengths"])
        coupling[chosen] = _numbers(shown["coupling"])
        attention[chosen, : readings[1].attention.shape[1]] = readings[1].attention.cpu().numpy()
        for place, row in enumerate(chosen.tolist()):
            _name_pair(model, readings, place, row, held, (user, item), lengths[row], coupling[row])
    direction = np.where(lengths[:, POSITIVE] >= lengths[:, NEGATIVE], 1.0, -1.0)
    return Reasons(rating, user, item, Capsules(balance, lengths, coupling, attention), direction)


def _nothing_named(held: HeldOut) -> tuple[NamedWords, NamedWords]:
    user, item = (
        NamedWords(np.zeros(shape, bool), np.zeros(shape, bool), np.zeros(shape))
        for shape in (held.user.words.shape, held.item.words.shape)
    )
    return user, item


def _numbers(tensor: Tensor) -> Floats:
    return np.asarray(tensor.detach().double().cpu().numpy())


def _name_pair(
    model: Carp,
    readings: tuple[DocumentReading, DocumentReading],
    place: int,
    row: int,
    held: HeldOut,
    named: tuple[NamedWords, NamedWords],
    lengths: Floats,
    coupling: Floats,
) -> None:
    """Write one pair's named words into the rectangles: those of the sentences that its explanation shows."""
    texts = held.user, held.item
    numbers = [_numbered(side.sentences[row, : int(side.there[row].sum())]) for side in texts]
    words = [side.words[row, : len(number)] for side, number in zip(texts, numbers, strict=True)]
    user, item = (_alone(reading, place, len(number)) for reading, number in zip(readings, numbers, strict=True))
    slopes = unit_slopes(model, user, item)
    for side, reading, slope in zip(named, (user, item), (slopes.user.sum(1), slopes.item.sum(0)), strict=True):
        side.pull[row, : reading.attention.shape[1]] = _numbers(torch.einsum("lxk,xk->l", added(reading), slope))
    lost = [lost_sentences(model, reading, number) for reading, number in zip((user, item), numbers, strict=True)]
    pulls = sentence_influence(lost[0], lost[1], slopes)
    alike = likeness(words[0], numbers[0]), likeness(words[1], numbers[1])
    prevailing = POSITIVE if lengths[POSITIVE] >= lengths[NEGATIVE] else NEGATIVE
    for x, y, reason in unit_reasons(pulls, alike, coupling[prevailing], prevailing, UNITS, DETAIL.sentences):
        for side, reading, number, index, sentences in zip(
            named, (user, item), numbers, (x, y), (reason.user, reason.item), strict=True
        ):
            attention = _numbers(reading.attention[0, :, index])
            shown, marked = words_of_sentences(attention, number, model.config.window, sentences)
            side.shown[row, : len(number)] |= shown
            side.marked[row, : len(number)] |= marked


def _numbered(keys: Keys) -> NDArray[np.int64]:
    """Sentences numbered in the order in which a document has them, as its explanation numbers them."""
    _, first, place = np.unique(keys, return_index=True, return_inverse=True)
    return np.asarray(np.argsort(np.argsort(first))[place], dtype=np.int64)


def _alone(reading: DocumentReading, place: int, length: int) -> DocumentReading:
    one = slice(place, place + 1)
    return DocumentReading(reading.viewpoints[one], reading.attention[one, :length], reading.contextual[one, :length])


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


# ---- models without capsules


def _heard(model: RatingModel, held: HeldOut, device: torch.device) -> Reasons:
    """Named are the sentences of the sides that the model listens to most, so many of each document.

    Where each side pulls one way, named are those that pull as the texts do in all: the others ask for another rating.
    """
    rating, balance = np.zeros(len(held)), np.full(len(held), np.nan)
    user, item = _nothing_named(held)
    for chosen in blocks(held):
        batch = batch_of(held, chosen, device)
        with torch.no_grad():
            prediction = model(batch)
            heard = model.explain(batch, prediction)
        assert heard is not None, "who has no reasons is refused before"
        rating[chosen] = _numbers(prediction.rating)
        directions = np.array(heard.directions)
        if heard.balance is not None:
            balance[chosen] = _numbers(heard.balance)
        for texts, words, weights, named in (
            (held.user, heard.user_words, heard.user_weights, user),
            (held.item, heard.item_words, heard.item_weights, item),
        ):
            attention = _numbers(words)  # [B, L, M]
            m = attention.shape[2]
            weighed = np.full((len(chosen), m), 1 / m) if weights is None else _numbers(weights)
            for place, row in enumerate(chosen.tolist()):
                of_sides = weighed[place]
                if len(directions):
                    of_sides = np.where(directions == _sign(balance[row]), of_sides, 0)
                _name_heard(attention[place], of_sides, heard.window, texts, named, row)
    return Reasons(rating, user, item, direction=None if np.isnan(balance).any() else _sign(balance))


def _sign(balance: Floats) -> Floats:
    return np.where(balance >= 0, 1.0, -1.0)


def _name_heard(
    attention: Floats, weights: Floats, window: int, texts: PaddedTexts, named: NamedWords, row: int
) -> None:
    length = int(texts.there[row].sum())
    if not length:
        return
    attention, sentence = attention[:length], texts.sentences[row, :length]
    named.pull[row, :length] = attention @ weights
    if length > 1:  # where no word is listened to more than another, none stands out
        attention = attention * (np.ptp(attention, axis=0) > 1e-9)
    most = np.argsort(-weights, kind="stable")[:UNITS]
    for side in most[weights[most] > 0]:
        shown, marked = named_words(attention[:, side], sentence, window, top_share=SHARE_MARKED)
        named.shown[row, :length] |= shown
        named.marked[row, :length] |= marked
