"""The lines below tables: what signs mean, where figures come from, and what to keep in mind."""

from __future__ import annotations

from collections.abc import Collection

import carp
from carp.bench.compare import FLOOR, LEVEL, PLAIN_ROUTING, REFERENCE, Comparison
from carp.bench.published_figures import REMARKS, dataset_of
from carp.bench.study_findings import StudyFound

SIGNIFICANT = "†"
OFF_FLOOR = "‡"
LEADERBOARD_NOTE = (
    "Systems that lack a corpus or a split stand below the others and take no place: their means are of other pairs. "
    "Runs are splits of all corpora together. A trial is one choice of settings: training, validation and test. Cells "
    "ran side by side on a shared machine, so that times tell a tenfold difference and not a tenth. Memory is the "
    "card's, where there was one. Truth of reasons: how many times as far the rating moves where the sentences that an "
    "explanation names are taken out, as where as many random words are; 1 is chance. It is measured by "
    "benchmarks/faithfulness.py on fewer pairs; the mean over the corpora it was measured on. – is not measured."
)


def comparison_notes(found: Comparison) -> list[str]:
    notes = list(found.warnings)
    if any(standing.difference for standing in found.standings):
        notes.append(
            f"{SIGNIFICANT} differs from the best at the {LEVEL:.0%} level: paired t-test over test pairs, each record "
            "once, corrected for the number of systems by Holm's method. “t, runs” is the paper's kind of test, over "
            "the runs' errors; it has few runs to go by."
        )
    if any(standing.floor_difference for standing in found.standings):
        notes.append(floor_note())
    if found.routing is not None:
        of = found.routing
        over_runs = "" if of.p_runs is None else f", and {of.p_runs:.2g} over the runs' errors"
        notes.append(
            f"Plain agreement against bi-agreement, {PLAIN_ROUTING} − {REFERENCE}: {of.mean:+.4f} over test pairs. The "
            f"paired t-test has p = {of.p_pairs:.2g} over pairs{over_runs}, without a correction."
        )
    if any(not standing.complete for standing in found.standings):
        notes.append("Systems that lack some of the splits stand below the others and take no place.")
    dataset = dataset_of(found.corpus)
    if dataset is not None and any(standing.published is not None for standing in found.standings):
        notes.append(f"Published figures: Li et al., SIGIR 2019, for {dataset}; their split is not known.")
        notes += [REMARKS[dataset]] if dataset in REMARKS else []
    return [*notes, found.origin] if found.origin else notes


def floor_note() -> str:
    return (
        f"“over {FLOOR}” is the error over that of the tuned biases on the same splits, below 1 is better; {OFF_FLOOR} "
        f"differs from them at the {LEVEL:.0%} level: paired t-test over test pairs, corrected by Holm's method."
    )


def study_notes(found: StudyFound) -> list[str]:
    given = ", ".join(f"{name}={value}" for name, value in found.given.items())
    notes = [f"Everything else: {given}."] if given else []
    if any(point.difference for point in found.points):
        notes.append(
            f"“best” is of the validation errors. {SIGNIFICANT} differs from {found.name} = {found.usual} at the "
            f"{LEVEL:.0%} level: paired t-test over test pairs, each record once, corrected for the number of points "
            "by Holm's method."
        )
    return [*notes, *(note for note in (found.warning, found.origin) if note)]


def version_note(versions: Collection[str]) -> list[str]:
    """Says so where another version of carp made results than makes the report."""
    if set(versions) <= {carp.__version__}:
        return []
    return [f"These results were made by carp {' and '.join(sorted(set(versions)))}."]
