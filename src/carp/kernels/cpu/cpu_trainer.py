"""One epoch of CARP on the CPU: the same steps as the plain loop, in pieces that stay in a core's cache.

A step is five rounds of pieces: the slices of the words, the viewpoints of the documents, the pairs forward and
backward, the documents backward, the words backward with the optimiser. Sums over pieces are taken in the order of the
pieces, so that the bits do not depend on which thread did what.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from carp.kernels.cpu.pair_gradients import learn_pairs
from carp.kernels.cpu.rmsprop_c import NativeRmsprop
from carp.kernels.cpu.step_c import NativeStep, covers_steps_in_c
from carp.kernels.cpu.step_plan import StepMaker, StepPlan
from carp.kernels.cpu.step_torch import TorchStep
from carp.kernels.cpu.threads import workers
from carp.kernels.cpu.viewpoints import Store
from carp.kernels.cpu.word_convolution import RowOptimizer
from carp.models.batch import Batch, TrainingData
from carp.models.batch_share import BatchShare, Others
from carp.models.carp import Carp

PAIRS = 50  # rated at once


class CpuTrainer:
    """Trains as the plain loop does; after each epoch the optimizer's state is what the plain loop would have left.

    With others, each process computes its rows of every batch, and all take the same steps.
    """

    def __init__(
        self,
        model: Carp,
        data: TrainingData,
        batch_size: int,
        optimizer: torch.optim.Optimizer,
        others: Others | None = None,
    ) -> None:
        self.model, self.optimizer, self.others = model, optimizer, others
        self.maker = StepMaker(model, data, batch_size)
        self.sides = (model.user_side, model.item_side)
        own = "embedding.", "user_side.", "item_side."
        self.rest = [parameter for name, parameter in model.named_parameters() if not name.startswith(own)]
        self.stores = (Store(), Store())
        self.rows = _row_optimizer(model, optimizer)
        self.native_optimizer = NativeRmsprop.of(optimizer)
        self.form: type[NativeStep] | type[TorchStep] = NativeStep if covers_steps_in_c(model, self.rows) else TorchStep

    def epoch(self, seed: int, epoch: int, watcher: Any) -> float:
        """One pass over the training pairs; the mean loss. Where it is no number, the batch's is raised."""
        total, pairs, done = 0.0, 0, 0
        self.rows.rate = self.optimizer.param_groups[0]["lr"]  # a schedule may change it
        steps = self.maker.steps(seed, epoch)
        step = next(steps, None)
        while step is not None:
            loss, step_after = self.learn(step, steps)
            done += 1
            if not math.isfinite(loss):
                raise FloatingPointError(done)
            total += loss * len(step.batch)
            pairs += len(step.batch)
            watcher.batch_done()
            step = step_after
        self.rows.settle()
        return total / max(pairs, 1)

    @torch.no_grad()
    def learn(self, step: StepPlan, following: Iterator[StepPlan]) -> tuple[float, StepPlan | None]:
        """Learn from one step; the next one is prepared while the workers go backward through the documents."""
        dropout = self.model.config.dropout
        if self.others is not None:
            step = step.of_share(BatchShare.of(self.others, len(step.batch)))
            self.rows.hold(len(step.words.distinct))
        work = self.form(step, self.sides, self.stores, self.rows, 1 / (1 - dropout))
        loss, grads = self._ratings_of(step, work.forward())
        wait = work.start_backward(grads)
        after = next(following, None)
        wait()
        self._lay_down_gradients(work.finish_backward())
        if self.others is not None:
            loss = self._add_up(self.others, step, loss)
        (self.native_optimizer or self.optimizer).step()
        return loss, after

    def _ratings_of(self, step: StepPlan, sides: tuple[Tensor, Tensor]) -> tuple[float, tuple[Tensor, Tensor]]:
        """The loss and the gradients of a step's pairs; where it is shared, our rows' part of them."""
        share = step.share
        if share is None:
            return self._ratings(step.batch, sides)
        ours = sides[0][share.rows], sides[1][share.rows]
        loss, found = self._ratings(step.batch.part(share.rows, share.stands_for), ours)
        grads = torch.zeros_like(sides[0]), torch.zeros_like(sides[1])
        for whole, part in zip(grads, found, strict=True):
            whole[share.rows] = part * share.weight
        for parameter in self.rest:
            parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad * share.weight
        return loss * share.weight, grads

    def _add_up(self, others: Others, step: StepPlan, loss: float) -> float:
        """Put the gradients of all processes in the place of ours; the loss of the whole batch."""
        held = self.rows.held
        assert held is not None, "asked for before the step"
        parameters = [p for group in self.optimizer.param_groups for p in group["params"] if p.grad is not None]
        ours = [held.new_tensor([loss]), held.flatten(), *(p.grad.flatten() for p in parameters)]
        all_of_them = torch.split(others.total(torch.cat(ours)), [part.numel() for part in ours])
        self.rows.release(step.words.distinct, all_of_them[1].view_as(held))
        for parameter, grad in zip(parameters, all_of_them[2:], strict=True):
            parameter.grad = grad.view_as(parameter)
        return float(all_of_them[0])

    def _ratings(self, batch: Batch, sides: tuple[Tensor, Tensor]) -> tuple[float, tuple[Tensor, Tensor]]:
        """The loss and the gradients of both sides; those of the parameters behind the sides go into `.grad`."""
        learned = learn_pairs(self.model, batch, sides)
        return self._ratings_by_autograd(batch, sides) if learned is None else learned

    def _ratings_by_autograd(self, batch: Batch, sides: tuple[Tensor, Tensor]) -> tuple[float, tuple[Tensor, Tensor]]:
        """The same by autograd through `Carp.score`, for models that the C does not cover."""
        model, count = self.model, len(batch)
        starts = range(0, count, PAIRS)
        losses = [0.0] * len(starts)
        into_rest: list[list[Tensor | None]] = [[] for _ in starts]
        ratings = batch.ratings
        assert ratings is not None
        grads = torch.empty_like(sides[0]), torch.empty_like(sides[1])

        def rate(number: int) -> None:
            some = slice(starts[number], min(starts[number] + PAIRS, count))
            part = replace(batch, users=batch.users[some], items=batch.items[some], ratings=ratings[some])
            viewpoints, aspects = (side[some].requires_grad_() for side in sides)
            with torch.enable_grad():
                found = model.score(part.users, part.items, viewpoints, aspects, part.ratings)
                loss = model.loss(part, found) * (len(part) / count)
                wanted = [viewpoints, aspects, *self.rest]
                grads[0][some], grads[1][some], *parts = torch.autograd.grad(loss, wanted, allow_unused=True)
            losses[number] = float(loss.detach())
            into_rest[number] = [*parts]

        workers().run(rate, range(len(starts)))
        for parameter, parts in zip(self.rest, zip(*into_rest, strict=True), strict=True):
            there = [part for part in parts if part is not None]
            parameter.grad = torch.stack(there).sum(0) if there else None
        return sum(losses), grads

    def _lay_down_gradients(self, found: list[dict[str, Tensor]]) -> None:
        for side, grads in zip(self.sides, found, strict=True):
            for name, parameter in side.named_parameters():
                parameter.grad = grads[name] if name in grads else torch.zeros_like(parameter)
        self.model.embedding.weight.grad = None


def _row_optimizer(model: Carp, optimizer: torch.optim.Optimizer) -> RowOptimizer:
    """It works on the plain optimizer's own state, so that checkpoints are the same."""
    table = model.embedding.weight
    settings = optimizer.param_groups[0]
    state = optimizer.state[table]
    if not state:
        state["step"] = torch.zeros(())
        state["square_avg"] = torch.zeros_like(table)
    return RowOptimizer(
        table.detach(),
        state["square_avg"],
        state["step"],
        rate=settings["lr"],
        decay=settings["alpha"],
        epsilon=settings["eps"],
    )
