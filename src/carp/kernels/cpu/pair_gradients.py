"""The gradients of a batch's pairs from ready viewpoints and aspects: forward and backward in C, the loss in torch.

The loss depends on a pair through its balance and the lengths of its two capsules alone. So autograd gives their
gradients, and pair_back.c takes these on to the sides and to all weights in between. Pairs are cut into pieces, whose
gradients are added in order: the bits do not depend on which thread did what.
"""

from __future__ import annotations

import ctypes
from math import prod

import torch
from torch import Tensor

from carp.kernels.cpu import compiler
from carp.kernels.cpu.balances_c import LaidOut, Weights
from carp.kernels.cpu.compiler import KernelLibrary
from carp.kernels.cpu.threads import workers
from carp.kernels.cpu.viewpoints import Store
from carp.models.base import Prediction
from carp.models.batch import Batch
from carp.models.carp import Carp

PIECE = 48  # pairs a thread takes at once: whole vectors on any processor
MOST_ROWS = 512  # the same number as in capsules.h
SIDES = "embedding.", "user_side.", "item_side."


class PairWeights(ctypes.Structure):
    """`pair_weights` of pair_back.c."""

    _fields_ = [("forward", Weights), ("votes", ctypes.c_void_p), ("highway", ctypes.c_void_p)]


class PairGradients(ctypes.Structure):
    """`gradients` of pair_back.c."""

    names = "votes", "highway", "highway_bias", "regression", "regression_bias", "capsule_bias"
    _fields_ = [(name, ctypes.c_void_p) for name in names]


def covers_pair_gradients(model: Carp) -> bool:
    """Whether the C has the gradients of this form of the model."""
    config = model.config
    plain = config.routing_epsilon == 0 and config.routing_gradient == "all" and config.dropout_on == "features"
    plain = plain and config.logic_unit != "appended"
    short = 2 * config.latent_size <= MOST_ROWS and model.vote_weight.shape[2] <= MOST_ROWS
    return plain and short and model.vote_weight.dtype == torch.float32 and model.vote_weight.device.type == "cpu"


def learn_pairs(model: Carp, batch: Batch, sides: tuple[Tensor, Tensor]) -> tuple[float, tuple[Tensor, Tensor]] | None:
    """The loss and the gradients of both sides [B, M, g]; those of the parameters behind the sides go into `.grad`.

    None where the model is not covered or there is no C.
    """
    loaded = compiler.library() if covers_pair_gradients(model) else None
    if loaded is None:
        return None
    pairs = PairPass(model, loaded, *(side.detach().contiguous() for side in sides))
    balance, lengths = (tensor.requires_grad_() for tensor in pairs.forward())
    rest = {name: p for name, p in model.named_parameters() if not name.startswith(SIDES)}
    others = [parameter for name, parameter in rest.items() if name not in PairPass.taught]
    with torch.enable_grad():
        rating = model.combine(balance, batch.users, batch.items, batch.ratings)
        loss = model.loss(batch, Prediction(rating, {"lengths": lengths}))
        d_balance, d_lengths, *found = torch.autograd.grad(loss, [balance, lengths, *others], allow_unused=True)
    for parameter, grad in zip(others, found, strict=True):
        parameter.grad = grad
    grads = pairs.backward(d_balance, d_lengths)
    for name, grad in pairs.named().items():
        rest[name].grad = grad
    return float(loss.detach()), grads


