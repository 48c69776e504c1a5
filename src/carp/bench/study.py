"""One thing varied and the rest held fast: the paper's analyses, and whatever else one wants to know of a setting."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from carp.bench.cells import Cell
from carp.bench.datasets import CorpusSource
from carp.bench.grid import Began, Outcome, run_grid
from carp.bench.results_folder import STUDY
from carp.bench.settings_search import settings_of
from carp.errors import CarpError, UsageError, nearest
from carp.storage import read_json, write_json

STUDIES = "studies.json"
# The paper's: M, τ, λ, the routing, the two halves of the sentiment loss, k, the logic units. Ours: the last two.
NAMED: dict[str, tuple[Any, ...]] = {
    "viewpoints": (3, 5, 7, 9),
    "routing_iterations": (1, 2, 3, 4),
    "rating_weight": (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
    "routing": ("bi-agreement", "agreement"),
    "mutual_exclusion": (True, False),
    "latent_size": (25, 50, 100, 150, 200, 300),
    "logic_unit": ("difference first", "appended"),
    "target_reviews": ("leave out", "keep"),
    "variant": ("paper", "released"),
}
Points = dict[str, dict[str, Any]]  # what a point is called, and its settings


@dataclass(frozen=True)
class Study:
    name: str  # the settings that are varied
    points: Points = field(default_factory=dict)
    option: str = "--vary"  # of the command, that asked for it


def named_studies(name: str) -> list[Study]:
    if name != "all" and name not in NAMED:
        raise UsageError(f"there is no study {name!r}", where="--named", fix=nearest(name, [*NAMED, "all"]))
    studies = [_varied({key: list(NAMED[key])}) for key in (NAMED if name == "all" else [name])]
    return [replace(study, option="--named") for study in studies]


def read_varied(texts: Sequence[str], *, product: bool = False) -> list[Study]:
    """`setting=value,value,...` each; one study a setting, or one of all combinations.

    >>> [list(study.points) for study in read_varied(["viewpoints=3,5", "rating_weight=0.5,1"])]
    [['3', '5'], ['0.5', '1']]
    >>> [list(study.points) for study in read_varied(["viewpoints=3,5", "rating_weight=0.5"], product=True)]
    [['3, 0.5', '5, 0.5']]
    """
    varied = read_values(texts, "--vary")
    if product and varied:
        return [_varied(varied)]
    return [_varied({name: values}) for name, values in varied.items()]


def read_values(texts: Sequence[str], option: str) -> dict[str, list[Any]]:
    """
    >>> read_values(["latent_size=25,50"], "--grid")
    {'latent_size': [25, 50]}
    """
    found: dict[str, list[Any]] = {}
    for text in texts:
        name, equals, listed = text.partition("=")
        values = [value.strip() for value in listed.split(",") if value.strip()]
        if not name.strip() or not equals or not values:
            fix = f"write {option} setting=value,value"
            raise UsageError(f"{text!r} is not of the form setting=value,value", where=option, fix=fix)
        found[name.strip()] = list(dict.fromkeys(map(_number_or_word, values)))
    return found


def _number_or_word(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _varied(varied: Mapping[str, Sequence[Any]]) -> Study:
    combined = itertools.product(*varied.values())
    points = {", ".join(map(str, values)): dict(zip(varied, values, strict=True)) for values in combined}
    return Study(" × ".join(varied), points)


def study_cells(study: Study, source: CorpusSource, model: str, seeds: int, settings: Mapping[str, Any]) -> list[Cell]:
    """The cells of a study: its points on every split. Unknown settings and values are refused."""
    _check_settings(model, settings, "--set")
    for point in study.points.values():
        _check_settings(model, {**settings, **point}, study.option)
    return [
        Cell(
            path=source.path,
            corpus=source.name,
            fingerprint=source.fingerprint,
            names=source.names,
            model=model,
            label=f"{model}: {study.name} = {label}",
            split_seed=0 if source.own_split else number,
            seed=number if source.own_split else 0,
            settings={**settings, **point},
        )
        for number in range(seeds)
        for label, point in study.points.items()
    ]


def _check_settings(model: str, settings: Mapping[str, Any], option: str) -> None:
    from carp.recommender import Recommender

    known = settings_of(model)
    for name in settings:
        if name not in known:
            raise UsageError(f"{model} has no setting {name!r}", where=option, fix=nearest(name, known))
    try:
        Recommender(model, device="cpu", **settings)
    except CarpError as error:
        error.where = error.where or option
        raise


def run_studies(
    studies: Sequence[tuple[Study, Sequence[Cell]]],
    model: str,
    source: CorpusSource,
    out: Path,
    *,
    began: Began | None = None,
    **running: Any,
) -> tuple[Outcome, list[str]]:
    """Run the cells of studies of one corpus, each once, and give the studies' keys.

    The studies are noted before their cells run, so that a report knows what the cells of a stopped run are of.
    """
    keys: list[str] = []

    def begin(done: int, total: int) -> None:
        keys.extend(remember_study(out, study, model, source, cells) for study, cells in studies)
        if began is not None:
            began(done, total)

    cells = list({cell.identity: cell for _, group in studies for cell in group}.values())
    return run_grid(cells, out, file=STUDY, began=begin, **running), keys


def remember_study(out: Path, study: Study, model: str, source: CorpusSource, cells: Sequence[Cell]) -> str:
    """Note which cells make up a study, so that a report can be made later, and give its key.

    Many studies share cells, and a study may be noted before its cells have run.
    """
    known = read_json(out / STUDIES) if (out / STUDIES).exists() else {}
    points: dict[str, list[str]] = {label: [] for label in study.points}
    for cell in cells:
        points[cell.label.partition(" = ")[2]].append(cell.identity)
    given = {name: str(value) for name, value in cells[0].settings.items() if name not in study.name.split(" × ")}
    about = {"study": study.name, "model": model, "corpus": source.name, "fingerprint": source.fingerprint}
    key = " | ".join([source.name, source.fingerprint[:8], model, study.name, *(f"{k}={v}" for k, v in given.items())])
    known[key] = {**about, "given": given, "points": points}
    write_json(out / STUDIES, known)
    return key
