"""Where training stands, kept so that a process may die at any moment and another go on."""

from __future__ import annotations

import hashlib
import json
import math
import warnings
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from carp.errors import CarpWarning, DamagedError, UsageError
from carp.models.base import RatingModel
from carp.storage import (
    KEY_FILE,
    OTHER_KEY,
    append_json_line,
    arrays_of,
    disk_errors,
    is_signature,
    own_signature,
    read_json,
    save_arrays,
    sweep,
    write_bytes,
    write_json,
)

CHECKPOINT = "checkpoint.json"
LOG = "log.jsonl"
ALL_REVIEWS = "all-reviews"  # folder inside: the second fit, on the reviews of all parts


@dataclass
class TrainingState:
    """Where training stands after an epoch."""

    epoch: int = 0
    best_epoch: int = 0
    best_error: float = math.inf
    history: list[dict[str, Any]] = field(default_factory=list)

    def finished(self, epochs: int, patience: int) -> bool:
        return self.epoch >= epochs or self.epoch - self.best_epoch >= patience


def copy_of(model: RatingModel) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def state_of(model: RatingModel, best: dict[str, Tensor], optimizer: torch.optim.Optimizer | None) -> dict[str, Tensor]:
    """The tensors from which training can go on, by name."""
    tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    tensors |= {f"best.{name}": tensor for name, tensor in best.items()}
    for place, state in (optimizer.state_dict()["state"] if optimizer else {}).items():
        tensors |= {f"optimizer.{place}.{name}": torch.as_tensor(value) for name, value in state.items()}
    return tensors


