"""A fitted model as a folder that needs nothing but itself: safetensors and JSON with a manifest of sha256 sums."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from carp.errors import DamagedError
from carp.models import model_class
from carp.models.base import RatingModel, make_config
from carp.models.layers import TunedBiases
from carp.persist.older_layouts import with_characters
from carp.reviews.corpora.item_texts import ItemTexts
from carp.reviews.corpora.provenance import FIRST_LAYOUT, check_made_with, differences, made_with
from carp.reviews.corpora.string_column import StringColumn
from carp.reviews.documents import Documents
from carp.reviews.rating_scale import RatingScale
from carp.reviews.text.vocabulary import Vocabulary
from carp.storage import check_folder, load_arrays, new_folder, read_json, save_arrays, write_bytes, write_json
from carp.training.fitted_corpus import FittedCorpus

KIND = "model"
LAYOUT = 2  # raised when an older carp can no longer read the folder
FILES = (
    "model.safetensors",
    "baseline.safetensors",
    "records.safetensors",
    "documents.safetensors",
    "tokeniser.json",
    "model.json",
    "log.jsonl",
)
ITEM_TEXTS = "items.safetensors"  # only if the corpus has titles or other texts of its items
FIX = "train the model again, or restore it from a copy"
NEEDED_FACTS = frozenset({"seed", "split_seed", "fit", "text", "training", "degree_scale"})
STRINGS = ("users", "items", "texts")
COLUMNS = ("user", "item", "rating", "part")


def write_bundle(
    folder: Path,
    *,
    name: str,
    model: RatingModel,
    baseline: TunedBiases,
    fitted: FittedCorpus,
    facts: Mapping[str, Any],
    log: bytes = b"",
    overwrite: bool = False,
) -> None:
    with new_folder(folder, KIND, overwrite=overwrite) as partial:
        save_arrays(partial / "model.safetensors", _state(model))
        save_arrays(partial / "baseline.safetensors", _state(baseline))
        save_arrays(partial / "records.safetensors", _records(fitted))
        save_arrays(partial / "documents.safetensors", _documents(fitted))
        if fitted.item_texts is not None:
            save_arrays(partial / ITEM_TEXTS, fitted.item_texts.columns())
        write_json(partial / "tokeniser.json", fitted.vocabulary.to_json())
        write_json(
            partial / "model.json",
            {
                "model": name,
                "config": asdict(model.config),
                "levels": fitted.levels,
                "max_words": fitted.max_words,
                "scale": asdict(fitted.scale),
                "data": fitted.facts,
                "made_with": made_with(LAYOUT, {**fitted.facts["corpus"], **facts}) | _libraries(),
                **facts,
            },
        )
        write_bytes(partial / "log.jsonl", log)


def read_bundle(folder: Path) -> tuple[str, RatingModel, TunedBiases, FittedCorpus, dict[str, Any]]:
    """Check every byte against the manifest, then build the model from the files."""
    listed = check_folder(folder, KIND)["files"]
    facts = read_json(folder / "model.json") if "model.json" in listed else {}
    layout = check_made_with(facts, KIND, LAYOUT, str(folder))
    for file in FILES:
        if file not in listed:  # a file that is not listed was not checked
            raise DamagedError(f"the manifest does not name {file}", where=str(folder), fix=FIX)
    try:
        if missing := NEEDED_FACTS - set(facts):
            raise KeyError(", ".join(sorted(missing)))
        fitted = _fitted_corpus(folder, facts, layout)
        if ITEM_TEXTS in listed:
            fitted = replace(fitted, item_texts=_item_texts(folder / ITEM_TEXTS, len(fitted.items)))
        name = str(facts["model"])
        kind = model_class(name)
        model = kind(make_config(kind, facts["config"]), fitted.sizes)
        model.load_state_dict(_tensors(folder / "model.safetensors"))
        baseline = TunedBiases(fitted.sizes)
        baseline.load_state_dict(_tensors(folder / "baseline.safetensors"))
    except (KeyError, TypeError, ValueError, RuntimeError, IndexError) as error:
        raise DamagedError(
            f"the files of the model do not fit together ({error})", where=str(folder), fix=FIX
        ) from error
    return name, model.eval(), baseline, fitted, facts | differences(facts, KIND, str(folder))


def _libraries() -> dict[str, str]:
    return {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__}


def _state(module: torch.nn.Module) -> dict[str, NDArray[Any]]:
    return {name: tensor.detach().cpu().numpy() for name, tensor in module.state_dict().items()}


def _tensors(path: Path) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(array.copy()) for name, array in load_arrays(path).items()}


def _records(fitted: FittedCorpus) -> dict[str, NDArray[Any]]:
    arrays = {name: np.asarray(getattr(fitted, name)) for name in COLUMNS}
    for name in STRINGS:
        column: StringColumn = getattr(fitted, name)
        arrays |= {f"{name}_bytes": np.asarray(column.data), f"{name}_offsets": np.asarray(column.offsets)}
    return arrays


def _documents(fitted: FittedCorpus) -> dict[str, NDArray[Any]]:
    sides = {"user": fitted.user_documents, "item": fitted.item_documents}
    return {f"{side}.{name}": array for side, docs in sides.items() for name, array in docs.arrays().items()}


def _item_texts(path: Path, items: int) -> ItemTexts:
    texts = ItemTexts.from_columns(load_arrays(path))
    if fault := texts.fault(items):
        raise ValueError(fault)
    return texts


def _fitted_corpus(folder: Path, facts: dict[str, Any], layout: int) -> FittedCorpus:
    records = load_arrays(folder / "records.safetensors")
    words = load_arrays(folder / "documents.safetensors")
    strings = {n: StringColumn(records.pop(f"{n}_bytes"), records.pop(f"{n}_offsets")) for n in STRINGS}
    if layout == FIRST_LAYOUT:
        words = with_characters(words, strings["texts"], str(folder))
    documents = {
        side: Documents(**{f.name: words[f"{side}.{f.name}"] for f in fields(Documents)}) for side in ("user", "item")
    }
    columns: dict[str, Any] = {**strings, **{name: records[name] for name in COLUMNS}}
    return FittedCorpus(
        **columns,
        vocabulary=Vocabulary.from_json(read_json(folder / "tokeniser.json")),
        user_documents=documents["user"],
        item_documents=documents["item"],
        max_words=int(facts["max_words"]),
        levels=int(facts["levels"]),
        scale=RatingScale(**facts["scale"]),
        facts=facts["data"],
    )
