"""torch's RMSprop in C: one sweep over all parameters, on the optimizer's own state."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from carp.kernels.cpu import compiler
from carp.kernels.cpu.compiler import KernelLibrary


class NativeRmsprop:
    """`step` does what the optimizer's own would do."""

    def __init__(self, optimizer: torch.optim.Optimizer, loaded: KernelLibrary) -> None:
        self.optimizer, self.library = optimizer, loaded

    @classmethod
    def of(cls, optimizer: torch.optim.Optimizer) -> NativeRmsprop | None:
        groups = optimizer.param_groups
        plain = type(optimizer) is torch.optim.RMSprop and len(groups) == 1
        loaded = compiler.library()
        if not plain or loaded is None or any(groups[0][name] for name in ("momentum", "centered", "weight_decay")):
            return None
        tensors = groups[0]["params"]
        single = all(p.dtype == torch.float32 and p.device.type == "cpu" and p.is_contiguous() for p in tensors)
        return cls(optimizer, loaded) if single and not groups[0]["maximize"] else None

    def step(self) -> None:
        settings = self.optimizer.param_groups[0]
        tensors = [p for p in settings["params"] if p.grad is not None]
        grads = [p.grad.contiguous() for p in tensors]
        counts = np.array([grad.numel() for grad in grads])
        columns = tensors, [self._square(p) for p in tensors], grads
        places = [np.array([tensor.data_ptr() for tensor in column]) for column in columns]
        self.library.carp_rmsprop(
            *(column.ctypes.data for column in (*places, counts)), len(tensors),
            settings["lr"], settings["alpha"], settings["eps"],
        )  # fmt: skip

    def _square(self, parameter: Tensor) -> Tensor:
        state = self.optimizer.state[parameter]
        if not state:
            state["step"] = torch.zeros(())
            state["square_avg"] = torch.zeros_like(parameter)
        state["step"] += 1
        square: Tensor = state["square_avg"]
        return square
