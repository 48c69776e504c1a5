"""Grids of models, corpora and splits: which cells there are, and running those that are not done yet."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from carp.bench.cells import Cell, Line, current_commit, run_cell
from carp.bench.corpora import Source
from carp.bench.results import BENCH, owned_results
from carp.bench.search import check_space, choose_settings, search_space, settings_of
from carp.errors import CarpError, UsageError, nearest
from carp.models import REGISTRY, model_entry

Told = Callable[[Line, int, int], None]  # a cell's line, cells done, cells in all


@dataclass(frozen=True)
class System:
    """A row of the table: a model, and the settings that make it this row's."""

    model: str
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        return ":".join([self.model, *(f"{key}={value}" for key, value in self.settings.items())])


def read_systems(text: str) -> list[System]:
    """`all`, or names with commas between; settings follow a name after colons.

    >>> [system.label for system in read_systems("bias, carp:variant=calibrated:target_reviews=keep")]
    ['bias', 'carp:variant=calibrated:target_reviews=keep']
    """
    systems: dict[str, System] = {}
    for part in (part.strip() for part in text.split(",") if part.strip()):
        for name in REGISTRY if part == "all" else [part]:
            model, *given = name.split(":")
            pairs = [setting.partition("=") for setting in given]
            if not all(key.strip() and equals for key, equals, _ in pairs):
                raise UsageError(f"{part!r} is no model with settings", where="--models", mend="write name:key=value")
            entry_or_error(model.strip())
            system = System(model.strip(), {key.strip(): value.strip() for key, _, value in pairs})
            systems[system.label] = system
    if not systems:
        raise UsageError("no model is named", where="--models", mend="give all, or names with commas between")
    return list(systems.values())


def entry_or_error(model: str) -> None:
    try:
        model_entry(model)
    except UsageError as error:
        error.where = "--models"
        raise


@dataclass(frozen=True)
class Grid:
    """All that says which cells there are."""

    systems: Sequence[System]
    sources: Sequence[Source]
    seeds: int = 5
    settings: Mapping[str, Any] = field(default_factory=dict)  # for every model that has them
    trials: int = 0  # of the search; none means the settings as they are
    space: Mapping[str, Sequence[Any]] = field(default_factory=dict)  # to search instead of the usual one

    def cells(self) -> list[Cell]:
        """Splits outermost, so that a grid cut short is a smaller grid; the same measurement twice is one cell."""
        made: dict[str, Cell] = {}
        for number, source, system in itertools.product(range(self.seeds), self.sources, self.systems):
            known = settings_of(system.model)
            shared = {name: value for name, value in self.settings.items() if name in known}
            settings = {**shared, **system.settings}
            cell = Cell(
                path=source.path,
                corpus=source.name,
                fingerprint=source.fingerprint,
                model=system.model,
                label=system.label,
                split_seed=0 if source.own_split else number,
                seed=number if source.own_split else 0,
                settings=settings,
                search=self._search(system.model, settings),
            )
            made.setdefault(cell.identity, cell)
        return list(made.values())

    def _search(self, model: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        if self.trials < 1:
            return {}
        space = {n: v for n, v in search_space(model, self.space).items() if n not in settings}
        return {"trials": self.trials, "space": space} if space else {}

    def check(self) -> None:
        """Refuse before anything runs: settings that nobody has, and values that cannot be."""
        from carp.recommender import Recommender

        models = list(dict.fromkeys(system.model for system in self.systems))
        every = {name for model in models for name in settings_of(model)}
        for name in self.settings:
            if name not in every:
                what = f"no model of the grid has a setting {name!r}"
                raise UsageError(what, where="--set", mend=nearest(name, every))
        for system in self.systems:
            known = settings_of(system.model)
            shared = {name: value for name, value in self.settings.items() if name in known}
            Recommender(system.model, device="cpu", **{**shared, **system.settings})
        try:
            check_space(self.space, models)
        except CarpError as error:
            error.where = error.where or "--grid"
            raise


@dataclass(frozen=True)
class Outcome:
    """What a grid came to: a line for each of its cells, in the grid's order."""

    lines: list[Line]
    ran: int  # now, the others having been there before

    @property
    def failed(self) -> list[Line]:
        return [line for line in self.lines if "error" in line]


def run_grid(
    cells: Sequence[Cell],
    out: Path,
    *,
    processes: int = 1,
    device: str = "auto",
    file: str = BENCH,
    retry: bool = False,
    told: Told | None = None,
) -> Outcome:
    """Run the cells that are not in the results yet, each line added as soon as its cell is done."""
    from carp.train import choose_device

    chosen = str(choose_device(device))
    with owned_results(out, file) as results:
        if retry:
            results.forget_failures()
        left = [cell for cell in cells if cell.identity not in results.lines]
        done = len(cells) - len(left)
        commit = current_commit() if left else ""
        for line in _lines(left, out.absolute(), chosen, processes):
            results.append({**line, "commit": commit})
            done += 1
            if told is not None:
                told(line, done, len(cells))
        labels = {cell.identity: cell for cell in cells}
        lines = [{**results.lines[i], "model": labels[i].label, "corpus": labels[i].corpus} for i in labels]
    return Outcome(lines, len(left))


def _lines(cells: Sequence[Cell], out: Path, device: str, processes: int) -> Iterator[Line]:
    if processes > 1 and len(cells) > 1:
        from carp.bench.workers import run_in_processes

        yield from run_in_processes(cells, out, device, min(processes, len(cells)))
        return
    for cell in cells:
        yield run_cell(cell, out, device, choose=choose_settings)


def usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
