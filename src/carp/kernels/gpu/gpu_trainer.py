"""Training CARP on a GPU: everything stays on the device, and a step is one replay of a recorded graph.

The kernels train the model's own parameters and the optimizer's own running squares, so that checkpoints, resuming
and everything else find what the plain path would have left.
"""

from __future__ import annotations

import contextlib
import math
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from carp.kernels.gpu.availability import NoFastPath, library_products, on_device, usable_on
from carp.kernels.gpu.device_corpus import GpuCorpus
from carp.kernels.gpu.kernel_arguments import Rates
from carp.kernels.gpu.parameter_layout import Packed, Shapes
from carp.kernels.gpu.training_step import Precision, RecordedStep
from carp.kernels.gpu.workspace import Tuning
from carp.models.base import RatingModel
from carp.models.batch import TrainingData
from carp.models.batch_share import Others
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
STEPS_AT_ONCE = 8  # in one recording, so that there are no gaps between launches
AHEAD = 4  # recordings that the host may be ahead of the device
PLAIN = {"momentum": 0, "centered": False, "maximize": False}  # options of RMSprop that the kernels do not have


class Counts(Protocol):
    def batch_done(self) -> None: ...


class BatchSettings(Protocol):
    @property
    def batch_size(self) -> int: ...


def gpu_trainer(
    model: RatingModel,
    data: TrainingData,
    settings: BatchSettings,
    device: torch.device,
    optimizer: torch.optim.Optimizer,
    precision: Precision | None = None,
    tuning: Tuning | None = None,
    others: Others | None = None,
) -> GpuTrainer | None:
    """A trainer for this model on this device; None where the kernels do not cover the model.

    Raises NoFastPath where they do and the machine does not play along: too little memory, a compiler that fails.
    """
    if not covers_training_on_gpu(model, optimizer) or not len(data.train) or not usable_on(device):
        return None
    assert isinstance(model, Carp)
    precision = precision or Precision()
    _check_memory(model, data, settings.batch_size, device, precision)
    try:
        trainer = GpuTrainer(model, data, settings.batch_size, device, optimizer, precision, tuning, others)
        trainer.prepare()
    except torch.cuda.OutOfMemoryError as error:
        raise NoFastPath("the GPU's memory is too small for the fast training path") from error
    except NoFastPath:
        raise
    except Exception as error:  # a compiler or a driver may fail in any way: the plain path needs neither
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise NoFastPath(f"the GPU kernels could not be prepared ({first})") from error
    return trainer


def covers_training_on_gpu(model: RatingModel, optimizer: torch.optim.Optimizer) -> bool:
    if type(model) is not Carp or type(optimizer) is not torch.optim.RMSprop or len(optimizer.param_groups) != 1:
        return False
    if any(optimizer.param_groups[0][name] != value for name, value in PLAIN.items()):
        return False
    if any(parameter.dtype != torch.float32 or not parameter.requires_grad for parameter in model.parameters()):
        return False
    shapes = Shapes.of(model)
    small = all(getattr(shapes, name) <= most for name, most in MOST.items())
    return small and all(getattr(model.config, name) == value for name, value in COVERED.items())


def _check_memory(model: Carp, data: TrainingData, batch: int, device: torch.device, precision: Precision) -> None:
    """Refuse what would not fit, before anything is allocated; places in a buffer are counted in 32 bits."""
    s = Shapes.of(model)
    lengths = [documents.lengths() for documents in (data.user_documents, data.item_documents)]
    longest = math.ceil(max(1, *(int(length.max(initial=0)) for length in lengths)) / 64) * 64
    table = s.rows * 2 * s.window * s.N
    features, votes = 2 * batch * longest * s.N, 2 * batch * s.U * s.K
    words = sum(int(length.sum()) for length in lengths)
    if max(table, features, votes, s.rows * s.d, 2 * len(data.train), words) >= 2**31:
        raise NoFastPath("the corpus or the batch is too large for the fast training path", fix="a smaller batch_size")
    needed = table * (16 if precision.repeatable else 8) + 6 * features + 8 * votes + 12 * s.rows * s.d
    needed += 8 * words + 20 * len(data.train)
    if device.type == "cuda" and needed > (free := _free_memory(device)):
        raise NoFastPath(f"the fast training path needs {needed / 1e9:.1f} GB of GPU memory, {free / 1e9:.1f} are free")


def _free_memory(device: torch.device) -> int:
    """The device's, and what torch has reserved there without using it."""
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(torch.cuda.mem_get_info(device)[0]) + max(0, unused)


