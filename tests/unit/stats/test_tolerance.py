"""The slowdown that a further run of the same machine may have, from the medians of several."""

from math import exp, nan, sqrt

import pytest

from dlperf_slurm.stats.tolerance import compute_tolerances, find_t_quantile


@pytest.mark.parametrize(
    ("probability", "freedom", "quantile"),
    # printed tables of Student's distribution
    [
        (0.95, 1, 6.314),
        (0.975, 2, 4.303),
        (0.95, 4, 2.132),
        (0.9975, 20, 3.153),
        (0.99, 120, 2.358),
    ],
)
def test_quantiles_are_those_of_tables(probability, freedom, quantile):
    assert find_t_quantile(probability, freedom) == pytest.approx(quantile, abs=1e-3)


def test_one_case_has_the_prediction_bound_of_its_runs():
    # logarithms 0, 0.01, 0.02: standard deviation 0.01, two degrees of freedom
    (found,) = compute_tolerances([[100.0, 100 * exp(0.01), 100 * exp(0.02)]])
    assert found == pytest.approx(1 - exp(-2.920 * 0.01 * sqrt(1 + 1 / 3)), rel=1e-3)


def test_cases_that_vary_together_count_as_one():
    runs = [100.0, 101.0, 99.0]
    (alone,) = compute_tolerances([runs])
    assert compute_tolerances([runs] * 5) == pytest.approx([alone] * 5)


def test_cases_that_vary_by_themselves_share_their_spread():
    apart = [[100.0, 101.0], [101.0, 100.0], [100.0, 101.0], [101.0, 100.0]]
    (alone,) = compute_tolerances(apart[:1])
    # 4 degrees of freedom and 4 tests instead of one of each: t is 3.495, and 6.314
    assert max(compute_tolerances(apart)) == pytest.approx(alone * 3.495 / 6.314, rel=0.02)


def test_case_that_varies_more_has_a_wider_bound_and_a_missing_run_counts_less():
    calm, wild, short = [100.0, 100.5, 99.5], [100.0, 105.0, 95.0], [100.0, nan, 99.5]
    found = compute_tolerances([calm, calm, wild, short])
    assert found[0] < found[3] < found[2]
