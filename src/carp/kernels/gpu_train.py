"""Training CARP on a GPU: everything stays on the device, and a step is one replay of a recorded graph.

What is trained are the model's own parameters and the optimizer's own running squares, so that checkpoints,
resuming and everything else see what they would see after the plain path.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from carp.kernels.gpu_corpus import GpuCorpus
from carp.kernels.gpu_layout import Packed, Shapes
from carp.kernels.gpu_step import Precision, Rates, Step, Tuning
from carp.kernels.gpu_support import NoFastPath, usable_on
from carp.models.base import RatingModel
from carp.models.batch import TrainingData
from carp.models.carp import Carp

# What the kernels compute; any other choice takes the plain path.
COVERED: dict[str, Any] = {
    "dropout_on": "features",
    "across_reviews": False,
    "projection": "shared",
    "attention": "softmax",
    "padding_attends": False,
    "logic_unit": "difference first",
    "capsule_bias": False,
    "routing_gradient": "all",
    "routing_epsilon": 0.0,
    "highway": "paper",
}
MOST = {"N": 128, "K": 64, "U": 64}  # padded sizes that fit a program's registers
PLAIN = {"momentum": 0, "centered": False, "maximize": False}  # RMSprop's options that are not computed


class Counts(Protocol):
    def batch_done(self) -> None: ...


class Sizes(Protocol):
    @property
    def batch_size(self) -> int: ...


def gpu_trainer(
    model: RatingModel,
    data: TrainingData,
    settings: Sizes,
    device: torch.device,
    optimizer: torch.optim.Optimizer,
    precision: Precision | None = None,
    tuning: Tuning | None = None,
) -> GpuTrainer | None:
    """A trainer for this model on this device, None where its choices are not covered.

    Raises NoFastPath where they are and the machine refuses: no memory, a compiler that fails.
    """
    if not covers(model, optimizer) or not len(data.train) or not usable_on(device):
        return None
    assert isinstance(model, Carp)
    precision, tuning = precision or Precision(), tuning or Tuning()
    _check_memory(model, data, settings.batch_size, device, precision)
    try:
        trainer = GpuTrainer(model, data, settings.batch_size, device, optimizer, precision, tuning)
        trainer.prepare()
    except torch.cuda.OutOfMemoryError as error:
        raise NoFastPath("the GPU's memory is too small for the fast training path") from error
    except NoFastPath:
        raise
    except Exception as error:  # a compiler or a driver may fail in any way: the plain path needs neither
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise NoFastPath(f"the GPU kernels could not be prepared ({first})") from error
    return trainer


def covers(model: RatingModel, optimizer: torch.optim.Optimizer) -> bool:
    if type(model) is not Carp or type(optimizer) is not torch.optim.RMSprop or len(optimizer.param_groups) != 1:
        return False
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return False
    if any(optimizer.param_groups[0][name] != value for name, value in PLAIN.items()):
        return False
    if any(parameter.dtype != torch.float32 or not parameter.requires_grad for parameter in model.parameters()):
        return False
    shapes = Shapes.of(model)
    small = all(getattr(shapes, name) <= most for name, most in MOST.items())
    return small and all(getattr(model.config, name) == value for name, value in COVERED.items())


def _check_memory(model: Carp, data: TrainingData, batch: int, device: torch.device, precision: Precision) -> None:
    """Before anything is allocated; and places within a buffer must be counted in 32 bits."""
    s = Shapes.of(model)
    lengths = [documents.lengths() for documents in (data.user_documents, data.item_documents)]
    longest = math.ceil(max(1, *(int(length.max(initial=0)) for length in lengths)) / 64) * 64
    table = s.rows * 2 * s.window * s.N
    features = 2 * batch * longest * s.N
    if max(table, features, s.rows * s.d) >= 2**31 or sum(int(length.sum()) for length in lengths) >= 2**31:
        raise NoFastPath("the corpus or the batch is too large for the fast training path", mend="a smaller batch_size")
    needed = table * (16 if precision.repeatable else 8) + 6 * features + 12 * s.rows * s.d
    needed += 8 * sum(int(length.sum()) for length in lengths) + 20 * len(data.train)
    if device.type == "cuda" and needed > (free := torch.cuda.mem_get_info(device)[0]):
        raise NoFastPath(f"the fast training path needs {needed / 1e9:.1f} GB of GPU memory, {free / 1e9:.1f} are free")


class GpuTrainer:
    def __init__(
        self,
        model: Carp,
        data: TrainingData,
        batch: int,
        device: torch.device,
        optimizer: torch.optim.Optimizer,
        precision: Precision,
        tuning: Tuning,
    ) -> None:
        self.model, self.batch, self.optimizer, self.device = model, batch, optimizer, device
        self.precision, self.tuning = precision, tuning
        self.corpus = GpuCorpus.of(data, model, device)
        self.packed = Packed(model, device)
        self.steps = math.ceil(self.corpus.pairs / batch)
        self.step: Step | None = None
        self.graph: torch.cuda.CUDAGraph | None = None
        self.recorded: tuple[Any, ...] = ()

    def prepare(self) -> Step:
        """Bring parameters and running squares home, and record the step anew where what it was recorded for moved."""
        self._bring_home()
        table = self.model.embedding.weight
        squares = _square(self.optimizer, table)
        now = (table.data_ptr(), squares.data_ptr(), self._rates())
        if self.step is None or now != self.recorded:
            self.graph = None
            self.step = Step(
                self.model, self.packed, self.corpus, self.batch, self._rates(), self.precision, self.tuning,
                table.detach(), squares,
            )  # fmt: skip
            self.recorded = now
            self._record(self.step)
        return self.step

    def epoch(self, seed: int, epoch: int, watcher: Counts | None = None) -> float:
        """One pass over all pairs, in the plain path's order; the mean loss."""
        step = self.prepare()
        order = np.random.default_rng([seed, epoch]).permutation(self.corpus.pairs).astype(np.int32)
        step.order.copy_(torch.from_numpy(order))
        dropout = int(np.random.default_rng([seed, epoch, 1]).integers(2**62))
        step.room.state.copy_(torch.tensor([0, dropout]))
        step.room.total.zero_()
        with self.products():
            for _ in range(self.steps):
                if self.graph is None:
                    step.run()
                else:
                    self.graph.replay()
                if watcher is not None:
                    watcher.batch_done()
        loss = float(step.room.total) / self.corpus.pairs
        for parameter in self.model.parameters():
            self.optimizer.state[parameter]["step"] += self.steps
        return loss

    def _rates(self) -> Rates:
        group = self.optimizer.param_groups[0]
        return Rates(float(group["lr"]), float(group["alpha"]), float(group["eps"]), float(group["weight_decay"]))

    @torch.no_grad()
    def _bring_home(self) -> None:
        for name, parameter in self.packed.parameters.items():
            squares = _square(self.optimizer, parameter)
            home, home_squares = (self.packed.view(of, name) for of in (self.packed.native, self.packed.squares))
            if parameter.data_ptr() != home.data_ptr():
                home.copy_(parameter)
                parameter.data = home
            if squares.data_ptr() != home_squares.data_ptr():
                home_squares.copy_(squares)
                self.optimizer.state[parameter]["square_avg"] = home_squares
        self.packed.refresh()

    def _record(self, step: Step) -> None:
        """Compile every kernel by a step that finds no pairs, then record it."""
        if self.device.type != "cuda":
            return
        step.room.state.fill_(self.steps)
        stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream), self.products():
            for _ in range(2):
                step.run()
        torch.cuda.current_stream(self.device).wait_stream(stream)
        torch.cuda.synchronize(self.device)
        graph = torch.cuda.CUDAGraph()
        with self.products(), torch.cuda.graph(graph):
            step.run()
        self.graph = graph

    @contextlib.contextmanager
    def products(self) -> Iterator[None]:
        """The library's own matrix products at the same precision as the kernels'."""
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high" if self.precision.products == "tf32" else "highest")
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before)


def _square(optimizer: torch.optim.Optimizer, parameter: Tensor) -> Tensor:
    """The optimizer's running square of a parameter, made as RMSprop itself makes it at its first step."""
    state = optimizer.state[parameter]
    if not state:
        state["step"] = torch.zeros((), dtype=torch.float32)
        state["square_avg"] = torch.zeros_like(parameter.detach())
    square: Tensor = state["square_avg"]
    return square
