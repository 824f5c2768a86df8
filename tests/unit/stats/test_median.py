"""Medians and their intervals against binomial values computed by hand."""

import math

import numpy
import pytest

from dlperf_slurm.stats import median
from dlperf_slurm.stats.median import (
    Interval,
    compute_coefficient_of_variation,
    compute_median,
    compute_median_interval,
    count_needed_samples,
    interpolate_median_bounds,
)


@pytest.mark.parametrize(
    ("samples", "median"), [([9.0, 1.0, 4.0], 4.0), ([1.0, 2.0, 4.0, 100.0], 3.0)]
)
def test_median_is_the_middle_one_or_the_mean_of_the_middle_two(samples, median):
    assert compute_median(samples) == median


def test_coefficient_of_variation_is_the_standard_deviation_over_the_mean():
    # mean 3, sum of squares about it 4 + 1 + 0 + 1 + 4 = 10, 10 / (5 - 1) = 2.5
    assert compute_coefficient_of_variation([1.0, 2.0, 3.0, 4.0, 5.0]) == pytest.approx(
        2.5**0.5 / 3
    )
    assert compute_coefficient_of_variation([3.0]) == 0.0


# Ranks (from 1) of the order statistics that bound the median at 95 %, as tabled for the sign test
# (Conover, Practical Nonparametric Statistics). The coverage of ranks (k, n + 1 - k) is
# 1 - 2 * P(Binomial(n, 1/2) <= k - 1), computed by hand for the small ones:
#   n = 6:  1 - 2 * 1 / 64            = 0.969    n = 7: 1 - 2 * 1 / 128       = 0.984
#   n = 8:  1 - 2 * 1 / 256           = 0.992, and 1 - 2 * 9 / 256 = 0.930 is too little
#   n = 9:  1 - 2 * (1 + 9) / 512     = 0.961    n = 10: 1 - 2 * 11 / 1024    = 0.979
#   n = 11: 1 - 2 * (1 + 11) / 2048   = 0.988, and 1 - 2 * 67 / 2048 = 0.935 is too little
#   n = 12: 1 - 2 * (1 + 12 + 66) / 4096 = 0.961
#   n = 20: (6, 15) 0.959   n = 25: (8, 18) 0.957   n = 100: (40, 61) 0.965
@pytest.mark.parametrize(
    ("count", "low", "high"),
    [(6, 1, 6), (7, 1, 7), (8, 1, 8), (9, 2, 8), (10, 2, 9), (11, 2, 10), (12, 3, 10),
     (20, 6, 15), (25, 8, 18), (100, 40, 61)],
)  # fmt: skip
def test_interval_has_the_tabled_ranks(count, low, high):
    samples = [float(value) for value in range(count, 0, -1)]
    assert compute_median_interval(samples) == Interval(low, high)
    # and are not reordered
    assert samples[0] == count


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_too_few_samples_have_no_interval(count):
    # n = 5: 1 - 2 * 1 / 32 = 0.9375 is below 0.95 even between the extremes
    assert compute_median_interval([1.0] * count) is None


def test_higher_confidence_widens_the_interval():
    # n = 9 at 99 %: ranks (2, 8) cover 0.961 only, (1, 9) cover 1 - 2 / 512 = 0.996
    assert compute_median_interval([float(n) for n in range(1, 10)], 0.99) == Interval(1.0, 9.0)


# the smallest n with 1 - 2 / 2**n >= confidence
@pytest.mark.parametrize(("confidence", "count"), [(0.90, 5), (0.95, 6), (0.99, 8), (0.999, 11)])
def test_needed_samples_are_the_first_whose_extremes_suffice(confidence, count):
    assert count_needed_samples(confidence) == count


def test_interval_of_a_hundred_thousand_samples_is_that_of_the_normal_distribution():
    samples = list(range(99_999))
    interval = median.compute_median_interval(samples)
    assert interval.high - interval.low == pytest.approx(1.96 * math.sqrt(len(samples)), rel=0.01)


def test_ends_between_order_statistics_are_those_of_hettmansperger_and_sheather():
    # n = 10: ranks (2, 9) cover 0.97852, (3, 8) 0.89062; the share I = 0.32444 of the way gives
    # the weight 8 I / (2 + 6 I) = 0.65766 of the inner ranks
    low, high = interpolate_median_bounds(numpy.arange(1.0, 11.0)[None], 0.95)
    assert (low[0], high[0]) == pytest.approx((2.65766, 8.34234), abs=1e-5)
