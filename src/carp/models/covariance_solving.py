"""Covariances of pairs that are only multiplied with: systems solved by conjugate gradients, and held-out predictions.

Hestenes, Stiefel: "Methods of Conjugate Gradients for Solving Linear Systems", 1952, on many right sides at once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

FOLDS = 10
FOLDS_TO_CHOOSE_BY = 4


class Covariance(ABC):
    """Of ratings of n pairs, with strengths of its terms [8], the last of them of the noise [n]."""

    @abstractmethod
    def times(self, vectors: Tensor, strengths: Tensor, noise: Tensor) -> Tensor:
        """Σ times vectors [n, c]."""

    @abstractmethod
    def preconditioner(self, strengths: Tensor, noise: Tensor) -> Callable[[Tensor], Tensor]:
        """An easy inverse that is near Σ⁻¹."""

    def solve(
        self,
        target: Tensor,
        strengths: Tensor,
        noise: Tensor,
        start: Tensor | None = None,
        *,
        given: Tensor | None = None,
        tolerance: float = 1e-4,
        most: int = 400,
    ) -> Tensor:
        """Σ⁻¹ target, column by column [n, c]; where `given` [n, c] is 0, a column knows nothing of that pair."""
        mask = torch.ones_like(target) if given is None else given
        target = target * mask
        unmix = self.preconditioner(strengths, noise)

        def product(vectors: Tensor) -> Tensor:
            return mask * self.times(mask * vectors, strengths, noise)

        x = torch.zeros_like(target) if start is None else start * mask
        rest = target - product(x)
        enough = (tolerance * target.norm(dim=0)).clamp_min(1e-30)
        step_to = mask * unmix(rest)
        direction, along = step_to, (rest * step_to).sum(0)
        for _ in range(most):
            if bool((rest.norm(dim=0) <= enough).all()):
                break
            image = product(direction)
            step = along / (direction * image).sum(0).clamp_min(1e-30)
            x, rest = x + step * direction, rest - step * image
            step_to = mask * unmix(rest)
            before, along = along, (rest * step_to).sum(0)
            direction = step_to + along / before.clamp_min(1e-30) * direction
        return x


class HeldOut:
    """Solutions of one target, and what is predicted of pairs by others."""

    def __init__(self, covariance: Covariance, target: Tensor) -> None:
        self.covariance = covariance
        self.target = target
        folds = min(FOLDS, len(target))
        fold = torch.from_numpy(np.random.default_rng(2).permutation(len(target)) % folds).to(target.device)
        self.given = (fold.unsqueeze(1) != torch.arange(folds, device=target.device)).to(target)  # [n, folds]

    def error(self, strengths: Tensor, noise: Tensor, begin: Tensor) -> float:
        """The mean squared error on some of the folds, by the pairs of all others."""
        some = self.given[:, :FOLDS_TO_CHOOSE_BY]
        found = self._predicted(some, strengths, noise, begin)
        return float(((found - self.target.unsqueeze(1)).square() * (1 - some)).sum() / (1 - some).sum())

    def held_out(self, strengths: Tensor, noise: Tensor, begin: Tensor) -> Tensor:
        """What each rating is predicted to be by the pairs of the other folds [n]; solving begins with a guess of α."""
        return (self._predicted(self.given, strengths, noise, begin) * (1 - self.given)).sum(1)

    def _predicted(self, given: Tensor, strengths: Tensor, noise: Tensor, begin: Tensor) -> Tensor:
        """Every rating by the pairs that are given, column by column."""
        right, begin = self.target.unsqueeze(1).expand_as(given), begin.unsqueeze(1).expand_as(given)
        solved = self.covariance.solve(right, strengths, noise, begin, given=given, tolerance=1e-3)
        without_noise = strengths.clone()
        without_noise[-1] = 0
        return self.covariance.times(solved * given, without_noise, noise)

    def solution(self, strengths: Tensor, noise: Tensor) -> Tensor:
        """α [n]."""
        return self.covariance.solve(self.target.unsqueeze(1), strengths, noise).squeeze(1)
