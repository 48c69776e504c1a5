"""Training on the GPU: an epoch of Yelp's shape, batches of many sizes, corpora that grow, kernels, other cuts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from carp.kernels.gpu.gpu_trainer import GpuTrainer
from carp.kernels.gpu.self_check import make_trainer
from carp.kernels.gpu.training_step import Precision, RecordedStep
from carp.kernels.gpu.workspace import Tuning
from carp.models.batch import TrainingData
from carp.models.carp import Carp
from gpu_corpora import StraightforwardSteps, describe, made_up, model_for, words_of_a_pair
from gpu_session import REVIEWS, Session, against_ceilings, say

BATCHES = (50, 100, 200, 400, 800, 1600)
GROWTH = (10_000, 30_000, 100_000, 300_000, 600_000, 1_200_000)  # reviews
TALL = Tuning(block=128, read_warps=8, back_warps=8, gate_warps=8)
CHOICES: dict[str, tuple[int, ...]] = {
    "read_warps": (4, 8),
    "read_stages": (1, 2, 3),
    "back_warps": (4, 8),
    "back_stages": (1, 2),
    "gate_warps": (4, 8),
    "gate_stages": (1, 2, 3),
    "split": (13, 26, 52),
    "block": (32, 64, 128),
    "beside": (False, True),
}


def corpus(session: Session) -> TrainingData:
    data = session.stage("a corpus of Yelp's shape", lambda: describe(session, made_up(session.shape)))
    if data is None:
        raise RuntimeError("nothing can be measured without a corpus")
    return data


def trainer_for(
    session: Session, data: TrainingData, batch: int, precision: Precision | None = None
) -> tuple[Carp, GpuTrainer]:
    model = model_for(session, data).to(session.device)
    return model, make_trainer(model, data, batch, session.device, precision or Precision(), lr=0.001)[0]


def train(session: Session, data: TrainingData) -> None:
    steps = 3 if session.rehearsal else 20 if session.quick else 60
    theirs = session.stage("straightforward form", straightforward_epoch, session, data, steps)
    session.forget()
    made = session.stage("recording the step", trainer_for, session, data, session.shape.batch)
    if made is None:
        return
    trainer = made[1]
    epochs = [session.stage("an epoch", timed_epoch, session, trainer, n) for n in (1, 2)]
    ours = min((took for took in epochs if took is not None), default=None)
    if ours is not None:
        moved, computed = step_costs(session, data, trainer)
        steps = trainer.steps
        shares = against_ceilings(session, "a training epoch", moved * steps, computed * steps, ours)
        session.compare("Yelp-shaped training epoch", theirs, ours, "s", shares)


def straightforward_epoch(session: Session, data: TrainingData, steps: int) -> float:
    """Seconds of an epoch, extrapolated from some steps, with torch's defaults; with tf32 products for comparison."""
    step = StraightforwardSteps(session, data).of(session.shape.batch)
    often = len(data.train) / session.shape.batch
    each = session.seconds_each(step, steps, 5)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    with_tf32 = session.seconds_each(step, steps, 5)
    torch.set_float32_matmul_precision(before)
    say(
        f"straightforward: {each * 1e3:.2f} ms a step over {steps} steps, {each * often:.1f} s an epoch by that; "
        f"with tf32 products {with_tf32 * often:.1f} s; {session.peak() / 1e9:.2f} GB at most"
    )
    session.note("straightforward epoch", seconds=each * often, with_tf32=with_tf32 * often, peak_bytes=session.peak())
    return each * often


def timed_epoch(session: Session, trainer: GpuTrainer, number: int) -> float:
    session.wait()
    began = time.perf_counter()
    loss = trainer.epoch(0, number)
    session.wait()
    took = time.perf_counter() - began
    say(
        f"epoch {number}: {took:.3f} s, {took / trainer.steps * 1e6:.1f} us a step, mean loss {loss:.4f}, "
        f"{session.peak() / 1e9:.2f} GB at most"
    )
    session.note("epoch", number=number, seconds=took, steps=trainer.steps, loss=loss, peak_bytes=session.peak())
    return took


def step_costs(session: Session, data: TrainingData, trainer: GpuTrainer) -> tuple[float, float]:
    """Fewest bytes and operations of a step in which every word of the table is projected and updated.

    Forward and twice backward: every word of the table through the filters, every word of a document through the
    gates, every logic unit through its weights. The table, its running squares and their gradient move once, what is
    projected and its gradient twice, features twice.
    """
    s = trainer.packed.shapes
    words = session.shape.batch * words_of_a_pair(data)
    table, projected = s.rows * s.d, s.rows * 2 * s.window * s.n
    votes = session.shape.batch * 2 * s.M**2 * 2 * s.k * s.k
    computed = 3 * 2 * (table * 2 * s.window * s.n + words * s.M * s.n**2 + votes)
    return 4 * (5 * table + 4 * projected + 2 * words * s.n), computed


def at_step(trainer: GpuTrainer, number: int = 0) -> RecordedStep:
    """The trainer's step, about to take this batch of some order."""
    step = trainer.prepare()
    order = np.random.default_rng(0).permutation(trainer.corpus.pairs).astype(np.int32)
    step.order.copy_(torch.from_numpy(order))
    step.room.state.copy_(torch.tensor([number, 1]))
    return step


def profile(session: Session, data: TrainingData) -> None:
    """Each kernel's time in a step, and each part's; repeating parts alone spoils the model, so it is not used on."""
    made = session.stage("recording the step", trainer_for, session, data, session.shape.batch)
    if made is not None and not session.rehearsal:
        session.stage("a step by kernels", by_kernels, session, made[1])
        session.stage("a step by parts", by_parts, session, made[1])


