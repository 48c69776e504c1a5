"""How true the explanations of each system are, from what `benchmarks/faithfulness.py` measured, as one figure."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from statistics import mean
from typing import Any

from carp.bench.durable_lines import whole_lines
from carp.errors import DamagedError
from carp.models import REGISTRY

FAITHFULNESS = "faithfulness.jsonl"
Line = dict[str, Any]


def explanation_truth(folder: Path, fingerprints: Collection[str]) -> dict[str, float]:
    """By system: how many times as far the rating moves where the sentences that an explanation names are taken out, as
    where as many random words are. 1 is no better than chance.

    The mean over the corpora of these fingerprints. Of a system on a corpus, the lines of the latest commit count.
    """
    latest: dict[tuple[str, str], list[Line]] = {}
    for number, text in enumerate(whole_lines(folder / FAITHFULNESS), 1):
        try:
            line = json.loads(text)
            place = _system(line), line["fingerprint"]
            known = latest.get(place, [])
            latest[place] = [*(one for one in known if one["commit"] == line["commit"]), line]
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            where = f"{folder / FAITHFULNESS}, line {number}"
            raise DamagedError("the line is damaged", where=where, fix="remove the line") from error
    found: dict[str, list[float]] = {}
    for (system, fingerprint), lines in latest.items():
        ratio = _ratio(lines)
        if fingerprint in fingerprints and ratio is not None:
            found.setdefault(system, []).append(ratio)
    return {system: mean(ratios) for system, ratios in found.items()}


def _system(line: Line) -> str:
    """The row of the table: the registry has names for CARP's variants, other settings do not matter here."""
    name = str(line["model"]).partition(":")[0]
    variant = f"{name}-{line['settings'].get('variant')}"
    return variant if variant in REGISTRY else name


def _ratio(lines: list[Line]) -> float | None:
    """None where random words do not move the rating at all: the model reads nothing to predict."""
    moved = [line["explanations"]["sentences"]["beside_words"]["comprehensiveness"] for line in lines]
    chance = sum(one["chance"] for one in moved)
    return sum(one["named"] for one in moved) / chance if chance > 0 else None
