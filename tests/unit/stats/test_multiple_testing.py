"""Holm's adjustment and chances of many events against hand-made figures and SciPy's."""

import pytest

from dlperf_slurm.stats.multiple_testing import adjust_by_holm, compute_excess_chance


@pytest.mark.parametrize(
    ("p_values", "adjusted"),
    [
        # by hand: 0.01 * 4, then max(0.04, 0.03 * 2) for 0.03, 0.02 * 3 for 0.02, and 0.04 * 1
        ([0.03, 0.01, 0.04, 0.02], [0.06, 0.04, 0.06, 0.06]),
        ([0.03], [0.03]),
        ([0.9, 0.8], [1.0, 1.0]),
    ],
)
def test_holm_multiplies_the_smallest_by_the_number_of_tests(p_values, adjusted):
    assert adjust_by_holm(p_values) == pytest.approx(adjusted)


@pytest.mark.parametrize(
    ("hits", "chances", "expected"),
    [
        (0, [0.5, 0.25], 1.0),
        # one or both: 1 - 1/2 * 3/4; both: 1/2 * 1/4
        (1, [0.5, 0.25], 0.625),
        (2, [0.5, 0.25], 0.125),
        (3, [0.5, 0.25], 0.0),
        # scipy.stats.binom.sf(4, 7, 0.25)
        (5, [0.25] * 7, 0.01287841796875),
    ],
)
def test_chance_of_many_hits_is_that_of_the_poisson_binomial(hits, chances, expected):
    assert compute_excess_chance(hits, chances) == pytest.approx(expected)


def test_chance_of_thousands_of_events_is_found():
    # in whole numbers: sum of C(7000, k) * 7 ** (7000 - k) over k from 950, / 8 ** 7000
    expected = pytest.approx(0.003845846551674093, rel=1e-12)
    assert compute_excess_chance(950, [1 / 8] * 7000) == expected
