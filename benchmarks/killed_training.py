"""Training that is killed at any moment, half of the times inside a save, and resumed: the bits are the same.

    python benchmarks/killed_training.py --kills 200 --seed 0
    python benchmarks/killed_training.py --kills 10 --device cuda

One process imports torch and forks those that are killed, so that each begins quickly. It never touches the GPU
itself, since a process that did could not fork.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import pathlib
import random
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import carp.training.checkpoint as checkpoints
from carp.errors import SlowerWarning
from carp.models.base import make_config
from carp.models.batch import Pairs, Sizes, TrainingData
from carp.models.carp import Carp
from carp.reviews.documents import make_documents
from carp.training.checkpoint import CHECKPOINT, LOG
from carp.training.loop import Silent, TrainingSettings, TrainingState, Watcher, train
from result_lines import tell_report

SETTINGS = TrainingSettings(epochs=6, patience=6, batch_size=12, learning_rate=0.05)
IN_SAVE, BETWEEN = b"s", b"b"
KINDS = ("in a save", "in a save", "between saves", "at any time")
Outcome = dict[str, Any]


def small_data() -> TrainingData:
    rng = np.random.default_rng(0)
    users, items, words = 8, 6, 15
    user, item = (column.ravel() for column in np.meshgrid(np.arange(users), np.arange(items), indexing="ij"))
    ratings = np.clip(3 + rng.normal(0, 1, users)[user] + rng.normal(0, 1, items)[item], 1, 5).astype(np.float32)
    records = np.arange(len(user))
    held_out = records % 4 == 0
    review = np.repeat(records[~held_out], 3).astype(np.int32)
    text = rng.integers(1, words + 1, len(review)).astype(np.int32)
    place = np.tile(np.arange(3), len(review) // 3).astype(np.int32)

    def pairs(chosen: np.ndarray) -> Pairs:
        return Pairs(user[chosen], item[chosen], ratings[chosen], records[chosen])

    return TrainingData(
        pairs(~held_out),
        pairs(held_out),
        make_documents(text, review, place, user.astype(np.int32), users),
        make_documents(text, review, place, item.astype(np.int32), items),
        Sizes(users, items, words),
    )


def small_model(data: TrainingData) -> Carp:
    torch.manual_seed(1)
    config = make_config(Carp, {"dimension": 4, "filters": 4, "latent_size": 3, "viewpoints": 2, "dropout": 0.2})
    return Carp(config, data.sizes)


def trained(
    data: TrainingData,
    folder: Path | None,
    *,
    resume: bool,
    watcher: Watcher | None = None,
    settings: TrainingSettings = SETTINGS,
    identity: str = "a training",
    seed: int = 5,
    device: str = "cpu",
) -> Outcome:
    """Train the small model and tell everything that must be the same after a kill."""
    model = small_model(data)
    place = torch.device(device)
    progress = train(
        model, data, settings, watcher=watcher, seed=seed, device=place, folder=folder, identity=identity, resume=resume
    )
    return _outcome(model, progress)


def _outcome(model: Carp, progress: TrainingState) -> Outcome:
    total = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        total.update(name.encode() + tensor.cpu().numpy().tobytes())
    history = [{k: v for k, v in record.items() if "seconds" not in k} for record in progress.history]
    return {"weights": total.hexdigest(), "best": [progress.best_epoch, progress.best_error], "history": history}


# ---- in the process that is killed


class Moments:
    """Tells the parent of each moment and waits for leave to go on; the parent may kill instead."""

    def __init__(self, tell: int, leave: int) -> None:
        self.tell, self.leave, self.saving = tell, leave, False

    def pause(self) -> None:
        os.write(self.tell, IN_SAVE if self.saving else BETWEEN)
        os.read(self.leave, 1)

    def before(self, operation: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            self.pause()
            return operation(*given, **named)

        return call

    def watch(self) -> Watcher:
        """Pause before each step of a save, in the middle of each file, and after each batch."""
        changed: Any = checkpoints.Checkpoint, pathlib.Path, os, checkpoints
        saver, path, system, module = changed
        save, opened = saver.save, path.open
        saver.save = lambda *given: self.while_saving(save, *given)
        path.open = lambda place, mode="r", *rest, **named: (
            Pieces(opened(place, mode, *rest, **named), self) if mode == "xb" else opened(place, mode, *rest, **named)
        )
        system.fsync = self.before(system.fsync)
        path.replace = self.before(path.replace)
        path.unlink = self.before(path.unlink)
        module.append_json_line = self.before(module.append_json_line)
        watcher: Any = Silent()
        watcher.batch_done = self.pause
        return watcher  # type: ignore[no-any-return]

    def while_saving(self, save: Callable[..., None], *given: Any) -> None:
        self.saving = True
        self.pause()
        save(*given)
        self.pause()
        self.saving = False


class Pieces:
    """A file that reaches the disk in four pieces."""

    def __init__(self, file: Any, moments: Moments) -> None:
        self.file, self.moments = file, moments

    def __enter__(self) -> Pieces:
        return self

    def __exit__(self, *reason: object) -> None:
        self.file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def write(self, data: bytes) -> None:
        step = len(data) // 4 + 1
        for start in range(0, len(data), step):
            self.file.write(data[start : start + step])
            self.file.flush()
            self.moments.pause()


# ---- in the process that kills


class Killer:
    """Starts trainings of the same data on one device, kills them, and finishes them."""

    def __init__(self, folder: Path, device: str) -> None:
        self.folder, self.device, self.data = folder, device, small_data()

    def finish(self, place: Path, *, resume: bool) -> Outcome:
        answer = self.folder / "answer.json"
        child = self._forked(
            lambda: _nothing(
                answer.write_text(json.dumps(trained(self.data, place, resume=resume, device=self.device)))
            )
        )
        assert os.waitpid(child, 0)[1] == 0, "training to the end failed"
        found: Outcome = json.loads(answer.read_text())
        return found

    def step_through(self, place: Path, stop_at: int | None, *, resume: bool = False) -> list[bytes]:
        """Train with a pause at each moment, and kill at the given one. The kinds of all moments there were."""
        told, tell = os.pipe()
        leave, leave_end = os.pipe()

        def work() -> None:
            os.close(told)
            watcher = Moments(tell, leave).watch()
            trained(self.data, place, resume=resume, device=self.device, watcher=watcher)

        child = self._forked(work)
        os.close(tell)
        kinds = []
        while kind := os.read(told, 1):
            kinds.append(kind)
            if len(kinds) - 1 == stop_at:
                os.kill(child, signal.SIGKILL)
                break
            os.write(leave_end, b"g")
        status = os.waitpid(child, 0)[1]
        for end in (told, leave, leave_end):
            os.close(end)
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        assert killed or (status == 0 and stop_at is None), f"the child ended with {status}"
        return kinds

    def kill_after(self, place: Path, seconds: float) -> None:
        """Train at full speed and kill after a while, wherever that is."""
        ended, end = os.pipe()
        child = self._forked(lambda: _nothing(trained(self.data, place, resume=False, device=self.device)))
        os.close(end)
        select.select([ended], [], [], seconds)  # readable as soon as the child is gone
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(ended)

    def _forked(self, work: Callable[[], None]) -> int:
        child = os.fork()
        if child:
            return child
        try:
            if self.device != "cpu":
                warnings.simplefilter("error", SlowerWarning)  # the kernels of the card are meant, not the plain path
            work()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)


def _nothing(_: Any) -> None:
    return None


def drive(folder: Path, kills: int, seed: int, device: str) -> None:
    """Kill so many trainings; one line of JSON about all of them."""
    torch.set_num_threads(1)
    rng, killer = random.Random(seed), Killer(folder, device)
    if device == "cpu":
        trained(killer.data, None, resume=False)  # what torch does only once is done before the first fork
    killer.finish(folder / "first", resume=False)  # kernels that are compiled only once are
    began = time.monotonic()
    expected = killer.finish(folder / "whole", resume=False)
    took = time.monotonic() - began
    kinds = killer.step_through(folder / "counted", None)
    places = {kind: [n for n, found in enumerate(kinds) if found == kind] for kind in (IN_SAVE, BETWEEN)}
    report: dict[str, Any] = {"moments": len(kinds), "kills": []}
    for number in range(kills):
        place, kind = folder / f"killed-{number}", KINDS[number % len(KINDS)]
        if kind == "at any time":
            killer.kill_after(place, rng.random() * took)
        else:
            killer.step_through(place, rng.choice(places[IN_SAVE if kind == "in a save" else BETWEEN]))
        if number % 5 == 0 and (place / CHECKPOINT).exists() and _unfinished(place):
            killer.step_through(place, 1, resume=True)  # and again, soon after resuming
        found = killer.finish(place, resume=True)
        names = sorted(file.name for file in place.iterdir())
        log = [json.loads(line)["epoch"] for line in (place / LOG).read_text().splitlines()]
        report["kills"].append({"kind": kind, "same": found == expected, "names": names, "log": log})
    print(json.dumps(report))


def _unfinished(place: Path) -> bool:
    return bool(json.loads((place / CHECKPOINT).read_bytes())["progress"]["epoch"] < SETTINGS.epochs)


# ---- outside


def run(kills: int, seed: int = 0, device: str = "cpu") -> dict[str, Any]:
    """Kill so many trainings; how many at which kind of moment, and what was not as it should be."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-W", "ignore", __file__, "--drive", folder, "--kills", str(kills)]
        command += ["--seed", str(seed), "--device", device]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"tried": kills, "counts": {}, "faults": [f"seed {seed}: {done.stderr[-3000:]}"]}
    report = json.loads(done.stdout.splitlines()[-1])
    faults = [f"seed {seed}, kill {n}: {wrong}" for n, kill in enumerate(report["kills"]) if (wrong := _wrong(kill))]
    if report["moments"] <= 100:
        faults.append(f"there are only {report['moments']} moments to kill at")
    counts = Counter(kill["kind"] for kill in report["kills"])
    return {"tried": len(report["kills"]), "counts": dict(counts), "faults": faults}


def _wrong(kill: dict[str, Any]) -> str:
    """What a kill left wrong, or nothing."""
    if not kill["same"]:
        return f"{kill['kind']}: other bits"
    if kill["names"] != [CHECKPOINT, f"epoch-{SETTINGS.epochs:04}.safetensors", LOG]:
        return f"{kill['kind']}: left {kill['names']}"
    return "" if kill["log"] == list(range(1, SETTINGS.epochs + 1)) else f"{kill['kind']}: the log has {kill['log']}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--drive", type=Path, help="for its own use: where the process that kills works")
    given = parser.parse_args()
    if given.drive:
        drive(given.drive, given.kills, given.seed, given.device)
        return 0
    return tell_report(run(given.kills, given.seed, given.device))


if __name__ == "__main__":
    sys.exit(main())
