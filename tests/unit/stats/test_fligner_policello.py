"""Fligner and Policello's test and the interval of a ratio: against tables, and by simulation."""

import random

import numpy
import pytest

from dlperf_slurm.stats import fligner_policello
from dlperf_slurm.stats.fligner_policello import (
    compute_ratio_interval,
    compute_statistics,
    compute_tails,
    count_needed_values,
    is_refused,
)

LOW = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
HIGH = [8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0]


def test_statistic_is_that_of_hollander_and_wolfe():
    # their example of section 4.4, plasma glucose of healthy and of lead-poisoned geese
    healthy = [297, 340, 325, 227, 277, 337, 250, 290]
    poisoned = [293, 291, 289, 430, 510, 353, 318]
    (statistic,) = compute_statistics(numpy.array([healthy]), numpy.array([poisoned]))
    assert statistic == pytest.approx(1.468, abs=0.001)


@pytest.mark.parametrize(
    ("first", "second", "lower", "upper"),
    [
        # without overlap, one split of all
        (LOW, HIGH, 1, 1 / 3432),
        (HIGH, LOW, 1 / 3432, 1),
        # of the 6 splits, {2, 4} and {3, 4} are as far up, all but {3, 4} as far down
        ([1.0, 3.0], [2.0, 4.0], 5 / 6, 2 / 6),
        ([1.0] * 7, [1.0] * 7, 0.5, 0.5),
    ],
)
def test_tails_count_the_splits_that_are_as_far_with_the_one_that_was_seen(
    first, second, lower, upper
):
    tails = compute_tails(first, second)
    assert (tails.lower, tails.upper) == pytest.approx((lower, upper))
    assert tails.two_sided == pytest.approx(min(1, 2 * min(lower, upper)))


def test_test_of_a_ratio_is_that_of_the_scaled_sample():
    scaled = compute_tails([1.5 * value for value in LOW], HIGH)
    assert compute_tails(LOW, HIGH, 1.5) == scaled


def test_drawn_splits_give_nearly_the_tails_of_all(monkeypatch):
    generator = random.Random(1)
    first, second = ([generator.gauss(100 + s, 1) for _ in range(9)] for s in (0, 0.8))
    exact = compute_tails(first, second)
    monkeypatch.setattr(fligner_policello, "MAX_SPLITS", 40_000)
    monkeypatch.setattr(fligner_policello, "_find_null", fligner_policello._list_splits.__wrapped__)
    drawn = compute_tails(first, second)
    assert (drawn.lower, drawn.upper) == pytest.approx((exact.lower, exact.upper), abs=0.004)


# at the size from which smaller samples stand for larger ones, and for one that is much larger
@pytest.mark.parametrize(
    ("stand_in", "counts", "error"),
    [((64, 64), (160, 160), 0.002), ((10, 1000), (10, 3000), 0.004)],
)
def test_splits_of_smaller_samples_give_nearly_the_tails_of_larger(stand_in, counts, error):
    null = fligner_policello._find_null(*counts)
    assert null is fligner_policello._list_splits(*stand_in)
    real = fligner_policello._list_splits.__wrapped__(*counts)
    statistics = numpy.array([1.645, 1.96, 2.576])
    tails = [fligner_policello._find_tail(one, statistics) for one in (null, real)]
    assert tails[0] == pytest.approx(tails[1], abs=error)


# 2 / 2^6 <= 0.05 < 2 / 2^5; 23 * 2 / 924 <= 0.05 < 24 * 2 / 924; 85 * 2 / 3432 <= 0.05
@pytest.mark.parametrize(("tests", "count"), [(1, 6), (23, 6), (24, 7), (85, 7), (86, 8)])
def test_more_tests_need_more_values(tests, count):
    assert count_needed_values(tests=tests) == count


@pytest.mark.parametrize(("first_count", "second_count"), [(5, 5), (1, 7), (5, 7)])
def test_too_few_values_have_no_interval(first_count, second_count):
    assert compute_ratio_interval(LOW[:first_count], HIGH[:second_count]) is None


def test_interval_is_what_the_test_does_not_refuse():
    random = numpy.random.default_rng(3)
    for _ in range(100):
        first = numpy.exp(0.02 * random.standard_normal(7))
        second = 1.03 * numpy.exp(0.04 * random.standard_normal(8))
        interval = compute_ratio_interval(first.tolist(), second.tolist())
        assert bool(is_refused(first[None], second[None])[0]) is not interval.holds(1.0)


def test_interval_of_the_inverse_ratio_is_the_inverse():
    first, second = numpy.exp(0.02 * numpy.random.default_rng(4).standard_normal((2, 9))).tolist()
    there, back = compute_ratio_interval(first, second), compute_ratio_interval(second, first)
    assert (1 / back.high, 1 / back.low) == pytest.approx((there.low, there.high), rel=1e-3)


# With seven values the rank-sum test covers 0.94 and 0.91 where one varies 4 and 10 times as much.
@pytest.mark.parametrize("noise", ["normal", "exponential"])
@pytest.mark.parametrize("factor", [1, 4, 10])
@pytest.mark.parametrize("count", [6, 7, 15])
def test_ratio_is_covered_whatever_the_spreads(noise, factor, count):
    draw = getattr(numpy.random.default_rng(2020), f"standard_{noise}")
    median = {"normal": 0.0, "exponential": numpy.log(2)}[noise]
    first, second = draw((2, 4000, count)) - median
    refused = is_refused(1 + 0.002 * first, 1 + 0.002 * factor * second)
    # 0.05 and three deviations of 4000 tries
    assert refused.mean() <= 0.06