def by_kernels(session: Session, trainer: GpuTrainer, steps: int = 24) -> None:
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as watch

    step = at_step(trainer)
    with watch(activities=[ProfilerActivity.CUDA]) as seen:
        trainer.run(step, steps)
        session.wait()
    events = sorted(seen.key_averages(), key=lambda event: -event.self_device_time_total)
    total = sum(event.self_device_time_total for event in events) / steps
    for event in events[:30]:
        each = event.self_device_time_total / steps
        say(f"  {each:8.1f} us a step  {event.count / steps:4.1f} x  {event.key[:90]}")
        session.note("kernel time", kernel=event.key[:90], microseconds=each, launches=event.count / steps)
    at_step(trainer)
    whole = session.seconds_each(lambda: trainer.run(step, session.burst), 10, 2) / session.burst * 1e6
    say(f"  {total:8.1f} us a step in kernels, {whole:.1f} us between the begin of one step and the next")
    session.note("step time", in_kernels=total, whole=whole)


def by_parts(session: Session, trainer: GpuTrainer) -> None:
    """The parts of a step, each recorded alone."""
    step = at_step(trainer, 100)
    for part in (step.read, step.judge, step.attend_back, step.gates_back, step.words_back, step.update):
        graph = torch.cuda.CUDAGraph()
        with trainer.in_place(), torch.cuda.graph(graph):
            part()
        took = session.seconds_each(graph.replay, 50) * 1e6
        say(f"  {part.__name__:10} {took:7.1f} us")
        session.note("part time", part=part.__name__, microseconds=took)
        step.room.state.copy_(torch.tensor([100, 1]))


def tune(session: Session, data: TrainingData) -> None:
    """One choice after the other, each kept where it is better; the best is said last."""
    made = session.stage("recording the step", trainer_for, session, data, session.shape.batch)
    if made is not None:
        session.stage("other cuts of a step", search, session, made[1])


def search(session: Session, trainer: GpuTrainer) -> None:
    tried = [(timed_cut(session, trainer, cut, Precision()), cut) for cut in (trainer.tuning, TALL)]
    least, best = min(tried, key=lambda pair: pair[0])
    for name, values in CHOICES.items():
        if session.quick and not name.endswith("warps"):
            continue
        for value in values[: 1 if session.rehearsal else None]:
            if value != getattr(best, name):
                changed: dict[str, Any] = {name: value}
                cut = replace(best, **changed)
                took = timed_cut(session, trainer, cut, Precision())
                if took < least:
                    best, least = cut, took
    timed_cut(session, trainer, best, Precision(repeatable=False))
    say(f"best: {least * 1e6:.1f} us a step with {best}")
    session.note("best cut of a step", microseconds=least * 1e6, cut=vars(best))


def timed_cut(session: Session, trainer: GpuTrainer, tuning: Tuning, precision: Precision) -> float:
    """Seconds a step; infinite where it does not work."""
    trainer.tuning, trainer.precision, trainer.step = tuning, precision, None
    try:
        step = at_step(trainer)
        few = 1 if session.rehearsal else 15
        took = session.seconds_each(lambda: trainer.run(step, session.burst), few, 1) / session.burst
    except Exception as error:
        say(f"  {tuning} does not work: {' '.join(str(error).split())[:160]}")
        return float("inf")
    say(f"  {took * 1e6:7.1f} us a step  {tuning}{'' if precision.repeatable else ', sums not repeatable'}")
    session.note("cut of a step", microseconds=took * 1e6, cut=vars(tuning), repeatable=precision.repeatable)
    return took


def batches(session: Session, data: TrainingData) -> None:
    """Pairs a second for batches of several sizes, both forms."""
    sizes = (4, 16) if session.rehearsal else (100, 800) if session.quick else BATCHES
    plain = StraightforwardSteps(session, data)
    for size in sizes:
        row = session.stage(f"batches of {size}", one_batch_size, session, data, plain, size)
        if row is not None:
            say(f"  {row['ours'] / 1e3:.0f} thousand pairs a second, {row['ours'] / row['straightforward']:.1f} times")


def one_batch_size(session: Session, data: TrainingData, plain: StraightforwardSteps, size: int) -> dict[str, Any]:
    few = 1 if session.rehearsal else 10
    theirs = size / session.seconds_each(plain.of(size), few, 2)
    _, trainer = trainer_for(session, data, size)
    step = at_step(trainer)
    ours = session.burst * size / session.seconds_each(lambda: trainer.run(step, session.burst), few, 2)
    row = {"pairs": size, "straightforward": theirs, "ours": ours}
    session.note("training batches", **row)
    return row


def growth(session: Session) -> None:
    """An epoch's seconds and the peak memory of corpora of the same kind and other sizes."""
    sizes = (1_200_000,) if session.rehearsal else (10_000, 100_000) if session.quick else GROWTH
    for reviews in sizes:
        session.forget()
        session.stage(f"a corpus of {reviews:,} reviews", grown, session, reviews)


def grown(session: Session, reviews: int) -> None:
    data = made_up(session.shape.times(reviews / REVIEWS))
    _, trainer = trainer_for(session, data, session.shape.batch)
    took = min(seconds_of(session, trainer))
    words = len(data.train) * words_of_a_pair(data)
    say(f"  {took:.3f} s an epoch, {took / words * 1e9:.2f} ns a word, {session.peak() / 1e9:.2f} GB at most")
    session.note(
        "growth", reviews=reviews, pairs=len(data.train), words=words, epoch_seconds=took, peak_bytes=session.peak()
    )


def seconds_of(session: Session, trainer: GpuTrainer) -> Iterator[float]:
    for number in (1,) if session.rehearsal else (1, 2, 3):
        yield timed_epoch(session, trainer, number)