class GpuTrainer:
    def __init__(
        self,
        model: Carp,
        data: TrainingData,
        batch: int,
        device: torch.device,
        optimizer: torch.optim.Optimizer,
        precision: Precision,
        tuning: Tuning | None = None,
        others: Others | None = None,
    ) -> None:
        self.model, self.batch, self.optimizer, self.device, self.others = model, batch, optimizer, device, others
        self.corpus = GpuCorpus.of(data, model, device)
        self.packed = Packed(model, device)
        self.precision, self.tuning = precision, tuning or Tuning.of(self.packed)
        self.steps = math.ceil(self.corpus.pairs / batch)
        self.step: RecordedStep | None = None
        self.graphs: dict[int, torch.cuda.CUDAGraph] = {}  # by the number of steps they take
        self.halves: list[torch.cuda.CUDAGraph] = []  # of a step that is shared: up to the gradients, and the update
        self.next_order: tuple[tuple[int, int], Tensor] = (-1, -1), torch.empty(0)
        self.recorded: tuple[Any, ...] = ()

    def prepare(self, *, record: bool = True) -> RecordedStep:
        """Lay out parameters and running squares for the kernels; record the step again if they had moved."""
        self._move_to_layout()
        table = self.model.embedding.weight
        squares = _square(self.optimizer, table)
        now = (table.data_ptr(), squares.data_ptr(), self._rates())
        if self.step is None or now != self.recorded:
            self.graphs, self.halves, self.step = {}, [], None  # so that their memory is free for the new step
            step = RecordedStep(
                self.model, self.packed, self.corpus, self.batch, self._rates(), self.precision, self.tuning,
                table.detach(), squares, self.others,
            )  # fmt: skip
            if record:
                self._record(step)
            self.step, self.recorded = step, now
        return self.step

    def epoch(self, seed: int, epoch: int, watcher: Counts | None = None) -> float:
        """One pass over all pairs, in the plain path's order; the mean loss."""
        step = self.prepare()
        step.order.copy_(self._order(seed, epoch))
        dropout = int(np.random.default_rng([seed, epoch, 1]).integers(2**62))
        step.room.state.copy_(torch.tensor([0, dropout]))
        step.room.total.zero_()
        with self.in_place():
            self.run(step, self.steps, watcher)
            self.next_order = (seed, epoch + 1), _shuffled(self.corpus.pairs, seed, epoch + 1)  # while the device works
            total = step.room.total if self.others is None else self.others.total(step.room.total)
            loss = float(total) / self.corpus.pairs
        for parameter in self.model.parameters():
            self.optimizer.state[parameter]["step"] += self.steps
        return loss

    def _order(self, seed: int, epoch: int) -> Tensor:
        of, order = self.next_order
        return order if of == (seed, epoch) else _shuffled(self.corpus.pairs, seed, epoch)

    def run(self, step: RecordedStep, steps: int, watcher: Counts | None = None) -> None:
        """Take some steps; the host is at most a few recordings ahead, so that progress shows what was really done."""
        under_way: deque[torch.cuda.Event] = deque()
        done = 0
        while done < steps:
            count = max((size for size in self.graphs if size <= steps - done), default=1)
            if self.halves:
                self.halves[0].replay()
                step.add_up()
                self.halves[1].replay()
            elif not self.graphs:
                step.run()
            else:
                self.graphs[count].replay()
                under_way.append(torch.cuda.Event(blocking=True))  # type: ignore[no-untyped-call]
                under_way[-1].record()
                if len(under_way) > AHEAD:
                    under_way.popleft().synchronize()
            done += count
            if watcher is not None:
                for _ in range(count):
                    watcher.batch_done()

    def _rates(self) -> Rates:
        group = self.optimizer.param_groups[0]
        return Rates(float(group["lr"]), float(group["alpha"]), float(group["eps"]), float(group["weight_decay"]))

    @torch.no_grad()
    def _move_to_layout(self) -> None:
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

    def _record(self, step: RecordedStep) -> None:
        """Compile every kernel by taking steps that find no pairs, then record one step, and several in a row."""
        if self.device.type != "cuda":
            return
        with self.in_place():
            step.room.state.fill_(self.steps)
            aside = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
            aside.wait_stream(torch.cuda.current_stream(self.device))
            with torch.cuda.stream(aside):
                for _ in range(2):
                    step.take_gradients()
                    step.update()  # without the others, who may have no room for this path
            torch.cuda.current_stream(self.device).wait_stream(aside)
            torch.cuda.synchronize(self.device)
            if self.others is not None:
                self.halves = [self._recorded(half) for half in (step.take_gradients, step.update)]
                return
            for count in (1, STEPS_AT_ONCE):
                self.graphs[count] = torch.cuda.CUDAGraph()
                with torch.cuda.graph(self.graphs[count]):
                    for _ in range(count):
                        step.run()

    def _recorded(self, half: Callable[[], None]) -> torch.cuda.CUDAGraph:
        """Other threads, such as the one that watches over NCCL, may go on meanwhile."""
        found = torch.cuda.CUDAGraph()
        with torch.cuda.graph(found, capture_error_mode="thread_local"):
            half()
        return found

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """On the trainer's device, with torch's products as precise as the kernels'."""
        with on_device(self.device), library_products(self.precision.products):
            yield


def _shuffled(pairs: int, seed: int, epoch: int) -> Tensor:
    """The plain path's order of an epoch."""
    return torch.from_numpy(np.random.default_rng([seed, epoch]).permutation(pairs).astype(np.int32))


def _square(optimizer: torch.optim.Optimizer, parameter: Tensor) -> Tensor:
    """The optimizer's running square of a parameter, made as RMSprop itself makes it at its first step."""
    state = optimizer.state[parameter]
    if not state:
        state["step"] = torch.zeros((), dtype=torch.float32)
        state["square_avg"] = torch.zeros_like(parameter.detach())
    square: Tensor = state["square_avg"]
    return square
