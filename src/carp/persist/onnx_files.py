"""A fitted model for other runtimes: the sides of everybody and everything, and the scorer, as ONNX.

The sides are what a model has read in the documents. They are looked up by number; ids.json has the ids in that order.
Reading new documents stays with carp: what cuts and pools their words has no counterpart in ONNX runtimes.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from carp.errors import CarpError, UsageError
from carp.models.base import RatingModel
from carp.storage import new_folder, write_json
from carp.training.fitted_model import FittedModel

KIND = "onnx"
OPSET = 17
LARGEST = 1_900_000_000  # bytes of a side: an ONNX file ends at 2 GB
CHECKED = 500  # pairs whose ratings are compared
FAR_APART = 1e-3  # of the range of ratings, in what the two runtimes say


class SideLookup(nn.Module):
    """The sides of numbered people or things."""

    def __init__(self, sides: Tensor) -> None:
        super().__init__()
        self.sides = nn.Parameter(sides, requires_grad=False)

    def forward(self, numbers: Tensor) -> Tensor:
        return self.sides[numbers]


class OwnScaleScorer(nn.Module):
    """Ratings of pairs on the scale of the data, from the numbers and the sides of both."""

    def __init__(self, model: RatingModel, low: float, high: float, levels: int) -> None:
        super().__init__()
        self.model, self.low, self.levels = model, low, levels
        self.step = (high - low) / (levels - 1)

    def forward(self, users: Tensor, items: Tensor, user_sides: Tensor, item_sides: Tensor) -> Tensor:
        stars = self.model.score(users, items, user_sides, item_sides).rating.clamp(1, self.levels)
        return self.low + (stars - 1) * self.step


def write_onnx(fitted: FittedModel, folder: Path, *, overwrite: bool = False) -> dict[str, Any]:
    """Write users.onnx, items.onnx, score.onnx and ids.json; ratings are checked against onnxruntime before.

    Args:
        fitted: A model whose two sides separate.
        folder: Where to; it must not exist yet.
        overwrite: Replace such a folder that is there.

    Returns:
        How many pairs were compared, and how far apart the two were at most.
    """
    _need_runtimes()
    if not fitted.model.separates:
        what = f"the model {fitted.name} reads both documents of a pair together, so it has no sides to export"
        raise UsageError(what, fix="train one whose sides separate, such as carp or meeting")
    corpus, sides = fitted.corpus, [side.cpu() for side in fitted.sides]
    for side in sides:
        if side.numel() * side.element_size() > LARGEST:
            raise UsageError("the sides of this model are larger than an ONNX file can be", fix="use it through carp")
    scorer = OwnScaleScorer(fitted.model, corpus.scale.low, corpus.scale.high, corpus.levels).eval()
    first = torch.zeros(2, dtype=torch.int64)
    with new_folder(folder, KIND, overwrite=overwrite) as partial:
        for name, side in zip(("users", "items"), sides, strict=True):
            _export(SideLookup(side), (first,), partial / f"{name}.onnx", ["numbers"], "sides")
        given = (first, first, sides[0][first], sides[1][first])
        _export(scorer, given, partial / "score.onnx", ["users", "items", "user_sides", "item_sides"], "ratings")
        write_json(partial / "ids.json", {"users": list(corpus.users), "items": list(corpus.items)})
        return _compared(fitted, partial)


def _need_runtimes() -> None:
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
    except ImportError as error:
        raise UsageError(f"exporting needs {error.name}", fix="pip install 'carp-rec[export]'") from error


def _export(module: nn.Module, given: tuple[Tensor, ...], file: Path, names: list[str], result: str) -> None:
    rows = {name: {0: "rows"} for name in [*names, result]}
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter, about its own future
        torch.onnx.export(
            module.eval(),
            given,
            str(file),
            input_names=names,
            output_names=[result],
            dynamic_axes=rows,
            opset_version=OPSET,
            dynamo=False,
        )


def _compared(fitted: FittedModel, folder: Path) -> dict[str, Any]:
    """What onnxruntime says of pairs nobody has rated, held against the model."""
    users, items = _new_pairs(fitted)
    corpus = fitted.corpus
    ours = corpus.scale.from_stars(fitted.rate(users, items), corpus.levels)
    theirs = rate_by_onnx(folder, users, items)
    apart = float(np.abs(ours - theirs).max()) if len(users) else 0.0
    if not apart <= FAR_APART * (corpus.scale.high - corpus.scale.low):
        raise CarpError(f"onnxruntime's ratings are up to {apart:.4f} from the model's", fix="report this")
    return {"pairs_compared": len(users), "largest_difference": apart}


def _new_pairs(fitted: FittedModel) -> tuple[Any, Any]:
    corpus = fitted.corpus
    random = np.random.default_rng(0)
    users = random.integers(0, len(corpus.users), CHECKED)
    items = random.integers(0, len(corpus.items), CHECKED)
    new = corpus.record_of_pair.find(users, items) < 0
    return users[new].astype(np.int64), items[new].astype(np.int64)


def rate_by_onnx(folder: Path, users: Any, items: Any) -> Any:
    """Ratings of numbered pairs by onnxruntime alone."""
    import onnxruntime

    def run(name: str, **given: Any) -> Any:
        session = onnxruntime.InferenceSession(str(folder / f"{name}.onnx"), providers=["CPUExecutionProvider"])
        return session.run(None, given)[0]

    sides = {"user_sides": run("users", numbers=users), "item_sides": run("items", numbers=items)}
    wanted = {"users": users, "items": items, **sides}
    import onnx

    names = {one.name for one in onnx.load(str(folder / "score.onnx")).graph.input}
    return run("score", **{name: value for name, value in wanted.items() if name in names}).astype(np.float64)
