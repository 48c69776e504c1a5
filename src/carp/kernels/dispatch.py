"""Chooses the fast path for a model on a device. Each function returns None where there is only the plain path."""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING, Any, Protocol

from carp.errors import SlowerWarning

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch
    from torch import Tensor

    from carp.models.base import RatingModel
    from carp.models.batch import Pairs, TrainingData
    from carp.models.carp import Carp, Viewpoints
    from carp.reviews.documents import Documents


_TOLD: set[str] = set()

__all__ = ["Trainer", "fast_encode_documents", "fast_score_pairs", "native_kernels", "trainer_for"]


class Trainer(Protocol):
    """Trains epoch by epoch as the plain loop does; all random choices follow from the seed and the epoch."""

    def epoch(self, seed: int, epoch: int, watcher: Any) -> float:
        """One pass over the training pairs; the mean loss.

        A trainer that sees the loss of a batch become no number raises FloatingPointError with the batch's number.
        """


def trainer_for(
    model: RatingModel, data: TrainingData, settings: Any, device: torch.device, optimizer: torch.optim.Optimizer
) -> Trainer | None:
    """A fast trainer for this model on this device, or None where only the plain loop can train it.

    `settings` are TrainingSettings. Where several processes share the training, each computes its rows of every batch.
    After each epoch the optimizer's state is what the plain loop would have left, so that either can continue from a
    checkpoint.
    """
    from carp.models.carp import Carp
    from carp.models.divided_table import is_divided

    if type(model) is not Carp or is_divided(model):  # a subclass may have its own forward or loss
        return None
    try:
        if gpu_kernels_wanted(device):
            from carp.kernels.gpu.gpu_trainer import gpu_trainer
            from carp.models.batch_share import sharing

            others = sharing().others
            trainer: Trainer | None = gpu_trainer(model, data, settings, device, optimizer, others=others)
            return trainer
        return _cpu_trainer(model, data, settings, device, optimizer)
    except Exception as problem:  # the plain path does not depend on what failed here
        give_way("training", problem)
        return None


def native_kernels(model: RatingModel, device: torch.device) -> str | None:
    """Which code trains this model on the CPU: compiled here, packaged or torch's; None where there is one way only."""
    from carp.kernels.cpu.compiler import library
    from carp.models.carp import Carp

    if type(model) is not Carp or device.type != "cpu":
        return None
    found = library()
    return "torch" if found is None else "packaged" if found.packaged else "compiled"


def gpu_kernels_wanted(device: torch.device) -> bool:
    """Whether the device is a GPU; CARP_GPU_KERNELS=0 refuses its kernels, for a comparison with the plain path."""
    return device.type == "cuda" and os.environ.get("CARP_GPU_KERNELS") != "0"


def give_way(what: str, problem: Exception) -> None:
    """Warn in one line why the plain path is taken; a process gives the same reason once."""
    from carp.kernels.gpu.availability import NoTriton

    reason = " ".join(str(problem).split()) or type(problem).__name__
    line = f"{what} takes the plain path: {reason[:300]}"
    told = reason if isinstance(problem, NoTriton) else line  # without Triton, one line serves for all paths
    if told not in _TOLD:
        _TOLD.add(told)
        warnings.warn(line, SlowerWarning, stacklevel=3)


def _cpu_trainer(
    model: Any, data: TrainingData, settings: Any, device: torch.device, optimizer: torch.optim.Optimizer
) -> Trainer | None:
    from carp.kernels.cpu.viewpoints import covers_encoding

    if device.type != "cpu" or settings.weight_decay or not covers_encoding(model.config):
        return None
    from carp.kernels.cpu.cpu_trainer import CpuTrainer
    from carp.models.batch_share import sharing

    return CpuTrainer(model, data, settings.batch_size, optimizer, sharing().others)


def fast_encode_documents(
    encode: Callable[[Tensor, Tensor], Tensor], documents: Documents, device: torch.device
) -> Tensor | None:
    """The sides of all documents, where `encode` is the `encode_users` or `encode_items` of a model that is covered."""
    from carp.models.carp import Carp
    from carp.models.divided_table import is_divided

    model = getattr(encode, "__self__", None)
    if type(model) is not Carp or is_divided(model) or encode not in (model.encode_users, model.encode_items):
        return None
    if (model.training and model.config.dropout) or model.embedding.weight.device.type != device.type:
        return None
    side = model.user_side if encode == model.encode_users else model.item_side
    if gpu_kernels_wanted(device):
        return _encode_on_gpu(model, side, documents, device)
    from carp.kernels.cpu.encode_all import encode_side
    from carp.kernels.cpu.viewpoints import covers_encoding

    if device.type != "cpu" or not covers_encoding(model.config):
        return None
    return encode_side(side, model.embedding.weight, documents)


def _encode_on_gpu(model: Carp, side: Viewpoints, documents: Documents, device: torch.device) -> Tensor | None:
    try:
        from carp.kernels.gpu.encoder import covers_encoding_on_gpu, encode_side_gpu

        if not covers_encoding_on_gpu(model, device):
            return None
        return encode_side_gpu(side, model.embedding.weight, documents, device)
    except Exception as problem:  # the plain path does not depend on what failed here
        give_way("encoding documents", problem)
        return None


def fast_score_pairs(model: RatingModel, users: Tensor, items: Tensor, pairs: Pairs) -> Tensor | None:
    """Ratings of pairs from sides that are ready."""
    from carp.models.carp import Carp

    if type(model) is not Carp:
        return None
    if gpu_kernels_wanted(users.device):
        return _score_on_gpu(model, users, items, pairs)
    from carp.kernels.cpu.pair_scores import covers_scoring, score_numbered

    if users.device.type != "cpu" or not covers_scoring(model):
        return None
    return score_numbered(model, users, items, pairs.users, pairs.items)


def _score_on_gpu(model: RatingModel, users: Tensor, items: Tensor, pairs: Pairs) -> Tensor | None:
    import torch

    try:
        from carp.kernels.gpu.scorer import score_pairs_gpu

        u, i = (torch.from_numpy(column).to(users.device) for column in (pairs.users, pairs.items))
        return score_pairs_gpu(model, users, items, u, i)
    except Exception as problem:  # the plain path does not depend on what failed here
        give_way("scoring", problem)
        return None
