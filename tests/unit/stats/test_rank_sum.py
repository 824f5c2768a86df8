"""Rank-sum test, interval of a ratio and Holm's adjustment against tables and SciPy's figures."""

import random

import pytest

from dlperf_slurm.stats import rank_sum
from dlperf_slurm.stats.rank_sum import (
    Tails,
    adjust_by_holm,
    compute_excess_chance,
    compute_ratio_interval,
    compute_shifts,
    compute_smallest_p,
    compute_tails,
    count_needed_repeats,
)

LOW = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
HIGH = [8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0]


# scipy.stats.mannwhitneyu(second, first, method="exact") of SciPy 1.17, less and greater
@pytest.mark.parametrize(
    ("first", "second", "lower", "upper"),
    [
        (
            [1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55],
            [0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.07],
            0.06410256410256411,
            0.9513403263403264,
        ),
        (
            [0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46],
            [1.15, 0.88, 0.90, 0.74, 1.21],
            0.1272061272061272,
            0.8967698967698967,
        ),
        (LOW, HIGH, 1.0, 0.0002913752913752914),
        # equal values: scipy.stats.permutation_test of the rank sum, all permutations
        (
            [1.0, 2.0, 2.0, 3.0, 5.0],
            [2.0, 3.0, 4.0, 4.0, 6.0, 7.0],
            0.9502164502164502,
            0.06277056277056277,
        ),
    ],
)
def test_tails_are_those_of_scipy(first, second, lower, upper):
    tails = compute_tails(first, second)
    assert (tails.lower, tails.upper) == (pytest.approx(lower), pytest.approx(upper))


def make_large_samples():
    """50 and 50 values, some of them equal: the most that are still exact."""
    generator = random.Random(1)
    return [[round(generator.gauss(100 + shift, 1), 1) for _ in range(50)] for shift in (0, 0.6)]


def test_large_samples_have_nearly_the_exact_tails(monkeypatch):
    first, second = make_large_samples()
    exact = compute_tails(first, second)
    monkeypatch.setattr(rank_sum, "MAX_EXACT_VALUES", 99)
    tails = compute_tails(first, second)
    assert (tails.lower, tails.upper) == (
        pytest.approx(exact.lower, abs=2e-3), pytest.approx(exact.upper, abs=2e-3),
    )  # fmt: skip


def test_large_samples_have_nearly_the_exact_interval(monkeypatch):
    first, second = make_large_samples()
    exact = compute_ratio_interval(first, second)
    monkeypatch.setattr(rank_sum, "MAX_EXACT_VALUES", 99)
    interval = compute_ratio_interval(first, second)
    assert (interval.low, interval.high) == (
        pytest.approx(exact.low, rel=1e-4), pytest.approx(exact.high, rel=1e-4),
    )  # fmt: skip


def test_thousands_of_values_can_be_compared():
    # 1.1 times the same values: far from chance
    sample = [100 + 0.001 * n for n in range(2000)]
    assert compute_tails(sample, [1.1 * x for x in sample]).two_sided < 1e-9


def test_large_samples_that_are_all_equal_do_not_differ():
    assert compute_tails([1.0] * 100, [1.0] * 100).two_sided == 1.0


def test_large_samples_are_approximated_with_continuity():
    # Of 121 and 25 values, places of the second are 46 to 69 and 72, with the sum 1452. Expected is
    # 25 * 147 / 2 = 1837.5, with the deviation sqrt(121 * 25 * 147 / 12) = 192.5.
    second = [*range(46, 70), 72]
    first = [place for place in range(1, 147) if place not in second]
    tails = compute_tails(first, second)
    # a sum of 1452.5 or less is (1452.5 - 1837.5) / 192.5 = 2 deviations below: a normal 0.02275;
    # of 1451.5 or more (1837.5 - 1451.5) / 192.5 = 2.005195: 0.9775289
    assert tails.lower == pytest.approx(0.0227501319)
    assert tails.upper == pytest.approx(0.9775289, abs=1e-7)


def test_interval_of_large_samples_is_approximated_with_continuity():
    # ratio k in ascending order, from 0, is 1000 ** (k // 121) * (k % 121 + 1)
    first = [1 / (1 + n) for n in range(121)]
    second = [1000.0**n for n in range(25)]
    interval = compute_ratio_interval(first, second, confidence=0.99)
    # U has the mean 121 * 25 / 2 = 1512.5 and the deviation 192.5; 0.005 of a normal one is more
    # than 2.5758 deviations below, to 1016.65: 1016.5 is, 1017.5 is not. So U = 0 to 1016 are
    # refused, 1017 values: the limits are ratios 1016 = 8 * 121 + 48, 3025 - 1017 = 16 * 121 + 72.
    assert (interval.low, interval.high) == (pytest.approx(49e24), pytest.approx(73e48))


def test_two_sided_is_twice_the_smaller_tail():
    assert Tails(0.9, 0.2).two_sided == pytest.approx(0.4)


def test_samples_that_are_all_equal_do_not_differ():
    assert compute_tails([1.0] * 7, [1.0] * 7).two_sided == 1.0


