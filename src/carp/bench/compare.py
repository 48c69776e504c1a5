"""Systems on the same splits of a corpus: means, spreads, and how sure the differences to the best are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from carp.bench.cells import Line
from carp.bench.chosen_settings import ChosenSettings, chosen_settings
from carp.bench.pair_errors import ErrorColumns
from carp.bench.published_figures import published_mse
from carp.bench.table_rows import REVIEW_NEEDS, corpus_names, origin, row_names, same_family
from carp.errors import DamagedError
from carp.evaluate.significance import bootstrap_intervals, holm, paired_t, wilcoxon

LEVEL = 0.05
REFERENCE = "carp-paper"
PLAIN_ROUTING = "carp-ra"  # the reference with plain agreement
FLOOR = "bias"  # the tuned biases: a system that reads reviews and does not beat them has learned nothing from them
Run = tuple[int, int]  # split seed, seed
Mark = Literal["", "best", "second"]


@dataclass(frozen=True)
class Difference:
    """A system against the best one: positive is worse. Pairs are test records, each once."""

    mean: float
    low: float
    high: float
    p_pairs: float
    p_wilcoxon: float
    p_runs: float | None  # over the runs' errors, as the paper tests; None with one run
    p_holm: float  # of p_pairs, for all systems of the corpus

    @property
    def significant(self) -> bool:
        return self.p_holm < LEVEL


@dataclass(frozen=True)
class Standing:
    model: str  # what the row is called
    label: str  # the system as it was asked for
    name: str  # of the registry
    runs: int
    mean: float
    spread: float | None
    valid: float
    seconds: float
    seconds_a_trial: float  # training, validation and test of one choice of settings
    memory: float  # bytes at most
    microseconds: float | None  # a prediction of a test pair, where it was measured
    published: float | None
    reads_reviews: bool
    complete: bool  # ran on all splits that the others ran on
    mark: Mark = ""
    difference: Difference | None = None
    improvement: float | None = None  # of the reference over this system, in per cent
    floor_ratio: float | None = None  # its error over that of the tuned biases on the same splits
    floor_difference: Difference | None = None


@dataclass(frozen=True)
class Comparison:
    corpus: str
    fingerprint: str
    standings: list[Standing]
    failed: list[Line]
    reference: str | None
    runs: int
    warnings: list[str]
    origin: str = ""  # the commits and machines
    searched: list[ChosenSettings] = field(default_factory=list)
    routing: Difference | None = None  # of the reference with plain agreement to the reference

    @property
    def improvement(self) -> tuple[float, float] | None:
        """The paper's row: the range over the systems that read reviews, its own variants left out."""
        base = next((standing.name for standing in self.standings if standing.model == self.reference), "")
        found = [
            standing.improvement
            for standing in self.standings
            if standing.improvement is not None and standing.reads_reviews and not same_family(standing.name, base)
        ]
        return (min(found), max(found)) if found else None


def compare(lines: Sequence[Line], folder: Path) -> list[Comparison]:
    """One comparison a corpus, systems in order of their mean test error."""
    names = corpus_names((line["corpus"], line["fingerprint"]) for line in lines)
    errors = ErrorColumns(folder)
    return [
        _compare_corpus(name, fingerprint, [line for line in lines if line["fingerprint"] == fingerprint], errors)
        for fingerprint, name in names.items()
    ]


def _compare_corpus(corpus: str, fingerprint: str, lines: list[Line], errors: ErrorColumns) -> Comparison:
    names = row_names(lines)
    by_model: dict[str, dict[Run, Line]] = {}
    for line in lines:
        if "error" not in line:
            by_model.setdefault(names[line["id"]], {})[line["split_seed"], line["seed"]] = line
    every = {run for runs in by_model.values() for run in runs}
    standings = sorted((_standing(corpus, m, runs, len(every)) for m, runs in by_model.items()), key=_order)
    ranked = [standing.model for standing in standings if standing.complete]
    reference = row_of(REFERENCE, standings) or (ranked[0] if ranked else None)
    warnings = [] if ranked or not standings else ["no system ran on every split: the means are of different splits"]
    floor = row_of(FLOOR, standings)
    differences: dict[str, Difference] = {}
    floor_differences: dict[str, Difference] = {}
    routing: Difference | None = None
    if ranked:
        try:
            differences = differences_to(by_model, ranked[0], errors)
            floor_differences = differences_to(by_model, floor, errors) if floor is not None else {}
            routing = _between(by_model, row_of(PLAIN_ROUTING, standings), row_of(REFERENCE, standings), errors)
        except DamagedError as error:
            warnings.append(f"significance is not shown: {error}")
    marks: dict[str, Mark] = dict(zip(ranked[:2], ("best", "second"), strict=False))
    finished = [
        replace(
            standing,
            mark=marks.get(standing.model, ""),
            difference=differences.get(standing.model),
            improvement=_improvement(by_model, standing.model, reference),
            floor_ratio=_ratio(by_model, standing.model, floor),
            floor_difference=floor_differences.get(standing.model),
        )
        for standing in standings
    ]
    failed = [line for line in lines if "error" in line]
    searched = chosen_settings({standing.model: by_model[standing.model] for standing in standings})
    return Comparison(
        corpus, fingerprint, finished, failed, reference, len(every), warnings, origin(lines), searched, routing
    )


