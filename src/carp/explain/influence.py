"""What each sentence of a pair's two documents does to CARP's rating: what is lost where it is taken out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from carp.models.carp import Carp, DocumentReading, logic_unit_parts
from carp.models.layers import masked_softmax

Array = NDArray[np.float64]
Numbers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class SentenceInfluence:
    """How far sentences pull the balance of the two sentiments upwards (negative: downwards)."""

    user: Array  # [S, M, M] each sentence of the person, through each logic unit
    item: Array  # [T, M, M] each sentence of the thing
    together: Array  # [S, T] what is lost of the balance only where both are taken out: their meeting

    @cached_property
    def in_all(self) -> tuple[Array, Array]:
        """What each sentence of the person [S], and of the thing [T], pulls through all logic units."""
        return self.user.sum((1, 2)), self.item.sum((1, 2))


@dataclass(frozen=True, eq=False)
class Slopes:
    """How steeply the balance of the two sentiments rises with each logic unit of a pair. [..., M, M, k] each"""

    user: torch.Tensor  # with its viewpoint
    item: torch.Tensor  # with its aspect
    product: torch.Tensor  # with the product of the two

    def of_each_pair(self) -> list[Slopes]:
        """The slopes of pairs one by one, where there are several."""
        return [Slopes(*one) for one in zip(self.user.unbind(), self.item.unbind(), self.product.unbind(), strict=True)]


def judge_with_gradient(
    model: Carp, viewpoints: torch.Tensor, aspects: torch.Tensor
) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """What the capsules make of pairs [B, M, k], and the gradient of each pair's balance at its own logic units."""
    with torch.enable_grad():
        units = model.pair(viewpoints, aspects).detach().requires_grad_()
        judged = model.judge(units)
        gradient = torch.autograd.grad(judged["balance"].sum(), units)[0]  # no pair's balance knows another's units
    return {name: tensor.detach() for name, tensor in judged.items()}, gradient


def unit_slopes(model: Carp, user: DocumentReading, item: DocumentReading) -> Slopes:
    """The slopes of one pair, from the readings of its two documents."""
    gradient = judge_with_gradient(model, user.viewpoints, item.viewpoints)[1]
    return slopes_at(model, gradient[0], user.viewpoints[0], item.viewpoints[0])


def slopes_at(model: Carp, gradient: torch.Tensor, viewpoints: torch.Tensor, aspects: torch.Tensor) -> Slopes:
    """From the gradient [..., M·M, 2k] of the balance at a pair's logic units to what it says of their parts."""
    m = model.config.viewpoints
    difference, product, *appended = gradient.view(*gradient.shape[:-2], m, m, -1).chunk(
        logic_unit_parts(model.config), -1
    )
    if model.config.logic_unit == "product first":
        difference, product = product, difference
    v, a = viewpoints.unsqueeze(-2), aspects.unsqueeze(-3)  # [..., M, 1, k], [..., 1, M, k]
    user, item = difference + a * product, v * product - difference
    if appended:
        user, item = user + appended[0], item + appended[1]
    return Slopes(user, item, product)


def sentence_influence(lost_user: torch.Tensor, lost_item: torch.Tensor, slopes: Slopes) -> SentenceInfluence:
    """The pulls of all sentences of one pair, from what each document's viewpoints lose without them.

    What a lost sentence does to the rating is told by the slope of the balance at each logic unit. A unit holds the
    product of its two sides, so that two sentences also move it together: the second difference of the balance.
    """
    # The comments say each product as Einstein would; `einsum` itself takes longer to read them than to multiply.
    through_user = torch.bmm(lost_user.transpose(0, 1), slopes.user.transpose(1, 2)).transpose(0, 1)  # sxk,xyk->sxy
    through_item = torch.bmm(lost_item.transpose(0, 1), slopes.item.permute(1, 2, 0)).permute(1, 2, 0)  # tyk,xyk->txy
    lost_product = torch.bmm(lost_user.permute(2, 0, 1), slopes.product.permute(2, 0, 1)).permute(1, 2, 0)
    met = lost_product.flatten(1) @ lost_item.flatten(1).T  # sxk,xyk->syk, and with it tyk->st
    return SentenceInfluence(*(pull.double().cpu().numpy() for pull in (through_user, through_item, met)))


@torch.no_grad()
def lost_sentences(model: Carp, reading: DocumentReading, sentence: Numbers) -> torch.Tensor:
    """How one document's viewpoints change where each sentence is there, from where it is not. [S, M, k]

    `sentence` numbers the words' sentences from 0, without gaps. Without a sentence the attention shifts to the words
    that stay, so each viewpoint is computed again without it.
    """
    member = _membership(sentence, reading.contextual)
    if not len(member):
        return reading.viewpoints[:0]
    if model.config.attention == "softmax" and not model.config.padding_attends:
        return reading.viewpoints - without_each(reading, member, model.config.attention_scale)
    attention, contextual = reading.attention[0, : len(sentence)], reading.contextual[0, : len(sentence)]
    added = attention.unsqueeze(-1) * (contextual - reading.viewpoints)  # to first order
    return torch.einsum("sl,lxk->sxk", member, added)


def without_each(reading: DocumentReading, member: torch.Tensor, attention_scale: float = 1.0) -> torch.Tensor:
    """Equation 2 without each sentence in turn. [S, M, k]

    No word is read again: a word's context ends with its review, so that only words at the border of a sentence keep a
    trace of it.
    """
    contextual = reading.contextual[0, : member.shape[1]].transpose(0, 1)  # [M, L, k]
    kept = 1 - member
    rudiment = kept @ contextual / kept.sum(1).clamp_min(1).unsqueeze(-1)  # [M, S, k]
    scores = attention_scale * rudiment @ contextual.transpose(1, 2)  # [M, S, L]
    attention = masked_softmax(scores, (kept > 0).expand_as(scores), dim=-1)
    return (attention @ contextual).transpose(0, 1)


def _membership(sentence: Numbers, like: torch.Tensor) -> torch.Tensor:
    """1 where a word belongs to a sentence. [S, L]"""
    number = int(sentence.max()) + 1 if len(sentence) else 0
    member = like.new_zeros(number, len(sentence))
    places = torch.arange(len(sentence), device=like.device)
    member[torch.from_numpy(sentence).to(like.device), places] = 1
    return member