class PairPass:
    """A batch's pairs forward and backward."""

    taught = (
        *("vote_weight", "capsule_bias", "highway_gate", "highway_gate_bias", "highway", "highway_bias"),
        *("regression", "regression_bias"),
    )

    def __init__(self, model: Carp, loaded: KernelLibrary, viewpoints: Tensor, aspects: Tensor) -> None:
        self.model, self.library, self.sides = model, loaded, (viewpoints, aspects)
        self.laid_out = LaidOut(model, loaded)
        self.turned = self.laid_out.votes.transpose(1, 2).contiguous(), self.laid_out.highway  # for going backward
        self.weights = PairWeights(self.laid_out.weights, *(tensor.data_ptr() for tensor in self.turned))
        self.count = len(viewpoints)
        self.pieces = range(-(-self.count // PIECE))
        k, m, wide = model.config.latent_size, model.config.viewpoints, self.laid_out.wide
        shapes = (m * m, 2 * self.laid_out.g, wide), (2, k, wide), (2, 2 * k), (2, k), (2,), (2, k)
        self.shapes = dict(zip(PairGradients.names, shapes, strict=True))
        numbers = loaded.carp_pair_room(ctypes.byref(self.weights)) * (PIECE // loaded.lanes)
        whole = self._room("pairs kept", len(self.pieces) * numbers + loaded.lanes)
        begin = -whole.data_ptr() // 4 % loaded.lanes  # at a whole vector's address
        self.kept = whole[begin:][: len(self.pieces) * numbers].view(-1, numbers)

    def _room(self, name: str, count: int) -> Tensor:
        return Store.of_thread().take(name, count, self.sides[0])

    def forward(self) -> tuple[Tensor, Tensor]:
        """Balances [B] and lengths [B, 2]."""
        balance, lengths = self.sides[0].new_empty(self.count), self.sides[0].new_empty(self.count, 2)

        def piece(number: int) -> None:
            some = slice(number * PIECE, (number + 1) * PIECE)
            given = [side[some].data_ptr() for side in self.sides]
            found = self.kept[number].data_ptr(), balance[some].data_ptr(), lengths[some].data_ptr()
            self.library.carp_pair_forward(ctypes.byref(self.weights), *given, len(balance[some]), *found)

        workers().run(piece, self.pieces)
        return balance, lengths

    def backward(self, d_balance: Tensor, d_lengths: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients of both sides; after that, `named` gives those of the weights."""
        d_balance, d_lengths = d_balance.contiguous(), d_lengths.contiguous()
        found = torch.empty_like(self.sides[0]), torch.empty_like(self.sides[1])
        sizes = [prod(shape) for shape in self.shapes.values()]
        parts = self._room("pair gradients", len(self.pieces) * sum(sizes)).view(len(self.pieces), sum(sizes))

        def piece(number: int) -> None:
            some = slice(number * PIECE, (number + 1) * PIECE)
            into = PairGradients(*(part.data_ptr() for part in parts[number].zero_().split_with_sizes(sizes)))
            given = d_balance[some].data_ptr(), d_lengths[some].data_ptr(), len(d_balance[some])
            out = (side[some].data_ptr() for side in found)
            kept = self.kept[number].data_ptr()
            self.library.carp_pair_back(ctypes.byref(self.weights), *given, kept, *out, ctypes.byref(into))

        workers().run(piece, self.pieces)
        self.summed = parts.sum(0).split_with_sizes(sizes)
        return found

    def named(self) -> dict[str, Tensor]:
        """The weights' gradients by the names of the model's parameters."""
        by_name = zip(self.shapes.items(), self.summed, strict=True)
        votes, highway, bias, regression, regression_bias, capsule_bias = (t.view(s) for (_, s), t in by_name)
        k, sign = self.model.config.latent_size, self.laid_out.sign
        if self.model.config.logic_unit == "product first":
            votes = votes.roll(self.laid_out.g, 1)
        turned = highway[:, :, : 2 * k].transpose(1, 2)  # [2, 2k, k]
        found = {
            "vote_weight": votes[:, :, : 2 * k].reshape(*votes.shape[:2], 2, k).permute(2, 0, 1, 3).contiguous(),
            "highway_gate": sign * turned[:, :k].contiguous(),
            "highway_gate_bias": sign * bias[:, :k],
            "highway": turned[:, k:].contiguous(),
            "highway_bias": bias[:, k:].contiguous(),
            "regression": regression,
            "regression_bias": regression_bias,
        }
        return found if self.model.capsule_bias is None else {**found, "capsule_bias": capsule_bias}
