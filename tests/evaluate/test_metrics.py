"""Metrics against their definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from carp.evaluate.metrics import area_under_curve, errors

ratings = st.floats(1, 5)


@given(st.lists(st.tuples(ratings, ratings), min_size=1, max_size=30))
def test_errors_are_their_definitions(pairs):
    found = errors([p for p, _ in pairs], [t for _, t in pairs])
    mse = sum((p - t) ** 2 for p, t in pairs) / len(pairs)
    assert found["mse"] == pytest.approx(mse, abs=1e-12)
    assert found["rmse"] == pytest.approx(math.sqrt(mse), abs=1e-9)
    assert found["mae"] == pytest.approx(sum(abs(p - t) for p, t in pairs) / len(pairs), abs=1e-12)


def test_errors_are_summed_in_double_precision():
    """A million small float32 errors: a float32 sum would lose digits."""
    predicted = np.full(1_000_000, 3.1, dtype=np.float32)
    found = errors(predicted, np.full(1_000_000, 3.0, dtype=np.float32))
    exact = (float(np.float32(3.1)) - 3.0) ** 2
    assert found["mse"] == pytest.approx(exact, rel=1e-12)


@given(st.lists(st.tuples(st.integers(0, 6), st.booleans()), max_size=40))
def test_the_area_under_the_curve_counts_pairs_and_halves_ties(cases):
    scores = [score / 3 for score, _ in cases]
    positive = np.array([label for _, label in cases], dtype=bool)
    wins = [score for score, label in zip(scores, positive, strict=True) if label]
    losses = [score for score, label in zip(scores, positive, strict=True) if not label]
    found = area_under_curve(scores, positive)
    if not wins or not losses:
        assert found is None
    else:
        counted = sum((w > x) + (w == x) / 2 for w in wins for x in losses)
        assert found == pytest.approx(counted / (len(wins) * len(losses)), abs=1e-12)


def test_the_area_is_one_for_perfect_order_and_zero_for_its_reverse():
    positive = np.array([True, True, False, False])
    assert area_under_curve([4, 3, 2, 1], positive) == 1
    assert area_under_curve([1, 2, 3, 4], positive) == 0
    assert area_under_curve([1, 1, 1, 1], positive) == 0.5
