"""The stages on a Ray cluster: cells of a grid, and recommendations for everybody.

All nodes must see the model, the corpora and the results at the same places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from carp.answers import Recommendation
from carp.bench.cell_processes import line_of_the_dead
from carp.bench.cells import Cell, CellResult, run_cell
from carp.bench.settings_search import choose_settings
from carp.errors import CarpError
from carp.recommender import Recommender, load
from carp.reviews.corpora.worker_processes import WorkerDied
from carp.scale.ray_cluster import RayCluster, TaskLost

PEOPLE_AT_ONCE = 500  # recommended to by one task
Found = tuple[str, list[Recommendation]]


class _CellTask(NamedTuple):
    cell: Cell
    out: Path
    device: str


def cells_on(cluster: RayCluster) -> Callable[[Sequence[Cell], Path, str], Iterator[CellResult]]:
    """Runs cells as tasks; what was found comes in the order in which they are done."""

    def run(cells: Sequence[Cell], out: Path, device: str) -> Iterator[CellResult]:
        tasks = [_CellTask(cell, out, device) for cell in cells]
        for task, reference in cluster.as_done(_run_cell, tasks):
            try:
                yield cluster.result(reference)
            except TaskLost as lost:
                yield CellResult(line_of_the_dead(task.cell, device, WorkerDied(f"again and again ({lost.what})")))

    return run


def _run_cell(task: _CellTask) -> CellResult:
    return run_cell(task.cell, task.out, task.device, choose=choose_settings)


class _PeopleTask(NamedTuple):
    model: str
    bundle: str  # the sum of its manifest: another model at the same place is refused
    people: tuple[str, ...]
    n: int
    wish: tuple[tuple[str, Any], ...]


def recommend_on(
    cluster: RayCluster, model: Path, people: Sequence[str], n: int, wish: dict[str, Any], bundle: str
) -> Iterator[Found]:
    """The recommendations of everybody in the order of the people, some hundred people a task."""
    named = {name: tuple(value) if isinstance(value, list) else value for name, value in wish.items()}
    place, settings = str(model.absolute()), tuple(named.items())
    tasks = (
        _PeopleTask(place, bundle, tuple(people[start : start + PEOPLE_AT_ONCE]), n, settings)
        for start in range(0, len(people), PEOPLE_AT_ONCE)
    )
    for found in cluster.map(_recommend, tasks):
        yield from found


def _recommend(task: _PeopleTask) -> list[Found]:
    recommender = _loaded(task.model, task.bundle)
    return list(recommender.recommend_all(task.n, task.people, **dict(task.wish)))


@lru_cache(maxsize=1)
def _loaded(model: str, bundle: str) -> Recommender:
    """The model, loaded once by each worker. Lists of another model than the command's are not mixed with its own."""
    recommender = load(model, device="cpu")
    if recommender.bundle_sum != bundle:
        what = "the model was replaced while the cluster worked with it"
        raise CarpError(what, where=model, fix="run the command again, and change the model when it is done")
    return recommender
