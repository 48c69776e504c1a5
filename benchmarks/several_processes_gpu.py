"""One process against two on one card: the same losses, and weights that either can go on from.

    PYTHONPATH=src python benchmarks/several_processes_gpu.py [--hosts] --out results/several-processes-gpu.jsonl

It needs torch, triton, numpy and safetensors alone. In double precision CARP and two other models, one of them also
with its word table divided, are trained by one process and by two that share the card: losses have to agree to 1e-5,
relative, and the weights of one, then two, then one process to 1e-6 with those of one that was not interrupted. In
single precision CARP is trained by the kernels: the losses at a small rate have to agree to 1e-4, relative, and the
gradients of a step to 1e-3 of the largest, since TF32, in which products are taken, rounds by half of that. A process
that is alone in its company takes part by NCCL, which refuses two processes on one card: they exchange by gloo. With
--hosts each process is told that it is on a machine of its own, with one card, and NCCL believes it: then the two
exchange by NCCL, through sockets as between machines. Where there is no card, --rehearsal does the same on the
processor.

There is little data, few steps and, in single precision, a small rate, since RMSprop's path is chaotic: a gradient that
is rounding alone moves a weight as far as any other. How chaotic, the line tells as `nudged`: how far the losses of one
process move when its weights begin larger by a rounding, in single precision with the same little data at the usual
rate, and in double precision with 3,001 pairs.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed as distributed
from torch import Tensor

import source_tree  # noqa: F401
from carp.kernels.gpu.self_check import made_up_data
from carp.models import model_class
from carp.models.base import RatingModel, make_config
from carp.models.batch import TrainingData
from carp.storage import load_arrays, save_arrays
from carp.training.company import Company, joined
from carp.training.loop import TrainingSettings, train

MODELS = ["carp", "deepconn", "mf", "deepconn:divided"]  # the last with its word table divided between the two
EPOCHS = 3
RATE, SMALL_RATE = 0.002, 1e-5
ROUNDING = {torch.float32: 1e-7, torch.float64: 1e-14}
LOSSES, WEIGHTS = 1e-5, 1e-6  # the largest relative and absolute distance allowed in double precision
KERNELS, TF32 = 1e-4, 1e-3  # of losses and of gradients in single precision, relative
KERNEL_WEIGHTS, GRADIENTS = "kernels.safetensors", "gradients.safetensors"
Found = tuple[list[float], dict[str, Tensor], float]


@dataclasses.dataclass(frozen=True)
class Trial:
    device: torch.device

    @property
    def small(self) -> bool:
        return self.device.type == "cpu"

    def data(self) -> TrainingData:
        return made_up_data(users=9, items=7, pairs=41, review=9, longest=25)

    def more_data(self) -> TrainingData:
        return made_up_data(users=300, items=200, pairs=3_001, words=2_000, longest=200, review=40)

    def model(self, name: str, data: TrainingData, kind: torch.dtype, *, whole: bool = False) -> RatingModel:
        """Of its usual size where the kernels train it or `whole` is asked for, unless this is a rehearsal."""
        torch.manual_seed(3)
        of = model_class(name)
        known = {field.name for field in dataclasses.fields(of.Config)}
        wanted = {"dimension": 6, "filters": 5, "latent_size": 4, "viewpoints": 2, "factors": 3, "hidden": 6}
        own = {
            key: value
            for key, value in wanted.items()
            if key in known and (self.small or not (whole or kind == torch.float32))
        }
        return of(make_config(of, own), data.sizes).to(kind)

    def trained(self, name: str, epochs: int, folder: Path | None = None) -> Found:
        """Losses of the epochs in double precision, the weights on the processor, and seconds of the last epoch."""
        data, (name, _, divided) = self.data(), name.partition(":")
        table = "divided" if divided and Company.present() is not None else "auto"
        return self._run(self.model(name, data, torch.float64), data, epochs, RATE, folder=folder, word_table=table)

    def by_kernels(self) -> Found:
        data = self.data()
        return self._run(self.model("carp", data, torch.float32), data, EPOCHS, SMALL_RATE)

    def gradients(self, folder: Path) -> dict[str, Tensor]:
        """How large every gradient of one step over all pairs is: the roots of RMSprop's first running squares."""
        data = self.data()
        self._run(self.model("carp", data, torch.float32), data, 1, RATE, folder=folder, batch_size=len(data.train))
        (file,) = folder.glob("epoch-*.safetensors")
        kept = {key: torch.from_numpy(value) for key, value in load_arrays(file).items()}
        return {key: value.sqrt() for key, value in kept.items() if key.endswith("square_avg")}

    def nudged(self, kind: torch.dtype) -> float:
        """How far the losses move when the weights begin larger by a rounding."""
        data = self.more_data() if kind == torch.float64 else self.data()
        found = []
        for nudge in (0.0, ROUNDING[kind]):
            model = self.model("carp", data, kind, whole=True)
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.mul_(1 + nudge)
            found.append(self._run(model, data, EPOCHS, RATE, batch_size=20 if kind == torch.float32 else 64)[0])
        return relative(found[1], found[0])

    def _run(
        self,
        model: RatingModel,
        data: TrainingData,
        epochs: int,
        rate: float,
        *,
        folder: Path | None = None,
        batch_size: int = 20,
        word_table: Any = "auto",
    ) -> Found:
        settings = TrainingSettings(batch_size=batch_size, epochs=epochs, learning_rate=rate)
        going_on: dict[str, Any] = {"folder": folder, "resume": folder is not None, "word_table": word_table}
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message=".*takes the plain path")
            reached = train(model, data, settings, seed=3, device=self.device, exactly=epochs, **going_on)
        weights = {key: value.cpu() for key, value in model.state_dict().items()}
        return [one["loss"] for one in reached.history], weights, float(reached.history[-1]["seconds"])


