"""What searches chose, and how often it lay on the edge of what they could choose from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from carp.bench.cells import Line


@dataclass(frozen=True)
class ChosenSettings:
    """The choices of one system on all splits of a corpus."""

    model: str
    trials: list[int]  # from the fewest to the most of a cell
    cells: int
    values: dict[str, Counter[Any]]  # how often each value of a setting was chosen
    on_edge: dict[str, int]  # in how many cells it was the first or the last of its values
    shared: bool = False  # chosen once, on splits of their own


def chosen_settings(by_model: Mapping[str, Mapping[Any, Line]]) -> list[ChosenSettings]:
    """Of all systems whose settings were searched."""
    found = []
    for model, runs in by_model.items():
        searched = [line for line in runs.values() if line.get("trials")]
        if searched:
            found.append(_chosen(model, searched))
    return found


def _chosen(model: str, lines: Sequence[Line]) -> ChosenSettings:
    values: dict[str, Counter[Any]] = {}
    on_edge: dict[str, int] = {}
    for line in lines:
        best = min(line["trials"], key=lambda trial: float(trial["valid_mse"]))["settings"]
        for name, among in line["search"]["space"].items():
            values.setdefault(name, Counter())[best[name]] += 1
            on_edge[name] = on_edge.get(name, 0) + at_an_end(best[name], among)
    trials = [len(line["trials"]) for line in lines]
    shared = all(line["search"].get("splits") for line in lines)
    return ChosenSettings(model, sorted({min(trials), max(trials)}), len(lines), values, on_edge, shared)


def at_an_end(value: Any, among: Sequence[Any]) -> bool:
    """
    >>> at_an_end(25, [25, 50, 100]), at_an_end(50, [25, 50, 100]), at_an_end("paper", ["paper"])
    (True, False, False)
    """
    ordered = sorted(among) if all(isinstance(one, int | float) for one in among) else list(among)
    return len(ordered) > 1 and value in (ordered[0], ordered[-1])
