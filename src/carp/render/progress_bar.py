"""Training seen in a terminal: a bar with loss and validation error, on standard error."""

from __future__ import annotations

import sys
from typing import Any


class Bar:
    """A progress bar for the running epoch, and one line for each finished one.

    The bar shows the figures of the previous epoch: to read the loss of a batch would make a GPU wait. Where
    standard error is not a terminal, only the lines are written.
    """

    def __init__(self, epochs: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self.epochs = epochs
        self.console = Console(file=sys.stderr)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
        )
        off = not self.console.is_terminal
        self.progress = Progress(*columns, console=self.console, transient=True, expand=True, disable=off)
        self.task = self.progress.add_task("training", total=None)
        self.last = ""

    def epoch_begins(self, epoch: int, batches: int) -> None:
        self.progress.start()
        self.progress.reset(self.task, total=batches, description=f"epoch {epoch} of {self.epochs}{self.last}")

    def batch_done(self) -> None:
        self.progress.advance(self.task)

    def epoch_ends(self, record: dict[str, Any]) -> None:
        loss, error = record["loss"], record.get("valid_mse")  # none where no pair is held out
        mark = "  best so far" if record.get("best") else ""
        judged = ("", "") if error is None else (f", validation {error:.4f}", f"   validation MSE {error:.4f}")
        self.last = f" (before: loss {loss:.4f}{judged[0]})"
        words = f"epoch {record['epoch']:3d}   loss {loss:.4f}{judged[1]}"
        self.console.print(f"{words}   {record['seconds']:.1f} s{mark}", highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Leave the terminal as it was: a bar left running hides the cursor."""
        try:
            self.progress.stop()
        except IndexError:  # Ctrl-C came while the bar was starting: there is nothing to stop yet
            self.console.show_cursor()
