"""What a rating does to its own prediction by the biases, so that it can be taken out again in closed form.

Allen: "The Relationship Between Variable Selection and Data Augmentation and a Method for Prediction", Technometrics
16 (1), 1974. The biases of all ratings are b = A⁻¹ Xᵀ (r − μ), where a row x of X has a one for the person and a one
for the thing, and A = XᵀX + diag(λ). A pair's error with the biases fitted on all ratings but its own is

    e' = (e + (r − μ) (1 − g) / (N − 1)) / (1 − h)        e = r − μ − b_u − b_i

    h = xᵀ A⁻¹ x        the leverage: how far the rating pulls its own prediction
    g = xᵀ A⁻¹ Xᵀ 1     what the biases would fit to ratings that are all 1: μ, too, is of the other ratings alone

The larger side is eliminated, and what is left is a dense matrix P of the smaller side:

    P = (D_s − Rᵀ D_l⁻¹ R)⁻¹,   h = 1 / d_l + zᵀ P z,   z = 1_s − R_l / d_l

where R counts how often a pair was rated and D holds n + λ of each side. That costs the cube of the smaller side and
the number of pairs times it. Past `MOST_SIDE` or `MOST_PAIRS` the leverages come from messages between the two sides
instead, in time linear in the pairs (Weiss, Freeman: "Correctness of Belief Propagation in Gaussian Graphical Models
of Arbitrary Topology", Neural Computation 13, 2001): exact where the pairs form no loops, and else short of loops
alone. On Musical Instruments, RateBeer and TripAdvisor the mean leverage, of 0.11 to 0.15, is then off by 0.00001 to
0.00005, and no error of a training pair by more than 0.003 stars.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]

MOST_SIDE = 4_000  # of the smaller side: a dense inverse of that size takes four seconds on one core
MOST_PAIRS = 1_000_000
BLOCK = 2_048  # owners of the larger side at a time
SETTLED = 1e-13
MOST_ROUNDS = 1_000


class Crossings(NamedTuple):
    """Distinct pairs of two sides, how often each was rated, and n + λ of everybody."""

    users: Numbers  # [P]
    items: Numbers  # [P]
    times: Floats  # [P]
    user_weight: Floats  # [users]
    item_weight: Floats  # [items]

    def turned(self) -> Crossings:
        """The same with the two sides exchanged."""
        return Crossings(self.items, self.users, self.times, self.item_weight, self.user_weight)


def leverages(crossings: Crossings) -> Floats:
    """h of each pair [P], by the dense inverse where that is affordable."""
    if len(crossings.user_weight) < len(crossings.item_weight):
        crossings = crossings.turned()
    affordable = len(crossings.item_weight) <= MOST_SIDE and len(crossings.times) <= MOST_PAIRS
    return exact_leverages(crossings) if affordable else leverages_by_messages(crossings)


def exact_leverages(crossings: Crossings) -> Floats:
    """h by the inverse of the items' side, users in blocks: memory of a block and of the inverse, and no more."""
    blocks = _blocks(crossings)
    inverse = _inverse(crossings, blocks)
    found = np.empty(len(crossings.times))
    for block in blocks:
        found[block.places] = _leverages_of_block(crossings, block, inverse)
    return found


class UserBlock(NamedTuple):
    """Users next to each other, and the places of their pairs."""

    first: int
    places: Numbers

    def rated(self, crossings: Crossings) -> torch.Tensor:
        """How often each of these users rated each item, sparse."""
        where = np.stack([crossings.users[self.places] - self.first, crossings.items[self.places]])
        size = (min(BLOCK, len(crossings.user_weight) - self.first), len(crossings.item_weight))
        times = torch.from_numpy(crossings.times[self.places])
        return torch.sparse_coo_tensor(torch.from_numpy(where), times, size, check_invariants=True)


