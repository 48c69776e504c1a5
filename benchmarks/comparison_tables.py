"""The tables of docs/results.md that are not in the report: systems whose splits are not all run yet, networks whose
settings were chosen once for a corpus, and what `meeting` gains when it is given the validation ratings as data.

    python benchmarks/comparison_tables.py results [--write docs/results.md]
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from tables_in_pages import Tables, print_or_write

CORPORA = ("musical-instruments", "ratebeer", "tripadvisor")
SPLITS = range(5)
FLOOR, OURS, EXACT = "bias", "meeting", "gaussian-process"
Line = dict[str, Any]
Errors = dict[tuple[str, str, int], float]  # test MSE by system, corpus and split


def tables_of(results: Path) -> Tables:
    first, fresh = (errors_of(_lines(results / file)) for file in ("bench.jsonl", "fresh-splits.jsonl"))
    given = errors_of(_lines(results / "with-validation.jsonl"))
    return {
        "unfinished": _unfinished(first),
        "chosen once": _chosen_once(first, _lines(results / "chosen-once.jsonl") + _lines(results / "bench.jsonl")),
        "with validation": _with_validation(first | fresh, given),
    }


def unfinished(errors: Errors) -> list[str]:
    """Systems that lack a split of a corpus. Forms with a setting of their own are told on another page, and the exact
    process cannot be solved on the largest corpus."""
    lacking: dict[str, None] = {}
    for system in dict.fromkeys(system for system, _, _ in errors if ":" not in system):
        corpora = CORPORA[:2] if system == EXACT else CORPORA
        if any((system, corpus, split) not in errors for corpus in corpora for split in SPLITS):
            lacking[system] = None
    return list(lacking)


def errors_of(lines: Iterable[Line]) -> Errors:
    return {
        (line["model"], line["corpus"], line["split_seed"]): line["test_mse"] for line in lines if "error" not in line
    }


def _unfinished(errors: Errors) -> str:
    rows = []
    for system in unfinished(errors):
        for corpus in CORPORA:
            splits = sorted(split for of, on, split in errors if (of, on) == (system, corpus))
            if splits:
                ours, floor = (sum(errors[name, corpus, split] for split in splits) for name in (system, FLOOR))
                best = sum(errors[OURS, corpus, split] for split in splits) / floor
                rows.append(
                    f"| {system} | {corpus} | {', '.join(map(str, splits))} | {ours / floor:.3f} | {best:.3f} |"
                )
    head = ["| system | corpus | splits | over bias | meeting on the same splits |", "| --- | --- | --- | --- | --- |"]
    return "\n".join([*head, *sorted(rows)])


def _chosen_once(errors: Errors, lines: Sequence[Line]) -> str:
    """Systems whose settings were chosen on splits that are not measured: the settings, and the error beside that of
    the same system with a search on every split, where there is one."""
    cells: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        if (line.get("search") or {}).get("splits"):
            cells.setdefault((line["model"], line["corpus"]), []).append(line)
    rows = []
    for (system, corpus), found in sorted(cells.items()):
        splits = [line["split_seed"] for line in found]
        floor = sum(errors[FLOOR, corpus, split] for split in splits)
        once = sum(line["test_mse"] for line in found)
        each = sum(errors[system, corpus, split] for split in splits)
        chosen = min(found[0]["trials"], key=lambda trial: trial["valid_mse"])["settings"]
        words = [corpus, system, *(f"{chosen.get(name, '')}" for name in ("latent_size", "learning_rate", "penalty"))]
        words += [str(len(found[0]["trials"])), f"{once / floor:.3f}", "" if once == each else f"{each / floor:.3f}"]
        rows.append(f"| {' | '.join([*words, str(len(splits))])} |")
    head = "| corpus | system | latent size | rate | penalty | trials | over bias | searched on each split | splits |"
    return "\n".join([head, "| --- " * 9 + "|", *sorted(rows)])


def _with_validation(errors: Errors, given: Errors) -> str:
    rows = []
    for corpus in CORPORA:
        splits = sorted(split for _, on, split in given if on == corpus)
        if splits:
            floor = {split: errors[FLOOR, corpus, split] for split in splits}
            plain = mean(errors[OURS, corpus, split] / floor[split] for split in splits)
            more = mean(error / floor[split] for (_, on, split), error in given.items() if on == corpus)
            rows.append(f"| {corpus} | {len(splits)} | {plain:.4f} | {more:.4f} |")
    head = ["| corpus | splits | meeting | with the validation ratings |", "| --- | --- | --- | --- |"]
    return "\n".join([*head, *rows])


def _lines(file: Path) -> list[Line]:
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


if __name__ == "__main__":
    print_or_write(__doc__, tables_of)
