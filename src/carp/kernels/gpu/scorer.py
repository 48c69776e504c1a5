"""Ratings of pairs on a GPU from ready viewpoints and aspects, and the best items for people."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from carp.kernels.gpu.availability import NoFastPath, on_device, padded_size, usable_on
from carp.kernels.gpu.kernel_arguments import HighwayWeights, ScoringSizes, compiled_in
from carp.models.base import RatingModel
from carp.models.blocks import in_blocks
from carp.models.carp import Carp

COVERED: dict[str, Any] = {
    "projection": "shared",
    "logic_unit": "difference first",
    "capsule_bias": False,
    "routing_epsilon": 0.0,
    "highway": "paper",
}
MOST_LATENT = 64
MOST_HALF = 3e4  # half of what half precision holds
PAIRS_AT_ONCE = 1 << 23
CELLS_AT_ONCE = 1 << 25  # pairs of a rectangle of people and items
PEOPLE_AT_ONCE = 128


@dataclass(frozen=True)
class ScoreTiling:
    """How many pairs a program takes, its warps, the depth of its loads, and how precise products are.

    "half" has as many digits as "tf32" in half the bytes, but overflows sooner; "tf32x3" is nearly exact.
    """

    block: int = 64
    warps: int = 4
    stages: int = 3
    products: str = "half"


def covers_scoring_on_gpu(model: RatingModel, device: torch.device) -> bool:
    """Whether these kernels give this model's ratings on this device."""
    if type(model) is not Carp or model.vote_weight.dtype != torch.float32:
        return False
    small = padded_size(model.config.latent_size) <= MOST_LATENT
    usual = all(getattr(model.config, name) == value for name, value in COVERED.items())
    return small and usual and usable_on(device)


@torch.no_grad()
def score_pairs_gpu(
    model: RatingModel,
    user_sides: Tensor,
    item_sides: Tensor,
    users: Tensor,
    items: Tensor,
    cut: ScoreTiling | None = None,
) -> Tensor | None:
    """Ratings [B] of pairs that are given by rows of the sides; None where the kernels do not cover the model."""
    if not covers_scoring_on_gpu(model, user_sides.device):
        return None
    assert isinstance(model, Carp)
    scorer = Scorer(model, fitting(cut or ScoreTiling(), model, user_sides, item_sides))
    viewpoints, aspects = scorer.padded(user_sides), scorer.padded(item_sides)
    ratings = torch.empty(len(users), device=user_sides.device)

    def part(begin: int, end: int) -> Tensor:
        u, i = users[begin:end], items[begin:end]
        return model.combine(scorer.of_pairs(viewpoints, aspects, u, i), u, i, None)

    in_blocks(len(users), PAIRS_AT_ONCE, part, lambda begin, found: ratings[begin : begin + len(found)].copy_(found))
    return ratings


