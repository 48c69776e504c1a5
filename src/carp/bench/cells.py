"""One cell of a grid: split, choose on validation, and only then look at the test pairs.

Torch, numpy and safetensors are all that a cell without a search needs, so that grids run on a bare GPU machine.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import carp
from carp.bench.datasets import load_corpus
from carp.bench.pair_errors import PairErrors
from carp.errors import CarpError
from carp.models import model_class
from carp.models.base import RatingModel
from carp.models.batch import Pairs, TrainingData
from carp.models.predict import encode_documents, predict_pairs, score_blocks
from carp.recommender import Recommender
from carp.reviews.split import split_corpus
from carp.training.fitted_corpus import FittedCorpus, fit_corpus
from carp.training.loop import Watcher

Line = dict[str, Any]  # what is known of a cell that has run
Choose = Callable[["Cell", Path, Callable[[dict[str, Any]], float]], list[Line]]


@dataclass(frozen=True)
class CellResult:
    line: Line
    errors: PairErrors | None = None  # None of a cell that failed


@dataclass(frozen=True)
class Cell:
    """A model on a split of a corpus. Settings are as given; with a search, more of them are chosen on validation."""

    path: str
    corpus: str
    fingerprint: str
    model: str  # of the registry
    label: str  # what the report calls it
    split_seed: int
    seed: int
    settings: dict[str, Any] = field(default_factory=dict)
    search: dict[str, Any] = field(default_factory=dict)  # trials, the space, and splits to choose on if not its own
    names: str = ""  # of the corpus

    @property
    def identity(self) -> str:
        """The same for the same measurement: settings that are defaults and the place of the corpus do not matter."""
        return self._identity_on(self.split_seed)

    @property
    def choosing_splits(self) -> list[int]:
        """Seeds of the splits on which settings are chosen for all splits; none where each split has its own choice."""
        return list(self.search.get("splits") or [])

    @property
    def search_identity(self) -> str:
        """The same for cells that share one choice of settings."""
        return self._identity_on(None) if self.choosing_splits else self.identity

    def _identity_on(self, split_seed: int | None) -> str:
        known = [self.fingerprint, self.model, split_seed, self.seed, changed(self.model, self.settings)]
        if self.names and "names" in model_class(self.model).needs:
            known.append(self.names)
        return hashlib.sha256(json.dumps([*known, self.search], sort_keys=True).encode()).hexdigest()[:20]

    def describe(self) -> Line:
        return {
            "id": self.identity,
            "corpus": self.corpus,
            "fingerprint": self.fingerprint,
            "model": self.label,
            "name": self.model,
            "split_seed": self.split_seed,
            "seed": self.seed,
            "given": changed(self.model, self.settings),
            "settings": changed(self.model, self.settings),
            "search": self.search,
        }


def all_settings(recommender: Recommender) -> dict[str, Any]:
    groups = (recommender.fit_settings, recommender.text, recommender.training, recommender.config)
    return {name: value for group in groups for name, value in asdict(group).items() if name != "min_reviews"}


def changed(model: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that differ from the model's own, as values rather than as they were written."""
    usual = all_settings(Recommender(model, device="cpu"))
    given = all_settings(Recommender(model, device="cpu", **settings))
    return {name: value for name, value in given.items() if value != usual[name]}


def run_cell(
    cell: Cell, out: Path, device: str, *, choose: Choose | None = None, watcher: Watcher | None = None
) -> CellResult:
    """Everything about a cell in one line, and its errors pair by pair; what goes wrong in it is a line too."""
    began = time.monotonic()
    forget_peak()
    found: Line = {}
    errors: PairErrors | None = None
    try:
        found, errors = _measure(cell, out, device, choose, watcher)
    except CarpError as error:
        found = {"error": str(error)}
    except Exception as error:  # a cell may fail in any way, and the grid goes on
        message = (str(error).strip().splitlines() or ["no message"])[0][:300]
        found = {"error": f"{type(error).__name__}: {message}"}
    line = {
        **cell.describe(),
        **found,
        "seconds": round(time.monotonic() - began, 2),
        "peak_memory": peak_memory(),
        "machine": machine(device),
        "version": carp.__version__,
        "torch": torch.__version__,
    }
    return CellResult(line, errors)


