"""Two samples -> tests and an interval of their ratio that allow for unequal variances.

The statistic is that of Fligner & Policello (JASA 76, 1981; Hollander & Wolfe, Nonparametric
Statistical Methods, 4.4): each value's placement, which is the number of values of the other sample
below it, studentized by the spread of the placements. Its null distribution is that over all splits
of the values into two groups (a permutation test), exact if both samples have one distribution. If
one sample hardly varies the test rejects too often: a ratio that lies in the interval of the other
sample's median over this one's is then not rejected.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import Any, Optional

from dlperf_slurm.stats.median import CONFIDENCE, Interval, interpolate_median_bounds

# Up to so many splits, such as for 9 and 9 values, all are enumerated; otherwise as many are drawn
# with a fixed seed, so that a p-value of 0.05 is accurate to 0.001.
MAX_SPLITS = 50_000
SEED = 2020
# If both samples are larger than NORMAL_VALUES, the statistic is nearly normal, and its
# distribution is that for samples of NORMAL_VALUES: a p-value of 0.05 is off by less than 0.004. To
# bound memory, a large sample beside a smaller one counts as at most MAX_VALUES values, and fewer
# splits are drawn for more values.
NORMAL_VALUES = 64
MAX_VALUES = 1000

# statistics that differ by less are equal but for rounding
_TOLERANCE = 1e-9


@dataclass(frozen=True)
class Tails:
    """One-sided p-values of a test that compares the second of two samples with the first.

    `lower` is the probability by chance of a second sample at least this small, `upper` of one this
    large.
    """

    lower: float
    upper: float

    @property
    def two_sided(self) -> float:
        """The p-value of the two-sided test."""
        return min(1.0, 2 * min(self.lower, self.upper))


def compute_tails(first: Sequence[float], second: Sequence[float], ratio: float = 1.0) -> Tails:
    """Test the hypothesis that the second sample is distributed as the first one times `ratio`.

    Returns the p-values of both one-sided tests. A small lower tail means that the true ratio is
    smaller, a small upper one that it is larger. All values are positive.
    """
    import numpy

    scaled = ratio * numpy.asarray(first)
    statistics = compute_statistics(scaled[None], numpy.asarray(second)[None])
    null = _find_null(len(first), len(second))
    (lower,), (upper,) = _find_tail(null, -statistics), _find_tail(null, statistics)
    return Tails(float(lower), float(upper))


def compute_statistics(first: Any, second: Any) -> Any:
    """Compute the test statistic of pairs of samples: [pairs, n], [pairs, m] -> [pairs].

    Positive if the second sample is larger, infinite if the two do not overlap.
    """
    import numpy

    values = numpy.concatenate([first, second], axis=1)
    order = values.argsort(axis=1, kind="stable")
    ascending = numpy.take_along_axis(values, order, axis=1)
    is_second = order >= first.shape[1]
    places = numpy.arange(values.shape[1])
    # start and end of each value's run of equal values
    rises = numpy.diff(ascending, axis=1) > 0
    begins = numpy.pad(rises, ((0, 0), (1, 0)), constant_values=True)
    ends = numpy.pad(rises, ((0, 0), (0, 1)), constant_values=True)
    start = numpy.maximum.accumulate(numpy.where(begins, places, 0), axis=1)
    stop = numpy.where(ends, places + 1, len(places))[:, ::-1]
    stop = numpy.minimum.accumulate(stop, axis=1)[:, ::-1]
    # half of the equal values count as below
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
    """Return which pairs of samples differ significantly: [pairs, n], [pairs, m] -> bool [pairs].

    The hypothesis that is refused is that both samples are alike. A pair differs if the two-sided
    p-value is significant after Bonferroni's correction for this many `tests`, and if each sample's
    median is outside the interval of the other's median.
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
    """Return the confidence interval of the ratio second / first; None for too few samples.

    It contains all ratios that the two-sided test does not reject, and all quotients of one
    sample's median and the interval of the other's median. All values are positive.
    """
    import numpy

    if min(len(first), len(second)) < count_needed_values(confidence):
        return None
    a, b = numpy.asarray(first, dtype=float), numpy.asarray(second, dtype=float)
    ratios = b[None, :] / a[:, None]
    order = ratios.ravel().argsort(kind="stable")
    ascending = ratios.ravel()[order]
    rows, columns = numpy.divmod(order, len(b))
    # Multiply the first sample by a factor just above the k smallest ratios: a value of the first
    # then has as many values of the second below it as its row has ratios among the k, and one of
    # the second has as many fewer below it as its column has. Sums change with each ratio.
    passed = numpy.arange(len(order) + 1.0)
    growth = (2 * _number_occurrences(rows) + 1, 1 - 2 * (len(a) - _number_occurrences(columns)))
    squares = [numpy.concatenate([[0.0], one.cumsum()]) for one in growth]
    statistics = _divide(
        (len(a), len(b)),
        (passed, len(order) - passed),
        (squares[0], squares[1] + len(b) * len(a) ** 2),
    )
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
    """Return how many values each of two samples needs for a significant difference to be possible.

    6 for 95 % and one test: with fewer, the smallest possible p-value is too large. `tests` is the
    number of tests that Bonferroni's correction is for.
    """
    count = 1
    while 2 / 2**count > 1 - confidence or tests * 2 / math.comb(2 * count, count) > 1 - confidence:
        count += 1
    return count


