"""Grids of models, corpora and splits: which cells there are, and running those that are not done yet."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from carp.bench.cells import Cell, CellResult, Line, current_commit, run_cell
from carp.bench.datasets import CorpusSource
from carp.bench.results_folder import BENCH, owned_results
from carp.bench.settings_search import Space, check_space, choose_settings, search_space, settings_of
from carp.errors import CarpError, UsageError, nearest
from carp.models import REGISTRY, model_entry

Told = Callable[[Line, int, int], None]  # a cell's line, cells done, cells in all
Runner = Callable[[Sequence[Cell], Path, str], Iterator[CellResult]]  # of cells, with their results and a device
Began = Callable[[int, int], None]  # cells done before, cells in all


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
                raise UsageError(f"{part!r} is no model with settings", where="--models", fix="write name:key=value")
            entry_or_error(model.strip())
            system = System(model.strip(), {key.strip(): value.strip() for key, _, value in pairs})
            systems[system.label] = system
    if not systems:
        raise UsageError("no model is named", where="--models", fix="give all, or names with commas between")
    return list(systems.values())


def read_seeds(text: str | None, option: str) -> tuple[int, ...]:
    """The first and the last of some split seeds, or one.

    >>> read_seeds("100-102", "--search-on"), read_seeds("100", "--search-on"), read_seeds(None, "--search-on")
    ((100, 101, 102), (100,), ())
    """
    if text is None:
        return ()
    first, _, last = text.partition("-")
    numbers = [part.strip() for part in (first, last or first)]
    if not all(number.isascii() and number.isdigit() and len(number) <= 9 for number in numbers):
        raise UsageError(f"{text!r} names no split seeds", where=option, fix=f"write {option} 100-101")
    seeds = tuple(range(int(numbers[0]), int(numbers[1]) + 1))
    if not 0 < len(seeds) <= 100:
        raise UsageError(f"{text!r} names {len(seeds)} split seeds", where=option, fix="give between one and a hundred")
    return seeds


def entry_or_error(model: str, option: str = "--models") -> None:
    try:
        model_entry(model)
    except UsageError as error:
        error.where = option
        raise


@dataclass(frozen=True)
class Grid:
    """All that says which cells there are."""

    systems: Sequence[System]
    sources: Sequence[CorpusSource]
    seeds: int = 5
    settings: Mapping[str, Any] = field(default_factory=dict)  # for every model that has them
    trials: int = 0  # of the search; none means the settings as they are
    space: Mapping[str, Sequence[Any]] = field(default_factory=dict)  # to search instead of the usual one
    choose_on: Sequence[int] = ()  # seeds of splits on which to choose once for all; none: on each split for itself

    def cells(self) -> list[Cell]:
        """Splits outermost, so that a grid cut short is a smaller grid; the same measurement twice is one cell."""
        made: dict[str, Cell] = {}
        for number, source, system in itertools.product(range(self.seeds), self.sources, self.systems):
            cell = Cell(
                path=source.path,
                corpus=source.name,
                fingerprint=source.fingerprint,
                names=source.names,
                model=system.model,
                label=system.label,
                split_seed=0 if source.own_split else number,
                seed=number if source.own_split else 0,
                settings=self._settings(system),
                search=self._search(system, () if source.own_split else self.choose_on),
            )
            made.setdefault(cell.identity, cell)
        return list(made.values())

    def _settings(self, system: System) -> dict[str, Any]:
        known = settings_of(system.model)
        return {**{name: value for name, value in self.settings.items() if name in known}, **system.settings}

    def _space(self, system: System) -> Space:
        given = self._settings(system)
        return {name: values for name, values in search_space(system.model, self.space).items() if name not in given}

    def _search(self, system: System, choose_on: Sequence[int]) -> dict[str, Any]:
        space = self._space(system) if self.trials > 0 else {}
        if not space:
            return {}
        return {"trials": self.trials, "space": space, **({"splits": list(choose_on)} if choose_on else {})}

    def check(self) -> None:
        """Refuse before anything runs: settings that nobody has, values that cannot be, a search for nothing."""
        from carp.recommender import Recommender

        models = list(dict.fromkeys(system.model for system in self.systems))
        every = {name for model in models for name in settings_of(model)}
        for name in self.settings:
            if name not in every:
                what = f"no model of the grid has a setting {name!r}"
                raise UsageError(what, where="--set", fix=nearest(name, every))
        for system in self.systems:
            Recommender(system.model, device="cpu", **self._settings(system))
        try:
            check_space(self.space, models)
        except CarpError as error:
            error.where = error.where or "--grid"
            raise
        self._check_search()

    def _check_search(self) -> None:
        if self.choose_on and self.trials < 1:
            what = "--search-on is for a search"
            raise UsageError(what, where="--search-on", fix="add --search with the number of trials")
        if any(seed < self.seeds for seed in self.choose_on):
            what = "settings would be chosen on a split that is measured"
            raise UsageError(what, where="--search-on", fix=f"give seeds from {self.seeds} on, such as 100-101")
        if self.space and self.trials < 1:
            raise UsageError("--grid is for a search", where="--grid", fix="add --search with the number of trials")
        searched = {name for system in self.systems for name in self._space(system)}
        for name in self.space:
            if self.trials and name not in searched:
                what = f"every model that has {name} is given one, so that it is not searched"
                raise UsageError(what, where="--grid", fix=f"leave {name} out of --grid, or out of --set and --models")
        if self.trials and not searched:
            what = "no model of the grid has anything left to search"
            raise UsageError(what, where="--search", fix="name settings with --grid, or leave --search out")


def told_line(line: Line, done: int, total: int) -> str:
    """A cell that has just ended, for a log."""
    found = line["error"] if "error" in line else f"validation {line['valid_mse']:.4f}, {line['seconds']:.1f} s"
    return f"{done} of {total}: {line['corpus']}, split {line['split_seed']}, {line['model']}: {found}"


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
    elsewhere: Runner | None = None,
    device: str = "auto",
    file: str = BENCH,
    retry: bool = False,
    began: Began | None = None,
    told: Told | None = None,
) -> Outcome:
    """Run the cells that are not in the results yet, each line added as soon as its cell is done.

    `began` is called once the folder is this process' own, before any cell runs. With `elsewhere`, cells run there
    instead of in processes of this machine.
    """
    from carp.training.loop import choose_device

    chosen = str(choose_device(device))
    with owned_results(out, file) as results:
        if retry:
            results.forget_failures({cell.identity for cell in cells})
        left = [cell for cell in cells if cell.identity not in results.lines]
        done = len(cells) - len(left)
        if began is not None:
            began(done, len(cells))
        commit = current_commit() if left else ""
        run = elsewhere or partial(_run, processes=processes)
        for found in run(left, out.absolute(), chosen):
            results.append(CellResult({**found.line, "commit": commit}, found.errors))
            done += 1
            if told is not None:
                told(found.line, done, len(cells))
        labels = {cell.identity: cell for cell in cells}
        lines = [{**results.lines[i], "model": labels[i].label, "corpus": labels[i].corpus} for i in labels]
    return Outcome(lines, len(left))


def _run(cells: Sequence[Cell], out: Path, device: str, processes: int) -> Iterator[CellResult]:
    if processes > 1 and len(cells) > 1:
        from carp.bench.cell_processes import run_in_processes

        yield from run_in_processes(cells, out, device, min(processes, len(cells)))
        return
    for cell in cells:
        yield run_cell(cell, out, device, choose=choose_settings)