@dataclass
class Bench:
    """A cell's corpus on its split, and the training of one set of settings on it."""

    cell: Cell
    device: str
    watcher: Watcher | None = None
    corpora: dict[str, FittedCorpus] = field(default_factory=dict)

    def fitted_corpus(self, recommender: Recommender) -> FittedCorpus:
        """Trials that read the same words share their documents."""
        cut = recommender.review_cut
        key = json.dumps([asdict(recommender.text), cut and asdict(cut)], sort_keys=True)
        if key not in self.corpora:
            corpus = load_corpus(self.cell.path)
            split = split_corpus(corpus, seed=self.cell.split_seed)
            singly = recommender.kind.reads_single_reviews()
            self.corpora = {key: fit_corpus(corpus, split, recommender.text, cut, reviews=singly)}
        return self.corpora[key]

    def fit(self, settings: Mapping[str, Any]) -> Fitted:
        recommender = Recommender(
            self.cell.model, seed=self.cell.seed, split_seed=self.cell.split_seed, device=self.device, **settings
        )
        fitted = self.fitted_corpus(recommender)
        data = fitted.training_data(recommender.fit_settings.target_reviews)
        began = time.monotonic()
        model, reached = recommender.train_model(fitted, data, watcher=self.watcher)
        seconds = time.monotonic() - began
        error = float(_squared(model, data, data.valid, recommender.device).mean())
        if not math.isfinite(error):
            raise CarpError(f"the validation error is {error}", fix="lower it with --set learning_rate=...")
        return Fitted(recommender, model, data, error, reached.best_epoch, reached.epoch, seconds)


@dataclass(frozen=True)
class Fitted:
    recommender: Recommender
    model: RatingModel
    data: TrainingData
    valid_mse: float
    best_epoch: int
    epochs: int
    seconds: float  # of training with these settings


def _squared(model: RatingModel, data: TrainingData, pairs: Pairs, device: torch.device) -> NDArray[np.float64]:
    squared: NDArray[np.float64] = np.square(
        predict_pairs(model, data, pairs, device) - pairs.ratings, dtype=np.float64
    )
    return squared


def _measure(
    cell: Cell, out: Path, device: str, choose: Choose | None, watcher: Watcher | None
) -> tuple[Line, PairErrors]:
    bench = Bench(cell, device, watcher)
    apart = [Bench(replace(cell, split_seed=seed), device, watcher) for seed in cell.choosing_splits]
    best: list[Fitted] = []

    def error_with(chosen: dict[str, Any]) -> float:
        if apart:
            return float(np.mean([one.fit({**cell.settings, **chosen}).valid_mse for one in apart]))
        fitted = bench.fit({**cell.settings, **chosen})
        if not best or fitted.valid_mse < best[0].valid_mse:
            best[:] = [fitted]
        return fitted.valid_mse

    chosen: dict[str, Any] = {}
    trials: list[Line] = []
    if choose is not None and cell.search:
        trials = choose(cell, out, error_with)
        chosen = min(trials, key=lambda trial: float(trial["valid_mse"]))["settings"]
    settings = {**cell.settings, **chosen}
    fitted = best[0] if best and _made_with(best[0], cell.model, settings) else bench.fit(settings)
    tested, errors = _test(fitted, cell, bench.fitted_corpus(fitted.recommender))
    line = {
        "valid_mse": fitted.valid_mse,
        **tested,
        "settings": changed(cell.model, settings),
        **({"trials": trials} if trials else {}),
        "best_epoch": fitted.best_epoch,
        "epochs": fitted.epochs,
        "fit_seconds": round(fitted.seconds, 3),
    }
    return line, errors


