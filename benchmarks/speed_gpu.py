"""Speed on one GPU: a training epoch of Yelp's shape, and scoring from ready sides; right first, then fast.

    PYTHONPATH=src python benchmarks/speed_gpu.py [--quick] [--part check|train|score|tune] [--out FILE]

Needs torch, triton, numpy and safetensors alone. The corpus is made up: as many pairs, users, items and words a
document as the Yelp corpus of the paper, words by Zipf's law. The straightforward form (straightforward.py) keeps its
padded documents on the GPU and is timed over some steps; its epoch is that time times the steps of an epoch, and is
named so. Ends with one line a work, tab-separated: name, straightforward, ours, ratio.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "src"), str(HERE)]

from carp.kernels.gpu_check import (  # noqa: E402
    Batched,
    distance,
    epoch_losses,
    made_up_data,
    small_model,
    step_errors,
)
from carp.kernels.gpu_score import Cut, Scorer, score_pairs_gpu, top_items_gpu  # noqa: E402
from carp.kernels.gpu_step import Precision, Step, Tuning  # noqa: E402
from carp.kernels.gpu_train import GpuTrainer, gpu_trainer  # noqa: E402
from carp.models.base import make_config  # noqa: E402
from carp.models.batch import Pairs, Sizes, TrainingData  # noqa: E402
from carp.models.carp import Carp  # noqa: E402
from carp.reviews.documents import Documents, make_documents  # noqa: E402
from straightforward import Straightforward  # noqa: E402

PAIRS, USERS, ITEMS, WORDS, BATCH, LONGEST = 876_000, 167_106, 100_229, 20_000, 200, 300
DEVICE = torch.device("cuda")
LINES: list[tuple[str, float, float, str]] = []  # name, straightforward, ours, unit
FACTS: dict[str, Any] = {}


def say(line: str = "") -> None:
    print(line, flush=True)


def stage(name: str, work: Callable[[], Any]) -> Any:
    """Run one part; if it fails, say how and go on with the others."""
    say(f"\n== {name}")
    began = time.perf_counter()
    try:
        found = work()
        torch.cuda.synchronize()
    except Exception:
        say("\n".join(traceback.format_exc().splitlines()[-15:]))
        say(f"-- {name} FAILED after {time.perf_counter() - began:.1f} s")
        FACTS.setdefault("failed", []).append(name)
        return None
    say(f"-- {name}: {time.perf_counter() - began:.1f} s")
    return found


def seconds_each(work: Callable[[], Any], times: int, warm: int = 2) -> float:
    """Seconds a call by device events, after some calls that do not count."""
    for _ in range(warm):
        work()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    begin.record()
    for _ in range(times):
        work()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / 1000 / times


def ceilings() -> None:
    source = torch.randn(1 << 29, device=DEVICE)
    target = torch.empty_like(source)
    copy = 2 * source.numel() * 4 / seconds_each(lambda: target.copy_(source), 5)
    torch.set_float32_matmul_precision("high")
    a, b = torch.randn(8192, 8192, device=DEVICE), torch.randn(8192, 8192, device=DEVICE)
    product = 2 * 8192**3 / seconds_each(lambda: a @ b, 5)
    torch.set_float32_matmul_precision("highest")
    FACTS["copy_bytes_per_s"], FACTS["tf32_flop_per_s"] = copy, product
    say(f"copy {copy / 1e12:.2f} TB/s, tf32 product {product / 1e12:.0f} TFLOP/s")


# ---- right first

VARIANTS: dict[str, dict[str, Any]] = {
    "paper": {},
    "calibrated": {"variant": "calibrated"},
    "carp-ra": {"routing": "agreement"},
    "no dropout": {"dropout": 0.0},
}


def check_steps() -> None:
    data = made_up_data(users=70, items=50, pairs=500, words=400, longest=300, review=60)
    for products, limit in (("tf32x3", 1e-4), ("tf32", 2e-2)):
        for name, settings in VARIANTS.items():
            for number in (0, 7):
                errors = step_errors(
                    data, 64, DEVICE, number=number, precision=Precision(products), dimension=100, **settings
                )
                worst = max(errors, key=errors.__getitem__)
                verdict = "ok" if errors[worst] < limit else "TOO FAR"
                forward = {key: f"{errors[key]:.1e}" for key in ("viewpoints", "lengths", "loss")}
                say(
                    f"step, {products}, {name}, batch {number}: worst {errors[worst]:.1e} ({worst}) {forward} {verdict}"
                )
                FACTS.setdefault("step_errors", {})[f"{products} {name} {number}"] = errors[worst]
                if verdict != "ok":
                    say("   " + ", ".join(f"{key} {value:.1e}" for key, value in errors.items() if value > limit))


def check_epochs() -> None:
    data = made_up_data(users=70, items=50, pairs=900, words=400, longest=120, review=30)
    for products in ("tf32x3", "tf32"):
        found, wanted, fast, plain = epoch_losses(
            data, 64, DEVICE, 4, precision=Precision(products), told=lambda line: say("  " + line), dropout=0.0
        )
        far = max(abs(a - b) / b for a, b in zip(found, wanted, strict=True))
        say(f"four epochs, {products}: losses differ by {far:.1e}, ratings by {distance(fast, plain):.1e}")
        FACTS.setdefault("epoch_losses_differ", {})[products] = far
    for repeatable in (True, False):
        runs = []
        for _ in range(2):
            model = small_model(data).to(DEVICE)
            trainer, _optimizer = trainer_of(model, data, 64, Precision(repeatable=repeatable))
            trainer.epoch(0, 1)
            runs.append(torch.cat([p.detach().flatten().clone() for p in model.parameters()]))
        say(f"two runs, repeatable={repeatable}: the same bits: {bool((runs[0] == runs[1]).all())}")


def check_scores() -> None:
    data = made_up_data(users=70, items=50, pairs=500)
    for name, settings in VARIANTS.items():
        model = small_model(data, **settings).to(DEVICE).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(1.5)
        viewpoints, aspects = (torch.randn(size, 5, 25, device=DEVICE) * 0.5 for size in (70, 50))
        users, items = (torch.randint(0, size, (5000,), device=DEVICE) for size in (70, 50))
        exact = small_model(data, **settings).to(DEVICE).double().eval()
        exact.load_state_dict(model.state_dict())
        with torch.no_grad():
            wanted = exact.score(users, items, viewpoints[users].double(), aspects[items].double()).rating
        for products in ("tf32", "tf32x3"):
            found = score_pairs_gpu(model, viewpoints, aspects, users, items, Cut(products=products))
            best = top_items_gpu(
                model, viewpoints, aspects, torch.arange(70, device=DEVICE), 50, cut=Cut(products=products)
            )
            assert found is not None
            assert best is not None
            dense = torch.zeros(70, 50, device=DEVICE).scatter_(1, best[0], best[1])[users, items]
            far = [float((value - wanted).abs().max()) for value in (found, dense)]
            say(
                f"ratings, {name}, {products}: off by {far[0]:.1e} at most, dense {far[1]:.1e}; "
                f"spread {wanted.std():.2f}"
            )
            FACTS.setdefault("rating_errors", {})[f"{name} {products}"] = far


def check() -> None:
    stage("one step against the plain model in float64", check_steps)
    stage("epochs against the plain model", check_epochs)
    stage("scores against the plain model in float64", check_scores)


# ---- training


def yelp_shaped() -> TrainingData:
    rng = np.random.default_rng(0)

    def owners(count: int, spread: float) -> np.ndarray:
        weight = np.cumsum(rng.lognormal(0, spread, count))
        more = np.searchsorted(weight, rng.random(PAIRS - count) * weight[-1])
        return rng.permutation(np.concatenate([np.arange(count), more]))

    users, items = owners(USERS, 0.5), owners(ITEMS, 1.1)
    lengths = rng.geometric(1 / 27, PAIRS)
    record = np.repeat(np.arange(PAIRS, dtype=np.int32), lengths)
    zipf = np.cumsum(1 / (np.arange(WORDS) + 2.7))
    words = (1 + np.searchsorted(zipf, rng.random(len(record)) * zipf[-1])).astype(np.int32)
    place = np.zeros(len(record), np.int32)

    def documents(owner: np.ndarray, count: int) -> Documents:
        return make_documents(words, record, place, owner.astype(np.int32), count, max_words=LONGEST)

    train = Pairs(users, items, rng.integers(1, 6, PAIRS).astype(np.float32), np.arange(PAIRS))
    both = documents(users, USERS), documents(items, ITEMS)
    read = [of.lengths()[owner].mean() for of, owner in zip(both, (users, items), strict=True)]
    say(f"words a document: users {both[0].lengths().mean():.0f}, items {both[1].lengths().mean():.0f}; "
        f"of a pair, where long ones come oftener: {read[0]:.0f} and {read[1]:.0f}")  # fmt: skip
    FACTS["words_of_a_pair"] = float(sum(read))
    return TrainingData(train, train, *both, Sizes(USERS, ITEMS, WORDS, 5, LONGEST))


def yelp_model(data: TrainingData) -> Carp:
    torch.manual_seed(0)
    return Carp(make_config(Carp, {}), data.sizes)


def trainer_of(
    model: Carp, data: TrainingData, size: int, precision: Precision
) -> tuple[GpuTrainer, torch.optim.Optimizer]:
    optimizer = torch.optim.RMSprop(model.parameters(), lr=0.001, alpha=0.9)
    trainer = gpu_trainer(model, data, Batched(size), DEVICE, optimizer, precision)
    assert trainer is not None
    return trainer, optimizer


def padded_on_gpu(documents: Documents) -> tuple[Tensor, Tensor]:
    words = torch.zeros(len(documents), LONGEST, dtype=torch.int32)
    reviews = torch.full_like(words, -1)
    there = torch.arange(LONGEST)[None, :] < torch.from_numpy(documents.lengths())[:, None]
    words[there], reviews[there] = torch.from_numpy(documents.words), torch.from_numpy(documents.review)
    return words.to(DEVICE), reviews.to(DEVICE)


def straightforward_epoch(data: TrainingData, steps: int) -> float:
    """Seconds of an epoch, extrapolated from some steps."""
    model = Straightforward(yelp_model(data)).to(DEVICE).train()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=0.001, alpha=0.9)
    sides = [padded_on_gpu(documents) for documents in (data.user_documents, data.item_documents)]
    users, items, ratings, records = (
        torch.from_numpy(array).to(DEVICE)
        for array in (data.train.users, data.train.items, data.train.ratings, data.train.records)
    )
    order = torch.randperm(PAIRS, device=DEVICE)
    number = 0

    def step() -> None:
        nonlocal number
        chosen = order[number * BATCH : (number + 1) * BATCH]
        number += 1
        u, i, own = users[chosen], items[chosen], records[chosen, None]
        words = [side[0][of] * (side[1][of] != own) for side, of in zip(sides, (u, i), strict=True)]
        found, lengths = model(u, i, *words)
        loss = model.loss(ratings[chosen], found, lengths)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    each = seconds_each(step, steps, 5)
    say(
        f"straightforward: {each * 1e3:.2f} ms a step over {steps} steps, "
        f"{each * PAIRS / BATCH:.1f} s an epoch (extrapolated)"
    )
    return each * PAIRS / BATCH


def step_costs() -> tuple[float, float]:
    """Fewest bytes and operations of a step: what any form of it has to move and compute, by our own counting."""
    words = BATCH * FACTS["words_of_a_pair"]
    table = (WORDS + 1) * 300
    flops = 3 * 2 * table * 300 + 3 * words * 2 * 50 * 250 + 3 * BATCH * 2 * 2 * 25 * 50 * 25
    return 4 * (5 * table + 4 * (WORDS + 1) * 300 + 2 * words * 50), flops


def at_step(trainer: GpuTrainer, number: int) -> Step:
    """The trainer's step, about to take this batch of some order."""
    step = trainer.prepare()
    step.order.copy_(torch.from_numpy(np.random.default_rng(0).permutation(PAIRS).astype(np.int32)))
    step.room.state.copy_(torch.tensor([number, 1]))
    return step


