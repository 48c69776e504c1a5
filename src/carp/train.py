"""The one training loop: progress, early stop on validation, checkpoints, resuming to the same bits.

Every random choice of an epoch (order, dropout) is a function of the seed and the epoch's number, so a run that
was stopped and resumed goes through the same numbers as one that was not; generator states need not be kept.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from carp.errors import CarpError, DamagedError, UsageError
from carp.models.base import RatingModel
from carp.models.batch import Batch, TrainingData
from carp.models.predict import predict_pairs
from carp.storage import (
    append_json_line,
    load_arrays,
    read_json,
    save_arrays,
    sha256,
    sweep,
    write_bytes,
    write_json,
)

CHECKPOINT = "checkpoint.json"
LOG = "log.jsonl"


@dataclass(frozen=True)
class TrainingSettings:
    """How any model is trained; RMSprop with the paper's rate and batch."""

    learning_rate: float = 0.001
    batch_size: int = 100
    epochs: int = 40
    patience: int = 5  # epochs without a better validation error before stopping
    decay: float = 0.9  # of RMSprop's running square
    optimizer_epsilon: float = 1e-8
    weight_decay: float = 0.0


class Stopped(CarpError):
    """Training was interrupted; a checkpoint is there."""


class Watcher(Protocol):
    """Whoever wants to see training go on: a progress bar, a test.

    No loss comes with a batch: reading it would make a GPU wait. An epoch ends with its record, as in the log, and
    with `best`, whether its validation error is the lowest so far.
    """

    def epoch_begins(self, epoch: int, batches: int) -> None: ...
    def batch_done(self) -> None: ...
    def epoch_ends(self, record: dict[str, Any]) -> None: ...


class Silent:
    def epoch_begins(self, epoch: int, batches: int) -> None:
        pass

    def batch_done(self) -> None:
        pass

    def epoch_ends(self, record: dict[str, Any]) -> None:
        pass


@dataclass
class Progress:
    """Where training stands after an epoch."""

    epoch: int = 0
    best_epoch: int = 0
    best_error: float = math.inf
    history: list[dict[str, Any]] = field(default_factory=list)

    def finished(self, settings: TrainingSettings) -> bool:
        return self.epoch >= settings.epochs or self.epoch - self.best_epoch >= settings.patience


def choose_device(name: str = "auto") -> torch.device:
    """`auto`, `cpu`, `cuda` or `cuda:N`: nothing else is tested, and nothing else is taken."""
    wanted = re.fullmatch("auto|cpu|cuda(?::([0-9]{1,4}))?", name)
    if not wanted:
        raise UsageError(f"there is no device {name!r}", where="--device", mend="use auto, cpu, cuda or cuda:N")
    usable = torch.cuda.is_available()
    if name == "auto":
        return torch.device("cuda" if usable else "cpu")
    if name == "cpu":
        return torch.device("cpu")
    if not usable:
        raise UsageError("no GPU can be used here", where="--device", mend="use --device cpu; carp doctor says more")
    if wanted[1] is None:
        return torch.device("cuda")
    number, there = int(wanted[1]), torch.cuda.device_count()
    if number >= there:
        mend = f"use one from cuda:0 to cuda:{there - 1}, or --device cpu"
        raise UsageError(f"there is no GPU {number}", where="--device", mend=mend)
    return torch.device("cuda", number)


