"""Training seen in a terminal: a bar with loss and validation error, on standard error."""

from __future__ import annotations

import sys
from typing import Any


class Bar:
    """A progress bar for an epoch at a time, and one line for each epoch that is over."""

    def __init__(self, epochs: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self.epochs = epochs
        self.console = Console(file=sys.stderr)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self.progress = Progress(*columns, console=self.console, transient=True)
        self.task = self.progress.add_task("training", total=None)
        self.best = float("inf")

    def epoch_begins(self, epoch: int, batches: int) -> None:
        self.progress.start()
        known = "" if self.best == float("inf") else f", best validation MSE {self.best:.4f}"
        self.progress.reset(self.task, total=batches, description=f"epoch {epoch} of at most {self.epochs}{known}")

    def batch_done(self) -> None:
        self.progress.advance(self.task)

    def epoch_ends(self, record: dict[str, Any]) -> None:
        self.progress.stop()
        better = record["valid_mse"] < self.best
        self.best = min(self.best, record["valid_mse"])
        mark = "  best so far" if better else ""
        self.console.print(
            f"epoch {record['epoch']:3d}   loss {record['loss']:.4f}   validation MSE {record['valid_mse']:.4f}"
            f"   {record['seconds']:.1f} s{mark}",
            highlight=False,
        )
