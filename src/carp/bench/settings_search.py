"""Settings chosen on validation: a walk over a grid, from the model's own values to ever better neighbours.

Values of a setting are in order, from small to large. A point is tried, then its neighbours along each setting. The
walk goes on from the best point so far and never tries a point twice. So both neighbours of the best point are known,
unless the trials end before, or it lies on the edge of the grid. Where the trials suffice, the whole grid is tried.
There is no chance in it: the same validation errors give the same walk. Each cell has its own file of trials, so that
processes never wait for each other, and a stopped search goes on where it was.

Settings can also be chosen once for all splits, on splits of their own: then the cells of a system share their trials,
and the walk ends as soon as all neighbours of the best point are known. Whoever would have to wait for a trial that
another process makes tries a point ahead instead: one that the walk comes to unless it finds a better one before. So
the walk is the same with any number of processes, and what was tried in vain does not count as a trial.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from carp.bench.cells import Cell, Line, all_settings
from carp.bench.durable_lines import append_line, whole_lines
from carp.errors import CarpError, InputError, UsageError, nearest
from carp.models import model_class, model_entry
from carp.storage import disk_errors, holding_if_free, holding_in_turn
from carp.training.loop import TrainingSettings

SEARCH = "search"
SPACE: dict[str, tuple[Any, ...]] = {
    "latent_size": (25, 50, 100, 150, 200, 300),  # the paper's grid
    "learning_rate": (0.00001, 0.00003, 0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03),
    "penalty": (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0),
}
Space = dict[str, list[Any]]
Point = tuple[int, ...]  # the place of each setting's value among its values
Objective = Callable[[dict[str, Any]], float]


def settings_of(model: str) -> set[str]:
    """All settings a model can be given, without those that are its name."""
    from carp.recommender import Recommender

    return set(all_settings(Recommender(model, device="cpu"))) - set(model_entry(model).settings)


def search_space(model: str, given: Mapping[str, Sequence[Any]] | None = None) -> Space:
    """What is searched for a model: what was given, else the paper's latent sizes, and the penalty of a factorisation
    or the learning rate of a network."""
    kind = model_class(model)
    known = settings_of(model)
    fields = {f.name for f in dataclasses.fields(kind.Config)} | {f.name for f in dataclasses.fields(TrainingSettings)}
    usual = {name: SPACE[name] for name in kind.searched} if kind.learns else {}
    chosen = given if given else {name: values for name, values in usual.items() if name in fields}
    return {name: _in_order(values) for name, values in chosen.items() if name in known and len(values)}


def _in_order(values: Sequence[Any]) -> list[Any]:
    """Numbers from small to large; anything else as it was given."""
    return sorted(values) if all(isinstance(value, int | float) for value in values) else list(values)


def check_space(given: Mapping[str, Sequence[Any]], models: Sequence[str]) -> None:
    """A setting that no model of the grid has, or a value it cannot take, is refused before anything runs."""
    from carp.recommender import Recommender

    known = {model: settings_of(model) for model in models}
    for name, values in given.items():
        having = [model for model in models if name in known[model]]
        if not having:
            every = set().union(*known.values()) if known else set()
            raise UsageError(f"no model of the grid has a setting {name!r}", fix=nearest(name, every))
        for model, value in itertools.product(having, values):
            Recommender(model, device="cpu", **{name: value})


def choose_settings(cell: Cell, out: Path, error_with: Objective) -> list[Line]:
    """The trials of a cell, those of an earlier run included: each with its settings and validation error."""
    file = search_file(cell, out)
    with disk_errors(file.parent):
        file.parent.mkdir(parents=True, exist_ok=True)
    if cell.choosing_splits:
        done = _walk_together(cell, file, error_with)
    else:
        with holding_in_turn(file):
            done = _walk_alone(cell, file, error_with)
    good = [trial for trial in done if trial["valid_mse"] is not None]
    if not good:
        raise InputError(f"all trials failed, the first with {done[0]['settings']}: {done[0].get('error')}")
    return good


def search_file(cell: Cell, out: Path) -> Path:
    """Where a cell's trials are kept, one a line."""
    return out / SEARCH / f"{cell.search_identity}.jsonl"


