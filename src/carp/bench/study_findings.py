"""What came of studies: the errors of each point, and how sure the differences to the usual point are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from carp.bench.cells import Line, all_settings
from carp.bench.compare import Difference, Run, differences_to
from carp.bench.pair_errors import ErrorColumns
from carp.bench.published_figures import published_analysis
from carp.bench.results_folder import STUDY, Results, read_results
from carp.bench.study import STUDIES
from carp.bench.table_rows import corpus_names, origin
from carp.errors import DamagedError
from carp.models import REGISTRY
from carp.recommender import Recommender
from carp.storage import read_json


@dataclass(frozen=True)
class PointFound:
    label: str
    runs: int
    failed: int
    valid: float | None
    valid_spread: float | None
    test: float | None
    test_spread: float | None
    published: float | None
    coupling_ratio: list[list[float]] | None  # by rank: the lower quartile over pairs, the median, the upper quartile
    difference: Difference | None = None  # of the test errors, to those of the usual point, pair by pair


@dataclass(frozen=True)
class StudyFound:
    name: str
    model: str
    corpus: str
    given: dict[str, str]
    points: list[PointFound]
    failed: list[Line]
    usual: str = ""  # the point that is the model's own setting, or the first
    warning: str = ""
    origin: str = ""  # the commits and machines


def found_studies(out: Path, only: Sequence[str] | None = None) -> list[StudyFound]:
    """All studies of a results folder with what is there of them, or those of some keys."""
    if not (out / STUDIES).exists():
        return []
    results = read_results(out, STUDY)
    lines = results.lines
    try:
        known = read_json(out / STUDIES)
        places = {key: (about["corpus"], _fingerprint(about, lines)) for key, about in known.items()}
        names = corpus_names(places.values())
        return [
            _found({**about, "corpus": names[places[key][1]]}, results)
            for key, about in known.items()
            if only is None or key in only
        ]
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        fix = "remove it, and run the studies again: their cells are kept"
        raise DamagedError("the list of studies is damaged", where=str(out / STUDIES), fix=fix) from error


def _fingerprint(about: Mapping[str, Any], lines: Mapping[str, Line]) -> str:
    """Of a study's corpus; a study noted without it has that of its cells, or is alone with its name."""
    there = (lines[i]["fingerprint"] for identities in about["points"].values() for i in identities if i in lines)
    return str(about.get("fingerprint") or next(there, about["corpus"]))


def _found(about: Mapping[str, Any], results: Results) -> StudyFound:
    known = results.lines
    there = {label: [known[i] for i in identities if i in known] for label, identities in about["points"].items()}
    good = _on_shared_runs({label: [line for line in found if "error" not in line] for label, found in there.items()})
    failed = [
        {**line, "model": f"{about['study']} = {label}"}
        for label, found in there.items()
        for line in found
        if "error" in line
    ]
    usual = _usual(about["model"], about["study"], list(good))
    differences, warning = _differences(good, usual, results.errors)
    points = [
        replace(
            _point(about, label, lines),
            failed=sum("error" in line for line in there[label]),
            difference=differences.get(label),
        )
        for label, lines in good.items()
    ]
    given, every = dict(about["given"]), [line for found in there.values() for line in found]
    found = StudyFound(about["study"], about["model"], about["corpus"], given, points, failed, usual, warning)
    return replace(found, origin=origin(every))


def _on_shared_runs(good: Mapping[str, list[Line]]) -> dict[str, list[Line]]:
    """The runs that every point has which ran at all: splits differ by more than points do, and means over different
    splits cannot be compared. Points that share none are left as they are."""
    runs = [{_run(line) for line in lines} for lines in good.values() if lines]
    shared = set.intersection(*runs) if runs else set()
    return {label: [line for line in lines if not shared or _run(line) in shared] for label, lines in good.items()}


def _run(line: Line) -> Run:
    return line["split_seed"], line["seed"]


def _point(about: Mapping[str, Any], label: str, lines: Sequence[Line]) -> PointFound:
    published = published_analysis(about["corpus"], about["study"], label) if about["model"] == "carp-paper" else None
    return PointFound(
        label,
        len(lines),
        0,
        *_summary(lines, "valid_mse"),
        *_summary(lines, "test_mse"),
        published,
        coupling_ratio=_ratio(lines),
    )


def _ratio(lines: Sequence[Line], name: str = "coupling_ratio_quartiles") -> list[list[float]] | None:
    """The mean over runs, rank by rank; nothing where some of the runs lack it or have other ranks."""
    ratios = [line[name] for line in lines if name in line]
    if not ratios or len(ratios) < len(lines) or len({len(ratio[0]) for ratio in ratios}) > 1:
        return None
    found: list[list[float]] = np.mean(ratios, axis=0).tolist()
    return found


def _usual(model: str, study: str, labels: Sequence[str]) -> str:
    """The point that has the model's own values, or the first."""
    if model not in REGISTRY:  # a model of one's own that is not there now
        return labels[0]
    own = all_settings(Recommender(model, device="cpu"))
    label = ", ".join(str(own.get(name)) for name in study.split(" × "))
    return label if label in labels else labels[0]


def _differences(good: Mapping[str, list[Line]], usual: str, errors: ErrorColumns) -> tuple[dict[str, Difference], str]:
    by_point: dict[str, dict[Run, Line]] = {
        label: {_run(line): line for line in lines} for label, lines in good.items() if lines
    }
    if usual not in by_point:
        return {}, ""
    try:
        return differences_to(by_point, usual, errors), ""
    except DamagedError as error:
        return {}, f"differences are not shown: {error}"


def _summary(lines: Sequence[Line], name: str) -> tuple[float | None, float | None]:
    values = np.array([line[name] for line in lines], dtype=np.float64)
    if not len(values):
        return None, None
    return float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else None
