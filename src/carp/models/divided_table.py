"""Word tables that several processes divide among them: each keeps some rows, and a step brings together what it reads.

Process p of n keeps the rows p, p + n, p + 2n and so on. Looking words up asks the keepers for their rows; going
backward sends each row's gradient to its keeper, where those of all processes are added up. All processes have to look
up at the same moments, each its own words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from carp.models.batch_share import Others, sharing


class DividedTable(nn.Parameter):
    """The rows of a word table that this process keeps; all of them until others are known to keep the rest."""

    others: Others | None = None


class WordEmbedding(nn.Embedding):
    """The word table of a model: a row for the padding and for each word, which several processes may divide.

    It is asked by calling it, or by `word_rows` where its weight is handed on; `F.embedding` would not find the rows
    that others keep.
    """

    def forward(self, words: Tensor) -> Tensor:
        if not isinstance(self.weight, DividedTable):
            return super().forward(words)
        return word_rows(self.weight, words) * (words > 0).unsqueeze(-1)  # the padding is zero and learns nothing


def word_tables(model: nn.Module) -> dict[str, WordEmbedding]:
    """The word tables of a model, by the names of their weights."""
    return {f"{name}.weight": module for name, module in model.named_modules() if isinstance(module, WordEmbedding)}


def is_divided(model: nn.Module) -> bool:
    return any(isinstance(one, DividedTable) and one.others is not None for one in model.parameters())


def word_rows(table: Tensor, words: Tensor) -> Tensor:
    """The rows of words in a table, wherever they are kept."""
    if not isinstance(table, DividedTable) or table.others is None:
        return F.embedding(words, table)
    distinct, places = torch.unique(words.long(), return_inverse=True)
    rows: Tensor = _Fetched.apply(table, distinct, table.others)  # type: ignore[no-untyped-call]
    return F.embedding(places, rows)


@dataclass(frozen=True)
class _Route:
    """Which rows go from which process to which."""

    others: Others
    order: Tensor  # our words by their keepers
    asked: list[int]  # of each process, so many rows
    owed: list[int]  # to each process, so many rows
    kept: Tensor  # the places here of the rows we owe

    @classmethod
    def of(cls, words: Tensor, others: Others) -> _Route:
        keeper = words % others.size
        order = torch.argsort(keeper, stable=True)
        asked = torch.bincount(keeper.cpu(), minlength=others.size)
        owed = others.exchange(asked, [1] * others.size, [1] * others.size).tolist()
        kept = others.exchange((words // others.size)[order], asked.tolist(), owed)
        return cls(others, order, asked.tolist(), owed, kept)

    def bring(self, table: Tensor) -> Tensor:
        """The rows of our words."""
        rows = self.others.exchange(table[self.kept], self.owed, self.asked)
        return rows[torch.argsort(self.order)]

    def take_back(self, gradient: Tensor, table: Tensor) -> Tensor:
        """The gradient of the rows we keep, from what all processes have of the rows of their words."""
        received = self.others.exchange(gradient[self.order], self.asked, self.owed)
        return torch.zeros_like(table).index_add_(0, self.kept, received)


class _Fetched(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, words: Tensor, others: Others) -> Tensor:
        route, ctx.table = _Route.of(words, others), table.detach()
        ctx.route = route
        return route.bring(ctx.table)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        share = sharing().share
        assert share is not None, "a gradient is taken inside a batch"
        return ctx.route.take_back(gradients[0] * share.weight, ctx.table), None, None
