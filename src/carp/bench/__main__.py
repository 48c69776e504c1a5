"""The grid where only torch, numpy and safetensors are: `python -m carp.bench CORPUS... --models all`.

Slim copies of corpora are made where carp is installed, `python -m carp.bench CORPUS --slim FILE.npz`, and travel in
their stead. The results folder is that of `carp bench`, and either goes on with what the other began.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from carp.bench.cells import Line
from carp.bench.datasets import find_sources, load_corpus, save_slim
from carp.bench.grid import Grid, entry_or_error, read_seeds, read_systems, run_grid, told_line
from carp.bench.study import named_studies, read_values, read_varied, run_studies, study_cells
from carp.errors import CarpError, UsageError, telling_of_options


def main(arguments: Sequence[str] | None = None) -> int:
    with telling_of_options():
        try:
            return _run(_parser().parse_args(arguments))
        except CarpError as error:
            print(f"carp.bench: {error}", file=sys.stderr)
            return error.exit_code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m carp.bench", description=__doc__)
    parser.add_argument("corpora", nargs="+", type=Path)
    parser.add_argument("--models", default="all")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--search", type=int, default=0)
    parser.add_argument("--search-on", metavar="FIRST-LAST", help="seeds of splits on which to choose once for all")
    parser.add_argument("--grid", action="append", default=[])
    parser.add_argument("--set", action="append", default=[], dest="given")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--retry", action="store_true")
    parser.add_argument("--study", metavar="NAME", help="a named study of carp instead of the grid, or all")
    parser.add_argument("--vary", action="append", default=[], help="a study of a setting instead of the grid")
    parser.add_argument("--slim", type=Path, help="write a copy of the corpus without texts, and nothing else")
    return parser


def _run(given: argparse.Namespace) -> int:
    if given.slim is not None:
        save_slim(load_corpus(given.corpora[0]), given.slim)
        return 0
    settings = _settings(given.given)
    running: dict[str, Any] = {
        "processes": given.processes,
        "device": given.device,
        "retry": given.retry,
        "told": _tell,
    }
    if given.study or given.vary:
        return _run_studies(given, settings, running)
    grid = Grid(
        read_systems(given.models),
        find_sources(given.corpora),
        given.seeds,
        settings,
        given.search,
        read_values(given.grid, "--grid"),
        read_seeds(given.search_on, "--search-on"),
    )
    grid.check()
    return 1 if run_grid(grid.cells(), given.out, **running).failed else 0


def _settings(texts: Sequence[str]) -> dict[str, Any]:
    found = read_values(texts, "--set")
    for name, values in found.items():
        if len(values) > 1:
            fix = f"search {name} with --grid, or vary it with --vary"
            raise UsageError(f"{name} is given {len(values)} values", where="--set", fix=fix)
    return {name: value for name, [value] in found.items()}


def _run_studies(given: argparse.Namespace, settings: dict[str, Any], running: dict[str, Any]) -> int:
    model = "carp-paper" if given.models == "all" else given.models
    entry_or_error(model)
    studies = read_varied(given.vary) + (named_studies(given.study) if given.study else [])
    failed = False
    for source in find_sources(given.corpora):
        cells = [(study, study_cells(study, source, model, given.seeds, settings)) for study in studies]
        outcome, _ = run_studies(cells, model, source, given.out, **running)
        failed |= bool(outcome.failed)
    return 1 if failed else 0


def _tell(line: Line, done: int, total: int) -> None:
    print(told_line(line, done, total), file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
