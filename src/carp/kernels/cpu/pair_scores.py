"""Ratings of many pairs from ready viewpoints and aspects on the CPU, a cache-sized block of pairs at a time.

The mathematics is that of `Carp.judge` and `Carp.combine` (Equations 3 to 10), in judge.c where there is C. In torch,
the pairs of a block lie along the last, contiguous axis, so that routing is plain arithmetic on long
rows, and the votes of a block never leave the cache. No tensor has the logic units of all pairs.

For one user against many items the votes are linear in the aspects:

    t_{s,x,y} = W₁(v_x − a_y) + W₂(v_x ⊙ a_y) = (W₂ diag(v_x) − W₁) a_y + W₁ v_x

so a user's matrices, made once, take an item's aspects to its votes in half the operations.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from carp.kernels.cpu.balances_c import NativeJudge
from carp.kernels.cpu.threads import workers
from carp.kernels.cpu.viewpoints import Store
from carp.models.carp import Carp

BLOCK = 384  # pairs at once in torch: their votes fill a core's cache
PIECE = 2048  # pairs a thread takes at once in C


def covers_scoring(model: Carp) -> bool:
    """Whether pairs of this form of the model can be scored by this module."""
    config = model.config
    drops = model.training and config.dropout_on == "weights"
    return config.routing_epsilon == 0 and config.logic_unit != "appended" and not drops


class PairScorer:
    """A model's weights laid out for blocks of pairs."""

    def __init__(self, model: Carp) -> None:
        self.model, config = model, model.config
        self.m, self.k = config.viewpoints, config.latent_size
        weight = model.vote_weight.detach()  # [2, M·M, 2g, k]
        self.g = weight.shape[2] // 2
        first, second = weight[:, :, : self.g], weight[:, :, self.g :]
        if config.logic_unit == "product first":
            first, second = second, first
        self.difference = first.permute(1, 0, 3, 2).flatten(1, 2).contiguous()  # W₁, [M·M, 2k, g]
        self.product = second.permute(1, 0, 3, 2).flatten(1, 2).contiguous()  # W₂
        self.both = torch.cat([self.difference, self.product], 2)  # [M·M, 2k, 2g]
        self.highway = torch.cat([model.highway_gate.detach(), model.highway.detach()], 1)  # [2, 2k, k]
        biases = model.highway_gate_bias.detach(), model.highway_bias.detach()
        self.highway_bias = torch.cat(biases, 1).unsqueeze(2)  # [2, 2k, 1]
        self.capsule_bias = None if model.capsule_bias is None else model.capsule_bias.detach().unsqueeze(2)
        self.regression = model.regression.detach().unsqueeze(1)  # [2, 1, k]
        self.regression_bias = model.regression_bias.detach().view(2, 1)

    def balance(self, viewpoints: Tensor, aspects: Tensor) -> Tensor:
        """The balance [B] of pairs whose sides are [M, g, B]."""
        m, g, count = viewpoints.shape
        units = _room("units", (m, m, 2 * g, count), viewpoints)
        v, a = viewpoints.unsqueeze(1), aspects.unsqueeze(0)
        torch.sub(v, a, out=units[:, :, :g])
        torch.mul(v, a, out=units[:, :, g:])
        votes = _room("votes", (m * m, 2 * self.k, count), viewpoints)
        torch.bmm(self.both, units.view(m * m, 2 * g, count), out=votes)
        return self.judge(votes.view(m * m, 2, self.k, count))

    def user_matrices(self, viewpoints: Tensor) -> Tensor:
        """From a user's viewpoints [M, g], matrices [M, M·2k, g + 1] that take an aspect and a one to the votes."""
        v = viewpoints.repeat_interleave(self.m, 0).unsqueeze(1)  # [M·M, 1, g]
        matrix = self.product * v - self.difference  # [M·M, 2k, g]
        constant = torch.bmm(self.difference, v.transpose(1, 2))
        whole = torch.cat([matrix, constant], 2)  # [x·y, 2k, g + 1]
        return whole.view(self.m, self.m, 2 * self.k, -1).transpose(0, 1).flatten(1, 2).contiguous()

    def balance_of_user(self, matrices: Tensor, aspects: Tensor) -> Tensor:
        """The balance [B] of one user with items whose aspects [M, g + 1, B] end in a one."""
        m, _, count = aspects.shape
        votes = _room("votes", (m, m * 2 * self.k, count), aspects)
        torch.bmm(matrices, aspects, out=votes)
        return self.judge(votes.view(m * m, 2, self.k, count))

    def judge(self, votes: Tensor) -> Tensor:
        """From votes [U, 2, k, B], in any order of logic units, to the balance of the sentiments [B]."""
        capsules = self.route(votes)
        k = self.k
        hidden = torch.baddbmm(self.highway_bias, self.highway, capsules)  # [2, 2k, B]
        gate, changed = hidden[:, :k].sigmoid_(), hidden[:, k:].tanh_()  # η_s (8)
        if self.model.config.highway == "reversed":
            gate.neg_().add_(1)
        changed.lerp_(capsules, gate)  # h_{s,u,i} (9)
        degrees = torch.bmm(self.regression, changed).squeeze(1) + self.regression_bias  # (7)
        lengths = capsules.square().sum(1).add_(1e-12).sqrt_()
        degrees *= lengths
        return degrees[0] - degrees[1]

    def route(self, votes: Tensor) -> Tensor:
        """Algorithm 1 along the last axis: capsules [2, k, B]."""
        config = self.model.config
        units = votes.shape[0]
        alike = 1 / units if config.routing == "bi-agreement" else 1 / 2
        mixture = votes.sum(0).mul_(alike)  # (4) in the first iteration, when all logic units count alike
        heard = None  # Σ o over the iterations: b = t · Σ o
        for _ in range(config.routing_iterations - 1):
            capsules = self._squash(mixture)
            heard = capsules if heard is None else heard + capsules
            coupling = self._couple(_dot(votes, heard))
            mixture = _mix(votes, coupling)
        return self._squash(mixture)

    def _squash(self, mixture: Tensor) -> Tensor:
        if self.capsule_bias is not None:
            mixture = mixture + self.capsule_bias
        square = mixture.square().sum(1, keepdim=True)
        return mixture * (square / (1 + square) * (square + 1e-12).rsqrt())

    def _couple(self, agreement: Tensor) -> Tensor:
        """Coupling [U, 2, B]: see `bi_agreement` and `by_agreement` in models/carp.py."""
        apart = agreement[:, 0] - agreement[:, 1]
        if self.model.config.routing == "agreement":
            positive = apart.sigmoid_()
            return torch.stack([positive, 1 - positive], 1)
        # ½(b_s + log č_s): č is a sigmoid of the difference, up to a term both halves share only within a unit
        agreement[:, 0] -= torch.nn.functional.softplus(-apart)
        agreement[:, 1] -= torch.nn.functional.softplus(apart)
        return agreement.mul_(0.5).softmax(0)


