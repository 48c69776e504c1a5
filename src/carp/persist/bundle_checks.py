"""Whether what a saved model holds fits together: its columns, its facts and its tensors.

The manifest's sums are right here already. Somebody may have edited the files and sealed them again, by hand or with
intent, and the kernels look things up by these columns.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from carp.models.layers import SizedByData
from carp.reviews.corpora import column_checks
from carp.reviews.corpora.column_checks import ColumnFault, need
from carp.reviews.corpora.records import LATEST, NO_TIME
from carp.reviews.corpora.string_column import StringColumn, stretch, stretches
from carp.reviews.split_parts import PARTS, TRAIN

Arrays = dict[str, NDArray[Any]]
ROUNDING = 1e-3  # ratings are kept in single precision
MOST = 10**6  # of any whole number among a model's settings
OWNERS = {"user": "users", "item": "items"}
RESERVED = {"self", "model", "seed", "split_seed", "device"}  # are no settings


def check_facts(facts: Mapping[str, Any]) -> None:
    """Refuse facts that are of another kind than those a model is saved with."""
    for name in ("seed", "split_seed", "max_words", "levels"):
        need(type(facts[name]) is int and 0 <= facts[name] < 2**32, f"{name} is not a number that can be one")
    need(facts["levels"] > 1, "the highest rating is not above 1")
    need(1 <= facts["max_words"] <= MOST, "max_words is not a number of words")
    need(isinstance(facts["model"], str), "the model has no name")
    groups = [facts[name] for name in ("fit", "text", "training", "config")]
    for group in [*groups, facts["scale"], facts["data"], facts["data"]["corpus"]]:
        need(isinstance(group, dict), "settings or facts are missing")
    given = [name for group in groups for name in group]
    need(len(set(given)) == len(given) and RESERVED.isdisjoint(given), "a setting is given twice")
    for name, value in facts["config"].items():
        need(not isinstance(value, int) or abs(value) <= MOST, f"{name} cannot be {value}")
        need(isinstance(value, str | int | float | None), f"{name} is no setting")
    need(isinstance(facts["data"]["split"], str), "the split is not named")
    need(isinstance(facts["data"]["fingerprint"], str), "the corpus has no fingerprint")
    _check_numbers("degree_scale", facts["degree_scale"], 2)
    _check_numbers("the scale", [facts["scale"]["low"], facts["scale"]["high"]], 2)
    if facts.get("margin") is not None:
        _check_numbers("margin", [facts["margin"]], 1)
        need(facts["margin"] >= 0, "margin is below 0")


def _check_numbers(name: str, values: Any, count: int) -> None:
    need(isinstance(values, list) and len(values) == count, f"{name} should be {count} numbers")
    for value in values:
        plain = isinstance(value, int | float) and not isinstance(value, bool)
        need(plain and math.isfinite(value) and abs(value) < 1e30, f"{name} holds what is no number")


def check_records(strings: Mapping[str, StringColumn], columns: Arrays, levels: int) -> None:
    """Refuse records whose columns contradict each other."""
    records = len(columns["user"])
    column_checks.check_strings("users", strings["users"], distinct=True)
    column_checks.check_strings("items", strings["items"], distinct=True)
    column_checks.check_strings("texts", strings["texts"], entries=records)
    need(len(strings["users"]) > 0 and len(strings["items"]) > 0, "there are no users or no items")
    for name, kind in {"user": np.int32, "item": np.int32, "rating": np.float32, "part": np.int8}.items():
        column_checks.check_kind(name, columns[name], kind, records)
    column_checks.check_range("user", columns["user"], 0, len(strings["users"]) - 1)
    column_checks.check_range("item", columns["item"], 0, len(strings["items"]) - 1)
    column_checks.check_range("rating", columns["rating"], 1 - ROUNDING, levels + ROUNDING)
    column_checks.check_range("part", columns["part"], 0, len(PARTS) - 1)


def checked_dates(columns: Arrays, records: int) -> NDArray[np.int64]:
    """The dates of so many records, refused where they cannot be any."""
    column_checks.check_kind("time", columns["time"], np.int64, records)
    column_checks.check_range("time", columns["time"], NO_TIME, LATEST)
    return columns["time"]


def check_documents(
    side: str, arrays: Arrays, strings: Mapping[str, StringColumn], columns: Arrays, words: int, max_words: int
) -> None:
    """Refuse documents that no corpus could have given: each word stands in a training review of its owner."""
    tokens, owners = len(arrays[f"{side}.words"]), len(strings[OWNERS[side]])
    offsets, review = arrays[f"{side}.offsets"], arrays[f"{side}.review"]
    for name in ("words", "review"):
        column_checks.check_kind(f"{side}.{name}", arrays[f"{side}.{name}"], np.int32, tokens)
    column_checks.check_offsets(f"{side}.offsets", offsets, owners, tokens, most=max_words)
    column_checks.check_range(f"{side}.words", arrays[f"{side}.words"], 1, words)
    for first, last in stretches(tokens):
        read = stretch(review, first, last)
        column_checks.check_range(f"{side}.review", read, 0, len(columns["user"]) - 1)
        own = columns[side][read] == owners_of(offsets, first, last)
        need(bool(own.all()), f"{side}.review names reviews of others")
        need(bool((columns["part"][read] == TRAIN).all()), f"{side}.review names reviews that did not train")


def owners_of(offsets: NDArray[np.int64], first: int, last: int) -> NDArray[np.int64]:
    """Whose words first to last are, of documents that lie end to end.

    >>> owners_of(np.array([0, 2, 2, 5]), 1, 4).tolist()
    [0, 2, 2]
    """
    begin = int(np.searchsorted(offsets, first, side="right")) - 1
    end = int(np.searchsorted(offsets, last))
    edges = np.clip(offsets[begin : end + 1], first, last)
    return np.repeat(np.arange(begin, end), np.diff(edges))


def check_characters(side: str, arrays: Arrays, room: NDArray[np.int64]) -> None:
    """Refuse words that stand outside of their texts, which have room for so many characters each."""
    review, characters = arrays[f"{side}.review"], arrays[f"{side}.characters"]
    column_checks.check_kind(f"{side}.characters", characters, np.int32, len(review), 2)
    for first, last in stretches(len(review)):
        begins, ends = stretch(characters, first, last).T
        holds = (begins >= 0) & (begins <= ends) & (ends <= room[stretch(review, first, last)])
        need(bool(holds.all()), f"{side}.characters stand outside of the texts")


def check_words(words: list[str]) -> None:
    need(len(words) > 0 and len(set(words)) == len(words), "the vocabulary is empty or has a word twice")


def check_tensors(module: nn.Module, found: Mapping[str, NDArray[Any]]) -> dict[str, Tensor]:
    """The tensors of a module, each of the kind and the shape that the module asks for, and finite."""
    wanted, free = module.state_dict(), _named(module, "sized_by_data")
    missing = wanted.keys() - found.keys() - _named(module, "absent_before")
    need(not missing and found.keys() <= wanted.keys(), "the tensors are those of another model")
    tensors = {name: torch.from_numpy(array.copy()) for name, array in found.items()}
    for name, tensor in tensors.items():
        should = wanted[name]
        fits = tensor.ndim == should.ndim if name in free else tensor.shape == should.shape
        if not fits or tensor.dtype != should.dtype:
            have, asked = (f"{one.dtype} {list(one.shape)}" for one in (tensor, should))
            raise ColumnFault(f"{name} is {have} and should be {asked}")
    check_finite(tensors)
    return tensors


def _named(module: nn.Module, kind: str) -> set[str]:
    """The tensors whose lengths only the data know (`sized_by_data`), or that were once not saved (`absent_before`)."""
    found = {prefix: part for prefix, part in module.named_modules() if isinstance(part, SizedByData)}
    return {f"{prefix}.{name}".removeprefix(".") for prefix, part in found.items() for name in getattr(part, kind)}


def check_finite(tensors: Mapping[str, Tensor]) -> None:
    """Refuse tensors with entries that are no numbers."""
    for name, tensor in tensors.items():
        need(not tensor.is_floating_point() or bool(torch.isfinite(tensor).all()), f"{name} holds what is no number")
