"""What was measured, as tables: for a terminal, as Markdown, and as the parts a page is made of."""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from carp.bench.cells import Line
from carp.bench.chosen_settings import ChosenSettings
from carp.bench.compare import FLOOR, Comparison, Difference, Standing, compare
from carp.bench.results_folder import BENCH, read_results
from carp.bench.study_findings import StudyFound, found_studies
from carp.bench.table_notes import (
    LEADERBOARD_NOTE,
    OFF_FLOOR,
    SIGNIFICANT,
    comparison_notes,
    floor_note,
    study_notes,
    version_note,
)
from carp.errors import UsageError

NOT_MEASURED = "–"
LONGEST_NAME = 120  # of a plot's file


@dataclass(frozen=True)
class TableRow:
    cells: list[str]
    mark: str = ""  # best, second or failed


@dataclass(frozen=True)
class Table:
    title: str
    headings: list[str]
    rows: list[TableRow]
    marked: int = 1  # the column that shows the mark
    left: int = 1  # columns of words


@dataclass(frozen=True)
class Section:
    title: str
    tables: list[Table]
    notes: list[str] = field(default_factory=list)
    plots: list[tuple[str, Callable[[], str]]] = field(
        default_factory=list
    )  # what is shown, and its SVG when asked for


def make_report(folder: Path) -> list[Section]:
    """All that a folder of results holds."""
    results = read_results(folder, BENCH)
    comparisons = compare(list(results.lines.values()), folder)
    sections = [
        *summary_section(comparisons),
        *leaderboard_section(comparisons, _truth(folder, results.lines.values())),
    ]
    sections += map(comparison_section, comparisons)
    sections += [study_section(found) for found in found_studies(folder)]
    if not sections:
        fix = "run carp bench or carp study with this --out first"
        raise UsageError("there are no results in this folder", where=str(folder), fix=fix)
    made_by = {results.version} | {str(line["version"]) for line in results.lines.values() if "version" in line}
    sections[0].notes.extend(version_note(made_by))
    return sections


def summary_section(comparisons: Sequence[Comparison]) -> list[Section]:
    """Several corpora side by side, each error over that of the tuned biases: MSE itself has another scale in each."""
    shown = {c.corpus: {s.model: s for s in c.standings if s.floor_ratio is not None} for c in comparisons}
    if len(shown) < 2 or not all(shown.values()):
        return []
    shared = set.intersection(*(set(standings) for standings in shown.values()))
    ratio = {model: [rows[model].floor_ratio or 0.0 for rows in shown.values()] for model in shared}
    order = sorted(shared, key=lambda model: (sum(ratio[model]), model))
    runs = [found.runs for found in comparisons]
    rows = [
        TableRow([model, *(_summary_cell(of[model], most) for of, most in zip(shown.values(), runs, strict=True))])
        for model in order
    ]
    table = Table(f"Test MSE over that of {FLOOR}", ["system", *shown], rows, marked=-1)
    return [Section("All corpora", [table], [floor_note()])]


def _summary_cell(standing: Standing, runs: int) -> str:
    """A system that did not run on all splits is told by how many it has."""
    return _floor_cell(standing) + ("" if standing.complete else f" ({standing.runs} of {runs} splits)")


def _truth(folder: Path, lines: Iterable[Line]) -> dict[str, float]:
    from carp.bench.explanation_truth import explanation_truth

    return explanation_truth(folder, {line["fingerprint"] for line in lines})


def leaderboard_section(comparisons: Sequence[Comparison], truth: Mapping[str, float]) -> list[Section]:
    """Several corpora: every system in one row, also those that lack a corpus or a split: error, place and cost."""
    from carp.bench.leaderboard import leaderboard

    rows = leaderboard(comparisons, truth)
    if len(comparisons) < 2 or not rows:
        return []
    corpora = [found.corpus for found in comparisons]
    headings = ["system", "mean", *corpora, "place", "runs", "seconds a trial", "µs a prediction", "memory, GB"]
    headings += ["truth of reasons"]
    cells = [
        TableRow(
            [
                row.system,
                f"{row.mean:.3f}",
                *(_figure(row.ratios.get(corpus), 3) for corpus in corpora),
                str(place) if row.complete else "",
                str(row.runs),
                f"{row.seconds:.1f}",
                _figure(row.microseconds, 0) or NOT_MEASURED,
                f"{row.memory / 1e9:.1f}",
                _figure(row.truth, 1) or NOT_MEASURED,
            ]
        )
        for place, row in enumerate(rows, 1)
    ]
    table = Table(f"Test MSE over that of {FLOOR} on the same splits, and what it costs", headings, cells, marked=-1)
    return [Section("Leaderboard", [table], [LEADERBOARD_NOTE])]


def comparison_section(found: Comparison) -> Section:
    from carp.bench.plots import difference_plot, standing_plot

    tables = [_results_table(found)] if found.standings else []
    if any(standing.difference for standing in found.standings):
        tables.append(_significance_table(found))
    tables += [_chosen_table(found.searched)] if found.searched else []
    tables += [_failure_table(found.failed)] if found.failed else []
    plots: list[tuple[str, Callable[[], str]]] = []
    if found.standings:
        plots.append((f"Test MSE on {found.corpus}", lambda: standing_plot(found)))
    if any(standing.difference for standing in found.standings):
        plots.append((f"Differences to the best on {found.corpus}", lambda: difference_plot(found)))
    return Section(found.corpus, tables, comparison_notes(found), plots)


