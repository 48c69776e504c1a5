"""Speed on the CPU, as ratios against the straightforward form measured in the same run, the two taking turns.

    python benchmarks/speed.py [CORPUS] [--out results/speed-cpu.json] [--rounds 6] [--only scoring]
    python benchmarks/speed.py [CORPUS] --growth [--out results/growth-cpu.json]

CORPUS is a folder made by `carp prepare`; without one, Musical Instruments from ../shared/data is used where it is,
else the made-up shop. A table comes first; the last lines are one a work, tab-separated: name, straightforward, ours,
ratio. A training epoch is the mean time of a step times the steps of an epoch, for both forms. Works of the model
`meeting` stand beside the same works of `carp` instead, and its fit beside the time it may take (meeting_speed.py).
Operations are counted from the shapes (a multiplication and an addition are two), and held against the fastest large
matrix product of this machine; bytes are those that must move from or to memory at least once, held against a large
copy.

`--growth` repeats the corpus's reviews, each copy with users and items of its own, trains a fixed number of steps on
each size in a process of its own, and gives the epoch that follows from them with the process's peak memory.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import source_tree
from carp.kernels.best_items import top_items
from carp.kernels.cpu.cpu_trainer import CpuTrainer
from carp.models.batch import Pairs, TrainingData
from carp.models.carp import Carp, CarpConfig
from carp.models.predict import encode_documents, score_pairs
from carp.reviews.corpora.corpus import Corpus, build_corpus
from carp.reviews.documents import Documents
from carp.reviews.shop.made_up_shop import make_shop
from carp.reviews.sources.formats import read_reviews
from carp.reviews.split import random_split
from carp.reviews.text.vocabulary import TextSettings
from carp.training.fitted_corpus import fit_corpus
from carp.training.loop import TrainingSettings, make_optimizer, repeatable
from growth import BATCH, endless, growth, growth_at
from meeting_speed import meeting_rows
from straightforward import Straightforward, document_words, predict, training_steps

CPU = torch.device("cpu")
WORKS = "training", "encoding", "scoring", "predicting", "help", "meeting"


@dataclass
class Work:
    """Numbers are seconds, or a rate where the name says "per second"."""

    name: str
    straightforward: float
    ours: float
    gigaflop: float = 0.0  # a second, ours
    gigabytes: float = 0.0

    @property
    def ratio(self) -> float:
        return self.ours / self.straightforward if "per second" in self.name else self.straightforward / self.ours


def load(path: str | None) -> tuple[str, Corpus]:
    if path is not None:
        return Path(path).name, Corpus.load(Path(path))
    real = source_tree.ROOT.parent / "shared" / "data" / "reviews_Musical_Instruments_5.json.gz"
    if real.exists():
        return "musical-instruments", build_corpus(read_reviews(str(real)))
    return "made-up shop", build_corpus(read_reviews(make_shop(seed=0).frame()))


clock = time.perf_counter


def seconds(function: Callable[[], Any]) -> float:
    began = clock()
    function()
    return clock() - began


def in_turns(theirs: Callable[[], Any], ours: Callable[[], Any], rounds: int) -> tuple[float, float]:
    """The median seconds of each, taken in turns so that whatever else the machine does hits both."""
    theirs(), ours()
    times = [(seconds(theirs), seconds(ours)) for _ in range(rounds)]
    return statistics.median(t for t, _ in times), statistics.median(t for _, t in times)


# ---- the works


def training(model: Carp, plain: Straightforward, data: TrainingData, rounds: int) -> Iterator[Work]:
    steps = -(-len(data.train) // BATCH)
    trainer = CpuTrainer(model.train(), data, BATCH, make_optimizer(model, TrainingSettings()))
    counted = next(trainer.maker.steps(0, 1))
    ours, theirs = endless(trainer), _endless_plain(plain, data)
    with repeatable():
        a, b = in_turns(lambda: next(theirs), lambda: [next(ours) for _ in range(4)], 2 * rounds)
    flop, moved = _step_cost(model.config, counted)
    yield Work("training epoch, seconds", a * steps, b / 4 * steps, flop / (b / 4) / 1e9, moved / (b / 4) / 1e9)


def _endless_plain(plain: Straightforward, data: TrainingData) -> Iterator[float]:
    epoch = 0
    while True:
        epoch += 1
        yield from training_steps(plain, data, BATCH, epoch=epoch)


def _step_cost(config: CarpConfig, step: Any) -> tuple[float, float]:
    """Operations and bytes of a step: gates, projection and convolution three times (forward once, backward twice)."""
    n, m, k, d = config.filters, config.viewpoints, config.latent_size, config.dimension
    tokens = sum(len(side) for side in step.sides)
    words = sum(side.last - side.first for side in step.words.sides)
    flop = 6 * tokens * (m * n * n + m * n * k) + 6 * words * d * config.window * n
    flop += 6 * len(step.batch) * 2 * m * m * 2 * k * k
    kept = 4 * tokens * (n + 1 + m * n + m * k)  # written going forward, read going backward
    rows = 4 * len(step.words.distinct) * d * 5  # embeddings read twice and written, running squares read and written
    return flop, 2 * kept + rows


def encoding(model: Carp, plain: Straightforward, data: TrainingData, rounds: int) -> Iterator[Work]:
    width, some = data.sizes.max_words, np.random.default_rng(0)
    users, items = data.user_documents, data.item_documents
    chosen = some.choice(len(users), min(100, len(users)), replace=False)
    others = some.choice(len(items), min(100, len(items)), replace=False)

    @torch.no_grad()
    def theirs() -> None:
        plain.encode_users(document_words(users, chosen, width))
        plain.encode_items(document_words(items, others, width))

    def ours() -> None:
        encode_documents(model.encode_users, users, CPU)
        encode_documents(model.encode_items, items, CPU)

    a, b = in_turns(theirs, ours, rounds)
    count, words = len(users) + len(items), len(users.words) + len(items.words)
    flop = _encoding_flop(model, words)
    name = "encoding documents, per second"
    moved = 4 * (words * (3 + 3 * model.config.filters) + count * 125)
    yield Work(name, (len(chosen) + len(others)) / a, count / b, flop / b / 1e9, moved / b / 1e9)


def _encoding_flop(model: Carp, tokens: int) -> float:
    config = model.config
    n, m = config.filters, config.viewpoints
    words = 2 * model.sizes.words * 2 * config.dimension * config.window * n
    return float(words + tokens * 2 * (m * n * n + m * n * config.latent_size))


def scoring(
    model: Carp, plain: Straightforward, data: TrainingData, rounds: int, count: int = 100_000
) -> Iterator[Work]:
    sides = encoded(model, data)
    rng = np.random.default_rng(0)
    users, items = rng.integers(0, data.sizes.users, count), rng.integers(0, data.sizes.items, count)
    pairs = Pairs(users, items, np.zeros(count, np.float32), np.full(count, -1))
    u, i = torch.from_numpy(users[:4000]), torch.from_numpy(items[:4000])

    @torch.no_grad()
    def theirs() -> None:
        plain.score(u, i, sides[0][u], sides[1][i])

    a, b = in_turns(theirs, lambda: score_pairs(model, *sides, pairs), rounds)
    m, k = model.config.viewpoints, model.config.latent_size
    flop = 2 * m * m * 2 * k * (k + 5)  # as ours does it, a user's viewpoints folded into the weights
    yield Work("scoring pairs from ready sides, per second", len(u) / a, count / b, flop * count / b / 1e9,
               4 * 2 * m * k * count / b / 1e9)  # fmt: skip
    some = range(min(200, data.sizes.users))
    a, b = in_turns(theirs, lambda: top_items(model, *sides, 10, users=some), rounds)
    rated = len(some) * data.sizes.items
    yield Work("ten best of all items for each user, pairs per second", len(u) / a, rated / b, flop * rated / b / 1e9)


def _documents(model: Carp, data: TrainingData) -> list[tuple[Any, Documents]]:
    return [(model.encode_users, data.user_documents), (model.encode_items, data.item_documents)]


def encoded(model: Carp, data: TrainingData) -> tuple[Tensor, Tensor]:
    """The sides of all users and of all items."""
    users, items = (encode_documents(encode, documents, CPU) for encode, documents in _documents(model, data))
    return users, items


def predicting(model: Carp, plain: Straightforward, data: TrainingData, test: Pairs, rounds: int) -> Iterator[Work]:
    """The straightforward form encodes both documents of every pair; it is timed on a hundred pairs a turn."""
    sides = encoded(model, data)
    some = np.random.default_rng(0).choice(len(test), min(100, len(test)), replace=False)
    part = Pairs(test.users[some], test.items[some], test.ratings[some], test.records[some])

    def theirs() -> None:
        for _ in predict(plain, data, part):
            pass

    def from_documents() -> None:
        score_pairs(model, *encoded(model, data), test)

    a, b = in_turns(theirs, lambda: score_pairs(model, *sides, test), rounds)
    a *= len(test) / len(part)
    yield Work("predicting the test set with ready sides, seconds", a, b)
    a, b = in_turns(theirs, from_documents, rounds)
    a *= len(test) / len(part)
    yield Work("predicting the test set, each document encoded once, seconds", a, b)


def asking_for_help(rounds: int) -> Work:
    """Against the limit of half a second: there is no other form."""
    command = [sys.executable, "-m", "carp", "--help"]
    environment = {"PYTHONPATH": str(source_tree.SOURCE), "PATH": "/usr/bin:/bin"}
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True, env=environment)
        times.append(time.perf_counter() - began)
    return Work("carp --help against its limit, seconds", 0.5, statistics.median(times))


# ---- the machine


def ceilings() -> tuple[float, float]:
    """Operations a second of a large matrix product and bytes a second of a large copy, in units of 10⁹."""
    a, b = torch.randn(2048, 2048), torch.randn(2048, 2048)
    big, there = torch.randn(40_000_000), torch.empty(40_000_000)
    product = min(seconds(lambda: a @ b) for _ in range(8))
    copy = min(seconds(lambda: there.copy_(big)) for _ in range(8))
    return 2 * 2048**3 / product / 1e9, 2 * big.numel() * 4 / copy / 1e9


def processor() -> str:
    found = Path("/proc/cpuinfo")
    names = [line for line in found.read_text().splitlines() if "model name" in line] if found.exists() else []
    return names[0].split(":")[1].strip() if names else platform.processor() or platform.machine()


def machine() -> dict[str, Any]:
    return {"processor": processor(), "threads": torch.get_num_threads(), "torch": torch.__version__}


def show(name: str, works: list[Work], peak: tuple[float, float]) -> None:
    about = machine()
    print(f"{name}, {about['processor']}, {about['threads']} threads, torch {about['torch']}")
    print(f"ceilings: {peak[0]:.0f} GFLOP/s in a matrix product, {peak[1]:.0f} GB/s in a copy\n")
    columns = ("ratio", 9), ("GFLOP/s", 9), ("of peak", 9), ("GB/s", 7), ("of copy", 9)
    print(f"{'work':62}{'straightforward':>16}{'ours':>14}" + "".join(f"{name:>{width}}" for name, width in columns))
    for work in works:
        flop = f"{work.gigaflop:9.1f}{work.gigaflop / peak[0]:9.0%}" if work.gigaflop else " " * 18
        moved = f"{work.gigabytes:7.1f}{work.gigabytes / peak[1]:9.0%}" if work.gigabytes else ""
        print(f"{work.name:62}{work.straightforward:16.4g}{work.ours:14.4g}{work.ratio:8.1f}×{flop}{moved}")
    print()
    for work in works:
        print(work.name, f"{work.straightforward:.6g}", f"{work.ours:.6g}", f"{work.ratio:.2f}", sep="\t")


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", nargs="?")
    parser.add_argument("--only", nargs="+", choices=WORKS, metavar="WORK", help=f"some of {', '.join(WORKS)}")
    parser.add_argument("--rounds", type=int, default=6, help="turns of each work")
    parser.add_argument("--threads", type=int, help="as many as torch takes, if not given")
    parser.add_argument(
        "--clock", choices=["wall", "cpu"], default="wall", help="cpu: for one thread on a busy machine"
    )
    parser.add_argument("--out", type=Path, help="a JSON file for the results")
    parser.add_argument("--growth", action="store_true")
    parser.add_argument("--growth-at", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--steps", type=int, default=30, help="of training at each size of --growth")
    return parser.parse_args()


def main() -> None:
    global clock
    asked = options()
    clock = time.process_time if asked.clock == "cpu" else time.perf_counter
    if asked.threads:
        torch.set_num_threads(asked.threads)
    name, corpus = load(asked.corpus)
    fitted = fit_corpus(corpus, random_split(corpus.user, corpus.item, seed=0), TextSettings())
    data = fitted.training_data()
    if asked.growth_at:
        print(json.dumps(growth_at(data, asked.growth_at, asked.steps)))
        return
    if asked.growth:
        print("reviews\tepoch, seconds\tpeak memory, MiB")
        found: Any = growth(asked.corpus, asked.steps)
        write(asked.out, {"corpus": name, **machine(), "command": sys.argv, "growth": found})
        return
    torch.manual_seed(0)
    model = Carp(CarpConfig(), data.sizes)
    model.start(data)
    plain = Straightforward(model)
    wanted = asked.only or WORKS
    works = measured(wanted, model, plain, data, fitted.test_pairs(), asked.rounds)
    if "meeting" in wanted:
        works += [Work(*row) for row in meeting_rows(corpus, seconds, in_turns, asked.rounds)]
    peak = ceilings()
    show(name, works, peak)
    rows = [{**asdict(work), "ratio": work.ratio} for work in works]
    ceiling = {"gigaflop_per_second": peak[0], "gigabytes_per_second": peak[1]}
    write(
        asked.out,
        {"corpus": name, **machine(), "command": sys.argv, "clock": asked.clock, "ceilings": ceiling, "works": rows},
    )


def measured(
    wanted: Sequence[str], model: Carp, plain: Straightforward, data: TrainingData, test: Pairs, rounds: int
) -> list[Work]:
    makers: dict[str, Callable[[], Iterable[Work]]] = {
        "training": lambda: training(model, plain, data, rounds),
        "encoding": lambda: encoding(model, plain, data, rounds),
        "scoring": lambda: scoring(model, plain, data, rounds),
        "predicting": lambda: predicting(model, plain, data, test, rounds),
        "help": lambda: [asking_for_help(rounds)],
    }
    works: list[Work] = []
    for name in (name for name in makers if name in wanted):
        model.eval()
        plain.eval()
        works += makers[name]()
    return works


def write(file: Path | None, found: dict[str, Any]) -> None:
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
