"""Every operation of preparing, training, saving, updating, forgetting and benching fails in turn, as SQLite is tested.

    python benchmarks/failing_operations.py --job save --error full --step 1

The first open, write, flush, rename or allocation fails, then the second, and so on until the work succeeds. After
each, the old state or the new one is there, never a mixture; a training that goes on ends with the same bits; and what
was refused was told in words. Only where memory fails may a library end the process. failing_operations.c lies between
the process and the system to make it so.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import errno
import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import carp
import damaged_bundles
import hostile_bundles
from carp.bench.datasets import find_sources
from carp.bench.grid import Grid, read_systems, run_grid
from carp.cli import entry
from carp.errors import CarpError
from carp.kernels.gpu.self_check import made_up_data, small_model
from carp.reviews.corpora.corpus import Corpus, build_corpus
from carp.training.loop import TrainingSettings, train
from carp.upkeep.forgetting import forget_person
from carp.upkeep.updating import update_model
from made_up_reviews import shop_reviews, write_shop

ERRORS = {
    "full": errno.ENOSPC,
    "broken": errno.EIO,
    "read-only": errno.EROFS,
    "memory": errno.ENOMEM,
    "killed": -1,
}
MOST = 5000  # operations of a job
REFUSED, UNFORESEEN = 3, 4  # how a child ends
CPU = torch.device("cpu")


@dataclass
class Job:
    """Work that is to be interrupted in a folder: what is there before, the work, and what may be there afterwards."""

    lay_out: Callable[[Path], None]
    work: Callable[[Path], None]
    state: Callable[[Path], str]  # must be one of these
    allowed: set[str]


def preparing(place: Path) -> Job:
    """A corpus replaces another."""
    for seed in (1, 2):
        write_shop(place / f"{seed}.jsonl", people=12, seed=seed)
        _command("prepare", place / f"{seed}.jsonl", "--out", place / f"corpus{seed}")
    states = {Corpus.load(place / f"corpus{seed}").fingerprint for seed in (1, 2)}
    return Job(
        lambda folder: _copy(place / "corpus1", folder / "corpus"),
        lambda folder: _command("prepare", place / "2.jsonl", "--out", folder / "corpus", "--overwrite"),
        lambda folder: Corpus.load(folder / "corpus").fingerprint,
        states,
    )


def _command(*words: object) -> None:
    """A command as it is typed; what it refuses is raised."""
    said = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
        code = entry.main([*map(str, words)])
    if "bug in carp" in said.getvalue():
        raise RuntimeError(said.getvalue())
    if code:
        raise CarpError(said.getvalue())


def saving(place: Path) -> Job:
    """A model replaces another."""
    tiny = {"dimension": 4, "filters": 4, "latent_size": 3, "viewpoints": 2, "epochs": 1}
    corpus = build_corpus(shop_reviews(people=12, seed=1), min_reviews=1)
    models = [carp.Recommender("carp", device="cpu", seed=seed, **tiny).fit(corpus, progress=False) for seed in (1, 2)]
    models[0].save(place / "model1")

    def state(folder: Path) -> str:
        return _bits(carp.load(folder / "model", device="cpu"))

    return Job(
        lambda folder: _copy(place / "model1", folder / "model"),
        lambda folder: _nothing(models[1].save(folder / "model", overwrite=True)),
        state,
        {_bits(model) for model in models},
    )


def _bits(model: Any) -> str:
    total = hashlib.sha256(str(model.seed).encode())
    for tensor in model.model.state_dict().values():
        total.update(tensor.numpy().tobytes())
    return total.hexdigest()


def training(place: Path) -> Job:
    """A training with checkpoints, resumed after whatever happened."""
    data = made_up_data(users=8, items=6, pairs=40, review=5)
    settings = TrainingSettings(epochs=2, batch_size=20)

    def trained(folder: Path | None, *, resume: bool = False) -> str:
        model = small_model(data)
        train(model, data, settings, device=CPU, folder=folder, resume=resume, identity="one")
        return hashlib.sha256(b"".join(t.numpy().tobytes() for t in model.state_dict().values())).hexdigest()

    return Job(
        lambda folder: folder.mkdir(),
        lambda folder: _nothing(trained(folder / "run")),
        lambda folder: trained(folder / "run", resume=True),
        {trained(None)},
    )


def updating(place: Path) -> Job:
    """New reviews come into a model."""
    new = place / "new.jsonl"
    write_shop(new, people=6, seed=9)
    return _upkeep(place, lambda model: update_model(model, new, device="cpu"))


def forgetting(place: Path) -> Job:
    """A person is taken out of a model."""
    user = shop_reviews().users[0]
    return _upkeep(place, lambda model: forget_person(model, user, device="cpu"))


def _upkeep(place: Path, work: Callable[[Path], Any]) -> Job:
    """A model is revised in its place: every byte of it that is read is the old one's or the new one's."""
    hostile_bundles.make_bundle(place / "old")
    _copy(place / "old", place / "new")
    work(place / "new")
    states = {damaged_bundles.content_of(place / name) for name in ("old", "new")}
    assert len(states) == 2, "the work changes nothing"
    return Job(
        lambda folder: _copy(place / "old", folder / "model"),
        lambda folder: _nothing(work(folder / "model")),
        lambda folder: damaged_bundles.content_of(folder / "model"),
        states,
    )


def benching(place: Path) -> Job:
    """A grid of cells, run again after whatever happened: each cell once, with the same numbers."""
    build_corpus(shop_reviews(people=12, seed=1), min_reviews=1).save(place / "corpus")
    cells = Grid(read_systems("mean,bias"), find_sources([place / "corpus"]), 2, {}).cells()

    def state(folder: Path) -> str:
        outcome = run_grid(cells, folder / "results", device="cpu", retry=True)
        lines = [json.loads(line) for line in (folder / "results" / "bench.jsonl").read_bytes().splitlines()]
        assert not outcome.failed
        assert sorted(line["id"] for line in lines) == sorted(cell.identity for cell in cells)
        return json.dumps(sorted((line["id"], line["test_mse"]) for line in lines))

    (place / "whole").mkdir()
    return Job(
        lambda folder: folder.mkdir(),
        lambda folder: _nothing(run_grid(cells, folder / "results", device="cpu")),
        state,
        {state(place / "whole")},
    )


def _nothing(_: Any) -> None:
    return None


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(exist_ok=True)
    shutil.copytree(source, target)


JOBS: dict[str, Callable[[Path], Job]] = {
    "prepare": preparing,
    "save": saving,
    "train": training,
    "update": updating,
    "forget": forgetting,
    "bench": benching,
}


# ---- in the process that is lied to


class Faults:
    """failing_operations.c, loaded before everything else."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL(None)
        self.library.faults_arm.argtypes = [ctypes.c_char_p, ctypes.c_long, ctypes.c_int]
        self.library.faults_failed.restype = ctypes.c_char_p
        self.library.faults_counted.restype = ctypes.c_long

    @contextlib.contextmanager
    def failing(self, folder: Path, operation: int, error: int) -> Iterator[None]:
        self.library.faults_arm(os.fsencode(folder), operation, error)
        try:
            yield
        finally:
            self.library.faults_disarm()


