"""Amounts as they are shown: with a sign, and rounded so that what is shown still adds up."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from carp.explain.explanation import Explanation, Meetings, Part
from carp.render.wording import number

FINE_BELOW = 2.0  # a rating scale shorter than this is told to a third digit
ALWAYS_SHOWN = ("mean", "person", "thing")
ROWS = 12  # of a sum; more would be a list that nobody reads
SMALL = 0.1  # of the largest amount beside the mean: smaller ones stand in one line together
SIDE = 8  # viewpoints and aspects of a heat map
OF_LARGEST = 0.25  # of the largest meeting, for a row or a column to be in the heat map


@dataclass(frozen=True)
class SumRow:
    """One line of the sum that the rating is."""

    kind: str  # of its part; "smaller" for several in one line
    name: str
    amount: float  # rounded to the digits that are shown


def digits_of(explanation: Explanation) -> int:
    """How many digits amounts on this scale are shown to."""
    low, high = explanation.rating_range
    return 3 if high - low < FINE_BELOW else 2


def signed(amount: float, digits: int = 2) -> str:
    """
    >>> signed(0.427), signed(-0.3), signed(-0.001)
    ('+0.43', '−0.30', '0.00')
    """
    shown = number(amount, digits)
    if math.isfinite(amount) and float(shown.replace("−", "-")) == 0:
        return number(0.0, digits)
    return f"+{shown}" if amount > 0 else shown


def rounded_to_sum(amounts: Sequence[float], total: float, digits: int) -> list[float]:
    """The amounts rounded so that they sum to their rounded total: what is left goes where rounding down took most.

    >>> rounded_to_sum([4.496, 0.006, -0.002], 4.5, 2)
    [4.5, 0.0, 0.0]
    """
    if not all(map(math.isfinite, (*amounts, total))):
        return list(amounts)
    unit = 10**digits
    exact = [amount * unit for amount in amounts]
    units = [math.floor(one) for one in exact]
    missing = round(float(f"{total:.{digits}f}") * unit) - sum(units)
    most_taken = sorted(range(len(exact)), key=lambda place: units[place] - exact[place])
    for place in most_taken[:missing]:
        units[place] += 1
    return [one / unit for one in units]


def sum_rows(explanation: Explanation) -> list[SumRow]:
    """The parts of the rating as lines that add up to it as it is shown; the small ones are one line together."""
    shown, smaller = _large_and_small(explanation)
    lines: list[tuple[str, str, float]] = [(part.kind, part.name, part.amount) for part in shown]
    if len(smaller) == 1:
        lines.append((smaller[0].kind, smaller[0].name, smaller[0].amount))
    elif smaller:
        lines.append(("smaller", f"{len(smaller)} smaller amounts", sum(part.amount for part in smaller)))
    amounts = rounded_to_sum([amount for _, _, amount in lines], explanation.rating, digits_of(explanation))
    return [SumRow(kind, name, amount) for (kind, name, _), amount in zip(lines, amounts, strict=True)]


def _large_and_small(explanation: Explanation) -> tuple[list[Part], list[Part]]:
    """What is told of comes first, then the others by their size."""
    first = [part for part in explanation.parts if part.kind in ALWAYS_SHOWN]
    told = {finding.aspect: place for place, finding in enumerate(explanation.findings)}
    rest = sorted(
        (part for part in explanation.parts if part.kind not in ALWAYS_SHOWN),
        key=lambda part: (_place_told(part, told), -abs(part.amount)),
    )
    least = max(SMALL * max((abs(part.amount) for part in rest), default=0.0), 10.0 ** -digits_of(explanation))
    large = [part for part in rest if _place_told(part, told) < len(told) or abs(part.amount) >= least]
    large = large[: ROWS - len(first)]
    return first + large, [part for part in rest if part not in large]


def _place_told(part: Part, told: dict[str, int]) -> int:
    return told.get(part.name, len(told)) if part.kind == "aspect" else len(told)


def shown_amounts(explanation: Explanation, rows: Sequence[SumRow]) -> list[float]:
    """The amounts of the findings, as these rows of its sum show them."""
    in_sum = {row.name: row.amount for row in rows if row.kind == "aspect"}
    return [in_sum.get(finding.aspect, finding.amount) for finding in explanation.findings]


def largest_meetings(explanation: Explanation) -> Meetings | None:
    """The viewpoints and aspects whose meetings move the rating most; None where no meeting can be seen."""
    met = explanation.meetings
    if met is None:
        return None
    size = np.abs(np.array(met.amounts)).reshape(len(met.viewpoints), len(met.aspects))
    size[~np.isfinite(size)] = 0
    largest = float(size.max(initial=0))
    if largest < 0.5 * 10.0 ** -digits_of(explanation):
        return None
    rows, columns = (_largest(size.max(axis).tolist(), OF_LARGEST * largest) for axis in (1, 0))
    return Meetings(
        tuple(met.viewpoints[row] for row in rows),
        tuple(met.aspects[column] for column in columns),
        tuple(tuple(met.amounts[row][column] for column in columns) for row in rows),
    )


def _largest(size: Sequence[float], least: float) -> list[int]:
    """The lines of a grid with the largest amounts, in their own order; those whose largest is small are left out."""
    best = sorted((place for place, most in enumerate(size) if most >= least), key=lambda place: -size[place])
    return sorted(best[:SIDE])