def _made_with(fitted: Fitted, model: str, settings: Mapping[str, Any]) -> bool:
    return all_settings(fitted.recommender) == all_settings(Recommender(model, device="cpu", **settings))


def _test(fitted: Fitted, cell: Cell, corpus: FittedCorpus) -> tuple[Line, PairErrors]:
    """The test errors, as means in the line and pair by pair."""
    test, device = corpus.test_pairs(), fitted.recommender.device
    began = time.monotonic()
    squared = _squared(fitted.model, fitted.data, test, device)
    seconds = time.monotonic() - began
    if not np.isfinite(squared).all():
        raise CarpError("a prediction of a test pair is no number", fix="lower it with --set learning_rate=...")
    records = test.records.astype(np.int32)
    pairs = hashlib.sha256(cell.fingerprint.encode() + records.tobytes()).hexdigest()[:16]
    line = {
        "test_mse": float(squared.mean()),
        "test_mae": float(np.sqrt(squared).mean()),
        "test_pairs": len(test),
        "predict_seconds": round(seconds, 3),
        "pairs": pairs,
        "needs": sorted(fitted.model.needs),
        **_coupling_ratio(fitted, test, device),
    }
    return line, PairErrors(pairs, records, squared.astype(np.float32))


@torch.no_grad()
def _coupling_ratio(fitted: Fitted, pairs: Pairs, device: torch.device) -> Line:
    """c_pos/c_neg of the logic units ranked by c_pos, rank by rank: the quartiles over pairs, as in the paper's figure.

    A mean would be ruled by the few pairs whose negative capsule hears nothing of a unit.
    """
    from carp.models.carp import NEGATIVE, POSITIVE

    if fitted.model.explained_by != "capsules":
        return {}
    users = encode_documents(fitted.model.encode_users, fitted.data.user_documents, device)
    items = encode_documents(fitted.model.encode_items, fitted.data.item_documents, device)
    found = []
    for scored in score_blocks(fitted.model, (users, items), pairs):
        coupling = scored.tensors["coupling"].flatten(2).double()  # [B, 2, U]
        order = coupling[:, POSITIVE].argsort(dim=1, descending=True, stable=True)
        ranked = coupling.gather(2, order.unsqueeze(1).expand_as(coupling))
        found.append((ranked[:, POSITIVE] / ranked[:, NEGATIVE].clamp_min(1e-12)).cpu())
    quartiles = np.quantile(torch.cat(found).numpy(), (0.25, 0.5, 0.75), axis=0)
    return {"coupling_ratio_quartiles": [[round(float(ratio), 6) for ratio in of] for of in quartiles]}


# ---- where and with what


def forget_peak() -> None:
    """Let the next peak be this cell's own, where the system can."""
    if torch.cuda.is_available():
        with contextlib.suppress(RuntimeError):  # of a GPU that nothing has used yet
            torch.cuda.reset_peak_memory_stats()
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_memory() -> int:
    """Bytes: of the GPU where one was used, else of the process."""
    if torch.cuda.is_available() and torch.cuda.max_memory_allocated():
        return int(torch.cuda.max_memory_allocated())
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/self/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) * 1024
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def machine(device: str) -> str:
    if device != "cpu" and torch.cuda.is_available():
        return torch.cuda.get_device_name()
    processor = platform.processor() or platform.machine()
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        processor = next(line for line in lines if line.startswith("model name")).partition(":")[2].strip()
    return f"{processor}, {os.cpu_count()} cores"


def current_commit() -> str:
    """The commit this code is of, with `-dirty` where it was changed since; $CARP_COMMIT on a copy without git."""
    given = os.environ.get("CARP_COMMIT")
    if given:
        return given
    asked = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--exclude=*"]
    try:
        found = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=20).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        found = ""
    return found or "unknown"
