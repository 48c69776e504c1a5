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
from carp.models.side_room import all_finite
from carp.reviews.corpora import column_checks
from carp.reviews.corpora.column_checks import ColumnFault, need
from carp.reviews.corpora.late_texts import LateTexts
from carp.reviews.corpora.records import LATEST, NO_TIME
from carp.reviews.corpora.string_column import StringColumn, let_go, stretch, stretches
from carp.reviews.split_parts import PARTS, TRAIN
from carp.storage import BytesCheckedOnUse, in_threads

Arrays = dict[str, NDArray[Any]]
Lengths = NDArray[np.signedinteger[Any]]
ROUNDING = 1e-3  # ratings are kept in single precision
MOST = 10**6  # of any whole number among a model's settings
OWNERS = {"user": "users", "item": "items"}
CHARACTERS = "texts_characters"  # how many each text has; only where texts are checked on use
COUNTS = {"updated", "forgotten", "learned_records", "learned_replaced"}  # which a model has that was changed since
RESERVED = {"self", "model", "seed", "split_seed", "device"}  # are no settings


def check_facts(facts: Mapping[str, Any]) -> None:
    """Refuse facts that are of another kind than those a model is saved with."""
    for name in ("seed", "split_seed", "max_words", "levels"):
        need(type(facts[name]) is int and 0 <= facts[name] < 2**32, f"{name} is not a number that can be one")
    for name in COUNTS & set(facts):
        need(type(facts[name]) is int and 0 <= facts[name] < 2**53, f"{name} is not a number that can be one")
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
    """Refuse records whose columns contradict each other. Texts that are checked on use are left to that."""
    records = len(columns["user"])
    column_checks.check_strings("users", strings["users"], distinct=True)
    column_checks.check_strings("items", strings["items"], distinct=True)
    if not isinstance(strings["texts"], LateTexts):
        column_checks.check_strings("texts", strings["texts"], entries=records)
    need(len(strings["users"]) > 0 and len(strings["items"]) > 0, "there are no users or no items")
    for name, kind in {"user": np.int32, "item": np.int32, "rating": np.float32, "part": np.int8}.items():
        column_checks.check_kind(name, columns[name], kind, records)
    column_checks.check_range("user", columns["user"], 0, len(strings["users"]) - 1)
    column_checks.check_range("item", columns["item"], 0, len(strings["items"]) - 1)
    column_checks.check_range("rating", columns["rating"], 1 - ROUNDING, levels + ROUNDING)
    column_checks.check_range("part", columns["part"], 0, len(PARTS) - 1)


def late_texts(content: BytesCheckedOnUse, columns: Arrays, where: str) -> LateTexts:
    """Texts that are checked on use; what tells where each of them lies is checked now."""
    offsets, characters, records = columns["texts_offsets"], columns[CHARACTERS], len(columns["user"])
    column_checks.check_offsets("the offsets of texts", offsets, records, len(content.content))
    column_checks.check_kind(CHARACTERS, characters, np.int32, records)
    for first, last in stretches(records):
        some = stretch(characters, first, last)
        sizes = np.diff(stretch(offsets, first, last + 1))
        need(bool(((some >= 0) & (some <= sizes)).all()), f"{CHARACTERS} are more than the texts can have")
    return LateTexts(content, offsets, np.array(characters, subok=False), where)


def checked_dates(columns: Arrays, records: int) -> NDArray[np.int64]:
    """The dates of so many records, refused where they cannot be any."""
    column_checks.check_kind("time", columns["time"], np.int64, records)
    column_checks.check_range("time", columns["time"], NO_TIME, LATEST)
    return columns["time"]


def check_documents(
    side: str,
    arrays: Arrays,
    strings: Mapping[str, StringColumn],
    columns: Arrays,
    words: int,
    max_words: int,
    room: Lengths | None,
) -> None:
    """Refuse documents that no corpus could have given: each word stands in a training review of its owner.

    It stands inside of the text, which has room for so many characters; None where characters are not known yet.
    """
    own = {name: arrays[f"{side}.{name}"] for name in ("words", "review", "offsets")}
    if room is not None:
        own["characters"] = arrays[f"{side}.characters"]
    _check_kinds(side, own, len(strings[OWNERS[side]]), max_words)

    def check_stretch(part: tuple[int, int]) -> None:
        first, last = part
        column_checks.check_range(f"{side}.words", own["words"][first:last], 1, words)
        begins, read = review_runs(own["review"][first:last], own["offsets"], first)
        column_checks.check_range(f"{side}.review", read, 0, len(columns["user"]) - 1)
        owned = columns[side][read] == owners_of(own["offsets"], first + begins)
        need(bool(owned.all()), f"{side}.review names reviews of others")
        need(bool((columns["part"][read] == TRAIN).all()), f"{side}.review names reviews that did not train")
        if room is not None:
            inside = _stand_inside(own["characters"][first:last], begins, room[read])
            need(inside, f"{side}.characters stand outside of the texts")
        for name in own.keys() - {"offsets"}:
            let_go(own[name], first, last)

    in_threads(check_stretch, stretches(len(own["words"])))


def _check_kinds(side: str, own: Arrays, owners: int, max_words: int) -> None:
    tokens = len(own["words"])
    for name, rest in {"words": (), "review": (), "characters": (2,)}.items():
        if name in own:
            column_checks.check_kind(f"{side}.{name}", own[name], np.int32, tokens, *rest)
    column_checks.check_offsets(f"{side}.offsets", own["offsets"], owners, tokens, most=max_words)


def _stand_inside(characters: NDArray[np.int32], runs: NDArray[np.int64], room: Lengths) -> bool:
    """Whether words stand inside of their texts: runs of words begin at these places, in texts with so much room."""
    begins, ends = np.asarray(characters).T
    right_way = characters.min() >= 0 and (begins <= ends).all()
    return bool(right_way and (np.maximum.reduceat(ends, runs) <= room).all())


def review_runs(
    read: NDArray[np.int32], offsets: NDArray[np.int64], first: int
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Where words, of which `first` is the number of the first, go on to another review or document, and the reviews.

    Words of one review stand together, so that what holds of a review is looked up once and not for each word.

    >>> [found.tolist() for found in review_runs(np.array([7, 7, 7, 4, 4]), np.array([0, 2, 5]), 0)]
    [[0, 2, 3], [7, 7, 4]]
    """
    begins = np.ones(len(read), np.bool_)
    np.not_equal(read[1:], read[:-1], out=begins[1:])
    among, after = np.searchsorted(offsets, (first, first + len(read)))
    begins[offsets[among:after] - first] = True
    places = np.flatnonzero(begins)
    return places, read[places]


def owners_of(offsets: NDArray[np.int64], words: NDArray[np.int64]) -> NDArray[np.int64]:
    """Whose words these are, of documents that lie end to end.

    >>> owners_of(np.array([0, 2, 2, 5]), np.array([1, 2, 4])).tolist()
    [0, 2, 2]
    """
    return np.searchsorted(offsets, words, side="right") - 1


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
        need(not tensor.is_floating_point() or all_finite(tensor), f"{name} holds what is no number")
