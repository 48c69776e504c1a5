"""Significance is what its definitions say, and finds a difference where there is none in one of twenty experiments."""

from __future__ import annotations

import itertools
import math
import warnings

import numpy as np
import pytest
import scipy.stats

from carp.evaluate.significance import bootstrap_intervals, holm, paired_t, percentile_interval, resampled, wilcoxon

CASES = 300
EXPERIMENTS = 10_000


@pytest.fixture(autouse=True)
def _no_warning():
    """A warning of scipy's would reach the terminal of somebody who only asked for a table."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def random_case(seed, most=120):
    """Squared errors of two systems on the same pairs: skewed, correlated, sometimes rounded so that ranks tie."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, most))
    shared = rng.gamma(0.5, 1.0, count)
    ours, theirs = shared + rng.gamma(0.5, 0.3, count), shared + rng.gamma(0.5, 0.3 + 0.1 * (seed % 3), count)
    return (np.round(ours, 1), np.round(theirs, 1)) if seed % 4 == 0 else (ours, theirs)


def test_the_paired_t_test_is_its_definition():
    for seed in range(CASES):
        ours, theirs = random_case(seed)
        difference = ours - theirs
        if np.ptp(difference) < 1e-12:
            continue
        statistic, p = paired_t(ours, theirs)
        expected = difference.mean() / (difference.std(ddof=1) / math.sqrt(len(difference)))
        assert statistic == pytest.approx(expected, rel=1e-9, abs=1e-12), seed
        assert p == pytest.approx(2 * scipy.stats.t.sf(abs(expected), len(difference) - 1), rel=1e-8), seed


def test_the_signed_rank_test_of_few_pairs_counts_all_signs():
    """Every way to give signs to the ranks is as likely: p is the share that is at least as uneven."""
    for seed in range(60):
        difference = np.random.default_rng(seed).normal(0.2, 1, 1 + seed % 10)
        ranks = scipy.stats.rankdata(np.abs(difference))
        uneven = abs(ranks[difference > 0].sum() - ranks.sum() / 2)
        signs = np.array(list(itertools.product([0, 1], repeat=len(ranks))))
        at_least = np.abs(signs @ ranks - ranks.sum() / 2) >= uneven
        assert wilcoxon(difference, 0.0) == pytest.approx(at_least.mean()), seed


def test_the_signed_rank_test_of_many_or_tied_pairs_is_the_normal_approximation():
    met = 0
    for seed in range(CASES):
        ours, theirs = random_case(seed)
        left = (ours - theirs)[ours != theirs]
        ties = np.unique(np.abs(left), return_counts=True)[1]
        n = len(left)
        if n == 0 or (len(ours) <= 50 and n == len(ours) and ties.max() == 1):
            continue
        met += 1
        positive = scipy.stats.rankdata(np.abs(left))[left > 0].sum()
        variance = n * (n + 1) * (2 * n + 1) / 24 - (ties**3 - ties).sum() / 48
        z = (positive - n * (n + 1) / 4) / math.sqrt(variance)
        assert wilcoxon(ours, theirs) == pytest.approx(math.erfc(abs(z) / math.sqrt(2)), rel=1e-8), seed
    assert 100 < met < CASES


def test_tests_of_many_rows_are_those_of_each_alone():
    """Also where a row never differs, always differs by the same, or has ties that the others have not."""
    rng = np.random.default_rng(0)
    theirs = rng.gamma(1, 1, (2, 5, 20))
    ours = theirs + rng.normal(0.1, 1, theirs.shape)
    ours[0, 1] = theirs[0, 1]
    ours[0, 2] = theirs[0, 2] + 0.25
    ours[1, 3] = np.round(ours[1, 3])
    theirs[1, 3] = np.round(theirs[1, 3])
    statistic, p = paired_t(ours, theirs)
    ranked = wilcoxon(ours, theirs)
    for place in np.ndindex(2, 5):
        alone = paired_t(ours[place], theirs[place])
        assert (statistic[place], p[place]) == pytest.approx([float(one) for one in alone])
        assert ranked[place] == pytest.approx(float(wilcoxon(ours[place], theirs[place])))


def test_the_bootstrap_draws_pairs_with_replacement_and_takes_percentiles():
    for seed in range(5):
        difference = np.random.default_rng(seed).gamma(0.5, 1.0, 150) - 0.4
        rng = np.random.default_rng(3)
        means = [difference[rng.integers(150, size=150)].mean() for _ in range(400)]
        assert bootstrap_intervals(difference, draws=400, seed=3) == pytest.approx(np.quantile(means, [0.025, 0.975]))


def test_intervals_of_many_systems_are_those_of_each_alone():
    differences = np.random.default_rng(0).normal(0.1, 1, (2, 3, 400))
    together = bootstrap_intervals(differences, draws=500)
    assert together.shape == (2, 3, 2)
    for place in np.ndindex(2, 3):
        assert together[place] == pytest.approx(bootstrap_intervals(differences[place], draws=500))


def test_an_interval_holds_the_mean_and_narrows_with_more_pairs():
    difference = np.random.default_rng(0).normal(-0.1, 0.2, 4000)
    low, high = bootstrap_intervals(difference)
    assert low < difference.mean() < high < 0
    assert high - low == pytest.approx(2 * 1.96 * difference.std() / math.sqrt(4000), rel=0.1)
    few_low, few_high = bootstrap_intervals(difference[:100])
    assert few_high - few_low > 3 * (high - low)


def test_an_interval_repeats_with_its_seed_and_widens_with_its_level():
    difference = np.random.default_rng(2).normal(size=60)
    assert (bootstrap_intervals(difference, seed=3) == bootstrap_intervals(difference, seed=3)).all()
    assert (bootstrap_intervals(difference, seed=3) != bootstrap_intervals(difference, seed=4)).all()
    narrow, wide = (bootstrap_intervals(difference, level=level) for level in (0.5, 0.99))
    assert wide[0] < narrow[0] < narrow[1] < wide[1]


def test_the_size_of_a_block_of_draws_changes_nothing(monkeypatch):
    difference = np.random.default_rng(3).normal(0, 1, 1_000)
    whole = bootstrap_intervals(difference, draws=50)
    monkeypatch.setattr("carp.evaluate.significance.BLOCK_NUMBERS", 7_500)
    assert bootstrap_intervals(difference, draws=50) == pytest.approx(whole)


def test_a_draw_that_says_nothing_is_kept_as_nan():
    drawn = resampled(lambda places: np.where((places == 0).any(1), 1.0, np.nan), 5, draws=200)
    assert drawn.shape == (200,)
    assert 0 < np.isnan(drawn).sum() < 200
    assert percentile_interval(drawn[np.isfinite(drawn)]).tolist() == [1, 1]


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
    assert bootstrap_intervals([0.5]).tolist() == [0.5, 0.5]


def test_a_difference_that_is_always_the_same_is_beyond_doubt():
    for ours in ([1.0, 2.0, 3.0], [0.1, 0.7, 1.3]):  # some of them equal up to rounding only
        statistic, p = paired_t(ours, [one + 1.1 for one in ours])
        assert statistic == -np.inf
        assert p == 0