def row_of(label: str, standings: Sequence[Standing]) -> str | None:
    """The row of a system by its label; of several, the one with most runs, and of those the one that stands first."""
    rows = [standing for standing in standings if standing.label == label]
    return max(rows, key=lambda standing: standing.runs).model if rows else None


def _order(standing: Standing) -> tuple[bool, float]:
    return not standing.complete, standing.mean


def _standing(corpus: str, model: str, runs: dict[Run, Line], every: int) -> Standing:
    test = np.array([line["test_mse"] for line in runs.values()])
    needs = {need for line in runs.values() for need in line.get("needs", ())}
    first = next(iter(runs.values()))
    return Standing(
        model=model,
        label=first["model"],
        name=first["name"],
        runs=len(runs),
        mean=float(test.mean()),
        spread=float(test.std(ddof=1)) if len(test) > 1 else None,
        valid=float(np.mean([line["valid_mse"] for line in runs.values()])),
        seconds=float(np.mean([line["seconds"] for line in runs.values()])),
        seconds_a_trial=float(np.mean([_seconds_a_trial(line) for line in runs.values()])),
        memory=float(np.mean([line.get("peak_memory", 0) for line in runs.values()])),
        microseconds=_microseconds(runs),
        published=published_mse(corpus, first["model"]),
        reads_reviews=bool(needs & REVIEW_NEEDS),
        complete=len(runs) == every,
    )


def _seconds_a_trial(line: Line) -> float:
    """The training alone where it was timed; else the cell's seconds, which hold its whole search."""
    if "fit_seconds" in line:
        return float(line["fit_seconds"])
    return float(line["seconds"]) / max(1, len(line.get("trials", ())))


def _microseconds(runs: dict[Run, Line]) -> float | None:
    """Of one prediction, over the runs that tell; None where none does."""
    told = [1e6 * line["predict_seconds"] / line["test_pairs"] for line in runs.values() if "predict_seconds" in line]
    return float(np.mean(told)) if told else None


def _ratio(by_model: dict[str, dict[Run, Line]], model: str, other: str | None) -> float | None:
    """A system's mean error over another's on the splits both ran on."""
    if other is None or other not in by_model:
        return None
    shared = by_model[model].keys() & by_model[other].keys()
    ours, theirs = (sum(float(by_model[m][run]["test_mse"]) for run in shared) for m in (model, other))
    return ours / theirs if ours and theirs else None


def _improvement(by_model: dict[str, dict[Run, Line]], model: str, reference: str | None) -> float | None:
    ratio = _ratio(by_model, model, reference)
    return None if ratio is None or model == reference else 100 * (1 - 1 / ratio)


def differences_to(by_model: dict[str, dict[Run, Line]], best: str, errors: ErrorColumns) -> dict[str, Difference]:
    """Every other system against one of them, Holm's correction over all of them."""
    others = [model for model in by_model if model != best and by_model[model].keys() & by_model[best].keys()]
    rows = {model: _by_record(by_model[model], by_model[best], errors) for model in others}
    intervals: dict[str, NDArray[np.float64]] = {}
    for length in {len(row) for row in rows.values()}:  # rows over the same records share their draws
        alike = [model for model in others if len(rows[model]) == length]
        found = bootstrap_intervals(np.stack([rows[model] for model in alike]))
        intervals |= dict(zip(alike, found, strict=True))
    p_pairs = {model: float(paired_t(row, np.zeros_like(row))[1]) for model, row in rows.items()}
    corrected = dict(zip(others, holm([p_pairs[model] for model in others]), strict=True)) if others else {}
    return {
        model: Difference(
            mean=float(rows[model].mean()),
            low=float(intervals[model][0]),
            high=float(intervals[model][1]),
            p_pairs=p_pairs[model],
            p_wilcoxon=float(wilcoxon(rows[model], np.zeros_like(rows[model]))),
            p_runs=_p_of_runs(by_model[model], by_model[best]),
            p_holm=float(corrected[model]),
        )
        for model in others
    }


def _between(
    by_model: dict[str, dict[Run, Line]], one: str | None, other: str | None, errors: ErrorColumns
) -> Difference | None:
    """One system against another, without a correction for the rest of the table."""
    if one is None or other is None:
        return None
    return differences_to({name: by_model[name] for name in (one, other)}, other, errors).get(one)


def _by_record(ours: dict[Run, Line], best: dict[Run, Line], errors: ErrorColumns) -> NDArray[np.float64]:
    """Differences of squared errors, one a test record: a record tested in several splits is no new evidence."""
    records, differences = [], []
    for run in sorted(ours.keys() & best.keys()):
        own, squared = errors.of(ours[run])
        same, others = errors.of(best[run])
        if not np.array_equal(own, same):
            what = f"split {run[0]} has other test pairs in different cells"
            raise DamagedError(what, where=str(errors.folder))
        records.append(own)
        differences.append(squared - others)
    place = np.unique(np.concatenate(records), return_inverse=True)[1]
    total = np.bincount(place, np.concatenate(differences))
    return np.asarray(total / np.bincount(place), dtype=np.float64)


def _p_of_runs(ours: dict[Run, Line], best: dict[Run, Line]) -> float | None:
    shared = sorted(ours.keys() & best.keys())
    if len(shared) < 2:
        return None
    pair = ([line[run]["test_mse"] for run in shared] for line in (ours, best))
    return float(paired_t(*pair)[1])