def _results_table(found: Comparison) -> Table:
    headings = ["system", "test MSE", "spread", "place", f"over {FLOOR}", "validation MSE", "runs", "seconds"]
    headings += ["published", "ours − published", f"{found.reference} better by"]
    rows = [TableRow(_standing_cells(standing, found), standing.mark) for standing in found.standings]
    span = found.improvement
    if span is not None:
        words = f"{span[0]:.1f} to {span[1]:.1f} %"
        rows.append(TableRow(["▲ over systems that read reviews", *[""] * (len(headings) - 2), words]))
    return Table("Test MSE", headings, rows)


def _standing_cells(standing: Standing, found: Comparison) -> list[str]:
    sure = SIGNIFICANT if standing.difference is not None and standing.difference.significant else ""
    published = standing.published
    return [
        standing.model,
        f"{standing.mean:.4f}{sure}",
        _figure(standing.spread),
        standing.mark,
        _floor_cell(standing),
        f"{standing.valid:.4f}",
        str(standing.runs) if standing.complete else f"{standing.runs} of {found.runs}",
        f"{standing.seconds:.1f}",
        _figure(published, 3),
        "" if published is None else f"{standing.mean - published:+.3f}",
        "" if standing.improvement is None else f"{standing.improvement:.1f} %",
    ]


def _floor_cell(standing: Standing) -> str:
    sure = OFF_FLOOR if standing.floor_difference is not None and standing.floor_difference.significant else ""
    return "" if standing.floor_ratio is None else f"{standing.floor_ratio:.3f}{sure}"


def _significance_table(found: Comparison) -> Table:
    best = next(standing.model for standing in found.standings if standing.mark == "best")
    headings = ["system", "difference", "95 % interval", "t, runs", "t, pairs", "Wilcoxon", "Holm (t, pairs)"]
    rows = [TableRow(_difference_cells(s.model, s.difference)) for s in found.standings if s.difference is not None]
    return Table(f"Against the best, {best}: difference of MSE and p of each test", headings, rows, marked=-1)


def _difference_cells(model: str, found: Difference) -> list[str]:
    runs = "" if found.p_runs is None else _p(found.p_runs)
    interval = f"{found.low:+.4f} to {found.high:+.4f}"
    sure = SIGNIFICANT if found.significant else ""
    tests = [_p(found.p_pairs), _p(found.p_wilcoxon), _p(found.p_holm) + sure]
    return [model, f"{found.mean:+.4f}", interval, runs, *tests]


def _chosen_table(searched: Sequence[ChosenSettings]) -> Table:
    headings = ["system", "trials", "chosen, and on how many splits", "on the edge of what was tried"]
    rows = []
    for of in searched:
        values = [
            f"{name} " + ", ".join(f"{value} ({count})" for value, count in sorted(counts.items()))
            for name, counts in of.values.items()
        ]
        edges = [f"{name} {count} of {of.cells}" for name, count in of.on_edge.items() if count]
        trials = " to ".join(map(str, of.trials)) + (" for all splits" if of.shared else " a split")
        rows.append(TableRow([of.model, trials, "; ".join(values), "; ".join(edges)]))
    return Table("What the searches chose", headings, rows, marked=-1, left=4)


def _failure_table(failed: Sequence[Line]) -> Table:
    rows = [
        TableRow([str(f["model"]), str(f["split_seed"]), str(f["seed"]), str(f["error"])], "failed") for f in failed
    ]
    return Table("Cells that failed", ["system", "split seed", "seed", "error"], rows, marked=-1, left=4)


def study_section(found: StudyFound) -> Section:
    from carp.bench.plots import ratio_plot, study_plot

    tables = [_study_table(found)]
    given = "".join(f", {name}={value}" for name, value in found.given.items())
    about = f"of {found.model} on {found.corpus}{given}"
    plots: list[tuple[str, Callable[[], str]]] = []
    if any(point.valid is not None for point in found.points):
        plots.append((f"{found.name} {about}", lambda: study_plot(found)))
    if found.name == "routing" and any(point.coupling_ratio for point in found.points):
        tables.append(_ratio_table(found))
        plots.append((f"c_pos/c_neg by rank {about}", lambda: ratio_plot(found)))
    tables += [_failure_table(found.failed)] if found.failed else []
    return Section(f"{found.corpus}: {found.name} of {found.model}", tables, study_notes(found), plots)


def _study_table(found: StudyFound) -> Table:
    headings = [found.name, "validation MSE", "spread", "place", "test MSE", "spread", f"test − {found.usual}"]
    headings += ["95 % interval", "p, Holm", "runs", "published (validation)"]
    least = min((point.valid for point in found.points if point.valid is not None), default=None)
    rows = []
    for point in found.points:
        mark = "best" if point.valid is not None and point.valid == least else ""
        valid = [_figure(point.valid), _figure(point.valid_spread), mark]
        test = [_figure(point.test), _figure(point.test_spread), *_point_difference(point.difference)]
        rows.append(TableRow([point.label, *valid, *test, str(point.runs), _figure(point.published, 3)], mark))
    return Table("Errors", headings, rows)


