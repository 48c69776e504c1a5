"""What the parts of one pair amount to, in stars, as plain numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from carp.models.meeting_sides import MeetingParts

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class PairAmounts:
    """The sum that a rating is, by groups of words: those with a name, then all other words, then the thing's name."""

    mean: float
    person: float  # what this person usually gives
    thing: float  # what this thing usually gets
    writing: float  # how this person writes, whatever the thing's texts say
    by_taste: float  # what the person makes of the thing's texts, by their own ratings
    of_aspects: Floats  # [G + 1] what each group of the thing's words adds, and its name
    by_themselves: Floats  # [G + 1] of that: what they add for everybody
    of_viewpoints: Floats  # [G] what each group of the person's words adds
    by_both: Floats  # [G, G + 1] what the meeting of two groups adds

    @property
    def by_texts(self) -> float:
        """What is not the same whatever anybody wrote."""
        return self.writing + float(self.of_aspects.sum())


def pair_amounts(parts: MeetingParts) -> list[PairAmounts]:
    """Of each pair what its parts amount to."""
    mean, person, thing = (numbers(of).tolist() for of in (parts.mean, parts.person, parts.thing))
    by_person, by_both, words = numbers(parts.by_person), numbers(parts.by_both), numbers(parts.thing_words)
    of_person = numbers(parts.person_words) + numbers(parts.by_thing)
    writing, by_taste = of_person.sum(1).tolist(), by_person.sum(1).tolist()
    of_aspects = words + by_person + by_both.sum(1)
    of_viewpoints = of_person + by_both.sum(2)
    each = zip(mean, person, thing, writing, by_taste, of_aspects, words, of_viewpoints, by_both, strict=True)
    return [PairAmounts(*one) for one in each]


def numbers(tensor: torch.Tensor) -> Floats:
    return np.asarray(tensor.detach().double().cpu().numpy())
