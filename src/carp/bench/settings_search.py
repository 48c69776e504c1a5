"""Settings chosen on validation: the whole grid where the trials suffice, a guided choice where they do not.

Each cell has its own study, so that processes never wait for each other and a killed search goes on where it was.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from carp.bench.cells import Cell, Line
from carp.errors import CarpError, InputError, UsageError, nearest
from carp.models import model_class, model_entry
from carp.storage import append_json_line, disk_errors, read_json_lines
from carp.training.loop import TrainingSettings

if TYPE_CHECKING:
    import optuna

SEARCH = "search"
LATENT_SIZES = (25, 50, 100, 150, 200, 300)  # the paper's grid
SPACE: dict[str, tuple[Any, ...]] = {"latent_size": LATENT_SIZES}
SUGGESTIONS = 20
Space = dict[str, list[Any]]
Objective = Callable[[dict[str, Any]], float]


def settings_of(model: str) -> set[str]:
    """All settings a model can be given, without those that are its name."""
    from carp.bench.cells import all_settings
    from carp.recommender import Recommender

    return set(all_settings(Recommender(model, device="cpu"))) - set(model_entry(model).settings)


def search_space(model: str, given: Mapping[str, Sequence[Any]] | None = None) -> Space:
    """What is searched for a model: what was given, else the paper's latent sizes."""
    kind = model_class(model)
    known = settings_of(model)
    fields = {f.name for f in dataclasses.fields(kind.Config)} | {f.name for f in dataclasses.fields(TrainingSettings)}
    chosen = given if given else {name: values for name, values in SPACE.items() if name in fields}
    return {name: list(values) for name, values in chosen.items() if name in known and len(values)}


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
    trials, space = int(cell.search["trials"]), dict(cell.search["space"])
    failures: list[str] = []

    def tried(settings: dict[str, Any]) -> float | None:
        try:
            return error_with(settings)
        except (CarpError, RuntimeError, ArithmeticError, MemoryError) as error:
            failures.append(f"{settings}: {error}")
            return None

    folder = out / SEARCH
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    try:
        import optuna  # noqa: F401
    except ImportError:
        done = _walk(folder / f"{cell.identity}.jsonl", space, trials, tried)
    else:
        done = _study(folder / f"{cell.identity}.db", space, trials, tried)
    if not done:
        raise InputError(f"all trials failed, the first with {failures[0] if failures else 'no message'}")
    return done


def grid_size(space: Space) -> int:
    return math.prod(len(values) for values in space.values())


def _study(file: Path, space: Space, trials: int, tried: Callable[[dict[str, Any]], float | None]) -> list[Line]:
    """An optuna study in a file of its own. A trial is added when it is over, so a killed one leaves nothing."""
    import optuna
    from optuna.distributions import CategoricalDistribution
    from optuna.trial import TrialState

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    choices: dict[str, Any] = {
        name: CategoricalDistribution([_plain(value) for value in values]) for name, values in space.items()
    }
    storage = optuna.storages.RDBStorage(f"sqlite:///{file}", engine_kwargs={"connect_args": {"timeout": 60}})
    try:
        study = optuna.create_study(storage=storage, study_name="cell", load_if_exists=True)
        over = [t for t in study.trials if t.state in (TrialState.COMPLETE, TrialState.PRUNED)]
        known = {_key(t.params): t.value for t in over}
        left = max(0, min(trials, grid_size(space)) - len(known))
        for point in itertools.islice(_guide(study, choices, known, trials), left):
            error = known[_key(point)] = tried(point)
            state = TrialState.PRUNED if error is None else TrialState.COMPLETE
            study.add_trial(optuna.create_trial(state=state, value=error, params=point, distributions=choices))
        complete = [t for t in study.trials if t.state == TrialState.COMPLETE]
        return [{"settings": dict(t.params), "valid_mse": float(t.values[0])} for t in complete]
    finally:
        storage.remove_session()
        storage.engine.dispose()


def _guide(
    study: optuna.Study, choices: Mapping[str, Any], known: Mapping[str, Any], trials: int
) -> Iterator[dict[str, Any]]:
    """The next points to try, never a known one: what is left of the grid, or what the trials so far suggest."""
    import optuna

    grid = [dict(zip(choices, p, strict=True)) for p in itertools.product(*(c.choices for c in choices.values()))]
    if len(grid) <= trials:
        yield from [point for point in grid if _key(point) not in known]
        return
    study.sampler = optuna.samplers.TPESampler(seed=len(known), n_startup_trials=max(3, trials // 4))
    rng = random.Random(len(known))
    while rest := [point for point in grid if _key(point) not in known]:
        suggested = next((point for point in _suggestions(study, choices) if _key(point) not in known), None)
        yield suggested or rng.choice(rest)


def _suggestions(study: optuna.Study, choices: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A few suggestions: once most of a small grid is known, the guide names little else."""
    import optuna

    for _ in range(SUGGESTIONS):
        asked = study.ask(dict(choices))
        study.tell(asked, state=optuna.trial.TrialState.FAIL)  # what comes of it is added as a trial of its own
        yield dict(asked.params)


def _key(point: Mapping[str, Any]) -> str:
    return json.dumps(point, sort_keys=True)


def _walk(file: Path, space: Space, trials: int, tried: Callable[[dict[str, Any]], float | None]) -> list[Line]:
    """Without optuna, on a bare machine: the grid itself, or a seeded sample of it."""
    points = [dict(zip(space, values, strict=True)) for values in itertools.product(*space.values())]
    if len(points) > trials:
        points = random.Random(0).sample(points, trials)
    done = read_json_lines(file)
    for point in points:
        if not any(trial["settings"] == point for trial in done):
            done.append({"settings": point, "valid_mse": tried(point)})
            append_json_line(file, done[-1])
    return [trial for trial in done if trial["valid_mse"] is not None]


def _plain(value: Any) -> Any:
    return value if isinstance(value, bool | int | float | str) or value is None else str(value)
