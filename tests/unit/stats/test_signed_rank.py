"""Paired tests: exact for few pairs, and right in level and power on a machine that drifts."""

from itertools import product

import numpy
import pytest

from dlperf_slurm.stats import fligner_policello, signed_rank
from dlperf_slurm.stats.signed_rank import (
    compute_ratio_interval,
    compute_tails,
    count_needed_values,
    estimate_ratio,
    remove_drift,
)

FIRST = [100.0, 101.0, 99.0, 104.0, 98.0, 103.0, 97.0]
SECOND = [99.5, 101.9, 97.0, 103.1, 96.2, 103.05, 94.1]


def list_statistics(differences):
    """List the sums of the ranks with a positive sign, for all signs; the first is as given."""
    ranks = numpy.abs(differences).argsort().argsort() + 1
    signs = [differences > 0, *(numpy.array(s) for s in product((False, True), repeat=len(ranks)))]
    return [int(ranks[own].sum()) for own in signs]


def test_tails_are_those_of_all_signs():
    own, *null = list_statistics(numpy.log(numpy.divide(SECOND, FIRST)))
    tails = compute_tails(FIRST, SECOND)
    assert tails.lower == pytest.approx(numpy.mean([other <= own for other in null]))
    assert tails.upper == pytest.approx(numpy.mean([other >= own for other in null]))


@pytest.mark.parametrize(("confidence", "pairs"), [(0.95, 6), (0.99, 8)])
def test_interval_holds_the_ratios_that_the_test_does_not_reject(confidence, pairs):
    assert count_needed_values(confidence) == pairs
    assert compute_ratio_interval(FIRST[: pairs - 1], SECOND[: pairs - 1], confidence) is None
    first, second = FIRST + FIRST[:1], [*SECOND, 100.5]
    interval = compute_ratio_interval(first, second, confidence)
    for ratio in numpy.linspace(0.96, 1.03, 500):
        is_kept = compute_tails(first, second, ratio).two_sided > 1 - confidence
        assert interval.holds(ratio) == is_kept
    assert interval.holds(estimate_ratio(first, second))


def test_equal_pairs_do_not_differ():
    assert compute_tails(FIRST, FIRST).two_sided == 1
    assert compute_ratio_interval(FIRST, FIRST).holds(1.0)


def test_trend_is_removed_and_the_ratio_kept():
    turns = numpy.exp(-0.004 * numpy.arange(14)).reshape(7, 2).T
    first, second = remove_drift(100 * turns[0], 90 * turns[1])
    assert numpy.ptp(first) + numpy.ptp(second) == pytest.approx(0, abs=1e-9)
    assert second[0] / first[0] == pytest.approx(0.9)
    assert remove_drift([1.0], [2.0]) == ([1.0], [2.0])


def simulate(drift, ratio, trials=300, pairs=7, noise=0.005):
    """Return how often the paired test, without and with its trend, and the other one reject."""
    random = numpy.random.default_rng(2020)
    rejected = numpy.zeros(3)
    for _ in range(trials):
        speeds = 1 - drift * numpy.linspace(0, 1, 2 * pairs)
        speeds *= numpy.exp(noise * random.standard_normal(2 * pairs))
        first, second = speeds[::2], ratio * speeds[1::2]
        found = (
            signed_rank.compute_tails(*remove_drift(first, second)),
            signed_rank.compute_tails(first, second),
            fligner_policello.compute_tails(first, second),
        )
        rejected += [tails.two_sided <= 0.05 for tails in found]
    return rejected / trials


def test_level_and_power_on_a_machine_that_slows_down_by_3_percent():
    paired, with_trend, unpaired = simulate(drift=0.03, ratio=1.0)
    # two standard errors of 300 trials at 5 %
    assert paired <= 0.075
    assert with_trend > 0.075
    paired, _, unpaired = simulate(drift=0.03, ratio=0.99)
    assert paired > 0.75 > 0.5 > unpaired
    assert simulate(drift=0.0, ratio=1.0)[0] <= 0.075