@contextlib.contextmanager
def repeatable() -> Iterator[None]:
    """The same operations in the same order: bits repeat on the same machine, thread count and library."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    switches: Any = torch.utils.deterministic
    before = torch.are_deterministic_algorithms_enabled(), switches.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    switches.fill_uninitialized_memory = False  # nothing here reads memory it has not written
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0])
        switches.fill_uninitialized_memory = before[1]


def make_optimizer(model: RatingModel, settings: TrainingSettings) -> torch.optim.Optimizer:
    return torch.optim.RMSprop(
        model.parameters(),
        lr=settings.learning_rate,
        alpha=settings.decay,
        eps=settings.optimizer_epsilon,
        weight_decay=settings.weight_decay,
    )


def train(
    model: RatingModel,
    data: TrainingData,
    settings: TrainingSettings,
    *,
    seed: int = 0,
    device: torch.device | None = None,
    folder: Path | None = None,
    identity: str = "",
    resume: bool = False,
    watcher: Watcher | None = None,
) -> Progress:
    """Fit a model whose tables are made; on return it holds the weights of the best validation epoch.

    With a `folder`, a checkpoint and the log are written there after every epoch. `identity` names what is being
    trained on what; a checkpoint with another identity is refused.
    """
    device = device or choose_device()
    watcher = watcher or Silent()
    model.to(device).train()
    with repeatable():
        checkpoint = Checkpoint(folder, identity) if folder is not None else None
        if checkpoint is not None:
            checkpoint.sweep()
        optimizer = make_optimizer(model, settings) if model.learns else None
        if checkpoint is not None and resume and checkpoint.exists():
            progress, best = checkpoint.load(model, optimizer)
        else:
            model.start(data)
            progress, best = Progress(), copy_of(model)
            if checkpoint is not None:
                checkpoint.save(model, best, optimizer, progress)
        if optimizer is not None:
            best = _epochs(model, data, settings, optimizer, progress, best, seed, device, checkpoint, watcher)
            model.load_state_dict(best)
    model.eval()
    return progress


def _epochs(
    model: RatingModel,
    data: TrainingData,
    settings: TrainingSettings,
    optimizer: torch.optim.Optimizer,
    progress: Progress,
    best: dict[str, Tensor],
    seed: int,
    device: torch.device,
    checkpoint: Checkpoint | None,
    watcher: Watcher,
) -> dict[str, Tensor]:
    try:
        while not progress.finished(settings):
            record = _one_epoch(model, data, settings, optimizer, seed, progress.epoch + 1, device, watcher)
            progress.epoch += 1
            progress.history.append(record)
            if record["valid_mse"] < progress.best_error:
                progress.best_epoch, progress.best_error = progress.epoch, record["valid_mse"]
                best = copy_of(model)
            if checkpoint is not None:
                checkpoint.save(model, best, optimizer, progress)
            watcher.epoch_ends({**record, "best": progress.best_epoch == progress.epoch})
    except KeyboardInterrupt:
        if checkpoint is None:
            raise
        raise Stopped(
            f"training was interrupted after {progress.epoch} whole epochs; a checkpoint is kept",
            where=str(checkpoint.folder),
            mend="run the same command with --resume to go on",
        ) from None
    return best


def _one_epoch(
    model: RatingModel,
    data: TrainingData,
    settings: TrainingSettings,
    optimizer: torch.optim.Optimizer,
    seed: int,
    epoch: int,
    device: torch.device,
    watcher: Watcher,
) -> dict[str, Any]:
    watcher.epoch_begins(epoch, math.ceil(len(data.train) / settings.batch_size))
    torch.manual_seed(int(np.random.default_rng([seed, epoch, 1]).integers(2**62)))  # dropout of this epoch
    began = time.monotonic()
    model.train()

    def batches() -> Iterator[Batch]:
        for batch in data.training_batches(settings.batch_size, seed, epoch, model.needs):
            yield batch.to(device)
            watcher.batch_done()

    loss = model.train_epoch(batches(), optimizer)
    trained = time.monotonic()
    if not math.isfinite(loss):
        raise CarpError(
            f"the loss became {loss} in epoch {epoch}: training diverged", mend="lower it with --set learning_rate=..."
        )
    guess = predict_pairs(model, data, data.valid, device)
    error = float(np.square(guess - data.valid.ratings, dtype=np.float64).mean())
    seconds = {"seconds": round(trained - began, 3), "valid_seconds": round(time.monotonic() - trained, 3)}
    return {"epoch": epoch, "loss": loss, "valid_mse": error, **seconds}


def copy_of(model: RatingModel) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


@dataclass
class Checkpoint:
    """One file of tensors under a name of its own, and a small JSON file that names it: renaming that is the save.

    Whatever moment a process dies in, the JSON names a whole file with the right sha256.
    """

    folder: Path
    identity: str

    def exists(self) -> bool:
        return (self.folder / CHECKPOINT).exists()

    def sweep(self) -> None:
        """Remove what killed processes left half written."""
        for name in ("epoch-*.safetensors", CHECKPOINT, LOG):
            sweep(self.folder, name)

    def save(
        self,
        model: RatingModel,
        best: dict[str, Tensor],
        optimizer: torch.optim.Optimizer | None,
        progress: Progress,
    ) -> None:
        arrays = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
        arrays |= {f"best.{name}": tensor for name, tensor in best.items()}
        for place, state in (optimizer.state_dict()["state"] if optimizer else {}).items():
            arrays |= {f"optimizer.{place}.{name}": torch.as_tensor(value) for name, value in state.items()}
        file = self.folder / f"epoch-{progress.epoch:04d}.safetensors"
        save_arrays(file, {name: tensor.detach().cpu().numpy() for name, tensor in arrays.items()})
        lines = [dict(record) for record in progress.history]
        self._log(lines)
        facts = {"file": file.name, "sha256": sha256(file), "identity": self.identity, "progress": _finite(progress)}
        write_json(self.folder / CHECKPOINT, {**facts, "check": _digest(facts)})
        self._keep_only(file)

    def _keep_only(self, file: Path) -> None:
        for other in self.folder.glob("epoch-*.safetensors"):
            if other != file:
                other.unlink(missing_ok=True)

    def _log(self, lines: list[dict[str, Any]]) -> None:
        """The log holds each epoch once, also after a kill between log and checkpoint."""
        log = self.folder / LOG
        if lines and log.exists() and len(log.read_bytes().splitlines()) == len(lines) - 1:
            append_json_line(log, lines[-1])
        else:
            write_bytes(log, "".join(json.dumps(line) + "\n" for line in lines).encode())

    def load(self, model: RatingModel, optimizer: torch.optim.Optimizer | None) -> tuple[Progress, dict[str, Tensor]]:
        facts = read_json(self.folder / CHECKPOINT)
        again = "remove the folder and train without --resume"
        if not isinstance(facts, dict) or facts.pop("check", None) != _digest(facts):
            raise DamagedError("the checkpoint is damaged", where=str(self.folder / CHECKPOINT), mend=again)
        if facts.get("identity") != self.identity:
            raise UsageError(
                "the checkpoint is of another training: corpus, split, model or settings differ",
                where=str(self.folder),
                mend="give the same settings, or " + again,
            )
        file = self.folder / str(facts["file"])
        if not file.is_file() or sha256(file) != facts["sha256"]:
            raise DamagedError("the checkpoint is damaged", where=str(file), mend=again)
        self._keep_only(file)
        tensors = {name: torch.from_numpy(array.copy()) for name, array in load_arrays(file).items()}
        model.load_state_dict(_part(tensors, "model."))
        if optimizer is not None:
            state: dict[int, dict[str, Tensor]] = {}
            for name, tensor in _part(tensors, "optimizer.").items():
                place, _, key = name.partition(".")
                state.setdefault(int(place), {})[key] = tensor
            optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
        progress = facts["progress"]
        if progress["best_error"] is None:
            progress["best_error"] = math.inf
        device = next(iter(model.state_dict().values())).device
        return Progress(**progress), {n: t.to(device) for n, t in _part(tensors, "best.").items()}


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _digest(facts: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _finite(progress: Progress) -> dict[str, Any]:
    facts = asdict(progress)
    return {**facts, "best_error": facts["best_error"] if math.isfinite(facts["best_error"]) else None}
