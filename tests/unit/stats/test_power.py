"""What repeats can tell, and how many it takes: against simulated runs and formulas."""

import math

import numpy
import pytest

from dlperf_slurm.stats import power
from dlperf_slurm.stats.power import (
    MAX_REPEATS,
    POWER,
    compute_detectable_slowdown,
    compute_power,
    count_deciding_repeats,
    measure_spread,
    pool_spreads,
)
from dlperf_slurm.stats.signed_rank import compute_tails, remove_drift


def test_spread_is_the_deviation_of_logarithms_within_runs():
    run = [1.0, math.e, math.e**2]
    assert measure_spread(run) == pytest.approx(1.0)
    assert pool_spreads([run, [9 * rate for rate in run]]) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("repeats", "spread", "slowdown", "tests", "least", "most"),
    [
        (7, 0.03, 0.05, 1, 0.71, 0.79),
        # as rarely as the level says
        (7, 0.03, 0.0, 1, 0, 0.07),
        (7, 0.03, 0.05, 20, 0, 0.51),
        # too few repeats
        (5, 0.001, 0.5, 1, 0, 0),
    ],
)
def test_slowdown_is_found_in_as_many_pairs(repeats, spread, slowdown, tests, least, most):
    assert least <= compute_power(repeats, spread, slowdown, tests=tests) <= most


def test_detectable_slowdown_is_found_with_the_power_that_is_asked():
    assert compute_power(10, 0.02, compute_detectable_slowdown(10, 0.02)) == pytest.approx(
        POWER, abs=0.02
    )


@pytest.mark.parametrize(
    ("repeats", "slowdown", "tests"), [(6, 0.01, 1), (7, 0.01, 1), (7, 0.0, 1), (7, 0.01, 20)]
)
def test_paired_test_of_drifting_runs_finds_it_in_as_many_pairs(repeats, slowdown, tests):
    random = numpy.random.default_rng(7)
    found = 0
    for _ in range(400):
        speeds = (1 - 0.03 * numpy.linspace(0, 1, 2 * repeats)) * numpy.exp(
            0.005 * random.standard_normal(2 * repeats)
        )
        pair = remove_drift(speeds[::2], (1 - slowdown) * speeds[1::2])
        found += tests * compute_tails(*pair).two_sided <= 0.05
    # three standard errors of both simulations
    expected = pytest.approx(found / 400, abs=0.09)
    assert compute_power(repeats, 0.005, slowdown, tests, is_paired=True) == expected


def test_more_pairs_than_are_simulated_find_more():
    powers = [compute_power(n, 0.02, 0.01, is_paired=True) for n in (50, 55, 200, 99_999)]
    assert powers == sorted(powers)
    assert powers[0] + 0.1 > powers[1]
    # the test uses MAX_PAIRS of them
    assert powers[3] == powers[2] < 1.0


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
    assert compute_detectable_slowdown(99_999, 0.03) < 0.002
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 * 1024


def test_deciding_takes_what_the_test_needs_at_least_and_the_maximum_at_most():
    assert count_deciding_repeats([0.0001, 0.0001], 0.5, 0.05) == 6
    assert count_deciding_repeats([0.03, 0.03], 0.0, 0.05) == MAX_REPEATS