@torch.no_grad()
def top_items_gpu(
    model: RatingModel,
    user_sides: Tensor,
    item_sides: Tensor,
    users: Tensor,
    n: int,
    *,
    exclude: Tensor | None = None,
    cut: ScoreTiling | None = None,
) -> tuple[Tensor, Tensor] | None:
    """The n best items [users, n] of users that are given by their rows, and their ratings.

    `exclude` [E, 2] pairs a place in `users` with an item that does not count. None where the kernels do not cover the
    model.
    """
    if not covers_scoring_on_gpu(model, user_sides.device):
        return None
    assert isinstance(model, Carp)
    scorer = Scorer(model, fitting(cut or ScoreTiling(), model, user_sides, item_sides))
    viewpoints, aspects = scorer.padded(user_sides), scorer.padded(item_sides)
    count, n = len(aspects), min(n, len(aspects))
    best = torch.empty(len(users), n, dtype=torch.int64, device=aspects.device)
    ratings = torch.empty(len(users), n, device=aspects.device)
    every = torch.arange(count, device=aspects.device)

    def part(begin: int, end: int) -> tuple[Tensor, Tensor]:
        balance = scorer.of_rectangle(viewpoints[users[begin:end]], aspects)
        owners = users[begin:end].repeat_interleave(count)
        found = model.combine(balance.flatten(), owners, every.repeat(end - begin), None).view_as(balance)
        if exclude is not None:
            own = exclude[(exclude[:, 0] >= begin) & (exclude[:, 0] < end)]
            found[own[:, 0] - begin, own[:, 1]] = -math.inf
        top = found.topk(n)
        return top.values, top.indices

    def keep(begin: int, found: tuple[Tensor, Tensor]) -> None:
        ratings[begin : begin + len(found[0])], best[begin : begin + len(found[1])] = found

    at_once = max(1, min(PEOPLE_AT_ONCE, CELLS_AT_ONCE // max(count, 1)))
    in_blocks(len(users), at_once, part, keep)
    return best, ratings


def fitting(cut: ScoreTiling, model: Carp, user_sides: Tensor, item_sides: Tensor) -> ScoreTiling:
    """The same tiling, but in tf32 instead of half precision where a number could overflow or is not finite."""
    if cut.products != "half" or not len(user_sides) or not len(item_sides):
        return cut
    user, item, weight = (float(of.abs().max()) for of in (user_sides, item_sides, model.vote_weight))
    largest = max(user + item, user * item, weight * (user + 1))
    return cut if largest < MOST_HALF else replace(cut, products="tf32", stages=2)


class Scorer:
    """A model's pair weights in the kernels' layout."""

    def __init__(self, model: Carp, cut: ScoreTiling) -> None:
        self.config, self.cut = model.config, cut
        self.precision = "tf32" if cut.products == "half" else cut.products
        self.k, self.M = model.config.latent_size, model.config.viewpoints
        self.K = padded_size(self.k)
        more = self.K - self.k
        votes = model.vote_weight.detach().view(2, self.M**2, 2, self.k, self.k).transpose(-1, -2)
        kind = torch.float16 if cut.products == "half" else torch.float32
        self.weights = F.pad(votes, (0, more, 0, more)).to(kind).contiguous()  # capsule, unit, part, to, from
        squares = [F.pad(weight.detach(), (0, more, 0, more)) for weight in (model.highway_gate, model.highway)]
        lines = [F.pad(weight.detach(), (0, more)) for weight in (model.highway_gate_bias, model.highway_bias)]
        regression = F.pad(model.regression.detach(), (0, more))
        bias = model.regression_bias.detach()
        self.highway = HighwayWeights(squares[0], lines[0], squares[1], lines[1], regression, bias)

    def _sizes(self, *, dense: bool) -> ScoringSizes:
        config = self.config
        routing = config.routing_iterations, config.routing == "bi-agreement"
        return compiled_in(ScoringSizes(self.M, self.K, *routing, dense, self.cut.block, self.precision))

    def padded(self, sides: Tensor) -> Tensor:
        return F.pad(sides.float(), (0, self.K - self.k)).contiguous()

    def of_pairs(self, viewpoints: Tensor, aspects: Tensor, users: Tensor, items: Tensor) -> Tensor:
        """The balance [B] of pairs that are given by rows of the padded sides."""
        balance = torch.empty(len(users), device=viewpoints.device)
        grid = (math.ceil(len(users) / self.cut.block),)
        places = users.contiguous(), items.contiguous()
        self._launch(grid, *places, viewpoints, aspects, self.weights, self.weights, balance, len(users), dense=False)
        return balance

    def of_rectangle(self, viewpoints: Tensor, aspects: Tensor) -> Tensor:
        """The balance [people, items] of some people with all items."""
        from carp.kernels.gpu import triton_score as kernels

        people, cells = len(viewpoints), 2 * self.M**2
        folded = torch.empty(people, cells, self.K, self.K, dtype=self.weights.dtype, device=viewpoints.device)
        offsets = torch.empty(people, cells, self.K, device=viewpoints.device)
        with on_device(viewpoints.device):
            kernels.fold_people[(people, cells)](viewpoints, self.weights, folded, offsets, M=self.M, K=self.K)
        balance = torch.empty(people, len(aspects), device=viewpoints.device)
        grid = (math.ceil(len(aspects) / self.cut.block), people)
        self._launch(grid, aspects, aspects, viewpoints, aspects, folded, offsets, balance, len(aspects), dense=True)
        return balance

    def _launch(self, grid: tuple[int, ...], *arguments: Any, dense: bool) -> None:
        from carp.kernels.gpu import triton_score as kernels

        *first, balance, size = arguments
        try:
            with on_device(balance.device):
                kernels.balance_pairs[grid](
                    *first, self.highway, balance, size, self._sizes(dense=dense),
                    num_warps=self.cut.warps, num_stages=self.cut.stages,
                )  # fmt: skip
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception as error:  # a compiler or a driver may fail in any way: the plain path needs neither
            first_line = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise NoFastPath(f"the GPU's scoring kernel could not be run ({first_line})") from error
