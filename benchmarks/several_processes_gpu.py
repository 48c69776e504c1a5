"""One process against two on one card: the same losses, and weights that either can go on from.

    PYTHONPATH=src python benchmarks/several_processes_gpu.py --out results/several-processes-gpu.jsonl

It needs torch, triton, numpy and safetensors alone. In double precision CARP and two other models are trained by one
process and by two that share the card: losses have to agree to 1e-5, relative, and the weights of one, then two, then
one process to 1e-6 with those of one that was not interrupted. In single precision CARP is trained by the kernels, and
a process that is alone in its company takes part by NCCL, which refuses two processes on one card: they exchange by
gloo. Where there is no card, --rehearsal does the same on the processor.

There is little data, and few steps: over many, RMSprop's path is chaotic. With 3,001 pairs on a processor, weights that
begin larger by 1e-14 of themselves have a loss that differs by 1e-3 three epochs later.
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

MODELS = ["carp", "deepconn", "mf"]
EPOCHS = 3
LOSSES, WEIGHTS, KERNELS = 1e-5, 1e-6, 1e-4  # the largest relative, absolute and relative distance allowed
Found = tuple[list[float], dict[str, Tensor], float]


@dataclasses.dataclass(frozen=True)
class Trial:
    device: torch.device

    @property
    def small(self) -> bool:
        return self.device.type == "cpu"

    def data(self) -> TrainingData:
        return made_up_data(users=9, items=7, pairs=41, review=9, longest=25)

    def model(self, name: str, data: TrainingData, kind: torch.dtype) -> RatingModel:
        torch.manual_seed(3)
        of = model_class(name)
        known = {field.name for field in dataclasses.fields(of.Config)}
        wanted = {"dimension": 6, "filters": 5, "latent_size": 4, "viewpoints": 2, "factors": 3, "hidden": 6}
        own = {key: value for key, value in wanted.items() if key in known and (self.small or kind == torch.float64)}
        return of(make_config(of, own), data.sizes).to(kind)

    def trained(self, name: str, epochs: int, folder: Path | None = None, kind: torch.dtype = torch.float64) -> Found:
        """Losses of the epochs, the weights on the processor, and seconds of the last epoch."""
        data = self.data()
        model = self.model(name, data, kind)
        settings = TrainingSettings(batch_size=20, epochs=epochs, learning_rate=0.002)
        going_on: dict[str, Any] = {"folder": folder, "resume": folder is not None}
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
        losses["kernels"], weights, losses["seconds"] = trial.trained("carp", EPOCHS, kind=torch.float32)
        if company.leads:
            save_arrays(folder / "kernels.safetensors", {key: value.numpy() for key, value in weights.items()})
            (folder / "losses.json").write_text(json.dumps(losses))


def free_port() -> str:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return str(one.getsockname()[1])


def run_members(count: int, folder: Path, rehearsal: bool) -> dict[str, Any]:
    own = {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1"}
    own |= {"MASTER_PORT": free_port()}
    command = [sys.executable, str(Path(__file__).resolve()), "--member", str(folder)]
    command += ["--rehearsal"] if rehearsal else []
    ranks = ({"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(count))
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


def by_nccl(trial: Trial, wanted: list[float]) -> float | None:
    """A process that is alone in its company, which talks by NCCL; None where there is no card."""
    if trial.small:
        return None
    place = f"tcp://127.0.0.1:{free_port()}"
    distributed.init_process_group("cpu:gloo,cuda:nccl", init_method=place, rank=0, world_size=1)
    try:
        return relative(trial.trained("carp", EPOCHS, kind=torch.float32)[0], wanted)
    finally:
        distributed.destroy_process_group()


def compared(trial: Trial, rehearsal: bool) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        alone = {one: trial.trained(one, EPOCHS) for one in MODELS}
        kernels = trial.trained("carp", EPOCHS, kind=torch.float32)
        for one in MODELS:
            trial.trained(one, 1, folder / one)
        together = run_members(2, folder, rehearsal)
        resumed = {one: trial.trained(one, EPOCHS, folder / one)[1] for one in MODELS}
        shared = {key: torch.from_numpy(value) for key, value in load_arrays(folder / "kernels.safetensors").items()}
    return {
        "backend": together["backend"],
        "losses": {one: relative(together[one], alone[one][0]) for one in MODELS},
        "weights": {one: farthest(resumed[one], alone[one][1]) for one in MODELS},
        "kernels": {
            "losses": relative(together["kernels"], kernels[0]),
            "weights": farthest(shared, kernels[1]),
            "seconds": {"one": kernels[2], "two": together["seconds"]},
            "by_nccl": by_nccl(trial, kernels[0]),
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="add what was found to this file of JSON lines")
    parser.add_argument("--rehearsal", action="store_true", help="on the processor, with little data")
    parser.add_argument("--member", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    trial = Trial(torch.device("cpu" if given.rehearsal else "cuda:0"))
    torch.set_num_threads(1)
    if given.member:
        member(trial, given.member)
        return
    began = time.monotonic()
    found = compared(trial, given.rehearsal)
    kernels = found["kernels"]
    well = max(found["losses"].values()) <= LOSSES and max(found["weights"].values()) <= WEIGHTS
    well = well and kernels["losses"] <= KERNELS and (kernels["by_nccl"] or 0.0) <= KERNELS
    device = "processor" if given.rehearsal else torch.cuda.get_device_name(0)
    line = {"part": "two processes on one card", "device": device, **found, "well": well}
    line |= {"seconds": round(time.monotonic() - began, 1), "torch": torch.__version__}
    print(json.dumps(line, indent=2))
    if given.out:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        with given.out.open("a") as file:
            file.write(json.dumps(line) + "\n")
    raise SystemExit(0 if well else "what was found is farther apart than it may be")


if __name__ == "__main__":
    main()