def _walk_alone(cell: Cell, file: Path, error_with: Objective) -> list[Line]:
    """Trials until there are enough; those that the file has are not made again."""
    trials, space = int(cell.search["trials"]), dict(cell.search["space"])
    done = _trials_in(file)
    while len(done) < min(trials, grid_size(space)):
        trial = _try(next(untried(space, start_of(cell, space), done)), error_with)
        append_line(file, trial)
        done.append(trial)
    return done


def _walk_together(cell: Cell, file: Path, error_with: Objective) -> list[Line]:
    """Trials until the neighbours of the best point are known, made by all who choose together."""
    most, space = int(cell.search["trials"]), dict(cell.search["space"])
    start = start_of(cell, space)
    while True:
        known = _known(file)
        done = walked(space, start, known, most)
        ahead = [point for point in expected(space, start, done, most) if _key(point) not in known]
        if not ahead:
            return done
        if not any(_try_if_free(file, point, error_with) for point in ahead):
            with holding_in_turn(_place_of(file, ahead[0])):
                pass  # until whoever tries it has ended


def _try_if_free(file: Path, point: dict[str, Any], error_with: Objective) -> bool:
    """Whether nobody else is trying a point. Then it is tried, unless somebody has just done so."""
    with holding_if_free(_place_of(file, point)) as free:
        if free and _key(point) not in _known(file):
            trial = _try(point, error_with)
            with holding_in_turn(file):
                append_line(file, trial)
        return free


def _place_of(file: Path, point: Mapping[str, Any]) -> Path:
    """What is held while a point is tried."""
    return file.with_suffix(f".{hashlib.sha256(_key(point).encode()).hexdigest()[:16]}")


def _known(file: Path) -> dict[str, Line]:
    with holding_in_turn(file):
        return {_key(trial["settings"]): trial for trial in _trials_in(file)}


def _trials_in(file: Path) -> list[Line]:
    return [json.loads(line) for line in whole_lines(file)]


def _try(settings: dict[str, Any], error_with: Objective) -> Line:
    trial: Line = {"settings": settings, "valid_mse": None}
    try:
        trial["valid_mse"] = error_with(settings)
    except (CarpError, RuntimeError, ArithmeticError, MemoryError) as error:
        trial["error"] = str(error)
    return trial


def walked(space: Space, start: Mapping[str, Any], known: Mapping[str, Line], most: int) -> list[Line]:
    """The trials of a walk as far as they are known, in its order; points that it does not come to are left out."""
    done: list[Line] = []
    while not _ended(space, done, most):
        trial = known.get(_key(next(untried(space, start, done))))
        if trial is None:
            break
        done.append(trial)
    return done


def expected(space: Space, start: Mapping[str, Any], done: Sequence[Line], most: int) -> list[dict[str, Any]]:
    """The points a walk comes to next if none of them is better than the best so far.

    >>> space, start = {"size": [25, 50, 100], "rate": [0.1, 0.3, 1.0]}, {"size": 25, "rate": 0.3}
    >>> expected(space, start, [], 16)
    [{'size': 25, 'rate': 0.3}, {'size': 25, 'rate': 0.1}, {'size': 25, 'rate': 1.0}, {'size': 50, 'rate': 0.3}]
    """
    supposed, points = list(done), []
    while not _ended(space, supposed, most):
        points.append(next(untried(space, start, supposed)))
        supposed.append({"settings": points[-1], "valid_mse": math.inf})
    return points


def _ended(space: Space, done: Sequence[Line], most: int) -> bool:
    return len(done) >= min(most, grid_size(space)) or settled(space, done)