def _dot(votes: Tensor, capsules: Tensor) -> Tensor:
    product = torch.mul(votes, capsules, out=_room("product", votes.shape, votes))
    return product.sum(2)  # [U, 2, B]


def _mix(votes: Tensor, coupling: Tensor) -> Tensor:
    product = torch.mul(votes, coupling.unsqueeze(2), out=_room("product", votes.shape, votes))
    return product.sum(0)  # [2, k, B]


def _room(name: str, shape: tuple[int, ...] | torch.Size, like: Tensor) -> Tensor:
    return Store.of_thread().take(name, int(np.prod(shape)), like).view(shape)


@torch.no_grad()
def score_numbered(
    model: Carp, users: Tensor, items: Tensor, user_numbers: NDArray[np.int64], item_numbers: NDArray[np.int64]
) -> Tensor:
    """Ratings of pairs by their numbers, from the sides [U, M, g] of all users and [I, M, g] of all items."""
    u, i = (torch.from_numpy(np.ascontiguousarray(numbers, np.int64)) for numbers in (user_numbers, item_numbers))
    for numbers, sides in ((u, users), (i, items)):
        if len(numbers) and not 0 <= int(numbers.min()) <= int(numbers.max()) < len(sides):
            raise IndexError(f"a pair's number is not one of the {len(sides)} sides")
    native = NativeJudge.of(model, users, items)
    if native is None:
        balance = _in_torch(PairScorer(model), users, items, u, i)
    else:
        balance = _in_c(native, (users.contiguous(), items.contiguous()), u, i)
    return model.combine(balance, u, i, None)


def _in_c(native: NativeJudge, sides: tuple[Tensor, Tensor], u: Tensor, i: Tensor) -> Tensor:
    balance = sides[0].new_empty(len(u))
    folded, order = native.gathered((u, i), (len(sides[0]), len(sides[1])))
    starts = range(0, len(u), PIECE)
    workers().run(lambda start: native.score(sides, (u, i), folded, order[start : start + PIECE], balance), starts)
    return balance


def _in_torch(scorer: PairScorer, users: Tensor, items: Tensor, u: Tensor, i: Tensor) -> Tensor:
    balance = users.new_empty(len(u))

    def score(start: int) -> None:
        some = slice(start, start + BLOCK)
        balance[some] = scorer.balance(pairs_last(users[u[some]]), pairs_last(items[i[some]]))

    workers().run(score, range(0, len(u), BLOCK))
    return balance


def pairs_last(sides: Tensor) -> Tensor:
    """Sides [B, M, g] as [M, g, B]."""
    return sides.permute(1, 2, 0).contiguous()


class UserRater:
    """Balances of users with some items."""

    def __init__(self, model: Carp, user_sides: Tensor, item_sides: Tensor) -> None:
        self.native = NativeJudge.of(model, user_sides, item_sides)
        self.sides = user_sides.contiguous(), item_sides.contiguous()
        self.items = torch.arange(len(item_sides))
        if self.native is None:
            self.scorer = PairScorer(model)
            blocks = [pairs_last(item_sides[first : first + BLOCK]) for first in range(0, len(item_sides), BLOCK)]
            self.aspects = [torch.cat([b, torch.ones_like(b[:, :1])], 1) for b in blocks]

    def balance(self, users: Sequence[int]) -> Tensor:
        """The balances [users, items]."""
        if self.native is None:
            return torch.stack([self._in_torch(user) for user in users])
        found = self.sides[1].new_empty(len(users), len(self.items))
        u = torch.tensor(users).repeat_interleave(len(self.items))
        self.native.score(self.sides, (u, self.items.repeat(len(users))), 0, torch.arange(len(u)), found)
        return found

    def _in_torch(self, user: int) -> Tensor:
        matrices = self.scorer.user_matrices(self.sides[0][user])
        return torch.cat([self.scorer.balance_of_user(matrices, aspects) for aspects in self.aspects])
