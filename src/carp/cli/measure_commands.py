"""Commands that compare models, vary settings and report the results."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from carp.cli.messages import naming, progress_bars, say, show_json
from carp.cli.options import AsJson, CorpusFolder, Engine, OutFile, Overwrite, RayAddress, check_engine, key_values
from carp.cli.output_files import check_may_write, check_new_file
from carp.cli.places import any_place, new_path, sealed_folder
from carp.errors import CarpError, UsageError

if TYPE_CHECKING:
    from carp.bench.cells import Line
    from carp.bench.grid import Outcome, Runner

Results = Annotated[
    Path, typer.Option("--out", parser=new_path, help="Folder for results. Cells already in it are not run again.")
]
Seeds = Annotated[int, typer.Option(min=1, max=1000, help="Number of random splits, with seeds 0, 1, 2, …")]
Processes = Annotated[int, typer.Option(min=1, max=256, help="Number of cells to run at the same time.")]
Device = Annotated[str, typer.Option(help="Where to train: auto, cpu, cuda or cuda:N.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="A setting for every model that has it. May be repeated."),
]
Retry = Annotated[bool, typer.Option("--retry", help="Run failed cells again.")]


def bench(
    corpora: Annotated[
        list[Path],
        typer.Argument(
            metavar="CORPUS...",
            parser=sealed_folder,
            help="One or more folders made by carp prepare, or their addresses.",
        ),
    ],
    models: Annotated[
        str, typer.Option(help="all, or names separated by commas. Settings follow a colon: bias,carp:variant=paper.")
    ] = "all",
    seeds: Seeds = 5,
    out: Results = Path("results"),
    search: Annotated[
        int, typer.Option(min=0, max=100_000, help="Settings to try per cell, judged on validation. 0: no search.")
    ] = 0,
    grid: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=V1,V2", help="Values to search instead of the usual ones. May be repeated."),
    ] = None,
    search_on: Annotated[
        str | None,
        typer.Option(metavar="FIRST-LAST", help="Choose settings once for all splits, on splits with these seeds."),
    ] = None,
    given: Settings = None,
    processes: Processes = 1,
    engine: Engine = "here",
    ray_address: RayAddress = None,
    device: Device = "auto",
    retry: Retry = False,
    as_json: AsJson = False,
) -> None:
    """Compare models on the same splits. A run that was stopped continues where it left off."""
    check_engine(engine, ray_address)
    from carp.bench.datasets import find_sources
    from carp.bench.grid import Grid, read_seeds, read_systems, run_grid
    from carp.bench.study import read_values

    systems = read_systems(models)
    values = key_values(given, "--set")
    searched = read_values(grid or [], "--grid"), read_seeds(search_on, "--search-on")
    whole = Grid(systems, [], seeds, values, search, *searched)
    with naming("bench"):
        whole.check()
    check_may_write(out)
    cells = Grid(systems, find_sources(corpora), seeds, values, search, *searched).cells()
    running: dict[str, Any] = {"processes": processes, "device": device, "retry": retry}
    with _elsewhere(engine, ray_address) as run, _watching(len(cells), out) as hooks:
        running |= {"elsewhere": run}
        outcome = run_grid(cells, out, **running, **hooks)
    if as_json:
        show_json({"out": str(out), "cells": len(outcome.lines), "ran": outcome.ran, "failed": len(outcome.failed)})
    else:
        from carp.bench.compare import compare
        from carp.bench.report import comparison_section, report_text

        print(report_text([comparison_section(found) for found in compare(outcome.lines, out)]))
    _tell_failures(outcome, out)


@contextlib.contextmanager
def _elsewhere(engine: str, address: str | None) -> Iterator[Runner | None]:
    """What runs cells on a cluster, if one is wanted."""
    if engine == "here":
        yield None
        return
    from carp.scale.ray_cluster import connected
    from carp.scale.ray_jobs import cells_on

    with connected(address) as cluster:
        yield cells_on(cluster)


@contextlib.contextmanager
def _watching(cells: int, out: Path) -> Iterator[dict[str, Any]]:
    """Show a bar for the whole grid, a line for each finished cell, and a message on Ctrl-C."""
    from carp.bench.grid import told_line

    with progress_bars() as stage:
        advance = stage(f"{cells} cells")

        def told(line: Line, done: int, total: int) -> None:
            say(told_line(line, done, total))
            advance(done, total)

        try:
            yield {"began": advance, "told": told}
        except KeyboardInterrupt:
            fix = "run the same command again to continue"
            raise CarpError("interrupted; finished cells are kept", where=str(out), fix=fix) from None


def _tell_failures(outcome: Outcome, out: Path) -> None:
    if outcome.failed:
        failed = f"{len(outcome.failed)} of {len(outcome.lines)} cells failed"
        say(f"{failed}. The lines above say why; --retry runs them again.")
        raise typer.Exit(1)
    say(f"Results are in {out}. For tables and plots: carp report {out} --out report.html")


def report(
    results: Annotated[
        Path,
        typer.Argument(
            metavar="RESULTS", parser=any_place, help="A folder made by carp bench or carp study, or its address."
        ),
    ],
    format: Annotated[
        Literal["text", "markdown", "html"] | None, typer.Option(help="Default: by the ending of --out, else text.")
    ] = None,
    out: OutFile = None,
    overwrite: Overwrite = False,
) -> None:
    """Make tables from results, with significance and published figures. HTML and Markdown files also get plots."""
    from carp.bench.report import make_report, report_markdown, report_text, write_plots
    from carp.bench.report_page import report_page

    if out is not None:
        check_new_file(out, overwrite)
    sections = make_report(results)
    suffix = {".html": "html", ".htm": "html", ".md": "markdown"}
    kind = format or suffix.get(out.suffix.lower() if out else "", "text")
    if kind == "markdown" and out is not None:
        plots = out.with_name(f"{out.stem}-plots")
        write_plots(sections, plots)
        written = report_markdown(sections, plots.name)
    else:
        written = {"text": report_text, "markdown": report_markdown, "html": report_page}[kind](sections)
    if out is None:
        print(written.rstrip())
    else:
        from carp.storage import write_bytes

        write_bytes(out, f"{written.rstrip()}\n".encode("utf-8", "replace"))
        say(f"The report is in {out}.")


def study(
    corpus: CorpusFolder,
    vary: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=V1,V2", help="A setting and the values to try. Repeat it for more studies."),
    ] = None,
    named: Annotated[str | None, typer.Option(help="An analysis of the paper, by its setting, or all.")] = None,
    product: Annotated[
        bool, typer.Option("--product", help="Try all combinations of the values, as one study.")
    ] = False,
    model: Annotated[str, typer.Option(help="Name of a model; carp models lists them.")] = "carp-paper",
    seeds: Seeds = 5,
    out: Results = Path("results"),
    given: Settings = None,
    processes: Processes = 1,
    engine: Engine = "here",
    ray_address: RayAddress = None,
    device: Device = "auto",
    retry: Retry = False,
    as_json: AsJson = False,
) -> None:
    """Vary one setting at a time and show its effect as a table and a plot."""
    check_engine(engine, ray_address)
    from carp.bench.datasets import find_sources
    from carp.bench.grid import entry_or_error
    from carp.bench.study import named_studies, read_varied, run_studies, study_cells

    studies = read_varied(vary or [], product=product) + (named_studies(named) if named else [])
    if not studies:
        fix = "give --vary SETTING=VALUE,VALUE or --named all"
        raise UsageError("no setting to vary was given", where="carp study", fix=fix)
    entry_or_error(model, "--model")
    check_may_write(out)
    values = key_values(given, "--set")
    [source] = find_sources([corpus])
    cells = [(one, study_cells(one, source, model, seeds, values)) for one in studies]
    count = len({cell.identity for _, group in cells for cell in group})
    running: dict[str, Any] = {"processes": processes, "device": device, "retry": retry}
    with _elsewhere(engine, ray_address) as run, _watching(count, out) as hooks:
        running |= {"elsewhere": run}
        outcome, keys = run_studies(cells, model, source, out, **running, **hooks)
    _show_studies(out, keys, as_json)
    _tell_failures(outcome, out)


def _show_studies(out: Path, keys: list[str], as_json: bool) -> None:
    """Print the tables and write the plots beside the results."""
    from dataclasses import asdict

    from carp.bench.report import report_text, study_section, write_plots
    from carp.bench.study_findings import found_studies

    found = found_studies(out, keys)
    sections = [study_section(one) for one in found]
    write_plots(sections, out / "plots")
    if as_json:
        show_json({"out": str(out), "studies": [asdict(one) for one in found]})
    else:
        print(report_text(sections))