def settled(space: Space, done: Sequence[Line]) -> bool:
    """Whether all neighbours of the best point are known.

    >>> space = {"size": [25, 50, 100]}
    >>> tried = [{"settings": {"size": size}, "valid_mse": error} for size, error in ((50, 1.0), (25, 1.1), (100, 0.9))]
    >>> settled(space, tried[:2]), settled(space, tried)
    (False, True)
    """
    good = [trial for trial in done if trial["valid_mse"] is not None]
    best = _point(space, min(good, key=lambda trial: float(trial["valid_mse"]))["settings"]) if good else None
    if best is None:
        return False
    known = {_point(space, trial["settings"]) for trial in done}
    return all(point in known for point in _neighbours(space, best))


def grid_size(space: Space) -> int:
    return math.prod(len(values) for values in space.values())


def start_of(cell: Cell, space: Space) -> dict[str, Any]:
    """The model's own values, or the nearest of those searched; the middle one where none is near."""
    from carp.recommender import Recommender

    own = all_settings(Recommender(cell.model, device="cpu", **cell.settings))
    return {name: _nearest_value(values, own.get(name)) for name, values in space.items()}


def _nearest_value(values: Sequence[Any], wanted: Any) -> Any:
    """
    >>> _nearest_value([0.003, 0.01, 0.1], 0.007), _nearest_value(["sum", "mean", "max"], "min")
    (0.01, 'mean')
    """
    if wanted in values:
        return wanted
    numbers = [value for value in values if isinstance(value, int | float) and value > 0]
    if len(numbers) == len(values) and isinstance(wanted, int | float) and wanted > 0:
        return min(values, key=lambda value: abs(math.log(value / wanted)))
    return values[(len(values) - 1) // 2]


def untried(space: Space, start: Mapping[str, Any], done: Sequence[Line]) -> Iterator[dict[str, Any]]:
    """Points in the order in which to try them: the start, the neighbours of the best known point, of the next best, …

    >>> space = {"size": [25, 50, 100], "rate": [0.1, 0.3, 1.0]}
    >>> first = {"settings": {"size": 50, "rate": 0.3}, "valid_mse": 1.0}
    >>> second = {"settings": {"size": 50, "rate": 0.1}, "valid_mse": 0.9}
    >>> list(untried(space, first["settings"], [first, second]))[:2]
    [{'size': 25, 'rate': 0.1}, {'size': 100, 'rate': 0.1}]
    """
    known = {_key(trial["settings"]) for trial in done}
    by_error = sorted((trial for trial in done if trial["valid_mse"] is not None), key=lambda t: float(t["valid_mse"]))
    places = [point for trial in by_error if (point := _point(space, trial["settings"])) is not None]
    near = (point for place in places for point in _neighbours(space, place))
    begin = _point(space, start)
    every = itertools.product(*(range(len(values)) for values in space.values()))
    for point in itertools.chain([begin] if begin is not None else [], near, every):
        settings = {name: values[i] for (name, values), i in zip(space.items(), point, strict=True)}
        if _key(settings) not in known:
            known.add(_key(settings))
            yield settings


def _point(space: Space, settings: Mapping[str, Any]) -> Point | None:
    """Where settings lie on the grid; None where they do not."""
    if any(settings.get(name) not in values for name, values in space.items()):
        return None
    return tuple(values.index(settings[name]) for name, values in space.items())


def _neighbours(space: Space, point: Point) -> Iterator[Point]:
    """One step along one setting, the last setting first: a rate or a penalty counts more than a size."""
    for axis, values in reversed(list(enumerate(space.values()))):
        for step in (-1, 1):
            if 0 <= point[axis] + step < len(values):
                yield (*point[:axis], point[axis] + step, *point[axis + 1 :])


def _key(point: Mapping[str, Any]) -> str:
    return json.dumps(point, sort_keys=True)
