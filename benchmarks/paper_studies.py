"""The paper's analyses of CARP on all corpora by one command, which goes on where it was stopped.

    python benchmarks/paper_studies.py shop FILE.npz
    python benchmarks/paper_studies.py run CORPUS... --out FOLDER [--splits 0-0] [--kept results] [--processes 15]
    python benchmarks/paper_studies.py take FOLDER --into results

`shop` writes a slim corpus of the demo's made-up shop. `run` needs torch, numpy and safetensors alone, and takes
prepared corpora or slim copies of them: one setting at a time is varied (M, τ, λ, routing, mutual exclusion, latent
size, logic units). Cells that the results in --kept have are not run again. `take` puts what was found into the results
that are kept, with the errors pair by pair in a file of their own.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import source_tree  # noqa: F401
from carp.bench.cells import Cell
from carp.bench.datasets import CorpusSource, find_sources, load_corpus, save_slim
from carp.bench.durable_lines import append_line
from carp.bench.grid import run_grid, told_line
from carp.bench.pair_errors import STUDY_ERRORS, ErrorColumns, column_line
from carp.bench.results_folder import STUDY, read_results
from carp.bench.study import STUDIES, Study, named_studies, remember_study, study_cells
from carp.cli.demo import DEMO_SETTINGS, SHOP_SIZE
from carp.storage import read_json, write_json

MODEL = "carp-paper"
STUDIED = [
    "viewpoints",
    "routing_iterations",
    "rating_weight",
    "routing",
    "mutual_exclusion",
    "latent_size",
    "logic_unit",
]
LARGE = 30_000  # reviews, from which on batches are larger
SHOP = "made-up-shop"
Line = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("shop").add_argument("file", type=Path)
    run = commands.add_parser("run")
    run.add_argument("corpora", nargs="+", type=Path)
    run.add_argument("--out", type=Path, required=True)
    run.add_argument("--splits", default="0-0", help="first and last split seed")
    run.add_argument("--kept", type=Path, help="results whose cells are not run again")
    run.add_argument("--processes", type=int, default=1)
    run.add_argument("--device", default="auto")
    take = commands.add_parser("take")
    take.add_argument("folder", type=Path)
    take.add_argument("--into", type=Path, default=Path("results"))
    given = parser.parse_args()
    if given.command == "shop":
        write_shop(given.file)
    elif given.command == "take":
        take_over(given.folder, given.into)
    else:
        sys.exit(1 if run_all(given) else 0)


def write_shop(file: Path) -> None:
    from carp.reviews.corpora.corpus import build_corpus
    from carp.reviews.shop.made_up_shop import make_shop
    from carp.reviews.sources.formats import read_reviews

    save_slim(build_corpus(read_reviews(make_shop(seed=0, **SHOP_SIZE).frame())), file)


def run_all(given: argparse.Namespace) -> int:
    """How many cells failed."""
    first, last = (int(one) for one in given.splits.split("-"))
    wanted: dict[str, Cell] = {}
    given.out.mkdir(parents=True, exist_ok=True)
    for source, study in all_studies(given.corpora):
        cells = study_cells(study, source, MODEL, last + 1, settings_for(source))
        remember_study(given.out, study, MODEL, source, cells)
        wanted |= {cell.identity: cell for cell in cells if cell.split_seed >= first}
    there = read_results(given.kept, STUDY).lines if given.kept else {}
    left = [cell for identity, cell in wanted.items() if identity not in there]
    running: dict[str, Any] = {"processes": given.processes, "device": given.device, "file": STUDY}
    return len(run_grid(longest_first(left), given.out, told=_tell, **running).failed)


def all_studies(corpora: Sequence[Path]) -> list[tuple[CorpusSource, Study]]:
    return [
        (source, study) for source in find_sources(list(corpora)) for name in STUDIED for study in named_studies(name)
    ]


def settings_for(source: CorpusSource) -> dict[str, Any]:
    """Those of the studies that are kept; larger batches on a large corpus, the demo's network in the shop."""
    if source.name == SHOP:
        return {**DEMO_SETTINGS, "variant": "paper", "patience": 3}
    large = len(load_corpus(Path(source.path))) > LARGE
    return {"patience": 3, "batch_size": 400} if large else {"patience": 3}


def longest_first(cells: Sequence[Cell]) -> list[Cell]:
    """Splits outermost, so that what is there when time runs out is whole; then what no kernel covers, then by size."""

    def slow(cell: Cell) -> bool:
        settings = cell.settings
        wide = settings.get("latent_size", 25) > 64 or settings.get("viewpoints", 5) > 8
        return bool(wide or settings.get("logic_unit", "difference first") != "difference first")

    sizes = {cell.path: Path(cell.path).stat().st_size for cell in cells}
    return sorted(cells, key=lambda cell: (cell.split_seed, not slow(cell), -sizes[cell.path]))


def take_over(folder: Path, into: Path) -> None:
    """Lines in the place of those of the same cell; errors pair by pair beside them; what studies there are."""
    new = {identity: line for identity, line in read_results(folder, STUDY).lines.items() if "error" not in line}
    lines = read_results(into, STUDY).lines | new
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines.values())
    (into / STUDY).write_text(text, encoding="utf-8")
    _take_errors(new, ErrorColumns(folder), into / STUDY_ERRORS)
    _take_studies(read_json(folder / STUDIES), into / STUDIES, lines)
    print(f"{STUDY}: {len(new)} cells taken, {len(lines)} in all")


def _take_errors(new: dict[str, Line], columns: ErrorColumns, file: Path) -> None:
    written: set[str] = set()
    for identity, line in new.items():
        records, squared = columns.of(line)
        for name, column in ((f"{line['pairs']}.records", records), (f"{identity}.squared", squared.astype("f4"))):
            if name not in written:
                append_line(file, column_line(name, column))
                written.add(name)


def _take_studies(new: dict[str, Any], file: Path, lines: dict[str, Line]) -> None:
    """Each point with the cells that were known of it and those that are new; none that never ran."""
    known = read_json(file) if file.exists() else {}
    for key, about in new.items():
        before = known.get(key, {}).get("points", {})
        points = {
            label: [one for one in dict.fromkeys([*before.get(label, []), *cells]) if one in lines]
            for label, cells in about["points"].items()
        }
        if any(points.values()):
            known[key] = {**about, "points": points}
    write_json(file, known)


def _tell(line: Line, done: int, total: int) -> None:
    print(told_line(line, done, total), flush=True)


if __name__ == "__main__":
    main()