@dataclass
class Checkpoint:
    """One file of tensors under a name of its own, and a small JSON file that names it: renaming that is the save.

    Whatever moment a process dies in, the JSON names a whole file with the right sha256. Where $CARP_KEY_FILE names a
    key, the JSON is signed with it: a model that is made of a checkpoint is signed as if its maker had trained it.
    """

    folder: Path
    identity: str
    circumstances: dict[str, Any] = field(default_factory=dict)  # which the last bits depend on

    def exists(self) -> bool:
        return (self.folder / CHECKPOINT).exists()

    def sweep(self) -> None:
        """Remove what killed processes left half written."""
        for name in ("epoch-*.safetensors", CHECKPOINT, LOG):
            sweep(self.folder, name)

    def save(self, tensors: dict[str, Tensor], progress: TrainingState) -> None:
        """Keep the tensors of `state_of`, all of them whole."""
        with disk_errors(self.folder):
            self._write({name: tensor.detach().cpu().numpy() for name, tensor in tensors.items()}, progress)

    def _write(self, arrays: dict[str, NDArray[Any]], progress: TrainingState) -> None:
        file = self.folder / f"epoch-{progress.epoch:04d}.safetensors"
        total = save_arrays(file, arrays)
        self._log([dict(record) for record in progress.history])
        facts = {"file": file.name, "sha256": total, "identity": self.identity, "progress": _finite(progress)}
        facts["circumstances"] = self.circumstances
        checks = {"check": _digest(facts)}
        if (signature := own_signature(_signed_bytes(facts))) is not None:
            checks["signature"] = signature
        write_json(self.folder / CHECKPOINT, {**facts, **checks})
        self._keep_only(file)

    def _tell_of_differences(self, before: Any) -> None:
        """Resuming gives the same bits only where everything is as it was."""
        known = before if isinstance(before, dict) else {}
        changed = {name: now for name, now in self.circumstances.items() if known.get(name, now) != now}
        if changed:
            other = "; ".join(f"{name} {known[name]}, now {now}" for name, now in changed.items())
            what = f"{self.folder}: this training began with {other}. It goes on, and its last bits may differ."
            warnings.warn(what, CarpWarning, stacklevel=4)

    def _keep_only(self, file: Path) -> None:
        for other in self.folder.glob("epoch-*.safetensors"):
            if other != file:
                other.unlink(missing_ok=True)

    def _log(self, lines: list[dict[str, Any]]) -> None:
        """The log holds each epoch once, also after a kill between log and checkpoint."""
        log = self.folder / LOG
        if log.exists() and len(log.read_bytes().splitlines()) == len(lines) - 1:
            append_json_line(log, lines[-1])
        else:
            write_bytes(log, "".join(json.dumps(line) + "\n" for line in lines).encode())

    def load(
        self, model: RatingModel, optimizer: torch.optim.Optimizer | None
    ) -> tuple[TrainingState, dict[str, Tensor]]:
        facts = read_json(self.folder / CHECKPOINT)
        again = "remove the folder and train without --resume"
        facts = facts if isinstance(facts, dict) else {}
        given = facts.pop("signature", None)
        if facts.pop("check", None) != _digest(facts):
            raise DamagedError("the checkpoint is damaged", where=str(self.folder / CHECKPOINT), fix=again)
        self._check_signature(given, facts, again)
        if facts.get("identity") != self.identity:
            raise UsageError(
                "the checkpoint is of another training: corpus, split, model or settings differ",
                where=str(self.folder),
                fix="give the same settings, or " + again,
            )
        self._tell_of_differences(facts.get("circumstances"))
        file = self.folder / Path(str(facts.get("file"))).name
        tensors = _checked_tensors(file, facts.get("sha256"), again)
        with disk_errors(self.folder):
            self._keep_only(file)
        try:
            return self._restore(facts, tensors, model, optimizer)
        except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
            raise DamagedError(f"the checkpoint does not fit ({error})", where=str(file), fix=again) from error

    def _check_signature(self, given: Any, facts: dict[str, Any], again: str) -> None:
        """With a key, weights are taken from a checkpoint only if somebody with the key wrote it."""
        wanted = own_signature(_signed_bytes(facts))
        if wanted is None or is_signature(given, wanted):
            return
        what = OTHER_KEY
        if given is None:
            what = f"the checkpoint is not signed, and {KEY_FILE} names a key"
            again += f"; or, if you made it yourself, resume without {KEY_FILE} and sign the model with carp sign"
        raise DamagedError(what, where=str(self.folder / CHECKPOINT), fix=again)

    def _restore(
        self,
        facts: dict[str, Any],
        tensors: dict[str, Tensor],
        model: RatingModel,
        optimizer: torch.optim.Optimizer | None,
    ) -> tuple[TrainingState, dict[str, Tensor]]:
        model.load_state_dict(_part(tensors, "model."))
        if optimizer is not None:
            state: dict[int, dict[str, Tensor]] = {}
            for name, tensor in _part(tensors, "optimizer.").items():
                place, _, key = name.partition(".")
                state.setdefault(int(place), {})[key] = tensor
            optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
        progress = facts["progress"]
        if progress["best_error"] is None:
            progress["best_error"] = math.inf
        device = next(iter(model.state_dict().values())).device
        return TrainingState(**progress), {n: t.to(device) for n, t in _part(tensors, "best.").items()}


def _checked_tensors(file: Path, wanted: Any, again: str) -> dict[str, Tensor]:
    """The tensors of a file that was read once: what was checked is what is used."""
    with disk_errors(file):
        content = file.read_bytes() if file.is_file() else b""
    if hashlib.sha256(content).hexdigest() != wanted:
        raise DamagedError("the checkpoint is damaged", where=str(file), fix=again)
    return {name: torch.from_numpy(array.copy()) for name, array in arrays_of(content, file).items()}


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _digest(facts: dict[str, Any]) -> str:
    return hashlib.sha256(_canonical(facts)).hexdigest()


def _signed_bytes(facts: dict[str, Any]) -> bytes:
    """What a key signs. It begins as no manifest does, so that no signature of one passes for that of the other."""
    return b"carp checkpoint\n" + _canonical(facts)


def _canonical(facts: dict[str, Any]) -> bytes:
    return json.dumps(facts, sort_keys=True).encode()


def _finite(progress: TrainingState) -> dict[str, Any]:
    facts = asdict(progress)
    return {**facts, "best_error": facts["best_error"] if math.isfinite(facts["best_error"]) else None}