def _point_difference(found: Difference | None) -> list[str]:
    if found is None:
        return ["", "", ""]
    sure = SIGNIFICANT if found.significant else ""
    return [f"{found.mean:+.4f}", f"{found.low:+.4f} to {found.high:+.4f}", _p(found.p_holm) + sure]


def _ratio_table(found: StudyFound) -> Table:
    """The median over pairs and the quartiles, of each routing."""
    known = {point.label: point.coupling_ratio for point in found.points if point.coupling_ratio}
    headings = ["rank", *(f"{label}, {what}" for label in known for what in ("median", "quartiles"))]
    rows = []
    for rank in range(max(len(medians) for _, medians, _ in known.values())):
        shown = [_ratio_cells(quartiles, rank) for quartiles in known.values()]
        rows.append(TableRow([str(rank + 1), *itertools.chain(*shown)]))
    return Table("c_pos/c_neg by rank in the positive capsule, over test pairs", headings, rows, marked=-1)


def _ratio_cells(quartiles: Sequence[Sequence[float]], rank: int) -> list[str]:
    low, median, high = (of[rank] if rank < len(of) else None for of in quartiles)
    return ["", ""] if median is None else [f"{median:.4f}", f"{low:.4f} to {high:.4f}"]


def _figure(value: float | None, digits: int = 4) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _p(value: float) -> str:
    return f"{value:.4f}" if value >= 0.0001 else "<0.0001"


def report_text(sections: Sequence[Section]) -> str:
    from carp.render.console_tables import table
    from carp.render.wording import neutral

    parts = []
    for section in sections:
        parts.append(f"{section.title}\n{'=' * len(section.title)}")
        for one in section.tables:
            parts.append(f"{one.title}\n" + table(one.headings, [row.cells for row in one.rows], left=one.left))
        parts += section.notes
    return "\n\n".join(neutral(part) for part in parts)


def report_markdown(sections: Sequence[Section], plots: str | None = None) -> str:
    """Markdown; with the folder that `write_plots` filled, as a reader of the file would name it, plots are shown."""
    parts = []
    files = iter(plot_files(sections))
    for section in sections:
        parts.append(f"## {_markdown(section.title)}")
        for one in section.tables:
            lines = [
                _markdown_line([_markdown(heading) for heading in one.headings]),
                "|" + "|".join([" --- "] * len(one.headings)) + "|",
            ]
            lines += [_markdown_line(_emphasised(row, one.marked)) for row in one.rows]
            parts.append(f"{_markdown(one.title)}\n\n" + "\n".join(lines))
        parts += [_markdown(note) for note in section.notes]
        if plots is not None:
            parts += [f"![{_markdown(caption)}]({plots}/{next(files)})" for caption, _ in section.plots]
    return "\n\n".join(parts) + "\n"


def plot_files(sections: Sequence[Section]) -> list[str]:
    """The files of all plots in their order, no name twice."""
    names: dict[str, None] = {}
    for caption in (caption for section in sections for caption, _ in section.plots):
        stem = plot_name(caption).removesuffix(".svg")
        numbered = (f"{stem}-{number}.svg" for number in itertools.count(2))
        names[next(name for name in itertools.chain([f"{stem}.svg"], numbered) if name not in names)] = None
    return list(names)


def plot_name(caption: str) -> str:
    """
    >>> plot_name("c_pos/c_neg by rank of carp on ratebeer, patience=3")
    'c_pos-c_neg-by-rank-of-carp-on-ratebeer-patience-3.svg'
    """
    stem = re.sub("[^A-Za-z0-9_]+", "-", caption)
    if len(stem) > LONGEST_NAME:  # as the captions of studies with many settings are
        stem = f"{stem[:LONGEST_NAME]}-{hashlib.sha256(caption.encode()).hexdigest()[:8]}"
    return f"{stem}.svg"


def write_plots(sections: Sequence[Section], folder: Path) -> None:
    from carp.storage import write_bytes

    plots = [draw for section in sections for _, draw in section.plots]
    for file, draw in zip(plot_files(sections), plots, strict=True):
        write_bytes(folder / file, draw().encode())


def _emphasised(row: TableRow, column: int) -> list[str]:
    around = {"best": ("**", "**"), "second": ("<u>", "</u>")}.get(row.mark)
    cells = [_markdown(cell) for cell in row.cells]
    if around and column >= 0:
        cells[column] = f"{around[0]}{cells[column]}{around[1]}"
    return cells


def _markdown_line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _markdown(text: str) -> str:
    """Words from data are words, never markup: names may hold bars, stars and angle brackets."""
    escaped = text.replace("\\", "\\\\").replace("&", "&amp;").replace("<", "&lt;").replace("\n", " ")
    for sign in "|*_`[]":
        escaped = escaped.replace(sign, f"\\{sign}")
    return escaped
