"""Our `pmf`, its loss and its gradients, walked in cornac's steps: rating after rating, RMSprop kept for each row.

Steps that share neither a user nor an item touch different rows and may be taken together, so long as whoever is met
again is met in the same order: `rounds`. As in cornac, users move first and items see them moved: from factors of
nearly zero that is what turns both the same way. One thing is left apart: an item's step is taken on the error after
its user has moved, in cornac on the error before. At its usual rate of 0.001 that is little.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from carp.models.batch import Batch, Pairs
from carp.models.pmf import Pmf

NOTHING = torch.zeros(0, 0, dtype=torch.int32)


class RowRmsprop(torch.optim.Optimizer):
    """A row's running squares change only when the row is met; torch's fade with every step, met or not.

    A row that is met once in dozens of batches would remember nothing but the slope at hand, of which division by its
    own size leaves no more than the sign.
    """

    def __init__(self, tables: Iterable[Tensor], lr: float, decay: float = 0.9) -> None:
        super().__init__(tables, {"lr": lr, "decay": decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for table in group["params"]:
                met = table.grad.ne(0).any(1).nonzero().squeeze(1)
                slope = table.grad[met]
                squares = self.state[table].setdefault("squares", torch.zeros_like(table))
                squares[met] = group["decay"] * squares[met] + (1 - group["decay"]) * slope.square()
                table[met] -= group["lr"] * slope / (squares[met].sqrt() + 1e-8)


def rounds(users: NDArray[Any], items: NDArray[Any]) -> list[NDArray[np.int64]]:
    """Places of the ratings, in rounds: each right after the last round with its user or its item.

    >>> [places.tolist() for places in rounds(np.array([0, 0, 1, 2]), np.array([0, 1, 0, 2]))]
    [[0, 3], [1, 2]]
    """
    user_round, item_round = np.full(users.max() + 1, -1), np.full(items.max() + 1, -1)
    places = np.empty(len(users), np.int64)
    for place, (user, item) in enumerate(zip(users, items, strict=True)):
        places[place] = user_round[user] = item_round[item] = 1 + max(user_round[user], item_round[item])
    return np.split(np.argsort(places, kind="stable"), np.cumsum(np.bincount(places))[:-1])


def walk(train: Pairs, model: Pmf, rate: float, passes: int) -> None:
    """So many passes over the ratings in their order; a model of float64."""
    sides = [RowRmsprop([table], rate) for table in (model.user_factors, model.item_factors)]
    columns = [torch.from_numpy(column) for column in (train.users, train.items, train.ratings)]
    batches = []
    for places in map(torch.from_numpy, rounds(train.users, train.items)):
        users, items, ratings = (column[places] for column in columns)
        batches.append(Batch(users, items, NOTHING, NOTHING, NOTHING, NOTHING, ratings.double(), training=True))
    for _, batch, side in itertools.product(range(passes), batches, sides):
        model.zero_grad()
        (len(batch) * model.loss(batch, model(batch))).backward()  # type: ignore[no-untyped-call]
        side.step()
