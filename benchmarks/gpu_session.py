"""One run of the GPU benchmarks: its device and sizes, what it says, times and writes down, and what failed."""

from __future__ import annotations

import gc
import json
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, TypeVar

import torch

from carp.bench.cells import current_commit
from carp.kernels.gpu.gpu_trainer import STEPS_AT_ONCE

Found = TypeVar("Found")
Given = ParamSpec("Given")


@dataclass(frozen=True)
class Shape:
    """Of a corpus: pairs to train on, owners of documents, words, and the longest document."""

    pairs: int
    users: int
    items: int
    words: int
    longest: int
    review: float  # words of a review, before documents are cut
    batch: int

    def times(self, share: float) -> Shape:
        """A smaller or larger corpus of the same kind; sizes are multiples of 16, for which kernels are compiled."""
        pairs, users, items = (max(16, round(of * share / 16) * 16) for of in (self.pairs, self.users, self.items))
        return Shape(pairs, users, items, self.words, self.longest, self.review, self.batch)


YELP = Shape(876_000, 167_106, 100_229, 20_000, 300, 27, 200)
REVIEWS = 1_200_000  # of which YELP's pairs are the training part
TINY = Shape(16, 6, 5, 50, 70, 9, 8)  # goes through Triton's interpreter in seconds


class Line(NamedTuple):
    """Of the last table: a work, both forms' figures, and ours against the card's own bytes and operations a second."""

    work: str
    straightforward: float
    ours: float
    unit: str
    bytes_share: float
    operations_share: float


@dataclass
class Session:
    device: torch.device
    name: str
    quick: bool
    rehearsal: bool
    out: Path | None
    shape: Shape
    lines: list[Line] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    ceilings: dict[str, float] = field(default_factory=dict)

    @property
    def burst(self) -> int:
        """Steps that are timed together: as many as a recording holds."""
        return 1 if self.rehearsal else STEPS_AT_ONCE

    @staticmethod
    def begin(quick: bool, rehearsal: bool, out: Path | None) -> Session:
        if rehearsal:
            return Session(torch.device("cpu"), "Triton's interpreter", True, True, out, TINY)
        if not torch.cuda.is_available():
            sys.exit("no GPU can be used here; --rehearse goes through the parts without one")
        return Session(torch.device("cuda"), torch.cuda.get_device_name(), quick, False, out, YELP)

    def note(self, work: str, **facts: Any) -> None:
        """One JSON line, at once: a run that is cut short keeps what it measured."""
        if self.out is None:
            return
        of = {"card": self.name, "torch": torch.__version__, "commit": current_commit(), "command": sys.argv[1:]}
        self.out.parent.mkdir(parents=True, exist_ok=True)
        with self.out.open("a") as file:
            file.write(json.dumps({**of, "work": work, **facts}, default=str) + "\n")

    def compare(
        self, name: str, theirs: float | None, ours: float, unit: str, shares: tuple[float, float] | None = None
    ) -> None:
        theirs = float("nan") if theirs is None else theirs
        moved, computed = shares or (float("nan"), float("nan"))
        self.lines.append(Line(name, theirs, ours, unit, moved, computed))
        found = {"straightforward": theirs, "ours": ours, "unit": unit, "ratio": ratio(theirs, ours, unit)}
        self.note(name, **found, bytes_share=moved, operations_share=computed)

    def stage(self, name: str, work: Callable[Given, Found], *given: Given.args, **more: Given.kwargs) -> Found | None:
        """Run one part; if it fails, say how and go on with the others."""
        say(f"\n== {name}")
        began = time.perf_counter()
        try:
            found = work(*given, **more)
            self.wait()
        except Exception as error:
            say("\n".join(traceback.format_exc().splitlines()[-12:]))
            say(f"-- {name} FAILED after {time.perf_counter() - began:.1f} s")
            self.fail(name, error)
            return None
        say(f"-- {name}: {time.perf_counter() - began:.1f} s")
        return found

    def fail(self, name: str, error: object) -> None:
        self.failed.append(name)
        self.note("failed", what=name, why=" ".join(str(error).split())[:500])

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def alive(self) -> bool:
        """Whether the card still answers: after some errors it refuses everything for the rest of the process."""
        try:
            torch.zeros(1, device=self.device).add_(1)
            self.wait()
        except Exception:
            return False
        return True

    def seconds_each(self, work: Callable[[], Any], times: int, warm: int = 2) -> float:
        """Seconds a call, after some calls that do not count."""
        for _ in range(warm):
            work()
        self.wait()
        if self.device.type != "cuda":
            began = time.perf_counter()
            for _ in range(times):
                work()
            return (time.perf_counter() - began) / times
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        begin.record()
        for _ in range(times):
            work()
        end.record()
        torch.cuda.synchronize()
        return float(begin.elapsed_time(end)) / 1000 / times

    def forget(self) -> None:
        """Memory that is no longer used goes back, and the peak is counted anew."""
        gc.collect()  # recorded steps refer to each other in circles
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()

    def peak(self) -> int:
        return torch.cuda.max_memory_allocated() if self.device.type == "cuda" else 0

    def finish(self) -> int:
        say(f"\n{'work':44} {'straightforward':>22} {'ours':>20} {'ratio':>7} {'of bytes':>9} {'of operations':>14}")
        for line in self.lines:
            times = ratio(line.straightforward, line.ours, line.unit)
            figures = f"{line.straightforward:12.3f} {line.unit:9} {line.ours:10.3f} {line.unit:9} {times:7.1f}"
            say(f"{line.work:44} {figures} {line.bytes_share:9.1%} {line.operations_share:14.1%}")
        say(f"failed: {', '.join(self.failed) or 'nothing'}")
        for line in self.lines:
            times = ratio(line.straightforward, line.ours, line.unit)
            unit = line.unit
            say(f"{line.work}\t{line.straightforward:.4g} {unit}\t{line.ours:.4g} {unit}\t{times:.3g}")
        return 1 if self.failed else 0


