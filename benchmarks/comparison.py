"""All systems on the same splits: the whole comparison by one command, which goes on where it was stopped.

    python benchmarks/comparison.py run CORPUS... --out FOLDER [--splits 0-4] [--models NAME,NAME] [--processes 16] \
      [--chosen FILE]
    python benchmarks/comparison.py take FOLDER --into results [--lines FILE]

`run` needs torch, numpy and safetensors alone, and takes prepared corpora or slim copies of them. The settings of
every system that learns by steps are chosen once for a corpus, by the mean validation error of splits that are not
measured: as many as together have enough validation pairs. The search walks over the paper's latent sizes and over
learning rates or, for factorisations, penalties, until all neighbours of the best point are known. The cells are those
of `carp bench`, and so are the results. What was chosen for cells in a --chosen file of results is not searched again.

`take` puts what was found into the results that are kept: cells of splits 0 to 4 into bench.jsonl and errors.jsonl, in
the place of those of the same system, corpus and split; of splits 5 to 9 into fresh-splits.jsonl and
fresh-errors.jsonl. With --lines, all of them go into that file: for systems that do not belong in the table.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import source_tree  # noqa: F401
from carp.bench.cells import Cell
from carp.bench.datasets import CorpusSource, find_sources, load_corpus
from carp.bench.grid import Grid, read_systems, run_grid, told_line
from carp.bench.pair_errors import ERRORS
from carp.bench.results_folder import BENCH
from carp.bench.settings_search import search_file
from carp.models import REGISTRY, model_class
from carp.storage import append_json_line

TRIALS = 16  # at most; a walk ends before where it has found the best point
FIRST_CHOOSING_SPLIT = 100
PAIRS_TO_CHOOSE_BY = 2_400  # validation pairs
MOST_CHOOSING_SPLITS = 5
VALIDATION = 0.08  # of all reviews
LARGE = 30_000  # reviews, from which on batches are larger and training waits less
SMALL_SETTINGS, LARGE_SETTINGS = {"patience": 4}, {"patience": 3, "batch_size": 400}
FIRST_SPLITS = range(5)
EXACT = "gaussian-process"  # solves no more pairs than this at once
MOST_EXACT_PAIRS = 15_000
Line = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run")
    run.add_argument("corpora", nargs="+", type=Path)
    run.add_argument("--out", type=Path, required=True)
    run.add_argument("--splits", default="0-4", help="the first and the last split seed")
    run.add_argument("--models", default=",".join(name for name in REGISTRY))
    run.add_argument("--trials", type=int, default=TRIALS)
    run.add_argument("--processes", type=int, default=1)
    run.add_argument("--device", default="auto")
    run.add_argument("--chosen", type=Path, action="append", default=[], help="lines of results whose choices hold")
    take = commands.add_parser("take")
    take.add_argument("folder", type=Path)
    take.add_argument("--into", type=Path, default=Path("results"))
    take.add_argument("--lines", help="a file of its own for the lines, of all splits and without errors pair by pair")
    given = parser.parse_args()
    if given.command == "take":
        take_over(given.folder, given.into, given.lines)
        return
    first, last = (int(one) for one in given.splits.split("-"))
    cells = [
        cell
        for cell in comparison_cells(given.corpora, given.models, given.trials, last + 1)
        if cell.split_seed >= first
    ]
    for file in given.chosen:
        take_choices(cells, _lines(file), given.out)
    outcome = run_grid(cells, given.out, processes=given.processes, device=given.device, told=_tell)
    sys.exit(1 if outcome.failed else 0)


def comparison_cells(corpora: Sequence[Path], models: str, trials: int, splits: int) -> list[Cell]:
    """Splits outermost, so that what is there when time runs out is a smaller comparison."""
    found: list[Cell] = []
    counted = [(len(load_corpus(Path(source.path))), source) for source in find_sources(list(corpora))]
    for reviews, source in sorted(counted, key=lambda one: -one[0]):  # what takes longest begins first
        settings = LARGE_SETTINGS if reviews > LARGE else SMALL_SETTINGS
        for system in read_systems(models):
            if system.model == EXACT and reviews > MOST_EXACT_PAIRS:
                continue
            found += _cells_of(source, system.label, (settings, trials, {}, choosing_splits(reviews)), splits)
    return sorted(found, key=lambda cell: cell.split_seed)


def choosing_splits(reviews: int) -> range:
    """Seeds of the splits on which the settings for a corpus are chosen.

    >>> [len(choosing_splits(reviews)) for reviews in (10_254, 18_107, 63_084)]
    [3, 2, 1]
    """
    splits = math.ceil(PAIRS_TO_CHOOSE_BY / (VALIDATION * reviews))
    return range(FIRST_CHOOSING_SPLIT, FIRST_CHOOSING_SPLIT + min(splits, MOST_CHOOSING_SPLITS))


def _cells_of(source: CorpusSource, label: str, searched: tuple[Any, ...], splits: int) -> list[Cell]:
    learns = model_class(label.partition(":")[0]).learns
    return Grid(read_systems(label), [source], splits, *(searched if learns else ())).cells()


def take_choices(cells: Sequence[Cell], lines: Sequence[Line], out: Path) -> None:
    """Let the cells of a grid begin with the trials of earlier cells that chose from the same, on the same splits."""
    known = {_choice(line): line["trials"] for line in lines if line.get("search", {}).get("splits")}
    for cell in cells:
        file = search_file(cell, out)
        if _choice(cell.describe()) in known and not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            for trial in known[_choice(cell.describe())]:
                append_json_line(file, trial)


def _choice(line: Line) -> str:
    return json.dumps([line[name] for name in ("fingerprint", "name", "seed", "given", "search")], sort_keys=True)


def take_over(folder: Path, into: Path, lines_file: str | None) -> None:
    """Lines in the place of those of the same system, corpus and split; errors pair by pair go with them."""
    new = [line for line in _lines(folder / BENCH) if "error" not in line]
    if lines_file is not None:
        _put(new, into / lines_file)
        return
    columns = {json.loads(text)["name"]: text for text in _texts(folder / ERRORS)}
    first = [line for line in new if line["split_seed"] in FIRST_SPLITS]
    fresh = [line for line in new if line["split_seed"] not in FIRST_SPLITS]
    for lines, file, errors in ((first, BENCH, ERRORS), (fresh, "fresh-splits.jsonl", "fresh-errors.jsonl")):
        _put_errors(lines, _put(lines, into / file), columns, into / errors)


def _put(new: Sequence[Line], file: Path) -> set[str]:
    """Write the lines, and give the ids of those whose places they took."""
    places = {_place(line) for line in new}
    before = _lines(file)
    gone = {line["id"] for line in before if _place(line) in places}
    lines = [*(line for line in before if line["id"] not in gone), *new]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    print(f"{file.name}: {len(new)} cells, {len(gone)} of them in the place of earlier ones")
    return gone


def _put_errors(new: Sequence[Line], gone: set[str], columns: dict[str, str], file: Path) -> None:
    stay = [text for text in _texts(file) if json.loads(text)["name"].split(".")[0] not in gone]
    there = {json.loads(text)["name"] for text in stay}
    wanted = {name for line in new for name in (f"{line['id']}.squared", f"{line['pairs']}.records")}
    added = [text for name, text in columns.items() if name in wanted - there]
    file.write_text("".join(f"{text}\n" for text in [*stay, *added]), encoding="utf-8")


def _place(line: Line) -> tuple[str, str, int]:
    return line["model"], line["fingerprint"], line["split_seed"]


def _texts(file: Path) -> list[str]:
    return file.read_text("utf-8").splitlines() if file.exists() else []


def _lines(file: Path) -> list[Line]:
    return [json.loads(text) for text in _texts(file)]


def _tell(line: Line, done: int, total: int) -> None:
    print(told_line(line, done, total), flush=True)


if __name__ == "__main__":
    main()
