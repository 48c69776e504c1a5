"""One thing varied and the rest held fast: the paper's analyses, and whatever else one wants to know of a setting."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from carp.bench.cells import Cell, Line
from carp.bench.compare import Difference, Run, differences_to
from carp.bench.corpora import Source
from carp.bench.published import published_analysis
from carp.bench.results import read_results
from carp.bench.search import settings_of
from carp.errors import DamagedError, UsageError, nearest
from carp.models import model_entry
from carp.storage import read_json, write_json

STUDIES = "studies.json"
STUDY_LINES = "study.jsonl"
# The paper's: M, τ, λ, the routing, the two halves of the sentiment loss. Ours: the last two.
NAMED: dict[str, tuple[Any, ...]] = {
    "viewpoints": (3, 5, 7, 9),
    "routing_iterations": (1, 2, 3, 4),
    "rating_weight": (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
    "routing": ("bi-agreement", "agreement"),
    "mutual_exclusion": (True, False),
    "target_reviews": ("leave out", "keep"),
    "variant": ("paper", "released"),
}
Points = dict[str, dict[str, Any]]  # what a point is called, and its settings


@dataclass(frozen=True)
class Study:
    name: str  # the settings that are varied
    points: Points = field(default_factory=dict)


def named_studies(name: str) -> list[Study]:
    if name != "all" and name not in NAMED:
        raise UsageError(f"there is no study {name!r}", where="--named", mend=nearest(name, [*NAMED, "all"]))
    return [_varied({key: list(NAMED[key])}) for key in (NAMED if name == "all" else [name])]


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
            mend = f"write {option} setting=value,value"
            raise UsageError(f"{text!r} is not of the form setting=value,value", where=option, mend=mend)
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


def study_cells(study: Study, source: Source, model: str, seeds: int, settings: Mapping[str, Any]) -> list[Cell]:
    """The cells of a study: its points on every split. Unknown settings and values are refused."""
    from carp.recommender import Recommender

    model_entry(model)
    known = settings_of(model)
    for name in [*settings, *(name for point in study.points.values() for name in point)]:
        if name not in known:
            raise UsageError(f"{model} has no setting {name!r}", where="--vary", mend=nearest(name, known))
    for point in study.points.values():
        Recommender(model, device="cpu", **{**settings, **point})
    return [
        Cell(
            path=source.path,
            corpus=source.name,
            fingerprint=source.fingerprint,
            model=model,
            label=f"{model}: {study.name} = {label}",
            split_seed=0 if source.own_split else number,
            seed=number if source.own_split else 0,
            settings={**settings, **point},
        )
        for number in range(seeds)
        for label, point in study.points.items()
    ]


def remember_study(out: Path, study: Study, model: str, source: Source, cells: Sequence[Cell]) -> None:
    """Note which cells make up a study, so that a report can be made later; many studies share cells."""
    known = read_json(out / STUDIES) if (out / STUDIES).exists() else {}
    points: dict[str, list[str]] = {label: [] for label in study.points}
    for cell in cells:
        points[cell.label.partition(" = ")[2]].append(cell.identity)
    given = {name: str(value) for name, value in cells[0].settings.items() if name not in study.name.split(" × ")}
    about = {"study": study.name, "model": model, "corpus": source.name, "given": given}
    key = " | ".join([source.name, source.fingerprint[:8], model, study.name, *(f"{k}={v}" for k, v in given.items())])
    known[key] = {**about, "points": points}
    write_json(out / STUDIES, known)


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
    coupling_ratio: list[float] | None
    difference: Difference | None = None  # of the test errors, to those of the usual point, pair by pair
    ratio_centre: str = "mean"  # of the pairs' ratios


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


def found_studies(out: Path, only: Sequence[str] | None = None) -> list[StudyFound]:
    """All studies of a results folder with what is there of them."""
    if not (out / STUDIES).exists():
        return []
    lines = read_results(out, STUDY_LINES).lines
    try:
        known = read_json(out / STUDIES)
        return [_found(about, lines, out) for about in known.values() if only is None or about["study"] in only]
    except (KeyError, TypeError, AttributeError) as error:
        mend = "remove it, and run the studies again: their cells are kept"
        raise DamagedError("the list of studies is damaged", where=str(out / STUDIES), mend=mend) from error


def _found(about: Mapping[str, Any], lines: Mapping[str, Line], out: Path) -> StudyFound:
    points, failed = [], []
    good = {
        label: [lines[i] for i in identities if i in lines and "error" not in lines[i]]
        for label, identities in about["points"].items()
    }
    usual = _usual(about["model"], about["study"], list(good))
    differences, warning = _differences(good, usual, out)
    for label, identities in about["points"].items():
        there = [lines[i] for i in identities if i in lines]
        bad = [{**line, "model": f"{about['study']} = {label}"} for line in there if "error" in line]
        failed += bad
        by_median = all("coupling_ratio_median" in line for line in good[label])  # older results have the mean alone
        name = "coupling_ratio_median" if by_median else "coupling_ratio"
        ratios = [line[name] for line in good[label] if name in line]
        alike = len({len(ratio) for ratio in ratios}) == 1
        valid, test = _summary(good[label], "valid_mse"), _summary(good[label], "test_mse")
        published = published_analysis(about["corpus"], about["study"], label) if about["model"] == "carp" else None
        ratio = [float(value) for value in np.mean(ratios, axis=0)] if alike else None
        found = PointFound(label, len(good[label]), len(bad), *valid, *test, published, ratio, differences.get(label))
        points.append(replace(found, ratio_centre="median" if by_median else "mean"))
    given = dict(about["given"])
    return StudyFound(about["study"], about["model"], about["corpus"], given, points, failed, usual, warning)


def _usual(model: str, study: str, labels: Sequence[str]) -> str:
    """The point that has the model's own values, or the first."""
    from carp.bench.cells import all_settings
    from carp.recommender import Recommender

    own = all_settings(Recommender(model, device="cpu"))
    label = ", ".join(str(own.get(name)) for name in study.split(" × "))
    return label if label in labels else labels[0]


def _differences(good: Mapping[str, list[Line]], usual: str, out: Path) -> tuple[dict[str, Difference], str]:
    by_point: dict[str, dict[Run, Line]] = {
        label: {(line["split_seed"], line["seed"]): line for line in lines} for label, lines in good.items() if lines
    }
    if usual not in by_point:
        return {}, ""
    try:
        return differences_to(by_point, usual, out), ""
    except DamagedError as error:
        return {}, f"differences are not shown: {error}"


def _summary(lines: Sequence[Line], name: str) -> tuple[float | None, float | None]:
    values = np.array([line[name] for line in lines], dtype=np.float64)
    if not len(values):
        return None, None
    return float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else None