def say(line: str = "") -> None:
    print(line, flush=True)


def ratio(theirs: float, ours: float, unit: str) -> float:
    """How many times better: less time, or more a second."""
    return theirs / ours if unit == "s" else ours / theirs


def measure_ceilings(session: Session) -> None:
    """What the card itself reaches: copying, and products in tf32 and half precision."""
    size = 1 << (14 if session.rehearsal else 29)
    side = 64 if session.rehearsal else 8192
    source = torch.randn(size, device=session.device)
    target = torch.empty_like(source)
    session.ceilings["bytes"] = 2 * size * 4 / session.seconds_each(lambda: target.copy_(source), 10)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    a, b = (torch.randn(side, side, device=session.device) for _ in range(2))
    session.ceilings["tf32"] = 2 * side**3 / session.seconds_each(lambda: a @ b, 10)
    torch.set_float32_matmul_precision(before)
    a, b = a.half(), b.half()
    session.ceilings["half"] = 2 * side**3 / session.seconds_each(lambda: a @ b, 10)
    in_tera = {name: value / 1e12 for name, value in session.ceilings.items()}
    say(f"copy {in_tera['bytes']:.2f} TB/s; products: tf32 {in_tera['tf32']:.0f}, half {in_tera['half']:.0f} TFLOP/s")
    session.note("ceilings", **session.ceilings)


def against_ceilings(
    session: Session, name: str, moved: float, computed: float, seconds: float, products: str = "tf32"
) -> tuple[float, float]:
    """Shares of the card's bytes and operations a second, by our counting of the least a work moves and computes."""
    copy = session.ceilings.get("bytes", float("nan"))
    product = session.ceilings.get("half" if products == "half" else "tf32", float("nan"))
    floor = max(moved / copy, computed / product)
    shares = moved / seconds / copy, computed / seconds / product
    say(
        f"{name}: at least {moved / 1e9:.3g} GB and {computed / 1e12:.3g} TFLOP, {shares[0]:.1%} and {shares[1]:.1%} "
        f"of the card's; floor {floor:.3g} s of {seconds:.3g} s"
    )
    session.note("floor", what=name, bytes=moved, operations=computed, floor=floor, seconds=seconds, products=products)
    return shares
