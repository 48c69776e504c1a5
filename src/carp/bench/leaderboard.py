"""All systems in one order: how far below the tuned biases' their errors are, and what they cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

from carp.bench.compare import Comparison, Standing


@dataclass(frozen=True)
class LeaderboardRow:
    system: str
    ratios: dict[str, float]  # to the tuned biases on the same splits, by corpus
    runs: int
    seconds: float  # a trial
    microseconds: float | None  # a prediction
    memory: float  # bytes
    truth: float | None  # of its explanations, where that was measured
    complete: bool  # ran on every corpus, on all splits there

    @property
    def mean(self) -> float:
        return mean(self.ratios.values())


def leaderboard(comparisons: Sequence[Comparison], truth: Mapping[str, float]) -> list[LeaderboardRow]:
    """The systems that ran beside the biases somewhere, the lowest mean ratio first.

    Below them stand those that lack something: their means are of other corpora or splits.
    """
    found: dict[str, dict[str, Standing]] = {}
    for comparison in comparisons:
        for standing in comparison.standings:
            if standing.floor_ratio is not None:
                found.setdefault(standing.model, {})[comparison.corpus] = standing
    rows = [_row(system, of, len(comparisons), truth.get(system)) for system, of in found.items()]
    return sorted(rows, key=lambda row: (not row.complete, row.mean, row.system))


def _row(system: str, of: dict[str, Standing], corpora: int, truth: float | None) -> LeaderboardRow:
    known = [standing.microseconds for standing in of.values() if standing.microseconds is not None]
    return LeaderboardRow(
        system,
        {corpus: standing.floor_ratio for corpus, standing in of.items() if standing.floor_ratio is not None},
        sum(standing.runs for standing in of.values()),
        mean(standing.seconds_a_trial for standing in of.values()),
        mean(known) if known else None,
        mean(standing.memory for standing in of.values()),
        truth,
        len(of) == corpora and all(standing.complete for standing in of.values()),
    )
