"""The tables of docs/explanation/successor.md, from the results of the bench and of benchmarks/successor.py.

python benchmarks/successor_tables.py results [--write docs/explanation/successor.md]
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from tables_in_pages import Tables, print_or_write

CORPORA = ("musical-instruments", "ratebeer", "tripadvisor")
GOALS = {
    ("musical-instruments", "meeting"): 0.988,
    ("ratebeer", "meeting"): 0.944,
    ("ratebeer", "meeting:name_weight=0"): 0.949,
    ("tripadvisor", "meeting"): 0.968,
}
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
    made = {"accuracy": accuracy(read(results / "bench.jsonl"), read(results / "fresh-splits.jsonl"))}
    return made | {name: part(lines) for name, part in parts.items()} | {"ceiling": ceiling(lines)}


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