def member(trial: Trial, folder: Path) -> None:
    """One of two processes: every model from its beginning, and from the checkpoint that one process has left."""
    with joined(trial.device):
        company = Company.present()
        assert company is not None
        losses: dict[str, Any] = {"backend": str(distributed.get_backend_config())}
        for name in MODELS:
            losses[name] = trial.trained(name, EPOCHS)[0]
            trial.trained(name, 2, folder / name)
        losses["kernels"], weights, losses["seconds"] = trial.by_kernels()
        gradients = trial.gradients(folder / "shared gradients")
        if company.leads:
            for file, arrays in ((KERNEL_WEIGHTS, weights), (GRADIENTS, gradients)):
                save_arrays(folder / file, {key: value.numpy() for key, value in arrays.items()})
            (folder / "losses.json").write_text(json.dumps(losses))


def free_port() -> str:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return str(one.getsockname()[1])


def run_members(count: int, folder: Path, rehearsal: bool, hosts: bool) -> dict[str, Any]:
    own = {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": "1" if hosts else str(count), "MASTER_ADDR": "127.0.0.1"}
    own |= {"MASTER_PORT": free_port()}
    command = [sys.executable, str(Path(__file__).resolve()), "--member", str(folder)]
    command += ["--rehearsal"] if rehearsal else []
    ranks = [{"RANK": str(rank), "LOCAL_RANK": "0" if hosts else str(rank)} for rank in range(count)]
    if hosts:  # NCCL compares the names of machines before it compares cards
        ranks = [{**one, "NCCL_HOSTID": f"host-{one['RANK']}", "NCCL_SOCKET_IFNAME": "lo"} for one in ranks]
    started = [subprocess.Popen(command, env={**os.environ, **own, **rank}) for rank in ranks]
    codes = [process.wait() for process in started]
    if any(codes):
        raise SystemExit(f"a process failed: exit codes {codes}")
    found: dict[str, Any] = json.loads((folder / "losses.json").read_text())
    return found


def relative(found: list[float], wanted: list[float]) -> float:
    return max(abs(a - b) / abs(b) for a, b in zip(found, wanted, strict=True))


def farthest(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> float:
    return max(float((found[key].double() - wanted[key].double()).abs().max()) for key in wanted if wanted[key].numel())


def farthest_of_largest(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> float:
    """The largest distance, as a share of the largest number of the same tensor."""
    return max(farthest({key: found[key]}, {key: of}) / max(float(of.max()), 1e-30) for key, of in wanted.items())


def by_nccl(trial: Trial, wanted: list[float]) -> float | None:
    """A process that is alone in its company, which talks by NCCL; None where there is no card."""
    if trial.small:
        return None
    place = f"tcp://127.0.0.1:{free_port()}"
    distributed.init_process_group("cpu:gloo,cuda:nccl", init_method=place, rank=0, world_size=1)
    try:
        return relative(trial.by_kernels()[0], wanted)
    finally:
        distributed.destroy_process_group()


def compared(trial: Trial, rehearsal: bool, hosts: bool) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        alone = {one: trial.trained(one, EPOCHS) for one in MODELS}
        kernels = trial.by_kernels()
        gradients = trial.gradients(folder / "gradients")
        for one in MODELS:
            trial.trained(one, 1, folder / one)
        together = run_members(2, folder, rehearsal, hosts)
        resumed = {one: trial.trained(one, EPOCHS, folder / one)[1] for one in MODELS}
        shared, added = (
            {key: torch.from_numpy(value) for key, value in load_arrays(folder / file).items()}
            for file in (KERNEL_WEIGHTS, GRADIENTS)
        )
    return {
        "backend": together["backend"],
        "losses": {one: relative(together[one], alone[one][0]) for one in MODELS},
        "weights": {one: farthest(resumed[one], alone[one][1]) for one in MODELS},
        "kernels": {
            "losses": relative(together["kernels"], kernels[0]),
            "gradients": farthest_of_largest(added, gradients),
            "weights": farthest(shared, kernels[1]),
            "seconds": {"one": kernels[2], "two": together["seconds"]},
            "by_nccl": by_nccl(trial, kernels[0]),
        },
        "nudged": {str(kind).removeprefix("torch."): trial.nudged(kind) for kind in ROUNDING},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="add what was found to this file of JSON lines")
    parser.add_argument("--rehearsal", action="store_true", help="on the processor, with little data")
    parser.add_argument("--hosts", action="store_true", help="as if each process had a machine and a card of its own")
    parser.add_argument("--member", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    trial = Trial(torch.device("cpu" if given.rehearsal else "cuda:0"))
    torch.set_num_threads(1)
    if given.member:
        member(trial, given.member)
        return
    began = time.monotonic()
    found = compared(trial, given.rehearsal, given.hosts)
    kernels = found["kernels"]
    well = max(found["losses"].values()) <= LOSSES and max(found["weights"].values()) <= WEIGHTS
    well = (
        well
        and kernels["losses"] <= KERNELS
        and kernels["gradients"] <= TF32
        and (kernels["by_nccl"] or 0.0) <= KERNELS
    )
    device = "processor" if given.rehearsal else torch.cuda.get_device_name(0)
    part = (
        "two processes on one card, as if each were on a machine of its own"
        if given.hosts
        else "two processes on one card"
    )
    line = {"part": part, "device": device, **found, "well": well}
    line |= {"seconds": round(time.monotonic() - began, 1), "torch": torch.__version__}
    print(json.dumps(line, indent=2))
    if given.out:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        with given.out.open("a") as file:
            file.write(json.dumps(line) + "\n")
    raise SystemExit(0 if well else "what was found is farther apart than it may be")


if __name__ == "__main__":
    main()