def _studentise(below_first: Any, below_second: Any) -> Any:
    """Compute the statistic of pairs of samples: placements [pairs, n], [pairs, m] -> [pairs].

    `below_first` and `below_second` have, for each value of a sample, its placement: the number of
    values of the other sample below it.
    """
    placements = (below_first, below_second)
    return _divide(
        [places.shape[1] for places in placements],
        [places.sum(axis=1) for places in placements],
        [(places**2).sum(axis=1) for places in placements],
    )


def _divide(counts: Sequence[int], sums: Sequence[Any], squares: Sequence[Any]) -> Any:
    """Compute the test statistic from sums over the placements of both samples: [pairs].

    `counts` are the sizes of the two samples; `sums` and `squares` have the sums of their
    placements, and of the squares of these, each [pairs].
    """
    import numpy

    means = [total / count for total, count in zip(sums, counts)]
    spread = sum(square - total * mean for square, total, mean in zip(squares, sums, means))
    with numpy.errstate(divide="ignore"):
        return (sums[1] - sums[0]) / (2 * numpy.sqrt(spread.clip(0) + means[0] * means[1]))


def _find_tail(null: Any, statistics: Any) -> Any:
    """Return the share of the null distribution at or above each statistic: its p-value: [pairs].

    `null` is the sorted distribution from `_find_null`.
    """
    return 1 - null.searchsorted(statistics - _TOLERANCE) / len(null)


def _find_null(first_count: int, second_count: int) -> Any:
    """Return the null distribution of the statistic for two sample sizes, sorted: float64 [splits].

    NORMAL_VALUES and MAX_VALUES limit the sizes.
    """
    if min(first_count, second_count) > NORMAL_VALUES:
        return _list_splits(NORMAL_VALUES, NORMAL_VALUES)
    return _list_splits(min(first_count, MAX_VALUES), min(second_count, MAX_VALUES))


@lru_cache(maxsize=64)
def _list_splits(first_count: int, second_count: int) -> Any:
    """Return the sorted statistics of all splits of distinct values into two groups of these sizes.

    If there are more than MAX_SPLITS, splits are drawn at random.
    """
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
    # a value's rank among all values minus its rank in its own sample is its placement
    below_second = (chosen - numpy.arange(second_count)).astype(float)
    below_first = (others - numpy.arange(first_count)).astype(float)
    found = _studentise(below_first, below_second)
    # Mirrored splits are as likely. Drawn splits get the most extreme ones added, as the observed
    # split counts as one of the draws.
    beside = [] if is_exact else [-numpy.inf, numpy.inf]
    return numpy.sort(numpy.concatenate([found, -found, beside]))


def _number_occurrences(numbers: Any) -> Any:
    """Return for each element of an array [n] how many elements before it equal it: [n]."""
    import numpy

    order = numbers.argsort(kind="stable")
    ascending = numbers[order]
    starts = numpy.flatnonzero(numpy.concatenate([[True], ascending[1:] != ascending[:-1]]))
    found = numpy.empty(len(numbers))
    lengths = numpy.diff(numpy.append(starts, len(numbers)))
    found[order] = numpy.arange(len(numbers)) - numpy.repeat(starts, lengths)
    return found