def profile(trainer: GpuTrainer, steps: int = 20) -> None:
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as watch

    at_step(trainer, 100)
    assert trainer.graph is not None
    with watch(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(steps):
            trainer.graph.replay()
        torch.cuda.synchronize()
    events = sorted(seen.key_averages(), key=lambda event: -event.self_device_time_total)
    total = sum(event.self_device_time_total for event in events)
    for event in events[:24]:
        say(f"  {event.self_device_time_total / steps:8.1f} us a step  {event.count / steps:4.1f} x  {event.key[:90]}")
    say(f"  {total / steps:8.1f} us a step in kernels")


def stage_times(trainer: GpuTrainer) -> None:
    """The same by parts of a step, each recorded alone."""
    step = at_step(trainer, 100)
    for part in (step.read, step.judge, step.read_back, step.add_up, step.update):
        graph = torch.cuda.CUDAGraph()
        with trainer.products(), torch.cuda.graph(graph):
            part()
        say(f"  {part.__name__:10} {seconds_each(graph.replay, 50) * 1e6:7.1f} us")
        step.room.state.copy_(torch.tensor([100, 1]))


def tune(trainer: GpuTrainer) -> None:
    """A step's time for other ways to cut it, and without repeatable sums."""
    base = Tuning()
    choices = [
        base,
        replace(base, read_warps=8),
        replace(base, back_warps=8),
        replace(base, gate_warps=8),
        replace(base, back_stages=1),
        replace(base, read_stages=1),
        replace(base, read_stages=3),
        replace(base, gate_stages=1),
        replace(base, block=32),
        replace(base, split=13),
        replace(base, split=52),
    ]
    for tuning in choices:
        took = timed_step(trainer, tuning, Precision())
        say(f"  {took * 1e6:7.1f} us a step  {tuning}")
    say(f"  {timed_step(trainer, base, Precision(repeatable=False)) * 1e6:7.1f} us a step, sums not repeatable")
    trainer.tuning, trainer.precision, trainer.step = base, Precision(), None


def timed_step(trainer: GpuTrainer, tuning: Tuning, precision: Precision) -> float:
    trainer.tuning, trainer.precision, trainer.step = tuning, precision, None
    try:
        at_step(trainer, 0)
    except Exception as error:
        say(f"  {tuning} does not work: {str(error).splitlines()[0][:120]}")
        return float("nan")
    assert trainer.graph is not None
    return seconds_each(trainer.graph.replay, 150, 5)


def train(quick: bool, tuned: bool) -> None:
    data = stage("a corpus of Yelp's shape", yelp_shaped)
    if data is None:
        return
    theirs = stage("straightforward form", lambda: straightforward_epoch(data, 20 if quick else 60))
    torch.cuda.empty_cache()
    model = yelp_model(data).to(DEVICE)
    made = stage("recording the step", lambda: trainer_of(model, data, BATCH, Precision()))
    if made is None:
        return
    trainer = made[0]
    epochs = [stage("an epoch", lambda number=number: timed_epoch(trainer, number)) for number in (1, 2)]
    ours = min((took for took in epochs if took is not None), default=None)
    if ours is not None:
        bytes_moved, flops = step_costs()
        steps = trainer.steps
        floor = max(bytes_moved / FACTS["copy_bytes_per_s"], flops / FACTS["tf32_flop_per_s"]) * steps
        say(f"a step moves at least {bytes_moved / 1e6:.0f} MB and computes {flops / 1e9:.1f} GFLOP: "
            f"{bytes_moved * steps / ours / FACTS['copy_bytes_per_s']:.0%} and "
            f"{flops * steps / ours / FACTS['tf32_flop_per_s']:.0%} of the measured ceilings; "
            f"floor {floor:.2f} s")  # fmt: skip
        LINES.append(("Yelp-shaped training epoch", theirs or float("nan"), ours, "s"))
    # Parts of a step repeated alone leave the model spoilt: nothing is learned from here on.
    stage("a step by kernels", lambda: profile(trainer))
    stage("a step by parts", lambda: stage_times(trainer))
    if tuned:
        stage("other cuts of a step", lambda: tune(trainer))


def timed_epoch(trainer: GpuTrainer, number: int) -> float:
    torch.cuda.synchronize()
    began = time.perf_counter()
    loss = trainer.epoch(0, number)
    took = time.perf_counter() - began
    say(f"epoch {number}: {took:.3f} s, {took / trainer.steps * 1e6:.1f} us a step, mean loss {loss:.4f}, "
        f"{torch.cuda.max_memory_allocated() / 1e9:.2f} GB at most")  # fmt: skip
    return took


# ---- scoring


def score(quick: bool, tuned: bool) -> None:
    data = made_up_data(users=70, items=50, pairs=500)
    torch.manual_seed(0)
    model = Carp(make_config(Carp, {}), replace(data.sizes, users=USERS, items=ITEMS)).to(DEVICE).eval()
    viewpoints, aspects = (torch.randn(size, 5, 25, device=DEVICE) * 0.5 for size in (USERS, ITEMS))
    count = 4_000_000 if quick else 20_000_000
    users, items = (torch.randint(0, size, (count,), device=DEVICE) for size in (USERS, ITEMS))
    theirs = stage("straightforward scoring", lambda: straightforward_scores(model, viewpoints, aspects, users, items))
    stage(
        "other cuts of scoring",
        lambda: cuts(MORE_CUTS if tuned else FEW_CUTS, model, viewpoints, aspects, users, items),
    )
    for products in ("tf32", "tf32x3"):
        cut = Cut(products=products)
        took = stage(
            f"{count:,} pairs in any order, {products}",
            lambda cut=cut: seconds_each(lambda: score_pairs_gpu(model, viewpoints, aspects, users, items, cut), 2, 1),
        )
        if took:
            say(
                f"{count / took / 1e6:.1f} million pairs a second, "
                f"{count * 125e3 / took / 1e12:.1f} TFLOP/s of useful work"
            )
            LINES.append(
                (f"scoring pairs from ready sides ({products})", theirs or 0.0, count / took / 1e6, "million/s")
            )
        people = torch.arange(256 if quick else 1024, device=DEVICE)
        took = stage(
            f"the best 10 of the catalogue for {len(people)} people, {products}",
            lambda cut=cut, people=people: seconds_each(
                lambda: top_items_gpu(model, viewpoints, aspects, people, 10, cut=cut), 2, 1
            ),
        )
        if took:
            rate = len(people) * ITEMS / took / 1e6
            say(f"{rate:.1f} million pairs a second")
            LINES.append((f"best 10 of the catalogue ({products})", theirs or 0.0, rate, "million/s"))


def straightforward_scores(model: Carp, viewpoints: Tensor, aspects: Tensor, users: Tensor, items: Tensor) -> float:
    plain = Straightforward(model).to(DEVICE).eval()
    best = 0.0
    with torch.no_grad():
        for size in (20_000, 100_000):
            u, i = users[:size], items[:size]
            each = seconds_each(lambda u=u, i=i: plain.score(u, i, viewpoints[u], aspects[i]), 5)
            say(f"{size:,} pairs at once: {size / each / 1e6:.1f} million a second")
            best = max(best, size / each / 1e6)
    return best


FEW_CUTS = [Cut(), Cut(stages=3), Cut(128, 8), Cut(products="tf32x3")]
MORE_CUTS = [
    *(Cut(block, warps, stages) for block, warps in ((64, 4), (128, 8)) for stages in (1, 2, 3, 4)),
    *(Cut(block, warps, stages, "tf32x3") for block, warps in ((64, 4), (128, 8)) for stages in (1, 2, 3)),
]


def cuts(choices: list[Cut], model: Carp, viewpoints: Tensor, aspects: Tensor, users: Tensor, items: Tensor) -> None:
    users, items = users[:2_000_000], items[:2_000_000]
    people = torch.arange(32, device=DEVICE)
    for cut in choices:
        scorer = Scorer(model, cut)
        v, a = scorer.padded(viewpoints), scorer.padded(aspects)
        some = v[people]
        try:
            listed = len(users) / seconds_each(lambda s=scorer, v=v, a=a: s.of_pairs(v, a, users, items), 2, 1)
            dense = len(people) * ITEMS / seconds_each(lambda s=scorer, v=some, a=a: s.of_rectangle(v, a), 2, 1)
            say(f"  {cut}: {listed / 1e6:.0f} million pairs a second, {dense / 1e6:.0f} dense")
        except Exception as error:
            say(f"  {cut} does not work: {str(error).splitlines()[0][:120]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    parser.add_argument("--part", choices=["all", "check", "train", "score", "tune"], default="all")
    parser.add_argument("--out", type=Path, help="a file to which one JSON line with all that was measured is added")
    given = parser.parse_args()
    began = time.perf_counter()
    if not torch.cuda.is_available():
        sys.exit("no GPU can be used here")
    name = torch.cuda.get_device_name()
    say(f"{name}, torch {torch.__version__}, {' '.join(sys.argv)}")
    stage("ceilings", ceilings)
    if given.part in ("all", "check"):
        check()
    if given.part in ("all", "train", "tune"):
        train(given.quick, tuned=given.part == "tune")
    if given.part in ("all", "score", "tune"):
        score(given.quick, tuned=given.part == "tune")
    say(f"\n{name}, {time.perf_counter() - began:.0f} s in all; failed: {FACTS.get('failed', 'nothing')}")
    say(f"{'work':48} {'straightforward':>16} {'ours':>12} {'ratio':>7}")
    for work, theirs, ours, unit in LINES:
        say(f"{work:48} {theirs:11.2f} {unit:9} {ours:7.2f} {unit:9} {ratio(theirs, ours, unit):5.1f}")
    for work, theirs, ours, unit in LINES:
        say(f"{work}\t{theirs:.4g} {unit}\t{ours:.4g} {unit}\t{ratio(theirs, ours, unit):.3g}")
    if given.out is not None:
        record = {"card": name, "torch": torch.__version__, "command": sys.argv, "lines": LINES, **FACTS}
        with given.out.open("a") as file:
            file.write(json.dumps(record) + "\n")


def ratio(theirs: float, ours: float, unit: str) -> float:
    """How many times better: less time, or more a second."""
    return theirs / ours if unit == "s" else ours / max(theirs, 1e-30)


if __name__ == "__main__":
    main()