def _serve(job_name: str, error_name: str, first: int, step: int) -> None:
    """Interrupt a job at every `step`-th operation; one line of JSON about it all."""
    torch.set_num_threads(1)
    faults, counts, wrong = Faults(), Counter[str](), []
    with tempfile.TemporaryDirectory() as place_name:
        place = Path(place_name)
        (place / "made").mkdir()
        job = JOBS[job_name](place / "made")
        for operation in range(first, MOST, step):
            folder = place / "here"
            shutil.rmtree(folder, ignore_errors=True)
            job.lay_out(folder)
            ended, said = _forked(lambda: _interrupted(faults, job, folder, operation, ERRORS[error_name]))  # noqa: B023
            counts[said.split("|")[0]] += 1
            if ended == UNFORESEEN and error_name != "memory":
                wrong.append(f"{operation}: {said}")
            after, found = _forked(lambda: _tell_state(job, folder))  # noqa: B023
            if after != 0 or found not in job.allowed:
                wrong.append(f"{operation}, afterwards: {found[:200]} ({said[:100]})")
            elif left := [one.name for one in folder.iterdir() if one.name.endswith(("partial", "replaced"))]:
                counts["left something that the next run sweeps"] += len(left) > 0
            if said.startswith("done|0"):
                break
        else:
            wrong.append("the work never succeeds")
    print(json.dumps({"job": job_name, "error": error_name, "operations": operation, "counts": counts, "wrong": wrong}))


