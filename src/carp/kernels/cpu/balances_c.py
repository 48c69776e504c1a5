"""Balances of pairs in C, for models in single precision: the arguments of judge.c."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from carp.kernels.cpu import compiler
from carp.kernels.cpu.compiler import KernelLibrary
from carp.kernels.cpu.viewpoints import Store
from carp.models.carp import Carp


class Weights(ctypes.Structure):
    """`judge_weights` of capsules.h."""

    _fields_ = [
        *((name, ctypes.c_long) for name in ("m", "g", "k", "iterations", "wide")),
        ("bi_agreement", ctypes.c_int),
        *((name, ctypes.c_void_p) for name in ("votes", "capsule_bias", "highway", "highway_bias")),
        *((name, ctypes.c_void_p) for name in ("regression", "regression_bias")),
    ]


class LaidOut:
    """A model's weights between its sides and its ratings, laid out for C."""

    def __init__(self, model: Carp, loaded: KernelLibrary) -> None:
        config = model.config
        votes = model.vote_weight.detach().permute(1, 2, 0, 3).flatten(2)  # [M·M, 2g, 2k]
        g, rows = votes.shape[1] // 2, votes.shape[2]
        self.votes = votes.roll(g, 1) if config.logic_unit == "product first" else votes
        wide = loaded.filled_up(rows)
        sign = -1 if config.highway == "reversed" else 1  # 1 − σ(z) = σ(−z)
        gate, gate_bias = sign * model.highway_gate.detach(), sign * model.highway_gate_bias.detach()
        self.highway = torch.cat([gate, model.highway.detach()], 1)  # [2, 2k, k]
        bias = torch.cat([gate_bias, model.highway_bias.detach()], 1)
        tensors = [torch.nn.functional.pad(self.votes, (0, wide - rows)), model.capsule_bias]
        tensors += [self.highway.transpose(1, 2), bias, model.regression, model.regression_bias]
        # C gets addresses, which keep nothing alive.
        self.kept = [None if t is None else t.detach().contiguous() for t in tensors]
        places = [None if t is None else t.data_ptr() for t in self.kept]
        self.g, self.wide, self.sign = g, wide, sign
        sizes = config.viewpoints, g, config.latent_size, config.routing_iterations, wide
        self.weights = Weights(*sizes, int(config.routing == "bi-agreement"), *places)


class NativeJudge:
    """Balances of pairs that are given by the numbers of their user and item."""

    def __init__(self, model: Carp, loaded: KernelLibrary) -> None:
        self.laid_out = LaidOut(model, loaded)
        self.weights = self.laid_out.weights
        self.library, self.room = loaded, loaded.carp_score_room(ctypes.byref(self.weights))

    @classmethod
    def of(cls, model: Carp, *sides: Tensor) -> NativeJudge | None:
        """None where there is no C for this model or for these sides."""
        if any(t.dtype != torch.float32 or t.device.type != "cpu" for t in (model.vote_weight, *sides)):
            return None
        loaded = compiler.library()
        found = None if loaded is None else cls(model, loaded)
        return None if found is None or found.room < 0 else found  # C has no room for very long vectors

    def gathered(self, numbers: tuple[Tensor, Tensor], below: tuple[int, int]) -> tuple[int, Tensor]:
        """The side with fewer different numbers (0: users, 1: items), and the pairs' places ordered by that side."""
        users, items = (self._grouped(*side) for side in zip(numbers, below, strict=True))
        return (0, users[1]) if users[0] <= items[0] else (1, items[1])

    def _grouped(self, numbers: Tensor, below: int) -> tuple[int, Tensor]:
        order, starts = torch.empty_like(numbers), numbers.new_empty(below + 1)
        places = starts.data_ptr(), order.data_ptr()
        different = self.library.carp_group(numbers.data_ptr(), len(numbers), below, *places)
        if different < 0:
            raise IndexError(f"a pair's number is not one of the {below} sides")
        return different, order

    def score(
        self, sides: tuple[Tensor, Tensor], numbers: tuple[Tensor, Tensor], folded: int, order: Tensor, balance: Tensor
    ) -> None:
        """Balances of the pairs at the places `order`, in which pairs that share the folded side follow each other.

        All tensors are contiguous; `folded` is 0 for users, 1 for items.
        """
        room = Store.of_thread().take("judge", self.room, balance)
        given = (tensor.data_ptr() for tensor in (*sides, *numbers))
        sizes = len(sides[0]), len(sides[1]), min(len(numbers[0]), len(numbers[1]), balance.numel())
        found = order.data_ptr(), len(order), room.data_ptr(), balance.data_ptr()
        self.library.carp_score(ctypes.byref(self.weights), *given, *sizes, folded, *found)
