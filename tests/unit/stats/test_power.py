"""What repeats can tell, and how many it takes: against simulated runs and formulas."""

import math

import pytest

from dlperf_slurm.stats import power
from dlperf_slurm.stats.power import (
    MAX_REPEATS,
    POWER,
    compute_power,
    count_deciding_repeats,
    find_detectable,
    measure_spread,
    pool_spreads,
)


def test_spread_is_the_deviation_of_logarithms():
    assert measure_spread([1.0, math.e, math.e**2]) == pytest.approx(1.0)


def test_spread_of_several_runs_does_not_have_their_difference():
    assert pool_spreads([[1.0, math.e, math.e**2], [9.0, 9 * math.e, 9 * math.e**2]]) == (
        pytest.approx(1.0)
    )


def test_slowdown_of_5_percent_is_found_in_three_of_four_pairs_at_a_spread_of_3():
    assert compute_power(7, 0.03, 0.05) == pytest.approx(0.75, abs=0.04)


def test_no_slowdown_is_found_as_rarely_as_the_level_says():
    assert compute_power(7, 0.03, 0.0) <= 0.07


def test_too_few_repeats_find_nothing():
    assert compute_power(5, 0.001, 0.5) == 0.0


def test_more_tests_find_less():
    assert compute_power(7, 0.03, 0.05, tests=20) < compute_power(7, 0.03, 0.05) - 0.2


def test_detectable_slowdown_is_found_with_the_power_that_is_asked():
    assert compute_power(10, 0.02, find_detectable(10, 0.02)) == pytest.approx(POWER, abs=0.02)


@pytest.mark.parametrize("distance", [0.02, 0.03, 0.05])
def test_as_many_repeats_as_it_takes_have_about_that_power(distance):
    count = count_deciding_repeats([0.03, 0.03], distance, 0.025)
    assert compute_power(count, 0.03, 1 - math.exp(-distance)) == pytest.approx(POWER, abs=0.07)


def test_power_beyond_the_simulated_repeats_goes_on_as_before(monkeypatch):
    slowdown = 0.006
    simulated = compute_power(100, 0.02, slowdown)
    assert 0.3 < simulated < 0.9
    monkeypatch.setattr(power, "MAX_SIMULATED", 50)
    assert compute_power.__wrapped__(100, 0.02, slowdown) == pytest.approx(simulated, abs=0.04)


def test_power_of_a_hundred_thousand_repeats_is_bounded_in_memory():
    resource = pytest.importorskip("resource")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert compute_power(99_999, 0.03, 0.05) == 1.0
    assert find_detectable(99_999, 0.03) < 0.002
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 * 1024


def test_what_is_no_distance_away_takes_more_repeats_than_anybody_makes():
    assert count_deciding_repeats([0.03, 0.03], 0.0, 0.05) == MAX_REPEATS


def test_nothing_is_decided_by_fewer_than_the_test_needs():
    assert count_deciding_repeats([0.0001, 0.0001], 0.5, 0.05) == 6
