"""The tables of docs/explanation/recommendations.md, from the lines of benchmarks/ranking.py.

python benchmarks/ranking_tables.py results/ranking.jsonl [--write docs/explanation/recommendations.md]
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from statistics import mean
from typing import Any

from tables_in_pages import print_or_write

MEASURES = ("ndcg", "recall", "coverage", "likeness", "predicted")
HEADINGS = ("ranking", "NDCG@10", "recall@10", "coverage", "likeness", "predicted", "splits")
CORPORA = ("musical-instruments", "ratebeer")
Lines = list[dict[str, Any]]


def read(path: Path) -> Lines:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]


def means(lines: Iterable[dict[str, Any]], corpus: str) -> dict[str, dict[str, float]]:
    """Of each system the mean of each measure over the splits, in the order of the lines."""
    by_system: dict[str, Lines] = {}
    for line in lines:
        if line["corpus"] == corpus:
            by_system.setdefault(line["system"], []).append(line)
    return {
        system: {name: mean(one[name] for one in some) for name in MEASURES if name in some[0]} | {"splits": len(some)}
        for system, some in by_system.items()
    }


def table(lines: Lines, corpus: str) -> str:
    """A Markdown table of a corpus, the highest NDCG first."""
    found = means(lines, corpus)
    rows = [f"| {' | '.join(HEADINGS)} |", "| --- |" + " ---: |" * (len(HEADINGS) - 1)]
    for system, one in sorted(found.items(), key=lambda row: -row[1]["ndcg"]):
        stars = f"{one['predicted']:.2f}" if "predicted" in one else ""
        shares = [f"{100 * one[name]:.1f} %" for name in ("coverage", "likeness")]
        cells = [system, f"{one['ndcg']:.4f}", f"{one['recall']:.4f}", *shares, stars, str(one["splits"])]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def tables_of(results: Path) -> dict[str, str]:
    lines = read(results)
    return {f"ranking {corpus}": table(lines, corpus) for corpus in CORPORA}


if __name__ == "__main__":
    print_or_write(__doc__, tables_of)
