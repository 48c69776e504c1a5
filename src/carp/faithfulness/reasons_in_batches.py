"""What a model's explanations name, for many pairs at once and as places of words instead of texts.

The sentences and phrases are those that `Recommender.explain` shows; a test holds the two together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from carp.evidence import phrase_weights
from carp.faithfulness.held_out import Flags, Floats, HeldOut, Keys, Texts, batch_of, blocks
from carp.models.base import RatingModel
from carp.models.carp import NEGATIVE, POSITIVE, Carp, Reading
from carp.questions import Detail
from carp.reasons import SHARE_MARKED, explainable

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

    @property
    def sides(self) -> tuple[NamedWords, NamedWords]:
        return self.user, self.item

    @property
    def direction(self) -> Floats | None:
        """+1 where the positive sentiment prevails, -1 where the negative one does; None where there is neither."""
        if self.capsules is None:
            return None
        return np.where(self.capsules.lengths[:, POSITIVE] >= self.capsules.lengths[:, NEGATIVE], 1.0, -1.0)


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
        found = _read(model, held, chosen, device)
        rating[chosen], balance[chosen] = found.rating, found.balance
        lengths[chosen], coupling[chosen] = found.lengths, found.coupling
        attention[chosen, : found.item.attention.shape[1]] = found.item.attention
        for place, row in enumerate(chosen.tolist()):
            _name_pair(found, place, row, held, user, item, model.config.window)
    return Reasons(rating, user, item, Capsules(balance, lengths, coupling, attention))


def _nothing_named(held: HeldOut) -> tuple[NamedWords, NamedWords]:
    user, item = (
        NamedWords(np.zeros(shape, bool), np.zeros(shape, bool), np.zeros(shape))
        for shape in (held.user.words.shape, held.item.words.shape)
    )
    return user, item


@dataclass(frozen=True, eq=False)
class _SideRead:
    attention: NDArray[np.float32]  # [B, L, M]
    influence: NDArray[np.float32]  # [B, L, M, M] on the balance, by viewpoint and aspect


@dataclass(frozen=True, eq=False)
class _Read:
    """A block of pairs as numbers."""

    rating: Floats
    balance: Floats
    lengths: Floats
    coupling: Floats
    user: _SideRead
    item: _SideRead


def _read(model: Carp, held: HeldOut, chosen: NDArray[np.int64], device: torch.device) -> _Read:
    """The same arithmetic as one pair's explanation, with pairs beside each other."""
    batch = batch_of(held, chosen, device)
    with torch.no_grad():
        user = model.read_users(batch.user_words, batch.user_reviews)
        item = model.read_items(batch.item_words, batch.item_reviews)
    units = model.pair(user.viewpoints, item.viewpoints).requires_grad_()
    shown = model.judge(units)
    slope = torch.autograd.grad(shown["balance"].sum(), units)[0]  # pairs do not meet: the sum's slope is each one's
    m = model.config.viewpoints
    difference, product = slope.view(len(chosen), m, m, -1).chunk(2, -1)
    if model.config.logic_unit == "product first":
        difference, product = product, difference
    v, a = user.viewpoints.unsqueeze(2), item.viewpoints.unsqueeze(1)
    on_user = torch.einsum("blxk,bxyk->blxy", _added(user), difference + a * product)
    on_item = torch.einsum("blyk,bxyk->blxy", _added(item), v * product - difference)
    rating = model.combine(shown["balance"], batch.users, batch.items, None)
    return _Read(
        _numbers(rating),
        _numbers(shown["balance"]),
        _numbers(shown["lengths"]),
        _numbers(shown["coupling"]),
        _SideRead(user.attention.cpu().numpy(), on_user.cpu().numpy()),
        _SideRead(item.attention.cpu().numpy(), on_item.cpu().numpy()),
    )


def _added(reading: Reading) -> Tensor:
    """What each word adds to a viewpoint, which is the attention's mean of its words. [B, L, M, k]"""
    return reading.attention.unsqueeze(-1) * (reading.contextual - reading.viewpoints.unsqueeze(1))


def _numbers(tensor: Tensor) -> Floats:
    return np.asarray(tensor.detach().double().cpu().numpy())


