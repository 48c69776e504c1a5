"""How parameters are laid out for the kernels: padded to powers of two, in the order in which kernels read them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from carp.kernels.gpu.availability import padded_size
from carp.models.carp import Carp

ALIGNED = 64  # numbers: 256 bytes


@dataclass(frozen=True)
class Shapes:
    """The model's sizes, as they are and as the kernels pad them."""

    n: int  # filters
    k: int  # latent size
    M: int  # viewpoints
    N: int
    K: int
    U: int  # logic units, padded
    window: int
    d: int
    rows: int  # of the word table

    @staticmethod
    def of(model: Carp) -> Shapes:
        config = model.config
        n, k, m = config.filters, config.latent_size, config.viewpoints
        return Shapes(
            n=n,
            k=k,
            M=m,
            N=padded_size(n),
            K=padded_size(k),
            U=padded_size(m * m),
            window=config.window,
            d=config.dimension,
            rows=len(model.embedding.weight),
        )

    def parts(self) -> dict[str, tuple[int, ...]]:
        """The shapes in the kernels' layout of all but the word table and the biases of users and items."""
        n, k, m = self.N, self.K, self.M
        return {
            "convolution": (self.d, 2, self.window, n),
            "convolution_bias": (2, n),
            "gate_context": (2, m, n, n),
            "gate_query": (2, m, n, n),
            "gate_bias": (2, m, n),
            "queries": (2, m, n),
            "projection": (2, k, n),
            "vote_weight": (2, m * m, 2, k, k),  # capsule, unit, difference or product, to, from
            "highway_gate": (2, k, k),
            "highway_gate_bias": (2, k),
            "highway": (2, k, k),
            "highway_bias": (2, k),
            "regression": (2, k),
            "regression_bias": (2,),
        }


def side_places(shapes: Shapes, place: dict[str, Tensor], side: int) -> dict[str, Tensor]:
    """Places in the kernels' layout of one side's parameters, in the parameters' own shapes."""
    n, k = shapes.n, shapes.k
    return {
        "convolution.weight": place["convolution"][:, side, :, :n].permute(1, 0, 2),
        "convolution.bias": place["convolution_bias"][side, :n],
        "gate_context": place["gate_context"][side, :, :n, :n],
        "gate_query": place["gate_query"][side, :, :n, :n],
        "gate_bias": place["gate_bias"][side, :, :n],
        "queries": place["queries"][side, :, :n],
        "projection": place["projection"][side, :k, :n],
    }


def places(shapes: Shapes, place: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same for every parameter but the word table, by its name in the model."""
    k = shapes.k
    votes = place["vote_weight"][..., :k, :k].permute(0, 1, 2, 4, 3)  # capsule, unit, part, from, to
    found = {"vote_weight": votes.reshape(2, shapes.M**2, 2 * k, k)}
    for side, name in enumerate(("user_side", "item_side")):
        found |= {f"{name}.{key}": value for key, value in side_places(shapes, place, side).items()}
    for name in ("highway_gate", "highway"):
        found[name] = place[name][:, :k, :k]
        found[f"{name}_bias"] = place[f"{name}_bias"][:, :k]
    found["regression"] = place["regression"][:, :k]
    found["regression_bias"] = place["regression_bias"]
    return found | {name: place[name] for name in ("user_bias", "item_bias") if name in place}


class Packed:
    """All parameters but the word table, twice: `native`, of which they become views, and `packed` for the kernels.

    `where` maps each place in `native` to its place in `packed`; the biases of users and items come last.
    """

    def __init__(self, model: Carp, device: torch.device) -> None:
        self.shapes = Shapes.of(model)
        parts = self.shapes.parts()
        own = dict(model.named_parameters())
        biases = [name for name in ("user_bias", "item_bias") if name in own]
        parts |= {name: tuple(own[name].shape) for name in biases}
        begins, total = _begins(parts)
        self.packed = torch.zeros(total + ALIGNED, device=device)  # the end takes what is only padding in `native`
        self.gradients = torch.zeros_like(self.packed)
        self.weights = {name: _part(self.packed, begins[name], shape) for name, shape in parts.items()}
        self.changes = {name: _part(self.gradients, begins[name], shape) for name, shape in parts.items()}
        numbers = torch.arange(total)
        found = places(self.shapes, {name: _part(numbers, begins[name], shape) for name, shape in parts.items()})
        order = [name for name in found if name not in biases] + biases
        self.begins, size = _begins({name: tuple(found[name].shape) for name in order})
        self.sparse_from = self.begins[biases[0]] if biases else size
        where = torch.full((size,), total, dtype=torch.int32)
        for name in order:
            _part(where, self.begins[name], found[name].shape).copy_(found[name])
        self.where = where.to(device)
        self.native = torch.zeros(size, device=device)
        self.squares = torch.zeros(size, device=device)
        self.parameters: dict[str, nn.Parameter] = {name: own[name] for name in order}

    def view(self, of: Tensor, name: str) -> Tensor:
        return _part(of, self.begins[name], self.parameters[name].shape)

    def refresh(self) -> None:
        """Copy `native` to `packed`."""
        self.packed[self.where.long()] = self.native


def _begins(parts: dict[str, tuple[int, ...]]) -> tuple[dict[str, int], int]:
    begins, total = {}, 0
    for name, shape in parts.items():
        begins[name] = total
        total += math.ceil(math.prod(shape) / ALIGNED) * ALIGNED
    return begins, total


def _part(of: Tensor, begin: int, shape: tuple[int, ...] | torch.Size) -> Tensor:
    return of[begin : begin + math.prod(shape)].view(shape)