def _interrupted(faults: Faults, job: Job, folder: Path, operation: int, error: int) -> tuple[int, str]:
    code, said = 0, "done"
    try:
        with faults.failing(folder, operation, error):
            job.work(folder)
    except (CarpError, MemoryError, OSError) as refusal:
        told = isinstance(refusal, CarpError) or error == errno.ENOMEM
        code, said = (REFUSED, "refused") if told else (UNFORESEEN, f"raised {refusal!r}"[:200])
    except RuntimeError as refusal:  # torch says so where there is no memory
        told = error == errno.ENOMEM and "memory" in str(refusal)
        code, said = (REFUSED, "refused") if told else (UNFORESEEN, f"raised {refusal!r}"[:200])
    except BaseException as unforeseen:
        code, said = UNFORESEEN, f"raised {unforeseen!r}"[:200]
    reached = int(faults.library.faults_counted() >= operation)
    return code, f"{said}|{reached}|{faults.library.faults_failed().decode()}"


def _tell_state(job: Job, folder: Path) -> tuple[int, str]:
    try:
        return 0, job.state(folder)
    except BaseException as error:
        return UNFORESEEN, repr(error)


def _forked(work: Callable[[], tuple[int, str]]) -> tuple[int, str]:
    """What work told in a process of its own, and how that ended."""
    told, tell = os.pipe()
    child = os.fork()
    if not child:
        os.close(told)
        signal.alarm(120)
        code, said = work()
        os.write(tell, said.encode()[:4000])
        os._exit(code)
    os.close(tell)
    with open(told, "rb") as pipe:  # noqa: PTH123
        said = pipe.read().decode(errors="replace")
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        killed = os.WTERMSIG(status) == signal.SIGKILL
        return (REFUSED, "killed|1|") if killed else (UNFORESEEN, f"signal {os.WTERMSIG(status)}|1|")
    return os.WEXITSTATUS(status), said


# ---- outside


def run(job: str, error: str, *, first: int = 1, step: int = 1) -> dict[str, Any]:
    """Interrupt a job at its operations, counted from `first` in steps; how often it ended how, and what is wrong."""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "faults.so"
        source = Path(__file__).with_suffix(".c")
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", str(source), "-o", str(library), "-ldl"], check=True)
        command = [sys.executable, "-W", "ignore", __file__, "--serve", "--job", job, "--error", error]
        environment = {**os.environ, "LD_PRELOAD": str(library), "OMP_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
        numbered = ["--first", str(first), "--step", str(step)]
        done = subprocess.run([*command, *numbered], env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{done.returncode}: {done.stderr[-3000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--job", choices=[*JOBS, "all"], default="all")
    parser.add_argument("--error", choices=[*ERRORS, "all"], default="all")
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--step", type=int, default=1)
    parser.add_argument("--serve", action="store_true", help="for its own use: in the process that is lied to")
    given = parser.parse_args()
    if given.serve:
        _serve(given.job, given.error, given.first, given.step)
        return 0
    faults = 0
    for job in JOBS if given.job == "all" else [given.job]:
        for error in ERRORS if given.error == "all" else [given.error]:
            report = run(job, error, first=given.first, step=given.step)
            print(json.dumps(report), flush=True)
            faults += len(report["wrong"])
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
