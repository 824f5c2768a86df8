"""Two samples -> tests and interval of their ratio that hold where one varies more than the other.

The statistic is that of Fligner & Policello (JASA 76, 1981; Hollander & Wolfe, Nonparametric
Statistical Methods, 4.4): how many values of the other sample lie below each value (its placement),
studentised by how much the placements of each sample vary. Its distribution is that of all ways to
split the values in two, exact for samples of one distribution. Where one sample hardly varies it
refuses too much: a ratio that the other sample's median may have over this one's is kept.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import Any, Optional

from dlperf_slurm.stats.median import CONFIDENCE, Interval, interpolate_median_bounds

# Splits up to which all of them are looked at, as of 9 and 9 values; of more as many are drawn, by
# a fixed seed, so that a p-value of 0.05 is right to 0.001.
MAX_SPLITS = 50_000
SEED = 2020
# Of samples that are both larger, the statistic is nearly normal, and as in samples of this size:
# a p-value of 0.05 differs by less than 0.004. A sample beside one that is smaller counts as no
# larger than MAX_VALUES, and fewer splits are drawn of more values, so that memory is bounded.
NORMAL_VALUES = 64
MAX_VALUES = 1000

# statistics that differ by less are one, but for rounding
_TOLERANCE = 1e-9


@dataclass(frozen=True)
class Tails:
    """The probabilities of so small (large) values in the second sample, if nothing differs."""

    lower: float
    upper: float

    @property
    def two_sided(self) -> float:
        """The p-value of the two-sided test."""
        return min(1.0, 2 * min(self.lower, self.upper))


def compute_tails(first: Sequence[float], second: Sequence[float], ratio: float = 1.0) -> Tails:
    """The tails of the test that the second sample is as the first one times a ratio.

    A small lower tail speaks for a smaller ratio, a small upper one for a larger. All values are
    positive.
    """
    import numpy

    scaled = ratio * numpy.asarray(first)
    statistics = compute_statistics(scaled[None], numpy.asarray(second)[None])
    null = _find_null(len(first), len(second))
    (lower,), (upper,) = _find_tail(null, -statistics), _find_tail(null, statistics)
    return Tails(float(lower), float(upper))


def compute_statistics(first: Any, second: Any) -> Any:
    """Fligner and Policello's statistic of pairs of samples: [pairs, n], [pairs, m] -> [pairs].

    It is positive where the second sample is larger, and infinite where the two do not overlap.
    """
    import numpy

    values = numpy.concatenate([first, second], axis=1)
    order = values.argsort(axis=1, kind="stable")
    ascending = numpy.take_along_axis(values, order, axis=1)
    is_second = order >= first.shape[1]
    places = numpy.arange(values.shape[1])
    # where the values that are equal to each one begin, and where they end
    rises = numpy.diff(ascending, axis=1) > 0
    begins = numpy.pad(rises, ((0, 0), (1, 0)), constant_values=True)
    ends = numpy.pad(rises, ((0, 0), (0, 1)), constant_values=True)
    start = numpy.maximum.accumulate(numpy.where(begins, places, 0), axis=1)
    stop = numpy.where(ends, places + 1, len(places))[:, ::-1]
    stop = numpy.minimum.accumulate(stop, axis=1)[:, ::-1]
    # of equal values one half counts as below
    below = (start + stop) / 2
    seconds = numpy.pad(is_second.cumsum(axis=1), ((0, 0), (1, 0)))
    below_of_second = (
        numpy.take_along_axis(seconds, start, axis=1) + numpy.take_along_axis(seconds, stop, axis=1)
    ) / 2
    return _studentise(
        below_of_second[~is_second].reshape(first.shape),
        (below - below_of_second)[is_second].reshape(second.shape),
    )


def is_refused(first: Any, second: Any, confidence: float = CONFIDENCE, tests: int = 1) -> Any:
    """Which pairs of samples [pairs, n], [pairs, m] differ by the two-sided test: bool [pairs].

    These are the pairs whose `compute_ratio_interval` leaves 1 out, and whose p-value is small
    enough for one of so many tests.
    """
    import numpy

    tails = _find_tail(
        _find_null(first.shape[1], second.shape[1]), abs(compute_statistics(first, second))
    )
    refused = 2 * tests * tails <= 1 - confidence
    for one, other in ((first, second), (second, first)):
        low, high = interpolate_median_bounds(other, confidence)
        median = numpy.median(one, axis=1)
        refused &= (median < low) | (median > high)
    return refused


def compute_ratio_interval(
    first: Sequence[float], second: Sequence[float], confidence: float = CONFIDENCE
) -> Optional[Interval]:
    """The interval of the factor from the first sample to the second: second over first.

    It holds the factors that the two-sided test does not refuse, and those of an interval of either
    median over the other median. It is None when the samples are too few for the confidence. All
    values are positive.
    """
    import numpy

    if min(len(first), len(second)) < count_needed_values(confidence):
        return None
    a, b = numpy.asarray(first, dtype=float), numpy.asarray(second, dtype=float)
    ratios = b[None, :] / a[:, None]
    order = ratios.ravel().argsort(kind="stable")
    ascending = ratios.ravel()[order]
    rows, columns = numpy.divmod(order, len(b))
    # with a factor above the k smallest ratios: how many values lie below each, of either sample
    below_first, below_second = _count_passed(rows, len(a)), _count_passed(columns, len(b))
    statistics = _studentise(below_first, len(a) - below_second)
    tails = _find_tail(_find_null(len(a), len(b)), abs(statistics))
    kept = numpy.flatnonzero(2 * tails > 1 - confidence)
    of_first = interpolate_median_bounds(a[None], confidence)
    of_second = interpolate_median_bounds(b[None], confidence)
    return Interval(
        float(min(
            ascending[max(kept[0], 1) - 1],
            of_second[0][0] / numpy.median(a),
            numpy.median(b) / of_first[1][0],
        )),
        float(max(
            ascending[min(kept[-1], len(order) - 1)],
            of_second[1][0] / numpy.median(a),
            numpy.median(b) / of_first[0][0],
        )),
    )  # fmt: skip


def count_needed_values(confidence: float = CONFIDENCE, tests: int = 1) -> int:
    """The least size of each sample that can tell a difference among so many tests: 6 for 95 %.

    Of fewer all lie on one side of the median more often than that.
    """
    count = 1
    while 2 / 2**count > 1 - confidence or tests * 2 / math.comb(2 * count, count) > 1 - confidence:
        count += 1
    return count


def _studentise(below_first: Any, below_second: Any) -> Any:
    """The statistic from the placements of both samples: [pairs, n], [pairs, m] -> [pairs]."""
    import numpy

    means = below_first.mean(axis=1), below_second.mean(axis=1)
    squares = sum(
        ((places - mean[:, None]) ** 2).sum(axis=1)
        for places, mean in zip((below_first, below_second), means)
    )
    distance = below_second.sum(axis=1) - below_first.sum(axis=1)
    with numpy.errstate(divide="ignore"):
        return distance / (2 * numpy.sqrt(squares + means[0] * means[1]))


def _find_tail(null: Any, statistics: Any) -> Any:
    """The chances of values as large as these: [pairs], by those of splits, ascending."""
    return 1 - null.searchsorted(statistics - _TOLERANCE) / len(null)


def _find_null(first_count: int, second_count: int) -> Any:
    """The statistic of splits of as many distinct values, ascending: float64 [splits].

    Of more values than it takes to be right, those of fewer stand for it.
    """
    if min(first_count, second_count) > NORMAL_VALUES:
        return _list_splits(NORMAL_VALUES, NORMAL_VALUES)
    return _list_splits(min(first_count, MAX_VALUES), min(second_count, MAX_VALUES))


@lru_cache(maxsize=64)
def _list_splits(first_count: int, second_count: int) -> Any:
    """The statistic of all splits of as many distinct values, or of drawn ones, ascending."""
    import numpy

    count = first_count + second_count
    is_exact = math.comb(count, first_count) <= MAX_SPLITS
    if is_exact:
        chosen = numpy.array(list(combinations(range(count), second_count)))
    else:
        splits = min(MAX_SPLITS, MAX_SPLITS * 2 * NORMAL_VALUES // count)
        draws = numpy.random.default_rng(SEED).random((splits, count), dtype=numpy.float32)
        chosen = numpy.sort(draws.argpartition(second_count, axis=1)[:, :second_count], axis=1)
    is_first = numpy.ones((len(chosen), count), dtype=bool)
    numpy.put_along_axis(is_first, chosen, False, axis=1)
    others = numpy.nonzero(is_first)[1].reshape(len(chosen), first_count)
    # a value's place among all, less those of its own sample, is its placement
    below_second = (chosen - numpy.arange(second_count)).astype(float)
    below_first = (others - numpy.arange(first_count)).astype(float)
    found = _studentise(below_first, below_second)
    # mirrored splits are as likely; drawn ones have the observed one, at its most extreme, beside
    beside = [] if is_exact else [-numpy.inf, numpy.inf]
    return numpy.sort(numpy.concatenate([found, -found, beside]))


def _count_passed(numbers: Any, count: int) -> Any:
    """How often each number is among the first k of them: [pairs + 1, count]."""
    import numpy

    passed = (numbers[:, None] == numpy.arange(count)).cumsum(axis=0)
    return numpy.concatenate([numpy.zeros((1, count)), passed])
