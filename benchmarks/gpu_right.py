"""The GPU's kernels against the plain model in float64: a line each, and none keeps the others from being tried."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

from carp.kernels.gpu.encoder import ReadingCut
from carp.kernels.gpu.scorer import ScoreTiling, score_pairs_gpu, top_items_gpu
from carp.kernels.gpu.self_check import (
    distance,
    encoding_errors,
    epoch_losses,
    made_up_data,
    make_trainer,
    small_model,
    step_errors,
)
from carp.kernels.gpu.training_step import Precision
from carp.models.batch import TrainingData
from carp.training.loop import TrainingSettings, train
from gpu_session import Session, say

Errors = dict[str, float]
Case = tuple[str, Callable[[], Errors], float]  # name, what to do, and the largest relative error allowed

VARIANTS: dict[str, dict[str, Any]] = {
    "paper": {},
    "calibrated": {"variant": "calibrated"},
    "agreement": {"routing": "agreement"},
    "no dropout": {"dropout": 0.0},
    "sharp attention": {"window": 5, "attention_scale": 3.0, "hinge": "squared", "opposite_weight": 0.7},
}
# Rounded products: sums of tens of them are right to a few parts in a thousand, gradients of small numbers to less.
LIMITS = {"tf32x3": 2e-4, "ieee": 2e-4, "tf32": 3e-2, "half": 1e-3}


def data_of(session: Session) -> TrainingData:
    """The same for all cases where it can be: kernels are compiled for its longest document."""
    if session.rehearsal:
        return made_up_data(users=6, items=5, pairs=20, review=9, longest=70)
    return made_up_data(users=70, items=50, pairs=500, words=400, longest=300, review=60)


def sizes_of(session: Session) -> dict[str, Any]:
    """Small where the interpreter computes; else the paper's, with less to look up."""
    return {"dimension": 10, "filters": 12, "latent_size": 10, "viewpoints": 3} if session.rehearsal else {}


def exact(session: Session) -> str:
    return "ieee" if session.rehearsal else "tf32x3"


def cases(session: Session) -> list[Case]:
    """Steps, reading, scores, and what is learned."""
    variants = dict(list(VARIANTS.items())[:2]) if session.quick else VARIANTS
    near = exact(session)
    found = step_cases(session, variants)
    data, short, own = data_of(session), short_documents(session), sizes_of(session)
    for products in (near, "tf32"):
        how = ReadingCut(1 << 16, products=products)  # a few documents at once
        for name, of in (("whole documents", data), ("empty and one-word documents", short)):
            work = partial(encoding_errors, of, session.device, how, **own)
            found.append((f"encoding, {name}, {products}", work, LIMITS[products]))
    for name, settings in variants.items():
        for products in (near, "tf32", "half"):
            work = partial(score_errors, session, products, **settings)
            found.append((f"scores, {name}, {products}", work, LIMITS[products]))
    for products in (near, "tf32"):
        found.append((f"epochs, {products}", partial(learning_errors, session, products), LIMITS[products]))
    found.append(("the whole loop, tf32", partial(loop_errors, session), LIMITS["tf32"]))
    found.append(("two runs give the same bits", partial(repeated, session), 0.0))
    return found


def step_cases(session: Session, variants: dict[str, dict[str, Any]]) -> list[Case]:
    batch, last = (8, 2) if session.rehearsal else (64, 7)
    near, data, own = exact(session), data_of(session), sizes_of(session)

    def case(name: str, products: str, number: int = 0, of: TrainingData = data, **settings: Any) -> Case:
        every = {**own, **settings}
        work = partial(step_errors, of, batch, session.device, number=number, precision=Precision(products), **every)
        return f"step, {name}, {products}", work, LIMITS[products]

    found = [case(name, near, **settings) for name, settings in variants.items()]
    found.append(case("paper", "tf32"))
    found.append(case("short last batch", near, number=last))
    found.append(case("empty and one-word documents", near, of=short_documents(session), dropout=0.0))
    if not session.quick:
        found.append(case("wide features", "tf32", filters=100, latent_size=50))  # more digits do not fit
    return found


def short_documents(session: Session) -> TrainingData:
    if session.rehearsal:
        return made_up_data(users=6, items=5, pairs=12, review=3, longest=6)
    return made_up_data(users=70, items=50, pairs=500, review=2, longest=3)


def score_errors(session: Session, products: str, **settings: Any) -> Errors:
    """Listed pairs, and people with all items, from sides that are large enough to tell capsules apart."""
    data = made_up_data()
    model = small_model(data, **settings).to(session.device).eval()
    plain = small_model(data, **settings).double().eval()
    generator = torch.Generator().manual_seed(1)
    viewpoints, aspects = (torch.randn(size, 5, 25, generator=generator) for size in (12, 9))
    count = 100 if session.rehearsal else 5000
    users, items = (torch.randint(0, size, (count,), generator=generator) for size in (12, 9))
    with torch.no_grad():
        wanted = plain.score(users, items, viewpoints[users].double(), aspects[items].double()).rating
    viewpoints, aspects, users, items = (tensor.to(session.device) for tensor in (viewpoints, aspects, users, items))
    cut = ScoreTiling(products=products)
    listed = score_pairs_gpu(model, viewpoints, aspects, users, items, cut)
    best = top_items_gpu(model, viewpoints, aspects, torch.arange(12, device=session.device), 9, cut=cut)
    assert listed is not None
    assert best is not None
    dense = torch.zeros(12, 9, device=session.device).scatter_(1, *best)[users, items]
    return {"listed": distance(listed, wanted), "dense": distance(dense, wanted)}


