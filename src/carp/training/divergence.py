"""Training that leads to what is no number: where it happened, and what is left."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from carp.errors import CarpError
from carp.models.base import RatingModel
from carp.training.company import Company


class DivergedError(CarpError):
    """Training went on with steps so large that its numbers overflowed."""


class FaultyBatch:
    """Finds the first batch whose gradients were no numbers, without keeping a device waiting in between."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.begun = 0
        self._sums: list[Tensor] = []
        self._batches: list[int] = []
        self._hook = optimizer.register_step_pre_hook(self._look)

    def _look(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        parameters = [one for group in optimizer.param_groups for one in group["params"]]
        grads = [one.grad for one in parameters if one.grad is not None and not one.grad.is_sparse]
        if grads:
            self._sums.append(min(grads, key=Tensor.numel).sum())
            self._batches.append(self.begun)

    def end(self) -> int | None:
        """Stop looking. The number of the batch, counted from 1, or None."""
        self._hook.remove()
        if not self._sums:
            return None
        faults = torch.isfinite(torch.stack(self._sums)).logical_not().nonzero().flatten()
        return self._batches[int(faults[0])] if len(faults) else None


def check_epoch(
    model: RatingModel,
    found: dict[str, float],
    epoch: int,
    batch: int | None,
    batches: int,
    kept: str | None,
    company: Company | None = None,
) -> None:
    """Refuse an epoch that led to what is no number: in an error, or in a weight, which may be another process's."""
    wrong = [f"the {name} became {value}" for name, value in found.items() if not math.isfinite(value)]
    wrong += [f"{name} is no number any more" for name, tensor in model.state_dict().items() if not _finite(tensor)]
    if company is not None and not company.all_agree(not wrong):
        wrong = wrong or ["a word that another process keeps is no number any more"]
    if wrong:
        raise diverged(wrong[0], epoch, batch, batches, kept)


def diverged(what: str, epoch: int, batch: int | None, batches: int, kept: str | None) -> DivergedError:
    place = f"epoch {epoch}" if batch is None else f"epoch {epoch}, batch {batch} of {batches}"
    rest = "nothing is kept" if kept is None else f"the checkpoint of epoch {epoch - 1} is kept"
    fix = "train again with a lower learning_rate"
    return DivergedError(f"training diverged in {place}: {what}; {rest}", where=kept, fix=fix)


def _finite(tensor: Tensor) -> bool:
    return not tensor.is_floating_point() or bool(torch.isfinite(tensor).all())
