"""Significance agrees with scipy, and finds a difference where there is none in one of twenty experiments."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

from carp.evaluate.metrics import bootstrap_intervals, holm, paired_interval, paired_t, wilcoxon

CASES = 1_000
EXPERIMENTS = 10_000


def random_case(seed):
    """Squared errors of two systems on the same pairs: skewed, correlated, sometimes rounded so that ranks tie."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 120))
    shared = rng.gamma(0.5, 1.0, count)
    ours, theirs = shared + rng.gamma(0.5, 0.3, count), shared + rng.gamma(0.5, 0.3 + 0.1 * (seed % 3), count)
    return (np.round(ours, 1), np.round(theirs, 1)) if seed % 4 == 0 else (ours, theirs)


def test_the_paired_t_test_agrees_with_scipy_on_a_thousand_cases():
    for seed in range(CASES):
        ours, theirs = random_case(seed)
        difference = ours - theirs
        if np.ptp(difference) < 1e-12:
            continue
        statistic, p = paired_t(ours, theirs)
        expected = scipy.stats.ttest_rel(ours, theirs)
        assert statistic == pytest.approx(expected.statistic, rel=1e-9, abs=1e-12), seed
        assert p == pytest.approx(expected.pvalue, rel=1e-8, abs=1e-300), seed


def test_the_signed_rank_test_agrees_with_scipy_on_a_thousand_cases():
    exact = 0
    for seed in range(CASES):
        ours, theirs = random_case(seed)
        difference = ours - theirs
        if not difference.any():
            continue
        whole = len(np.unique(np.abs(difference))) == len(difference) <= 50 and difference.all()
        exact += whole
        expected = scipy.stats.wilcoxon(difference, method="exact" if whole else "asymptotic", correction=False)
        assert wilcoxon(ours, theirs) == pytest.approx(expected.pvalue, rel=1e-8), seed
    assert 100 < exact < 900  # both ways of counting were met


def test_the_bootstrap_interval_agrees_with_scipy():
    for seed in range(20):
        rng = np.random.default_rng(seed)
        difference = rng.gamma(0.5, 1.0, 150) - rng.gamma(0.5, 1.1, 150)
        low, high = bootstrap_intervals(difference, draws=4_000)
        expected = scipy.stats.bootstrap(
            (difference,), np.mean, n_resamples=4_000, method="percentile", rng=np.random.default_rng(1)
        )
        width = expected.confidence_interval.high - expected.confidence_interval.low
        assert low == pytest.approx(expected.confidence_interval.low, abs=0.06 * width)
        assert high == pytest.approx(expected.confidence_interval.high, abs=0.06 * width)


def test_intervals_of_many_systems_are_those_of_each_alone():
    differences = np.random.default_rng(0).normal(0.1, 1, (3, 400))
    together = bootstrap_intervals(differences, draws=500)
    assert together == pytest.approx(np.stack([bootstrap_intervals(row, draws=500) for row in differences]))
    low, high = paired_interval(differences[0], np.zeros(400), draws=500)
    assert together[0] == pytest.approx([low, high], abs=0.03)


def test_long_rows_are_drawn_in_blocks_to_the_same_end(monkeypatch):
    difference = np.random.default_rng(3).normal(0, 1, 50_000)
    low, high = bootstrap_intervals(difference, draws=200)  # more numbers than one block holds
    assert high - low == pytest.approx(2 * 1.96 / 50_000**0.5, rel=0.2)


@pytest.mark.parametrize("kind", ["t", "wilcoxon", "bootstrap"])
def test_one_in_twenty_null_experiments_is_a_false_alarm(kind):
    """10,000 comparisons of two systems that are equally good, at the 5 % level."""
    rng = np.random.default_rng(7)
    difference = rng.normal(0, 1, (EXPERIMENTS, 200)) * rng.gamma(2, 1, (EXPERIMENTS, 200))
    nothing = np.zeros_like(difference)
    if kind == "t":
        alarms = paired_t(difference, nothing)[1] < 0.05
    elif kind == "wilcoxon":
        alarms = wilcoxon(difference[:, :60], nothing[:, :60]) < 0.05
    else:
        low, high = bootstrap_intervals(difference, draws=600).T
        alarms = (low > 0) | (high < 0)
    assert 0.04 < alarms.mean() < 0.06


def test_holm_keeps_the_false_alarms_of_a_whole_table_at_one_in_twenty():
    """Ten systems against the same reference, ten thousand times, none of them different."""
    p = paired_t(np.random.default_rng(5).normal(0, 1, (EXPERIMENTS, 10, 30)), 0.0)[1]
    assert ((p < 0.05).any(1)).mean() > 0.3  # what goes wrong without a correction
    assert 0.04 < (holm(p) < 0.05).any(1).mean() < 0.06


def test_holm_is_its_definition():
    for seed in range(200):
        p = np.random.default_rng(seed).uniform(0, 0.3, 1 + seed % 9)
        expected, highest = {}, 0.0
        for rank, place in enumerate(sorted(range(len(p)), key=lambda k: p[k])):
            highest = max(highest, min(1.0, (len(p) - rank) * p[place]))
            expected[place] = highest
        assert holm(p) == pytest.approx([expected[k] for k in range(len(p))])


def test_systems_that_never_differ_are_not_told_apart():
    same = np.random.default_rng(0).gamma(1, 1, 30)
    assert paired_t(same, same) == (0.0, 1.0)
    assert wilcoxon(same, same) == 1.0
    assert bootstrap_intervals(same - same).tolist() == [0.0, 0.0]


def test_a_single_pair_proves_nothing():
    assert paired_t([1.0], [2.0])[1] == 1.0
    assert wilcoxon([1.0], [2.0]) == 1.0


def test_a_difference_that_is_always_the_same_is_beyond_doubt():
    statistic, p = paired_t([1.0, 2.0, 3.0], [2.0, 3.0, 4.0])
    assert statistic == -np.inf
    assert p == 0