def _blocks(crossings: Crossings) -> list[UserBlock]:
    order = np.argsort(crossings.users, kind="stable")
    firsts = np.arange(0, len(crossings.user_weight), BLOCK)
    ends = np.searchsorted(crossings.users[order], firsts[1:])
    return [UserBlock(int(first), places) for first, places in zip(firsts, np.split(order, ends), strict=True)]


def _inverse(crossings: Crossings, blocks: list[UserBlock]) -> torch.Tensor:
    """P, the inverse of what is left of the items' side once the users are eliminated."""
    rest = torch.diag(torch.from_numpy(crossings.item_weight))
    for block in blocks:
        rated = block.rated(crossings)
        weight = torch.from_numpy(crossings.user_weight[block.first :][: len(rated)])
        rest -= torch.sparse.mm(rated.t(), rated.to_dense() / weight.unsqueeze(1))
    return torch.cholesky_inverse(torch.linalg.cholesky(rest))


def _leverages_of_block(crossings: Crossings, block: UserBlock, inverse: torch.Tensor) -> Floats:
    owner, items = crossings.users[block.places] - block.first, crossings.items[block.places]
    met = torch.sparse.mm(block.rated(crossings), inverse).numpy()[owner, items]  # R P, at the pairs alone
    square = np.bincount(owner, crossings.times[block.places] * met, minlength=1)[owner]  # R P Rᵀ of the user
    weight = crossings.user_weight[owner + block.first]
    found: Floats = 1 / weight + square / weight**2 - 2 * met / weight + inverse.diagonal().numpy()[items]
    return found


def leverages_by_messages(crossings: Crossings) -> Floats:
    """h as if no two ways led from a person to a thing: what each side says to the other until nothing changes."""
    square = crossings.times**2
    to_user = np.zeros(len(square))
    for _ in range(MOST_ROUNDS):
        user = _without_own(crossings.users, crossings.user_weight, to_user)
        item = _without_own(crossings.items, crossings.item_weight, square / user)
        before, to_user = to_user, square / item
        if np.abs(to_user - before).max(initial=0.0) < SETTLED:
            break
    found: Floats = (user + item - 2 * crossings.times) / (user * item - square)
    return found


def _without_own(owners: Numbers, weight: Floats, messages: Floats) -> Floats:
    heard = np.bincount(owners, messages, minlength=len(weight))
    return weight[owners] - (heard[owners] - messages)


def alternate(
    users: Numbers, items: Numbers, rest: Floats, user_weight: Floats, item_weight: Floats, *, rounds: int
) -> tuple[Floats, Floats]:
    """Biases that fit `rest` of the ratings, by the exact solution of one side after the other until they settle."""
    user, item = np.zeros(len(user_weight)), np.zeros(len(item_weight))
    for _ in range(rounds):
        before = user
        item = np.bincount(items, rest - user[users], minlength=len(item)) / item_weight
        user = np.bincount(users, rest - item[items], minlength=len(user)) / user_weight
        if np.abs(user - before).max(initial=0.0) < SETTLED:
            break
    return user, item


def own_growth(users: Numbers, items: Numbers, user_weight: Floats, item_weight: Floats) -> tuple[Numbers, Floats]:
    """Distinct pairs as user · items + item, in order [P], and 1 / (1 − h) and (1 − g) / (N − 1) / (1 − h) [P, 2]."""
    pairs, times = np.unique(users * len(item_weight) + items, return_counts=True)
    user, item = np.divmod(pairs, len(item_weight))
    of_error = 1 / (1 - leverages(Crossings(user, item, times.astype(np.float64), user_weight, item_weight)))
    ones = np.ones(len(users))
    user_constant, item_constant = alternate(users, items, ones, user_weight, item_weight, rounds=MOST_ROUNDS)
    lacking = 1 - user_constant[user] - item_constant[item]
    return pairs, np.stack([of_error, of_error * lacking / max(len(users) - 1, 1)], 1)