# With U the pairs (a, b) with b < a, the test refuses up to a critical U, by the tables of Mann and
# Whitney (5 %, two-sided): 0 for 4 and 4 values, 2 for 5 and 5, 5 for 6 and 6, 8 for 7 and 7,
# 3 for 5 and 6, 23 for 10 and 10. Of the sorted ratios the interval leaves out as many at each end.
@pytest.mark.parametrize(
    ("first_count", "second_count", "left_out"),
    [(4, 4, 0), (5, 5, 2), (6, 6, 5), (7, 7, 8), (5, 6, 3), (6, 5, 3), (10, 10, 23)],
)
def test_interval_leaves_out_as_many_ratios_as_is_tabled(first_count, second_count, left_out):
    # 2^i and 2^(10 j): all ratios differ
    first = [2.0**i for i in range(first_count)]
    second = [2.0 ** (10 * j) for j in range(second_count)]
    ratios = sorted(b / a for a in first for b in second)
    interval = compute_ratio_interval(first, second)
    assert (interval.low, interval.high) == (ratios[left_out], ratios[-1 - left_out])


@pytest.mark.parametrize(("first_count", "second_count"), [(3, 3), (1, 7), (2, 7)])
def test_too_few_repeats_have_no_interval(first_count, second_count):
    assert compute_ratio_interval(LOW[:first_count], HIGH[:second_count]) is None


def test_interval_of_a_faster_sample_lies_above_one():
    interval = compute_ratio_interval([10.0, 10.1, 10.2, 9.9, 9.8], [20.0, 20.2, 20.4, 19.8, 19.6])
    assert 1.9 < interval.low < 2.0 < interval.high < 2.1


def test_interval_covers_the_true_ratio_as_often_as_it_says():
    generator = random.Random(7)
    covered = 0
    for _ in range(1000):
        first = [generator.lognormvariate(0, 0.02) for _ in range(7)]
        second = [1.5 * generator.lognormvariate(0, 0.02) for _ in range(7)]
        interval = compute_ratio_interval(first, second)
        covered += interval.low <= 1.5 <= interval.high
    # exactly 1 - 2 * 65 / 3432 = 0.962; of 1000 tries 0.95 to 0.975 is two deviations
    assert 0.95 <= covered / 1000 <= 0.975


def test_holm_multiplies_the_smallest_by_the_number_of_tests():
    # by hand: 0.01 * 4, then max(0.04, 0.03 * 2) for 0.03, 0.02 * 3 for 0.02, and 0.04 * 1
    assert adjust_by_holm([0.03, 0.01, 0.04, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])


def test_holm_leaves_one_test_alone():
    assert adjust_by_holm([0.03]) == [0.03]


def test_holm_is_never_above_one():
    assert adjust_by_holm([0.9, 0.8]) == [1.0, 1.0]


def test_shifts_name_the_direction():
    lower, higher = compute_shifts([(HIGH, LOW), (LOW, HIGH)])
    assert (lower.is_lower, higher.is_lower) == (True, False)


def test_shifts_are_adjusted_for_their_number():
    one, _ = compute_shifts([(LOW, HIGH), (LOW, LOW)])
    assert one.p_value == pytest.approx(2 * 2 / 3432)


# 2 / C(6, 3) = 0.1, 2 / C(8, 4) = 2 / 70, 2 / C(14, 7) = 2 / 3432
@pytest.mark.parametrize(("count", "p_value"), [(3, 0.1), (4, 2 / 70), (7, 2 / 3432)])
def test_smallest_p_is_that_of_samples_that_do_not_overlap(count, p_value):
    assert compute_smallest_p(count, count) == pytest.approx(p_value)


# 2 / 70 <= 0.05 < 2 * 2 / 70; 6 * 2 / 252 <= 0.05 < 7 * 2 / 252; 85 * 2 / 3432 <= 0.05
@pytest.mark.parametrize(("tests", "count"), [(1, 4), (2, 5), (6, 5), (7, 6), (85, 7), (86, 8)])
def test_more_tests_need_more_repeats(tests, count):
    assert count_needed_repeats(tests) == count


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


def add_up_events(chances):
    """The chances of 0, 1, ... hits, event after event."""
    counts = [1.0]
    for chance in chances:
        missed, hit = [*counts, 0.0], [0.0, *counts]
        counts = [(1 - chance) * a + chance * b for a, b in zip(missed, hit)]
    return counts


@pytest.mark.parametrize("choices", [(8,), (2, 3, 4, 36)])
def test_chance_over_many_events_is_that_of_adding_them_one_by_one(choices):
    generator = random.Random(3)
    chances = [1 / generator.choice(choices) for _ in range(501)]
    counts = add_up_events(chances)
    found = [compute_excess_chance(hits, chances) for hits in range(502)]
    assert found == pytest.approx([sum(counts[hits:]) for hits in range(502)], rel=0, abs=1e-12)


def test_chance_of_thousands_of_events_is_found():
    # in whole numbers: sum of C(7000, k) * 7 ** (7000 - k) over k from 950, / 8 ** 7000
    expected = pytest.approx(0.003845846551674093, rel=1e-12)
    assert compute_excess_chance(950, [1 / 8] * 7000) == expected
