"""Word tables divided among the processes of a training: when, and the way of their rows out and back.

The first process makes a table, or reads it from a checkpoint, whole and on the host. Then it deals out the rows, and
each process keeps its own, with their gradients, running squares and best epoch. For a checkpoint and at the end, the
first process collects them again: what is saved never shows that a table was divided.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from carp.errors import UsageError
from carp.models.base import RatingModel
from carp.models.divided_table import DividedTable, WordEmbedding, word_tables
from carp.training.card_memory import KEPT, card_memory
from carp.training.company import Company, processes_of_card

WordTable = Literal["auto", "divided", "whole"]
SHARE_OF_CARD = 0.5  # of the memory that a process has of its card: a word table that needs more is divided
HOST = torch.device("cpu")


@dataclass(frozen=True)
class TableDivision:
    """The word tables of a model in training whose rows are kept by one process each; often there are none."""

    model: RatingModel
    tables: dict[str, WordEmbedding]  # by the names of their weights
    company: Company

    @classmethod
    def wanted(
        cls, model: RatingModel, word_table: WordTable, company: Company | None, device: torch.device
    ) -> TableDivision:
        """Which tables of a model are divided.

        Args:
            model: Whose tables are made.
            word_table: `divided` and `whole` say it; `auto` divides what needs more than half of a card.
            company: The processes that train together.
            device: Of this process.
        """
        tables = word_tables(model)
        if word_table == "divided":
            _refuse_undividable(tables, company)
        if company is None or company.size == 1:
            return cls(model, {}, Company(0, 1))
        enough = word_table != "divided" and company.all_agree(not _outgrow_card(tables, device))
        return cls(model, {} if enough or word_table == "whole" else tables, company)

    @property
    def parts(self) -> int:
        return self.company.size if self.tables else 1

    def place_before(self, device: torch.device) -> torch.device:
        """Where a model is made that is trained on a device: whole tables have room on the host."""
        return HOST if self.tables else device

    def mark(self) -> None:
        """Make room for rows in the place of whole tables; the first process keeps all until they are dealt out."""
        for module in self.tables.values():
            whole = module.weight.detach()
            module.weight = DividedTable(whole if self.company.leads else self._own(whole))

    def begin(
        self, optimizer: torch.optim.Optimizer, best: dict[str, Tensor], device: torch.device
    ) -> dict[str, Tensor]:
        """Deal out the rows, and move the model to its device; the best epoch comes back, of the tables its own rows.

        What the optimizer knows about a divided table stays whole: `Company.agree` deals it out.
        """
        if not self.tables:
            return best
        for name, module in self.tables.items():
            table = module.weight
            assert isinstance(table, DividedTable), "tables are marked before they are divided"
            wholes = (table.detach(), best[name]) if self.company.leads else (None, None)
            like = (self._own(table.detach()) if self.company.leads else table.detach()).to(device)
            table.data, best[name] = [self.company.deal(whole, like) for whole in wholes]
            table.others = self.company
        self.model.to(device)
        for parameter, state in optimizer.state.items():
            if not isinstance(parameter, DividedTable):
                state["square_avg"] = state["square_avg"].to(device)
        return {name: tensor.to(device) for name, tensor in best.items()}

    def whole(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """The tensors of a checkpoint with tables collected from all processes; without them in all but the first."""
        places = {name: place for place, (name, _) in enumerate(self.model.named_parameters())}
        rows: dict[str, int] = {}
        for name, module in self.tables.items():
            divided = f"model.{name}", f"best.{name}", f"optimizer.{places[name]}.square_avg"
            rows |= dict.fromkeys(divided, module.num_embeddings)
        found = {name: tensor for name, tensor in tensors.items() if name not in rows}
        for name in sorted(rows.keys() & tensors.keys()):
            if (table := self.company.collect(tensors[name], rows[name])) is not None:
                found[name] = table
        return found

    def end(self) -> None:
        """Give the first process the whole tables, on the host. The others keep their rows."""
        if self.tables:
            self.model.to(HOST)
        for module in self.tables.values():
            whole = self.company.collect(module.weight, module.num_embeddings)
            if whole is not None:
                module.weight = nn.Parameter(whole)

    def _own(self, whole: Tensor) -> Tensor:
        return whole[self.company.rank :: self.company.size].clone()


def _refuse_undividable(tables: dict[str, WordEmbedding], company: Company | None) -> None:
    if not tables:
        fix = "leave --word-table out"
        raise UsageError("this model has no word table that could be divided", where="--word-table", fix=fix)
    if company is None or company.size == 1:
        what = "a word table is divided among several processes, and there is one"
        raise UsageError(what, where="--word-table", fix="train with --processes 2 or more, or leave --word-table out")


def _outgrow_card(tables: dict[str, WordEmbedding], device: torch.device) -> bool:
    if device.type != "cuda":
        return False
    needed = KEPT * sum(one.weight.numel() * one.weight.element_size() for one in tables.values())
    return needed > SHARE_OF_CARD * card_memory(device) / processes_of_card()
