"""Several processes that train one model: who they are, and what they tell each other.

Every process makes the same batches and computes its rows of each. Gradients are added up before every step, so that
all take the same step. All have all weights, except for a divided word table, of which each keeps some rows. Only the
first process reads and writes files.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as distributed
from torch import Tensor

from carp.errors import CarpError
from carp.models.base import RatingModel
from carp.models.batch import Batch
from carp.models.batch_share import BatchShare, sharing
from carp.models.divided_table import DividedTable
from carp.training.checkpoint import TrainingState

LONGEST_WAIT = timedelta(hours=6)  # the first process may be at a long preparation


class LostCompany(CarpError):
    """Another process of a training ended."""

    exit_code = 75


@dataclass
class Company:
    """This process among those that train together."""

    rank: int
    size: int

    @classmethod
    def present(cls) -> Company | None:
        """This process among others, if it has joined them."""
        if not distributed.is_available() or not distributed.is_initialized():
            return None
        return cls(distributed.get_rank(), distributed.get_world_size())

    @property
    def leads(self) -> bool:
        return self.rank == 0

    def total(self, numbers: Tensor) -> Tensor:
        with _exchanged(numbers) as there:
            distributed.all_reduce(there)
        return numbers

    def union(self, numbers: Tensor) -> Tensor:
        count = torch.zeros(self.size, dtype=torch.int64)
        count[self.rank] = len(numbers)
        self.total(count)
        filled = torch.zeros(self.size, int(count.max()), dtype=numbers.dtype, device=numbers.device)
        filled[self.rank, : len(numbers)] = numbers
        self.total(filled)  # all others are zero there
        found: Tensor = torch.unique(torch.cat([one[: int(n)] for one, n in zip(filled, count, strict=True)]))
        return found

    def exchange(self, rows: Tensor, sent: Sequence[int], received: Sequence[int]) -> Tensor:
        found = rows.new_empty(sum(received), *rows.shape[1:])
        with _exchanged(found) as there:
            distributed.all_to_all_single(there, rows.contiguous().to(there.device), list(received), list(sent))
        return found

    def all_agree(self, yes: bool) -> bool:
        """Whether every process says yes."""
        return int(self.total(torch.tensor([int(yes)]))) == self.size

    # ---- steps

    @contextlib.contextmanager
    def stepping(self, optimizer: torch.optim.Optimizer) -> Iterator[None]:
        """Before each step, the gradients of all processes are added up, each by the rows that it stands for."""
        hook = optimizer.register_step_pre_hook(self._add_up)
        try:
            yield
        finally:
            hook.remove()

    def _add_up(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        share = sharing().share
        assert share is not None, "a step is taken inside a batch"
        parameters = [
            one
            for group in optimizer.param_groups
            for one in group["params"]
            if not isinstance(one, DividedTable)  # the gradients of their rows were added up on the way back
        ]
        there = torch.tensor([float(one.grad is not None) for one in parameters], device=parameters[0].device)
        reached = [one for one, by in zip(parameters, self.total(there).tolist(), strict=True) if by]
        for one in reached:
            if one.grad is None:
                one.grad = torch.zeros_like(one)
        if not reached:
            return
        whole = self.total(torch.cat([one.grad.flatten() for one in reached]) * share.weight)
        for one, grad in zip(reached, torch.split(whole, [one.numel() for one in reached]), strict=True):
            one.grad.copy_(grad.view_as(one))

    def train_epoch(self, model: RatingModel, batches: Iterable[Batch], optimizer: torch.optim.Optimizer) -> float:
        """One pass over the batches, of which every process computes its rows; the mean loss over all rows."""
        rows = 0.0

        def own() -> Iterator[Batch]:
            nonlocal rows
            for batch in batches:
                share = sharing().share = BatchShare.of(self, len(batch))
                rows += share.stands_for
                yield batch.part(share.rows, share.stands_for)

        with self.stepping(optimizer):
            loss = model.train_epoch(own() if model.shares_batches else batches, optimizer)
        sharing().share = None
        self.agree_on_weights(model)  # what every process has solved for by itself
        return self.mean_loss(loss, rows) if model.shares_batches else self.tell(loss)

    def mean_loss(self, loss: float, rows: float) -> float:
        """The mean over the rows of all processes."""
        total, count = self.total(torch.tensor([loss * rows, rows], dtype=torch.float64)).tolist()
        return float(total / max(count, 1.0))

    # ---- the first process tells the others

    def agree(self, model: RatingModel, optimizer: torch.optim.Optimizer, progress: TrainingState) -> TrainingState:
        """All go on from where the first process stands."""
        self._take_sizes(model)
        self.agree_on_weights(model)
        kept = self._told({"progress": asdict(progress), "steps": self._steps(optimizer)})
        steps = kept["steps"]
        for number, parameter in enumerate(one for group in optimizer.param_groups for one in group["params"]):
            if str(number) not in steps:
                continue
            state = optimizer.state[parameter]
            state["step"] = torch.tensor(float(steps[str(number)]))
            if isinstance(parameter, DividedTable):
                state["square_avg"] = self.deal(state.get("square_avg"), parameter.detach())
                continue
            state.setdefault("square_avg", torch.zeros_like(parameter.detach()))
            self._from_first(state["square_avg"])
        told = kept["progress"]
        return TrainingState(**{**told, "best_error": float(told["best_error"])})

    @staticmethod
    def _steps(optimizer: torch.optim.Optimizer) -> dict[str, float]:
        parameters = [one for group in optimizer.param_groups for one in group["params"]]
        known = {number: optimizer.state.get(one) for number, one in enumerate(parameters)}
        return {str(number): float(state["step"]) for number, state in known.items() if state}

    def _take_sizes(self, model: RatingModel) -> None:
        """Make room for tensors whose sizes only the first process has seen in the data."""
        state = _kept_by_all(model)
        sizes = self._told({name: list(tensor.shape) for name, tensor in state.items()})
        if sizes != {name: list(tensor.shape) for name, tensor in state.items()}:
            empty = {name: tensor.new_zeros(sizes[name]) for name, tensor in state.items()}
            model.load_state_dict({**model.state_dict(), **empty})

    def agree_on_weights(self, model: RatingModel) -> None:
        for tensor in _kept_by_all(model).values():
            self._from_first(tensor)

    def deal(self, whole: Tensor | None, like: Tensor) -> Tensor:
        """The rows that this process keeps of a whole table, which the first process has.

        Args:
            whole: The table; None in all processes but the first.
            like: A tensor of the shape, kind and place of the rows.
        """
        if not self.leads:
            rows = torch.empty_like(like, device="cpu")
            with losing():
                distributed.recv(rows, 0)
            return rows.to(like)
        assert whole is not None, "the first process has the whole table"
        for rank in range(1, self.size):
            with losing():
                distributed.send(whole[rank :: self.size].contiguous().cpu(), rank)
        return whole[0 :: self.size].to(like, copy=True)

    def collect(self, rows: Tensor, whole_rows: int) -> Tensor | None:
        """A whole table on the host from the rows that every process keeps; None in all processes but the first."""
        rows = rows.detach().cpu()
        if not self.leads:
            with losing():
                distributed.send(rows.contiguous(), 0)
            return None
        whole = rows.new_empty(whole_rows, *rows.shape[1:])
        whole[0 :: self.size] = rows
        for rank in range(1, self.size):
            theirs = torch.empty_like(whole[rank :: self.size], memory_format=torch.contiguous_format)
            with losing():
                distributed.recv(theirs, rank)
            whole[rank :: self.size] = theirs
        return whole

    def tell(self, number: float) -> float:
        """A number of the first process."""
        found = torch.tensor([number], dtype=torch.float64)
        self._from_first(found)
        return float(found)

    def _told(self, facts: dict[str, Any]) -> Any:
        written = json.dumps(facts, default=str).encode() if self.leads else b""
        size = int(self.tell(len(written)))
        content = torch.zeros(size, dtype=torch.uint8)
        if self.leads:
            content.copy_(torch.frombuffer(bytearray(written), dtype=torch.uint8))
        self._from_first(content)
        return json.loads(bytes(content.tolist()))

    def _from_first(self, tensor: Tensor) -> None:
        if not tensor.numel():
            return
        with _exchanged(tensor.detach()) as there:
            distributed.broadcast(there, 0)


def _kept_by_all(model: RatingModel) -> dict[str, Tensor]:
    """The tensors of a model that every process has a copy of."""
    divided = {name for name, one in model.named_parameters() if isinstance(one, DividedTable)}
    return {name: tensor for name, tensor in model.state_dict().items() if name not in divided}


@contextlib.contextmanager
def _exchanged(numbers: Tensor) -> Iterator[Tensor]:
    """The numbers where processes can reach them: gloo takes those of a card by way of the host."""
    by_host = numbers.is_cuda and "nccl" not in distributed.get_backend_config()
    there = numbers.cpu() if by_host else numbers
    with losing():
        yield there
    if by_host:
        numbers.copy_(there)


@contextlib.contextmanager
def losing() -> Iterator[None]:
    """Say it in words where another process has gone."""
    try:
        yield
    except RuntimeError as error:
        fix = "run the same command with --resume; any number of processes can go on from the checkpoint"
        what = "another process of this training ended"
        raise LostCompany(what, fix=fix) from error


def wanted_size() -> int:
    """With how many processes this one was started, by torchrun or by carp itself."""
    return int(os.environ.get("WORLD_SIZE", "1")) if "RANK" in os.environ and "MASTER_ADDR" in os.environ else 1


def own_rank() -> int:
    return int(os.environ["RANK"]) if wanted_size() > 1 else 0


def own_device(name: str) -> str:
    """The device of this process: its own card, where there are several."""
    if wanted_size() == 1 or name not in ("auto", "cuda") or not torch.cuda.is_available():
        return name
    return f"cuda:{int(os.environ.get('LOCAL_RANK', '0')) % torch.cuda.device_count()}"


def processes_here() -> int:
    """How many processes of this training are on this machine."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", wanted_size()))


def processes_of_card() -> int:
    """How many processes share a card of this machine."""
    return math.ceil(processes_here() / max(1, torch.cuda.device_count()))


@contextlib.contextmanager
def joined(device: torch.device) -> Iterator[Company | None]:
    """Join the processes this one was started with; None where it is alone.

    NCCL where every process of a machine has a card of its own, else gloo.
    """
    if wanted_size() == 1:
        yield None
        return
    if (present := Company.present()) is not None:
        yield present  # who started us has brought us together already
        return
    cards = torch.cuda.device_count() if device.type == "cuda" else 0
    own_cards = cards >= processes_here()
    backend = "cpu:gloo,cuda:nccl" if own_cards else "gloo"  # NCCL takes no two processes on one card
    if own_cards:
        torch.cuda.set_device(device)
    with losing():
        distributed.init_process_group(backend, timeout=LONGEST_WAIT)
    try:
        yield Company(distributed.get_rank(), distributed.get_world_size())
    finally:
        with contextlib.suppress(RuntimeError):
            distributed.destroy_process_group()
