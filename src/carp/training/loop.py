"""The one training loop: progress, early stop on validation, checkpoints, resuming to the same bits.

Every random choice of an epoch (order, dropout) is a function of the seed and the epoch's number, so a run that
was stopped and resumed goes through the same numbers as one that was not; generator states need not be kept.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from carp.errors import CarpError, UsageError
from carp.kernels.dispatch import Trainer, native_kernels, trainer_for
from carp.models.base import RatingModel
from carp.models.batch import Batch, TrainingData
from carp.models.batch_share import shared_with
from carp.models.predict import predict_pairs
from carp.storage import sole_writer
from carp.training.card_memory import check_room
from carp.training.checkpoint import Checkpoint, TrainingState, copy_of, state_of
from carp.training.company import Company, processes_of_card
from carp.training.divergence import FaultyBatch, check_epoch, diverged
from carp.training.table_division import TableDivision, WordTable


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
    settling_share: float = 0.0  # of `epochs`, the last ones, at a tenth of the rate: large steps never settle

    def rate(self, epoch: int) -> float:
        """The learning rate of an epoch, which are counted from 1.

        >>> settings = TrainingSettings(learning_rate=0.002, epochs=24, settling_share=0.15)
        >>> [settings.rate(epoch) for epoch in (1, 20, 21, 24)]
        [0.002, 0.002, 0.0002, 0.0002]
        """
        return self.learning_rate * (0.1 if epoch > self.epochs * (1 - self.settling_share) else 1.0)


class Stopped(CarpError):
    """Training was interrupted; a checkpoint is there."""


class Watcher(Protocol):
    """Sees training go on: a progress bar, a test.

    No loss comes with a batch: reading it would make a GPU wait. An epoch ends with its record, as in the log, and
    with `best`, whether its validation error is the lowest so far; where no pair is held out, there is neither.
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


def choose_device(name: str = "auto") -> torch.device:
    """`auto`, `cpu`, `cuda` or `cuda:N`: nothing else is tested, and nothing else is taken."""
    wanted = re.fullmatch("auto|cpu|cuda(?::([0-9]{1,4}))?", name)
    if not wanted:
        raise UsageError(f"there is no device {name!r}", where="--device", fix="use auto, cpu, cuda or cuda:N")
    usable = torch.cuda.is_available()
    if name == "auto":
        return torch.device("cuda" if usable else "cpu")
    if name == "cpu":
        return torch.device("cpu")
    if not usable:
        raise UsageError("no GPU can be used here", where="--device", fix="use --device cpu; carp doctor says more")
    if wanted[1] is None:
        return torch.device("cuda")
    number, there = int(wanted[1]), torch.cuda.device_count()
    if number >= there:
        fix = f"use one from cuda:0 to cuda:{there - 1}, or --device cpu"
        raise UsageError(f"there is no GPU {number}", where="--device", fix=fix)
    return torch.device("cuda", number)


