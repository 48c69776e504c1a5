"""The tables of a model, whose rows belong to people, to things and to words, carried over to other numbers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from carp.errors import UsageError
from carp.models.base import RatingModel
from carp.models.batch import Pairs, Sizes
from carp.models.layers import SizedByData, TunedBiases
from carp.training.fitted_corpus import FittedCorpus

Kind = Literal["users", "items", "words"]
Places = NDArray[np.int64]
State = Mapping[str, Tensor]
KINDS: tuple[Kind, ...] = ("users", "items", "words")
ROUNDS = 50  # of alternating between people and things, as in fitting


@dataclass(frozen=True)
class Renumbering:
    """Where everything went. Each column has the old number of each new entry, or -1 where there was none."""

    users: Places
    items: Places
    words: Places  # [words + 1], word 0 is the padding

    @classmethod
    def by_name(cls, earlier: FittedCorpus, now: FittedCorpus) -> Renumbering:
        """What has the same id, or is the same word, in two corpora."""
        words = {word: place for place, word in enumerate(earlier.vocabulary.words, start=1)}
        return cls(
            _looked_up(earlier.users.index(), now.users),
            _looked_up(earlier.items.index(), now.items),
            np.concatenate([np.zeros(1, np.int64), _looked_up(words, now.vocabulary.words)]),
        )


def _looked_up(index: Mapping[str, int], names: Iterable[str]) -> Places:
    return np.array([index.get(name, -1) for name in names], dtype=np.int64)


def rows_of_tables(kind: type[RatingModel], config: Any, sizes: Sizes) -> dict[str, Kind]:
    """Which tensors have a row for each person, thing or word: found by making small models of several sizes."""
    rows: dict[str, Kind] = {}
    small = replace(sizes, users=1, items=1, words=1)
    with torch.random.fork_rng(devices=[]):  # nobody else's random numbers change by it
        shapes = {name: tensor.shape for name, tensor in kind(config, small).state_dict().items()}
        for grown in KINDS:
            larger = kind(config, replace(small, **{grown: 2})).state_dict()
            rows |= {name: grown for name, shape in shapes.items() if larger[name].shape != shape}
    return rows


def carried_over(state: State, onto: State, rows: Mapping[str, Kind], old: Renumbering) -> dict[str, Tensor]:
    """The tensors of `onto` with the rows of `state` that belong to the same people, things and words."""
    return {name: _carried(name, state[name], target, rows.get(name), old) for name, target in onto.items()}


def _carried(name: str, given: Tensor, target: Tensor, kind: Kind | None, old: Renumbering) -> Tensor:
    first = 0 if kind is None else 1  # the number of rows may differ, and nothing else
    if given.shape[first:] != target.shape[first:]:
        what = f"{name} is {list(given.shape)} in the earlier model and {list(target.shape)} in this one"
        raise UsageError(what, fix="train with the settings of the earlier model")
    if kind is None or _all_stay(getattr(old, kind), len(given)):
        return given.to(target, copy=True)
    places = torch.from_numpy(getattr(old, kind)).to(target.device)
    known = (places >= 0).nonzero().squeeze(1)
    return target.index_copy(0, known, given.to(target)[places[known]])


def _all_stay(old: Places, count: int) -> bool:
    return np.array_equal(old, np.arange(count))


def empty_like(module: torch.nn.Module) -> dict[str, Tensor]:
    """A state of zeros: what a model gives to those it has never seen; without what only training pairs have."""
    of_pairs = {
        f"{path}.{name}" if path else name
        for path, part in module.named_modules()
        if isinstance(part, SizedByData)
        for name in part.sized_by_data
    }
    return {name: torch.zeros_like(of) for name, of in module.state_dict().items() if name not in of_pairs}


def leave_out_again(
    biases: TunedBiases, earlier: TunedBiases, train: Pairs, worked_out: TunedBiases | None = None
) -> None:
    """What each training rating does to its own baseline, worked out for the pairs of now where it was before.

    Where other biases of the same pairs have the same weights, it is what was worked out for them.
    """
    if not len(earlier.pairs):
        return
    if worked_out is not None and len(worked_out.pairs) and _weigh_alike(biases, worked_out):
        biases.pairs, biases.growth = worked_out.pairs.clone(), worked_out.growth.clone()
    else:
        biases.leave_out(train)


def _weigh_alike(one: TunedBiases, other: TunedBiases) -> bool:
    return torch.equal(one.user_weight, other.user_weight) and torch.equal(one.item_weight, other.item_weight)


def solve_again(biases: TunedBiases, train: Pairs, users: NDArray[np.int64], items: NDArray[np.int64]) -> None:
    """The tuned biases of some people and things, exact beside those of all others, which stay as they are."""
    of_user, of_item = np.isin(train.users, users), np.isin(train.items, items)
    rest = train.ratings.astype(np.float64) - float(biases.mean)
    user, item = (side.double().cpu().numpy().copy() for side in (biases.user, biases.item))
    user_shrinkage, item_shrinkage = biases.shrinkage.tolist()
    user_weight = np.bincount(train.users, minlength=len(user)) + user_shrinkage
    item_weight = np.bincount(train.items, minlength=len(item)) + item_shrinkage
    for _ in range(ROUNDS):
        left = (rest - user[train.users])[of_item]
        item[items] = (np.bincount(train.items[of_item], left, minlength=len(item)) / item_weight)[items]
        left = (rest - item[train.items])[of_user]
        user[users] = (np.bincount(train.users[of_user], left, minlength=len(user)) / user_weight)[users]
    with torch.no_grad():
        for table, values, places in (
            (biases.user, user, users),
            (biases.item, item, items),
            (biases.user_weight, user_weight, users),
            (biases.item_weight, item_weight, items),
        ):
            where = torch.from_numpy(places).to(table.device)
            table[where] = torch.from_numpy(values[places]).to(table)


def take_over(model: RatingModel, corpus: FittedCorpus, earlier: RatingModel, known: FittedCorpus) -> None:
    """Give a new model the learned weights of an earlier one, for the people, things and words that both know."""
    rows = rows_of_tables(type(model), model.config, model.sizes)
    learned = {name for name, _ in model.named_parameters()}
    onto = {name: tensor for name, tensor in model.state_dict().items() if name in learned}
    given = earlier.state_dict()
    if missing := onto.keys() - given.keys():
        what = f"the earlier model has no {min(missing)}"
        raise UsageError(what, fix="train with the settings of the earlier model")
    model.load_state_dict(carried_over(given, onto, rows, Renumbering.by_name(known, corpus)), strict=False)


def weights_digest(model: RatingModel) -> str:
    """A sum over all weights: another model to start from is another training."""
    total = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        total.update(name.encode() + tensor.detach().cpu().contiguous().numpy().tobytes())
    return total.hexdigest()
