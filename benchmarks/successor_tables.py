"""The tables of docs/explanation/successor.md, from the results of the bench and of benchmarks/successor.py.

python benchmarks/successor_tables.py results [--write docs/explanation/successor.md]
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from carp.bench.compare import paired_t
from carp.bench.pair_errors import column_of
from tables_in_pages import Tables, print_or_write

CORPORA = ("musical-instruments", "ratebeer", "tripadvisor")
GOALS = {
    ("musical-instruments", "meeting"): 0.988,
    ("ratebeer", "meeting"): 0.944,
    ("ratebeer", "meeting:name_weight=0"): 0.949,
    ("tripadvisor", "meeting"): 0.968,
}
AS_IT_IS = "as it is"
Lines = list[dict[str, Any]]


def read(path: Path) -> Lines:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]


def ratios(lines: Iterable[dict[str, Any]], corpus: str) -> dict[str, dict[int, float]]:
    """Test MSE over that of the biases, by model and split."""
    errors: dict[str, dict[int, float]] = {}
    for line in lines:
        if line["corpus"] == corpus:
            errors.setdefault(line["model"], {})[line["split_seed"]] = line["test_mse"]
    return {
        model: {split: error / errors["bias"][split] for split, error in by_split.items()}
        for model, by_split in errors.items()
    }


def accuracy(bench: Lines, fresh: Lines) -> str:
    rows = []
    for corpus in CORPORA:
        found = ratios([*bench, *fresh], corpus)
        for model in ("meeting", "meeting:name_weight=0", "gaussian-process", "ridge"):
            by_split = found.get(model, {})
            if len(by_split) == 10:
                old, new = ([by_split[split] for split in part] for part in (range(5), range(5, 10)))
                goal = GOALS.get((corpus, model))
                figures = [f"{mean(part):.4f}" for part in ([*old, *new], old, new)]
                rows.append([corpus, model, *figures, "" if goal is None else f"{goal:.3f}"])
    return _table(["corpus", "model", "splits 0–9", "0–4", "5–9", "aim"], rows)


def against_ridge(bench: Lines, columns: dict[str, dict[str, Any]]) -> str:
    """Squared errors of `ridge` less those of `meeting` over all ten splits; a pair that is tested in several splits
    counts once, with its mean. A corpus is left out where not all of these errors were kept."""
    rows = []
    for corpus in CORPORA:
        kept = [line for line in bench if line["corpus"] == corpus and f"{line['id']}.squared" in columns]
        cells = {(line["model"], line["split_seed"]): line for line in kept}
        splits = [split for split in range(10) if {("ridge", split), ("meeting", split)} <= cells.keys()]
        if len(splits) < 10:
            continue
        records, differences, ahead = [], [], 0
        for split in splits:
            theirs, ours = (cells[model, split] for model in ("ridge", "meeting"))
            squares = [column_of(columns[f"{cell['id']}.squared"]).astype(np.float64) for cell in (theirs, ours)]
            records.append(column_of(columns[f"{ours['pairs']}.records"]))
            differences.append(squares[0] - squares[1])
            ahead += ours["test_mse"] < theirs["test_mse"]
        place = np.unique(np.concatenate(records), return_inverse=True)[1]
        each = np.bincount(place, np.concatenate(differences)) / np.bincount(place)
        p = float(paired_t(each, np.zeros_like(each))[1])
        told = "<0.0001" if p < 1e-4 else f"{p:.4f}"
        rows.append([corpus, f"{each.mean():+.4f}", told, f"{len(each):,}", f"{ahead} of {len(splits)}"])
    return _table(["corpus", "ridge − meeting", "p over pairs", "pairs", "splits ahead"], rows)


def ablation(lines: Lines) -> str:
    """What each change makes of the ratio to the biases, on the splits that the change was tried on."""
    found: dict[tuple[str, str], dict[int, float]] = {}
    for line in lines:
        if line["part"] == "ablation":
            found.setdefault((line["change"], line["corpus"]), {})[line["split_seed"]] = line["ratio"]
    rows = []
    for change in dict.fromkeys(change for change, _ in found):
        cells = [_changed(found.get((change, corpus), {}), found.get((AS_IT_IS, corpus), {})) for corpus in CORPORA]
        rows.append([change, *cells])
    return _table(["change", *CORPORA], rows)


def _changed(ratio: dict[int, float], usual: dict[int, float]) -> str:
    splits = sorted(ratio.keys() & usual.keys())
    if not splits:
        return ""
    if ratio is usual:
        return f"{mean(ratio.values()):.4f} ({len(splits)})"
    return f"{mean(ratio[split] - usual[split] for split in splits):+.4f} ({len(splits)})"


def capsules(lines: Lines) -> str:
    rows = []
    for corpus in CORPORA:
        some = [line["mse"] for line in _some(lines, corpus, "capsules")]
        names = ["biases", "meeting", *(name for name in (some[0] if some else {}) if name.startswith("capsules"))]
        if some:
            rows.append([corpus, *(f"{mean(errors[name] for errors in some):.4f}" for name in names), str(len(some))])
    return _table(["corpus", *names, "splits"], rows)


def intervals(lines: Lines) -> str:
    rows = []
    for corpus in CORPORA:
        some = _some(lines, corpus, "intervals")
        thirds = [
            [f"{mean(line['thirds'][who][third] for line in some):.3f}" for third in range(3)]
            for who in ("person", "thing")
        ]
        rows.append([corpus, f"{mean(line['covered'] for line in some):.3f}", *thirds[0], *thirds[1], str(len(some))])
    places = ["few", "some", "many"]
    headings = ["corpus", "covered", *(f"person: {p}" for p in places), *(f"thing: {p}" for p in places), "splits"]
    return _table(headings, rows)


def cold(lines: Lines) -> str:
    rows = []
    for corpus in CORPORA:
        some = _some(lines, corpus, "cold")
        for known in dict.fromkeys((line["known"], line.get("from"), line.get("to")) for line in some):
            these = [line for line in some if (line["known"], line.get("from"), line.get("to")) == known]
            rows.append([corpus, _of_whom(*known), f"{sum(line['pairs'] for line in these):,}", *_errors(these)])
    return _table(["corpus", "known of", "pairs", "biases", "ridge", "meeting"], rows)


def small(lines: Lines) -> str:
    some = [line["mse"] for line in lines if line["part"] == "small"]
    names = list(some[0])
    return _table(names, [[f"{mean(errors[name] for errors in some):.3f}" for name in names]])


def ceiling(lines: Lines) -> str:
    rows = []
    for corpus in CORPORA:
        some = _some(lines, corpus, "ceiling")
        oracle = [line["mse"]["oracle"] / line["mse"]["biases"] for line in some if "oracle" in line["mse"]]
        curves = [line for line in some if "meeting" in line["mse"]]
        for share in sorted({line["share"] for line in curves}):
            these = [line for line in curves if line["share"] == share]
            ratio = mean(line["mse"]["meeting"] / line["mse"]["biases"] for line in these)
            errors = [f"{mean(line['mse'][name] for line in these):.3f}" for name in ("biases", "meeting")]
            noise = f"{mean(line['noise'] for line in these):.3f}"
            told = f"{mean(oracle):.3f}" if share == 1 else ""
            rows.append([corpus, f"{share:.0%}", *errors, f"{ratio:.3f}", noise, told, str(len(these))])
    return _table(["corpus", "training reviews", "biases", "meeting", "ratio", "noise", "oracle", "splits"], rows)


def tables_of(results: Path) -> Tables:
    lines = read(results / "successor.jsonl")
    parts: dict[str, Callable[[Lines], str]] = {"intervals": intervals, "cold": cold, "small": small}
    parts |= {"ceiling": ceiling, "ablation": ablation, "capsules": capsules}
    bench, fresh = read(results / "bench.jsonl"), read(results / "fresh-splits.jsonl")
    columns = {line["name"]: line for name in ("errors", "fresh-errors") for line in read(results / f"{name}.jsonl")}
    made = {"accuracy": accuracy(bench, fresh), "against ridge": against_ridge([*bench, *fresh], columns)}
    return made | {name: part(lines) for name, part in parts.items()}


def _some(lines: Lines, corpus: str, part: str) -> Lines:
    return [line for line in lines if line["corpus"] == corpus and line["part"] == part]


def _of_whom(known: str, low: int | None, high: int | None) -> str:
    if low is None or high is None:
        return known
    return f"{known}: {low} reviews or more" if high > 10**6 else f"{known}: {low} to {high} reviews"


def _errors(lines: Lines) -> list[str]:
    pairs = sum(line["pairs"] for line in lines)
    return [
        f"{sum(line['pairs'] * line['mse'][name] for line in lines) / pairs:.3f}"
        for name in ("biases", "ridge", "meeting")
    ]


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    print_or_write(__doc__, tables_of)
