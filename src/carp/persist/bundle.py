"""A fitted model as a folder that needs nothing but itself: safetensors and JSON with a manifest of sha256 sums."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from carp.errors import CarpError, DamagedError, InputError, let_missing_memory_through
from carp.explain.reading_guide import ReadingGuide
from carp.models import model_class
from carp.models.base import RatingModel, make_config
from carp.models.batch import Sizes
from carp.models.layers import TunedBiases
from carp.persist.bounded_making import BoundedMaking
from carp.persist.bundle_checks import (
    CHARACTERS,
    check_documents,
    check_facts,
    check_finite,
    check_records,
    check_tensors,
    check_words,
    checked_dates,
    late_texts,
)
from carp.persist.older_layouts import with_characters
from carp.reviews.corpora.column_checks import ColumnFault, characters_in
from carp.reviews.corpora.item_texts import ItemTexts
from carp.reviews.corpora.late_texts import LateTexts
from carp.reviews.corpora.provenance import FIRST_LAYOUT, check_made_with, differences, made_with
from carp.reviews.corpora.string_column import StringColumn
from carp.reviews.documents import Documents
from carp.reviews.rating_scale import RatingScale
from carp.reviews.text.vocabulary import Vocabulary
from carp.storage import SealedFolder, block_sums, new_folder, opened_folder, save_arrays, write_bytes, write_json
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
GUIDE = "guide.safetensors"  # only of models whose reasons rest on it
DATES = "dates.safetensors"  # only if reviews have dates
FIX = "train the model again, or restore it from a copy"
NEEDED_FACTS = frozenset(
    {"seed", "split_seed", "fit", "text", "training", "degree_scale", "model", "config", "levels", "max_words", "scale"}
)
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
    guide: ReadingGuide | None = None,
    log: bytes = b"",
    overwrite: bool = False,
    verify: Callable[[Path], None] | None = None,
) -> None:
    _refuse_no_numbers(model, baseline)
    with new_folder(folder, KIND, overwrite=overwrite) as partial:
        save_arrays(partial / "model.safetensors", _state(model))
        save_arrays(partial / "baseline.safetensors", _state(baseline))
        save_arrays(partial / "records.safetensors", _records(fitted))
        save_arrays(partial / "documents.safetensors", _documents(fitted))
        if fitted.item_texts is not None:
            save_arrays(partial / ITEM_TEXTS, fitted.item_texts.columns())
        if guide is not None:
            save_arrays(partial / GUIDE, guide.columns())
        if fitted.time is not None:
            save_arrays(partial / DATES, {"time": np.asarray(fitted.time)})
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
        if verify is not None:
            verify(partial)


class Bundle(NamedTuple):
    """What a saved model holds."""

    name: str
    model: RatingModel
    baseline: TunedBiases
    corpus: FittedCorpus
    facts: dict[str, Any]
    log: bytes
    guide: ReadingGuide | None
    sum: str  # of the manifest of the folder that was opened


def read_bundle(folder: Path, key_file: Path | None = None) -> Bundle:
    """Open the folder once, check every byte and every column, then build the model from what was checked."""
    with opened_folder(folder, KIND, key_file) as sealed:
        facts = sealed.json("model.json") if "model.json" in sealed else {}
        layout = check_made_with(facts, KIND, LAYOUT, str(folder))
        unnamed = [file for file in FILES if file not in sealed]
        unnamed += [file for file in (GUIDE, DATES, ITEM_TEXTS) if file in sealed.others]
        if unnamed:  # it was not checked
            raise DamagedError(f"the manifest does not name {unnamed[0]}", where=str(folder), fix=FIX)
        try:
            return _bundle(sealed, facts, layout)
        except CarpError:
            raise
        except Exception as error:  # whatever hostile files lead to, they are what is wrong
            let_missing_memory_through(error)
            raise DamagedError(
                f"the files of the model do not fit together ({_in_one_line(error)})", where=str(folder), fix=FIX
            ) from error


def _bundle(sealed: SealedFolder, facts: dict[str, Any], layout: int) -> Bundle:
    if missing := NEEDED_FACTS - set(facts):
        raise KeyError(", ".join(sorted(missing)))
    check_facts(facts)
    corpus = _fitted_corpus(sealed, facts, layout)
    if ITEM_TEXTS in sealed:
        corpus = replace(corpus, item_texts=_item_texts(sealed, len(corpus.items)))
    if DATES in sealed:
        corpus = replace(corpus, time=checked_dates(sealed.arrays(DATES), len(corpus.user)))
    model = _model(sealed, facts, corpus.sizes)
    baseline = TunedBiases(corpus.sizes)
    baseline.load_state_dict(check_tensors(baseline, sealed.arrays("baseline.safetensors")))
    log = sealed.read("log.jsonl")
    guide = None
    if GUIDE in sealed:
        guide = ReadingGuide.from_columns(sealed.arrays(GUIDE), len(corpus.vocabulary), corpus.levels)
    sealed.check_all()
    facts |= differences(facts, KIND, str(sealed.path))
    return Bundle(facts["model"], model.eval(), baseline, corpus, facts, log, guide, sealed.sum)


def _model(sealed: SealedFolder, facts: dict[str, Any], sizes: Sizes) -> RatingModel:
    kind = model_class(facts["model"])
    saved = sealed.arrays("model.safetensors")
    with BoundedMaking(sum(array.size for array in saved.values())):
        model = kind(make_config(kind, facts["config"]), sizes)
    model.load_state_dict(check_tensors(model, saved))
    model.check_loaded()
    return model


def _in_one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__


def _refuse_no_numbers(model: RatingModel, baseline: TunedBiases) -> None:
    """A model whose weights are no numbers has nothing to say, and is not saved as if it had."""
    try:
        check_finite(model.state_dict() | baseline.state_dict())
    except ColumnFault as fault:
        fix = "train it again with a lower learning_rate"
        raise InputError(f"this model is not saved: {fault}", fix=fix) from None


def _libraries() -> dict[str, str]:
    return {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__}


def _state(module: torch.nn.Module) -> dict[str, NDArray[Any]]:
    return {name: tensor.detach().cpu().numpy() for name, tensor in module.state_dict().items()}


def _records(fitted: FittedCorpus) -> dict[str, NDArray[Any]]:
    arrays = {name: np.asarray(getattr(fitted, name)) for name in COLUMNS}
    for name in STRINGS:
        column: StringColumn = getattr(fitted, name)
        arrays |= {f"{name}_bytes": np.asarray(column.data), f"{name}_offsets": np.asarray(column.offsets)}
    if arrays["texts_bytes"].nbytes >= block_sums.LARGE:
        arrays[CHARACTERS] = characters_in(fitted.texts).astype(np.int32)
    return arrays


def _documents(fitted: FittedCorpus) -> dict[str, NDArray[Any]]:
    sides = {"user": fitted.user_documents, "item": fitted.item_documents}
    return {f"{side}.{name}": array for side, docs in sides.items() for name, array in docs.arrays().items()}


def _item_texts(sealed: SealedFolder, items: int) -> ItemTexts:
    texts = ItemTexts.from_columns(sealed.arrays(ITEM_TEXTS))
    if fault := texts.fault(items):
        raise ColumnFault(fault)
    return texts


def _fitted_corpus(sealed: SealedFolder, facts: dict[str, Any], layout: int) -> FittedCorpus:
    sealed.check_large()
    words = sealed.arrays("documents.safetensors", mmap=True)  # these two are all that grow with every review
    records, strings = _records_and_strings(sealed)
    vocabulary = Vocabulary.from_json(sealed.json("tokeniser.json"))
    check_words(vocabulary.words)
    check_records(strings, records, facts["levels"])
    records = {name: np.array(records[name], subok=False) for name in COLUMNS}  # looked up at random
    texts, sizes = strings["texts"], (len(vocabulary), facts["max_words"])
    if layout == FIRST_LAYOUT:
        for side in ("user", "item"):
            check_documents(side, words, strings, records, *sizes, room=None)
        words = with_characters(words, texts)
    room = texts.characters if isinstance(texts, LateTexts) else characters_in(texts)
    for side in ("user", "item"):
        check_documents(side, words, strings, records, *sizes, room)
    documents = {
        side: Documents(**{f.name: words[f"{side}.{f.name}"] for f in fields(Documents)}) for side in ("user", "item")
    }
    columns: dict[str, Any] = {**strings, **{name: records[name] for name in COLUMNS}}
    kind = model_class(facts["model"])
    return FittedCorpus(
        **columns,
        vocabulary=vocabulary,
        user_documents=documents["user"],
        item_documents=documents["item"],
        max_words=facts["max_words"],
        levels=facts["levels"],
        scale=RatingScale(**facts["scale"]),
        facts=facts["data"],
        cut=kind.review_cut(make_config(kind, facts["config"])),
    )


def _records_and_strings(sealed: SealedFolder) -> tuple[dict[str, NDArray[Any]], dict[str, StringColumn]]:
    """The columns of the records, and the strings apart. Texts of a large model are left to be checked on use."""
    file = "records.safetensors"
    records, later = sealed.arrays_but(file, "texts_bytes")
    strings: dict[str, StringColumn] = {}
    if later is not None and CHARACTERS in records:
        strings["texts"] = late_texts(later, records, str(sealed.path / file))
    elif later is not None:
        records["texts_bytes"] = later.whole()
    for name in set(STRINGS) - set(strings):
        strings[name] = StringColumn(records[f"{name}_bytes"], records[f"{name}_offsets"])
    return records, strings
