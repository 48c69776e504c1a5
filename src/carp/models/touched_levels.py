"""What is known of some people and things alone, with everything else held: exact, and small.

In `meeting` (see there) the sum of a pair is

    f_ui = rest_ui + [u ∈ T] (b_u + p_u · z_i) + [i ∈ T] (b_i + q_i · z_u)

where T are those that new reviews touch, and `rest` is all that stays as it is: the weights of words and of meetings,
and the levels and own vectors of everybody else, with the texts as they read now. Given the rest, the posterior means
of b, p and q are those of a Gaussian process over the pairs that touch T, with the strengths s that were learned:

    Σ α = y − rest     Σ = [u = u' ∈ T] (s₁ + s₅ z_i · z_i') + [i = i' ∈ T] (s₂ + s₆ z_u · z_u') + [ui = u'i'] σ²_ui
    b_u = s₁ Σ_i α_ui     p_u = s₅ Σ_i α_ui z_i     b_i = s₂ Σ_u α_ui     q_i = s₆ Σ_u α_ui z_u

Σ is `pair_covariance` without the terms of the rest. An owner's pairs lie side by side, owners with like many pairs in
one block, so that a product is a few products of small dense matrices. Time and memory are linear in these pairs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import embedding

from carp.models.covariance_solving import Covariance


@dataclass(frozen=True)
class OwnerBlock:
    """Owners with like many pairs."""

    owners: Tensor  # [O] their places among those that are touched
    pairs: Tensor  # [O, L] the pairs of each; n stands where there are fewer
    there: Tensor  # [O, L, 1] 1 where there is a pair, else 0
    directions: Tensor  # [O, L, k] the other side's text; zero where there is no pair
    alike: Tensor | None  # [O, L, L] how alike these texts are, where that is less than the directions

    @staticmethod
    def of(owners: Tensor, pairs: Tensor, there: Tensor, directions: Tensor) -> OwnerBlock:
        few = 2 * directions.shape[1] < directions.shape[2]
        alike = directions @ directions.transpose(1, 2) if few else None
        return OwnerBlock(owners, pairs, there, directions, alike)

    def times(self, vectors: Tensor, level: Tensor, own: Tensor) -> Tensor:
        """The terms of these owners, times vectors [O, L, c] that are zero where there is no pair."""
        total = level * self.there * vectors.sum(1, keepdim=True)
        if not own > 0:
            return total
        if self.alike is not None:
            return total + own * (self.alike @ vectors)
        return total + own * (self.directions @ (self.directions.transpose(1, 2) @ vectors))


class OwnedTerms:
    """The terms of the covariance that touched owners of one side have: of their levels and of their own vectors."""

    def __init__(self, owner: Tensor, touched: Tensor, owners: int, directions: Tensor) -> None:
        """From the owner of each pair [n], those that are touched, and the other side's directions [n, k]."""
        self.touched, self.directions = touched, directions
        place = torch.full((owners,), -1, device=owner.device)
        place[touched] = torch.arange(len(touched), device=owner.device)
        place = place[owner]
        self.theirs = place >= 0  # [n]
        pairs = torch.nonzero(self.theirs).squeeze(1)
        pairs = pairs[torch.argsort(place[pairs], stable=True)]
        counts = torch.bincount(place[pairs], minlength=len(touched))
        self.blocks = [self._block(some, pairs, counts) for some in _of_like_count(counts)]

    def _block(self, some: Tensor, pairs: Tensor, counts: Tensor) -> OwnerBlock:
        begins = (counts.cumsum(0) - counts)[some].unsqueeze(1)
        steps = torch.arange(int(counts[some].max()), device=pairs.device)
        there = steps < counts[some].unsqueeze(1)
        chosen = pairs[(begins + steps).clamp_max(len(pairs) - 1)]
        mask = there.unsqueeze(2).to(self.directions)
        directions = embedding(chosen, self.directions) * mask
        return OwnerBlock.of(some, torch.where(there, chosen, len(self.theirs)), mask, directions)

    def times(self, vectors: Tensor, level: Tensor, own: Tensor) -> Tensor:
        """These terms at their two strengths, times vectors [n, c]."""
        padded = torch.cat([vectors, vectors.new_zeros(1, vectors.shape[1])])
        total = torch.zeros_like(padded)
        for block in self.blocks:
            total[block.pairs] = block.times(padded[block.pairs], level, own)
        return total[:-1]

    def found(self, solution: Tensor, level: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
        """Levels [touched] and own vectors [touched, k] from the solution α [n]."""
        padded = torch.cat([solution, solution.new_zeros(1)])
        levels = solution.new_zeros(len(self.touched))
        vectors = solution.new_zeros(len(self.touched), self.directions.shape[1])
        for block in self.blocks:
            theirs = padded[block.pairs]
            levels[block.owners] = level * theirs.sum(1)
            vectors[block.owners] = own * (theirs.unsqueeze(1) @ block.directions).squeeze(1)
        return levels, vectors

    def diagonal(self, level: Tensor, own: Tensor) -> Tensor:
        """[n]; a text in its directions is at length 1."""
        return self.theirs * (level + own)


def _of_like_count(counts: Tensor) -> list[Tensor]:
    """The places of owners with pairs, those with at most twice as many together."""
    size = torch.where(counts > 0, counts.clamp_min(1).double().log2().ceil(), -1.0)
    return [torch.nonzero(size == one).squeeze(1) for one in torch.unique(size).tolist() if one >= 0]


class TouchedCovariance(Covariance):
    """Of the pairs that touch somebody or something, with strengths as in `pair_covariance`."""

    def __init__(self, by_user: OwnedTerms, by_item: OwnedTerms) -> None:
        self.by_user, self.by_item = by_user, by_item

    def times(self, vectors: Tensor, strengths: Tensor, noise: Tensor) -> Tensor:
        of_user, of_item, of_noise = _strengths_of(strengths)
        of_owners = self.by_user.times(vectors, *of_user) + self.by_item.times(vectors, *of_item)
        return of_noise * noise.unsqueeze(1) * vectors + of_owners

    def preconditioner(self, strengths: Tensor, noise: Tensor) -> Callable[[Tensor], Tensor]:
        of_user, of_item, of_noise = _strengths_of(strengths)
        diagonal = of_noise * noise + self.by_user.diagonal(*of_user) + self.by_item.diagonal(*of_item)
        return lambda vectors: vectors / diagonal.unsqueeze(1)

    def found(self, solution: Tensor, strengths: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Levels and own vectors of the touched people, then of the touched things."""
        of_user, of_item, _ = _strengths_of(strengths)
        return *self.by_user.found(solution, *of_user), *self.by_item.found(solution, *of_item)


def _strengths_of(strengths: Tensor) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor], Tensor]:
    """Of a person's level and own vector, of a thing's, and of the noise."""
    return (strengths[0], strengths[4]), (strengths[1], strengths[5]), strengths[7]