def learning_errors(session: Session, products: str) -> Errors:
    """Losses of some epochs, and ratings afterwards, against the plain model trained in float64 on the same device."""
    small: dict[str, Any] = {"users": 4, "items": 3, "pairs": 10, "review": 9, "longest": 20}
    data = made_up_data(**small) if session.rehearsal else data_of(session)
    batch, epochs = (4, 1) if session.rehearsal else (64, 4)
    found, wanted, fast, plain = epoch_losses(
        data, batch, session.device, epochs, precision=Precision(products), dropout=0.0, **sizes_of(session)
    )
    losses = max(abs(a - b) / b for a, b in zip(found, wanted, strict=True))
    return {"losses": losses, "ratings": distance(fast, plain)}


def loop_errors(session: Session) -> Errors:
    """Validation errors of the training loop with the kernels asked for and not: training, reading and scoring."""
    data, found = data_of(session), []
    rate = 0.0002  # small, for the reason that epoch_losses has
    settings = TrainingSettings(batch_size=8 if session.rehearsal else 64, epochs=3, learning_rate=rate)
    before = os.environ.get("CARP_GPU_KERNELS")
    try:
        for wanted in ("1", "0"):
            os.environ["CARP_GPU_KERNELS"] = wanted
            model = small_model(data, dropout=0.0, **sizes_of(session))
            with warnings.catch_warnings():
                warnings.filterwarnings("error", message=".*takes the plain path")
                progress = train(model, data, settings, device=session.device)
            found.append([record["valid_mse"] for record in progress.history])
    finally:
        os.environ.pop("CARP_GPU_KERNELS")
        if before is not None:
            os.environ["CARP_GPU_KERNELS"] = before
    return {"validation errors": max(abs(a - b) / b for a, b in zip(*found, strict=True))}


def repeated(session: Session) -> Errors:
    data = data_of(session)
    runs = []
    for _ in range(2):
        model = small_model(data, **sizes_of(session)).to(session.device)
        trainer, _ = make_trainer(model, data, 8 if session.rehearsal else 64, session.device, Precision(), lr=0.001)
        trainer.epoch(0, 1)
        runs.append(torch.cat([parameter.detach().flatten() for parameter in model.parameters()]))
    return {"share of other bits": float((runs[0] != runs[1]).double().mean())}


@contextlib.contextmanager
def each_kernel(session: Session, told: Callable[[str, Any], None]) -> Iterator[None]:
    """Every launch is waited for and told of, with what it compiled to or why it failed."""
    import triton
    from triton.runtime.jit import JITFunction

    run = JITFunction.run

    def watched(self: Any, *given: Any, **more: Any) -> Any:
        try:
            compiled = run(self, *given, **more)
            session.wait()
        except Exception as error:  # the next kernel may still be right
            told(self.fn.__name__, error)
            return None
        told(self.fn.__name__, compiled)
        return compiled

    assert triton is not None
    JITFunction.run = watched
    try:
        yield
    finally:
        JITFunction.run = run


def launch_each(session: Session) -> None:
    """The kernels of a step one by one: registers, spills, shared memory, or the reason why one does not run."""
    if session.rehearsal:
        return
    data = data_of(session)
    trainer, _ = make_trainer(small_model(data).to(session.device), data, 64, session.device, Precision(), record=False)
    broken: list[str] = []

    def told(name: str, result: Any) -> None:
        if isinstance(result, Exception):
            broken.append(name)
            say(f"FAILED  {name}: {' '.join(str(result).split())[:300]}")
            session.note("kernel", name=name, failed=str(result)[:500])
        else:
            names = {"registers": "n_regs", "spills": "n_spills"}
            facts = {key: getattr(result, name, None) for key, name in names.items()}
            facts["shared"] = getattr(getattr(result, "metadata", None), "shared", None)
            say(f"ok      {name:24} " + ", ".join(f"{value} {key}" for key, value in facts.items()))
            session.note("kernel", name=name, **facts)

    step = trainer.prepare(record=False)
    with trainer.in_place(), each_kernel(session, told):
        step.run()
    if broken:
        raise RuntimeError(f"{', '.join(broken)} did not run")


def check(session: Session, first: int | None = None) -> None:
    """All cases, or those from the first; where one leaves the card unusable, the rest go on in a new process."""
    if first is None:
        session.stage("kernels one by one", launch_each, session)
        if not session.alive():
            return go_on_elsewhere(session, 0)
    say("\n== against the plain model in float64")
    for number, (name, work, limit) in enumerate(cases(session)):
        if number < (first or 0):
            continue
        try:
            errors = work()
            worst = max(errors, key=errors.__getitem__)
            right = errors[worst] <= limit
            verdict = "ok     " if right else "TOO FAR"
            say(f"{verdict} {name}: {errors[worst]:.1e} at most ({worst}), {limit:.0e} allowed")
            if not right:
                session.failed.append(name)
                say("        " + ", ".join(f"{key} {value:.1e}" for key, value in errors.items() if value > limit))
            session.note("check", case=name, errors=errors, limit=limit)
        except Exception as error:
            say(f"FAILED  {name}: {type(error).__name__}: {' '.join(str(error).split())[:300]}")
            session.fail(name, error)
            if not session.alive():
                return go_on_elsewhere(session, number + 1)
    return None


def go_on_elsewhere(session: Session, first: int) -> None:
    say("the card does not answer any more: a new process takes the rest")
    script = str(Path(__file__).resolve().parent / "speed_gpu.py")
    flags = ["--quick"] if session.quick else []
    if session.out is not None:
        flags += ["--out", str(session.out)]
    subprocess.run([sys.executable, script, "--part", "check", "--first", str(first), *flags], check=False)
    sys.exit(1)
