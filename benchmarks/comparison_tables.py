"""The tables of docs/results.md that are not in the report: the settings that were chosen, systems in the form of their
own papers, ten splits, and what `meeting` gains when it is given the validation ratings as data.

    python benchmarks/comparison_tables.py results [--write docs/results.md]
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from tables_in_pages import Tables, print_or_write

CORPORA = ("musical-instruments", "ratebeer", "tripadvisor")
SPLITS, TEN = range(5), range(10)
FLOOR, OURS, EXACT = "bias", "meeting", "gaussian-process"
Line = dict[str, Any]
Errors = dict[tuple[str, str, int], float]  # test MSE by system, corpus and split


def tables_of(results: Path) -> Tables:
    lines = _lines(results / "bench.jsonl")
    first, fresh = errors_of(lines), errors_of(_lines(results / "fresh-splits.jsonl"))
    given, each = (errors_of(_lines(results / f"{name}.jsonl")) for name in ("with-validation", "searched-each-split"))
    return {
        "chosen once": _chosen_once(first, each, lines),
        "own form": _own_form(first),
        "ten splits": _ten_splits(first | fresh),
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


def _chosen_once(errors: Errors, each: Errors, lines: Sequence[Line]) -> str:
    """Systems whose settings were chosen on splits that are not measured: the settings, and the error beside that of
    the same system with a search on every split, where there is one."""
    cells: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        if (line.get("search") or {}).get("splits") and ":" not in line["model"]:
            cells.setdefault((line["model"], line["corpus"]), []).append(line)
    rows = []
    for (system, corpus), found in sorted(cells.items()):
        splits = [line["split_seed"] for line in found]
        chosen = min(found[0]["trials"], key=lambda trial: trial["valid_mse"])["settings"]
        words = [corpus, system, *(f"{chosen.get(name, '')}" for name in ("latent_size", "learning_rate", "penalty"))]
        words += [str(len(found[0]["trials"])), f"{_over_floor(errors, errors, system, corpus, splits):.3f}"]
        known = all((system, corpus, split) in each for split in splits)
        words.append(f"{_over_floor(each, errors, system, corpus, splits):.3f}" if known else "")
        rows.append(f"| {' | '.join(words)} |")
    head = "| corpus | system | latent size | rate | penalty | trials | over bias | searched on each split |"
    return "\n".join([head, "| --- " * 8 + "|", *sorted(rows)])


def _over_floor(of: Errors, floors: Errors, system: str, corpus: str, splits: Iterable[int]) -> float:
    chosen = list(splits)
    floor = sum(floors[FLOOR, corpus, split] for split in chosen)
    return sum(of[system, corpus, split] for split in chosen) / floor


def _own_form(errors: Errors) -> str:
    """Systems that start from the tuned biases here, beside the same without that start."""
    rows = []
    for system in sorted({system for system, _, _ in errors if "biases=" in system}):
        for corpus in CORPORA:
            splits = [split for split in SPLITS if (system, corpus, split) in errors]
            if splits:
                ours, own = (
                    _over_floor(errors, errors, name, corpus, splits) for name in (system.split(":")[0], system)
                )
                rows.append(f"| `{system}` | {corpus} | {len(splits)} | {own:.3f} | {ours:.3f} |")
    head = ["| own form | corpus | splits | own form over bias | ours over bias |", "| --- | --- | --- | --- | --- |"]
    return "\n".join([*head, *rows])


def _ten_splits(errors: Errors) -> str:
    """The mean over all ten splits and its standard error, over the biases split by split."""
    ratios = {
        (system, corpus): [errors[system, corpus, split] / errors[FLOOR, corpus, split] for split in TEN]
        for system, corpus, _ in errors
        if all((system, corpus, split) in errors for split in TEN)
    }
    systems = sorted({system for system, _ in ratios}, key=lambda one: _standing(ratios, one))
    rows = []
    for system in systems:
        words = []
        for corpus in CORPORA:
            found = ratios.get((system, corpus))
            words.append(f"{mean(found):.4f} ± {stdev(found) / len(found) ** 0.5:.4f}" if found else "")
        rows.append(f"| {system} | {' | '.join(words)} |")
    return "\n".join([f"| system | {' | '.join(CORPORA)} |", "| --- " * 4 + "|", *rows])


def _standing(ratios: dict[tuple[str, str], list[float]], system: str) -> tuple[int, float]:
    """Those that lack a corpus come last."""
    found = [mean(of_splits) for (name, _), of_splits in ratios.items() if name == system]
    return -len(found), mean(found)


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
