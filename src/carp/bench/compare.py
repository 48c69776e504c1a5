"""Systems on the same splits of a corpus: means, spreads, and how sure the differences to the best are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from carp.bench.cells import Line
from carp.bench.published import published_mse
from carp.bench.results import pair_errors
from carp.errors import DamagedError
from carp.metrics import bootstrap_intervals, holm, paired_t, wilcoxon

LEVEL = 0.05
REFERENCE = "carp"
FLOOR = "bias"  # the tuned biases: a system that reads reviews and does not beat them has learned nothing from them
REVIEW_NEEDS = frozenset({"documents", "reviews", "target_review"})
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
    model: str
    runs: int
    mean: float
    spread: float | None
    valid: float
    seconds: float
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

    @property
    def improvement(self) -> tuple[float, float] | None:
        """The paper's row: the range over the systems that read reviews, its own variants left out."""
        base = (self.reference or "").split(":")[0]
        found = [
            standing.improvement
            for standing in self.standings
            if standing.improvement is not None and standing.reads_reviews and not standing.model.startswith(base)
        ]
        return (min(found), max(found)) if found else None


def compare(lines: Sequence[Line], folder: Path) -> list[Comparison]:
    """One comparison a corpus, systems in order of their mean test error."""
    corpora = dict.fromkeys((line["corpus"], line["fingerprint"]) for line in lines)
    return [
        _compare_corpus(corpus, fingerprint, [line for line in lines if line["fingerprint"] == fingerprint], folder)
        for corpus, fingerprint in corpora
    ]


def _compare_corpus(corpus: str, fingerprint: str, lines: list[Line], folder: Path) -> Comparison:
    failed = [line for line in lines if "error" in line]
    names = row_names(lines)
    by_model: dict[str, dict[Run, Line]] = {}
    for line in lines:
        if "error" not in line:
            by_model.setdefault(names[line["id"]], {})[line["split_seed"], line["seed"]] = line
    every = {run for runs in by_model.values() for run in runs}
    standings = sorted((_standing(corpus, m, runs, len(every)) for m, runs in by_model.items()), key=_order)
    ranked = [standing.model for standing in standings if standing.complete]
    reference = next((s.model for s in standings if s.model == REFERENCE), ranked[0] if ranked else None)
    warnings = [] if ranked or not standings else ["no system ran on every split: the means are of different splits"]
    differences: dict[str, Difference] = {}
    floor: dict[str, Difference] = {}
    if ranked:
        try:
            differences = differences_to(by_model, ranked[0], folder)
            floor = differences_to(by_model, FLOOR, folder) if FLOOR in by_model else {}
        except DamagedError as error:
            warnings.append(f"significance is not shown: {error}")
    marks: dict[str, Mark] = dict(zip(ranked[:2], ("best", "second"), strict=False))
    finished = []
    for standing in standings:
        ratio = _ratio(by_model, standing.model, reference)
        known = {
            "mark": marks.get(standing.model, ""),
            "difference": differences.get(standing.model),
            "improvement": None if ratio is None or standing.model == reference else 100 * (1 - 1 / ratio),
            "floor_ratio": _ratio(by_model, standing.model, FLOOR),
            "floor_difference": floor.get(standing.model),
        }
        finished.append(Standing(**{**vars(standing), **known}))
    return Comparison(corpus, fingerprint, finished, failed, reference, len(every), warnings)


def row_names(lines: Sequence[Line]) -> dict[str, str]:
    """What to call each cell's row, by cell: two rows that share a label are told apart by what they were given."""
    kinds: dict[str, dict[str, str]] = {}
    for line in lines:
        given = [f"{name}={value}" for name, value in line.get("given", {}).items()]
        given += [f"search of {line['search']['trials']}"] if line.get("search") else []
        kinds.setdefault(line["model"], {})[_kind(line)] = ", ".join(given) or "as it is"
    return {
        line["id"]: line["model"]
        if len(kinds[line["model"]]) == 1
        else f"{line['model']} ({kinds[line['model']][_kind(line)]})"
        for line in lines
    }


def _kind(line: Line) -> str:
    search = line.get("search") or {}
    return json.dumps([line.get("given", {}), search.get("trials"), search.get("space")], sort_keys=True)


def _order(standing: Standing) -> tuple[bool, float]:
    return not standing.complete, standing.mean


def _standing(corpus: str, model: str, runs: dict[Run, Line], every: int) -> Standing:
    test = np.array([line["test_mse"] for line in runs.values()])
    needs = {need for line in runs.values() for need in line.get("needs", ())}
    return Standing(
        model=model,
        runs=len(runs),
        mean=float(test.mean()),
        spread=float(test.std(ddof=1)) if len(test) > 1 else None,
        valid=float(np.mean([line["valid_mse"] for line in runs.values()])),
        seconds=float(np.mean([line["seconds"] for line in runs.values()])),
        published=published_mse(corpus, model),
        reads_reviews=bool(needs & REVIEW_NEEDS),
        complete=len(runs) == every,
    )


def _ratio(by_model: dict[str, dict[Run, Line]], model: str, other: str | None) -> float | None:
    """A system's mean error over another's on the splits both ran on."""
    if other is None or other not in by_model:
        return None
    shared = by_model[model].keys() & by_model[other].keys()
    ours, theirs = (sum(float(by_model[m][run]["test_mse"]) for run in shared) for m in (model, other))
    return ours / theirs if ours and theirs else None


def differences_to(by_model: dict[str, dict[Run, Line]], best: str, folder: Path) -> dict[str, Difference]:
    """Every other system against one of them, Holm's correction over all of them."""
    others = [model for model in by_model if model != best and by_model[model].keys() & by_model[best].keys()]
    rows = {model: _by_record(by_model[model], by_model[best], folder) for model in others}
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


def _by_record(ours: dict[Run, Line], best: dict[Run, Line], folder: Path) -> NDArray[np.float64]:
    """Differences of squared errors, one a test record: a record tested in several splits is no new evidence."""
    records, differences = [], []
    for run in sorted(ours.keys() & best.keys()):
        own, squared = pair_errors(folder, ours[run])
        same, others = pair_errors(folder, best[run])
        if not np.array_equal(own, same):
            raise DamagedError(f"split {run[0]} has other test pairs in different cells", where=str(folder))
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