def _name_pair(
    found: _Read, place: int, row: int, held: HeldOut, user: NamedWords, item: NamedWords, window: int
) -> None:
    """Write one pair's named words into the rectangles."""
    prevailing = POSITIVE if found.lengths[place, POSITIVE] >= found.lengths[place, NEGATIVE] else NEGATIVE
    direction = 1.0 if prevailing == POSITIVE else -1.0
    coupling = found.coupling[place, prevailing]
    order = np.argsort(-coupling.ravel(), kind="stable")[:UNITS]
    for texts, read, named, axis in ((held.user, found.user, user, 0), (held.item, found.item, item, 1)):
        length = int(texts.there[row].sum())
        if not length:
            continue
        sentence = texts.sentences[row, :length]
        named.pull[row, :length] = read.influence[place, :length].sum((1, 2))
        for unit in zip(*np.unravel_index(order, coupling.shape), strict=True):
            attention = read.attention[place, :length, unit[axis]].astype(np.float64)
            influence = direction * read.influence[place, :length, unit[0], unit[1]].astype(np.float64)
            shown, marked = named_words(attention, sentence, window, influence)
            named.shown[row, :length] |= shown
            named.marked[row, :length] |= marked


def named_words(
    attention: Floats, sentence: Keys, window: int, influence: Floats | None = None, top_share: float = 1.0
) -> tuple[Flags, Flags]:
    """Words of the sentences that an explanation shows for one viewpoint, and of the phrases it marks in them.

    Of the sentences with one of the top phrases the best is shown, and a second that weighs half as much: by the
    influence of their words, or, where it is not known, by the top phrases centred in them.

    >>> attention, sentence = np.array([0.1, 0.2, 0.4, 0.1, 0.1, 0.1]), np.array([3, 3, 3, 5, 5, 7])
    >>> [flags.astype(int).tolist() for flags in named_words(attention, sentence, 3)]
    [[1, 1, 1, 0, 0, 0], [1, 1, 1, 0, 0, 0]]
    """
    weights = phrase_weights(attention[:, None], sentence, window)[:, 0] * (attention > 0)
    most = min(DETAIL.top_phrases, math.ceil(top_share * np.count_nonzero(attention)))
    best = np.argsort(-weights, kind="stable")[:most]
    best = best[weights[best] > 0]
    keys, number = np.unique(sentence, return_inverse=True)
    total = np.bincount(number[best], weights[best], len(keys)) if influence is None else np.bincount(number, influence)
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
    """Named are the sentences of the sides that the model listens to most, so many of each document."""
    rating = np.zeros(len(held))
    user, item = _nothing_named(held)
    for chosen in blocks(held):
        batch = batch_of(held, chosen, device)
        with torch.no_grad():
            prediction = model(batch)
            heard = model.explain(batch, prediction)
        assert heard is not None, "who has no reasons is refused before"
        rating[chosen] = _numbers(prediction.rating)
        for texts, words, weights, named in (
            (held.user, heard.user_words, heard.user_weights, user),
            (held.item, heard.item_words, heard.item_weights, item),
        ):
            attention = _numbers(words)  # [B, L, M]
            m = attention.shape[2]
            weighed = np.full((len(chosen), m), 1 / m) if weights is None else _numbers(weights)
            for place, row in enumerate(chosen.tolist()):
                _name_heard(attention[place], weighed[place], heard.window, texts, named, row)
    return Reasons(rating, user, item)


def _name_heard(attention: Floats, weights: Floats, window: int, texts: Texts, named: NamedWords, row: int) -> None:
    length = int(texts.there[row].sum())
    if not length:
        return
    attention, sentence = attention[:length], texts.sentences[row, :length]
    named.pull[row, :length] = attention @ weights
    if length > 1:  # where no word is listened to more than another, none stands out
        attention = attention * (np.ptp(attention, axis=0) > 1e-9)
    for side in np.argsort(-weights, kind="stable")[:UNITS]:
        shown, marked = named_words(attention[:, side], sentence, window, top_share=SHARE_MARKED)
        named.shown[row, :length] |= shown
        named.marked[row, :length] |= marked