@contextlib.contextmanager
def repeatable() -> Iterator[None]:
    """The same operations in the same order: bits repeat on the same machine, thread count and library."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    switches: Any = torch.utils.deterministic
    before = torch.get_deterministic_debug_mode(), switches.fill_uninitialized_memory
    # What use_deterministic_algorithms(True) does, without loading torch's compiler, which takes seconds.
    torch.set_deterministic_debug_mode("error")
    switches.fill_uninitialized_memory = False  # nothing here reads memory it has not written
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(before[0])
        switches.fill_uninitialized_memory = before[1]


def make_optimizer(model: RatingModel, settings: TrainingSettings) -> torch.optim.Optimizer:
    return torch.optim.RMSprop(
        model.parameters(),
        lr=settings.learning_rate,
        alpha=settings.decay,
        eps=settings.optimizer_epsilon,
        weight_decay=settings.weight_decay,
    )


def circumstances(model: RatingModel, device: torch.device, division: TableDivision | None = None) -> dict[str, Any]:
    """What the last bits of a training depend on, besides what it is trained on."""
    divided = division is not None and division.tables
    native = None if divided else native_kernels(model, device)
    threads = torch.get_num_threads() if device.type == "cpu" else None
    company = Company.present()
    found = {"device": device.type, "threads": threads, "kernels": native, "torch": torch.__version__}
    return {**found, "processes": 1 if company is None else company.size}


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
    exactly: int | None = None,
    begin: Callable[[], None] | None = None,
    word_table: WordTable = "auto",
) -> TrainingState:
    """Fit a model whose tables are made; on return it holds the weights of the best validation epoch.

    With a `folder`, a checkpoint and the log are written there after every epoch. `identity` names what is being
    trained on what; a checkpoint with another identity is refused. With `exactly` so many epochs, validation is not
    looked at, and the last epoch is kept. `begin` is called before the first epoch, once the model has been started.
    Where several processes have divided a `word_table`, the first one holds the whole model on return, on the host, and
    the others hold their rows.
    """
    device = device or choose_device()
    watcher = watcher or Silent()
    company = Company.present() if model.learns else None
    if company is not None and not company.leads:
        folder = None  # the first process reads and writes
    division = TableDivision.wanted(model, word_table, company, device)
    check_room(model, device, processes_of_card(), division.parts)
    model.to(division.place_before(device)).train()
    division.mark()
    with repeatable(), shared_with(company), _alone_in(folder) as place:
        checkpoint = None
        if place is not None:
            checkpoint = Checkpoint(place, identity, circumstances(model, device, division))
            checkpoint.sweep()
        optimizer = make_optimizer(model, settings) if model.learns else None
        if checkpoint is not None and resume and checkpoint.exists():
            progress, best = checkpoint.load(model, optimizer)
        else:
            if company is None or company.leads:
                model.start(data)
                if begin is not None:
                    begin()
            progress, best = TrainingState(), copy_of(model)
            if checkpoint is not None:
                checkpoint.save(state_of(model, best, optimizer), progress)
        if optimizer is not None:
            best = division.begin(optimizer, best, device)
            if company is not None:
                progress = company.agree(model, optimizer, progress)
            run = _Run(model, data, settings, optimizer, seed, device, checkpoint, watcher, exactly, division, company)
            best = run.epochs(progress, best)
            model.load_state_dict(best)
            if company is not None:
                company.agree_on_weights(model)
            division.end()
    model.eval()
    return progress


def _alone_in(folder: Path | None) -> contextlib.AbstractContextManager[Path | None]:
    """Where checkpoints are written by nobody else, if any are."""
    return contextlib.nullcontext() if folder is None else sole_writer(folder)


@dataclass(frozen=True)
class _Run:
    """What stays the same from one epoch to the next."""

    model: RatingModel
    data: TrainingData
    settings: TrainingSettings
    optimizer: torch.optim.Optimizer
    seed: int
    device: torch.device
    checkpoint: Checkpoint | None
    watcher: Watcher
    exactly: int | None
    division: TableDivision
    company: Company | None = None

    def epochs(self, progress: TrainingState, best: dict[str, Tensor]) -> dict[str, Tensor]:
        """Train from where progress stands; the weights to keep."""
        fast = trainer_for(self.model, self.data, self.settings, self.device, self.optimizer)
        if self.company is not None and not self.company.all_agree(fast is not None):
            fast = None  # one of the processes has no room for it, say
        try:
            while not self._finished(progress):
                record = self._one_epoch(fast, progress.epoch + 1)
                progress.epoch += 1
                progress.history.append(record)
                if self._is_best(record, progress):
                    best = copy_of(self.model)
                self._keep(best, progress)
                chosen = {} if self.exactly is not None else {"best": progress.best_epoch == progress.epoch}
                self.watcher.epoch_ends({**record, **chosen})
        except KeyboardInterrupt:
            if self.checkpoint is None:
                raise
            raise Stopped(
                f"training was interrupted after {progress.epoch} whole epoch{'s' * (progress.epoch != 1)}; "
                "a checkpoint is kept",
                where=str(self.checkpoint.folder),
                fix="run the same command with --resume to go on",
            ) from None
        return best

    def _keep(self, best: dict[str, Tensor], progress: TrainingState) -> None:
        """Save where training stands, if it is to be saved: the first process does it for all."""
        tensors = state_of(self.model, best, self.optimizer)
        if self.division.tables and self.division.company.tell(float(self.checkpoint is not None)):
            tensors = self.division.whole(tensors)
        if self.checkpoint is not None:
            self.checkpoint.save(tensors, progress)

    def _finished(self, progress: TrainingState) -> bool:
        if self.exactly is not None:
            return progress.epoch >= self.exactly
        return progress.finished(self.settings.epochs, self.settings.patience)

    def _is_best(self, record: dict[str, Any], progress: TrainingState) -> bool:
        """Whether the epoch that just ended is the one to keep so far; noted in the progress."""
        if self.exactly is not None:
            progress.best_epoch = progress.epoch
            return True
        if record["valid_mse"] < progress.best_error:
            progress.best_epoch, progress.best_error = progress.epoch, record["valid_mse"]
            return True
        return False

    def _validation_error(self) -> float:
        """On validation pairs; where several processes train, the first one measures it for all.

        Where a table is divided, all measure it together: none could look the words up alone.
        """
        error = math.nan
        if self.company is None or self.company.leads or self.division.tables:
            guess = predict_pairs(self.model, self.data, self.data.valid, self.device)
            error = float(np.square(guess - self.data.valid.ratings, dtype=np.float64).mean())
        return error if self.company is None else self.company.tell(error)

    def _one_epoch(self, fast: Trainer | None, epoch: int) -> dict[str, Any]:
        model, settings, watcher = self.model, self.settings, self.watcher
        count = math.ceil(len(self.data.train) / settings.batch_size)
        kept = None if self.checkpoint is None else str(self.checkpoint.folder)
        watcher.epoch_begins(epoch, count)
        torch.manual_seed(int(np.random.default_rng([self.seed, epoch, 1]).integers(2**62)))  # dropout of this epoch
        began = time.monotonic()
        for group in self.optimizer.param_groups:
            group["lr"] = settings.rate(epoch)

        def batches() -> Iterator[Batch]:
            for batch in self.data.training_batches(settings.batch_size, self.seed, epoch, model.needs):
                faulty.begun += 1
                yield batch.to(self.device)
                watcher.batch_done()

        faulty = FaultyBatch(self.optimizer)
        try:
            if fast is not None:
                loss = fast.epoch(self.seed, epoch, watcher)
            elif self.company is not None:
                loss = self.company.train_epoch(model, batches(), self.optimizer)
            else:
                loss = model.train_epoch(batches(), self.optimizer)
        except FloatingPointError as fault:
            raise diverged("the loss is no number", epoch, int(fault.args[0]), count, kept) from None
        finally:
            batch_of_fault = faulty.end()
        trained = time.monotonic()
        check_epoch(model, {"loss": loss}, epoch, batch_of_fault, count, kept, self.company)
        record = {"epoch": epoch, "loss": loss}
        if self.exactly is None:
            error = self._validation_error()
            check_epoch(model, {"validation error": error}, epoch, count, count, kept, self.company)
            record["valid_mse"] = error
        seconds = {"seconds": round(trained - began, 3), "valid_seconds": round(time.monotonic() - trained, 3)}
        return {**record, **seconds}
