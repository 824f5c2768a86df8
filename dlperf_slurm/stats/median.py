"""Samples -> median, its non-parametric confidence interval, coefficient of variation, latency."""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Optional

CONFIDENCE = 0.95
# up to so many samples, binomial probabilities are exact; for more, the integers get too long
EXACT_SAMPLES = 1000


@dataclass(frozen=True)
class Interval:
    """The two ends of a confidence interval for a median, in the samples' unit, or for a ratio."""

    low: float
    high: float

    def holds(self, value: float) -> bool:
        """Return whether a value is in the interval, ends included."""
        return self.low <= value <= self.high


# The reported percentiles of a batch's latency, in percent; the last is the slowest batch.
LATENCY_PERCENTILES = (50, 90, 95, 99, 100)
# how many batches must be slower than a reported percentile above the median
LEAST_SLOWER = 10
# names of the mean and of each percentile
LATENCY_NAMES = ("avg", *(f"p{percent}" for percent in LATENCY_PERCENTILES))


@dataclass(frozen=True)
class Latency:
    """Seconds per batch: the mean, and a value for each of LATENCY_PERCENTILES."""

    mean: float
    percentiles: tuple[float, ...]

    @property
    def values(self) -> tuple[float, ...]:
        """The mean, then the percentiles, in the order of LATENCY_NAMES."""
        return (self.mean, *self.percentiles)


def compute_latency(batch_seconds: Sequence[float]) -> Latency:
    """Compute mean and percentiles of one repeat's batch times, in seconds.

    Percentiles are interpolated linearly between two batches, as by default in `numpy.percentile`
    and in NVIDIA's benchmark. Raises statistics.StatisticsError if there is no batch.
    """
    import numpy

    seconds = numpy.asarray(batch_seconds)
    values = numpy.percentile(seconds, LATENCY_PERCENTILES)
    return Latency(statistics.fmean(seconds.tolist()), tuple(values.tolist()))


def count_needed_batches(percent: int) -> int:
    """Return how many batches it takes to report a latency percentile: 1000 for `percent` 99.

    LEAST_SLOWER batches must be slower than the percentile; with fewer it is too low
    (`benchmarks/simulations/percentiles.py`). The median and the slowest batch (100 %) need one.
    """
    if not 50 < percent < 100:
        return 1
    return math.ceil(100 * LEAST_SLOWER / (100 - percent))


def compute_median(samples: Sequence[float]) -> float:
    """Return the median of the samples, with which rates and times are reported; never a mean.

    Raises statistics.StatisticsError if there is no sample.
    """
    return statistics.median(samples)


def compute_last_medians(values: Any) -> Any:
    """Return the median over the last axis of an array, [..., n] -> [...]; NaN counts as largest.

    Takes a third of the time of numpy.median.
    """
    import numpy

    ascending, count = numpy.sort(values), values.shape[-1]
    return (ascending[..., (count - 1) // 2] + ascending[..., count // 2]) / 2


def compute_known_median(values: Iterable[Optional[float]]) -> Optional[float]:
    """Return the median of the values that are not None; None if there are none."""
    known = [value for value in values if value is not None]
    return compute_median(known) if known else None


def compute_coefficient_of_variation(seconds: Sequence[float]) -> float:
    """Return standard deviation over mean of times; 0 for a single value.

    Takes times, not rates: a mean of rates has no meaning.
    """
    if len(seconds) < 2:
        return 0.0
    return statistics.stdev(seconds) / statistics.fmean(seconds)


def compute_binomial(count: int, below: int) -> float:
    """Return the probability that exactly `below` of `count` samples are less than the median."""
    if count <= EXACT_SAMPLES:
        return math.comb(count, below) / (1 << count)
    factorials = math.lgamma(count + 1) - math.lgamma(below + 1) - math.lgamma(count - below + 1)
    return math.exp(factorials - count * math.log(2))


def compute_median_interval(
    samples: Sequence[float], confidence: float = CONFIDENCE
) -> Optional[Interval]:
    """Compute the confidence interval of the median from order statistics; None if impossible.

    It is the narrowest symmetric pair of order statistics that reaches the confidence, without
    assuming a distribution: the number of samples below the median is binomial(n, 1/2) (Hoefler &
    Belli, SC'15, section 3.1.3). None if even the extremes do not reach the confidence.
    """
    count = len(samples)
    ordered = sorted(samples)
    outside = 0.0
    found: Optional[Interval] = None
    for rank in range(count // 2):
        outside += 2 * compute_binomial(count, rank)
        if 1 - outside < confidence:
            break
        found = Interval(ordered[rank], ordered[count - 1 - rank])
    return found


def interpolate_median_bounds(samples: Any, confidence: float) -> tuple[Any, Any]:
    """Return the low and the high ends of intervals for medians: [sets, n] -> [sets] each.

    Each row of `samples` has one interval, with this individual confidence. Its ends are
    interpolated between neighbouring order statistics (Hettmansperger & Sheather, Statistics &
    Probability Letters 4, 1986); if smallest and largest value do not reach the confidence, they
    are the ends.
    """
    import numpy

    ordered = numpy.sort(samples, axis=1)
    count = ordered.shape[1]
    inside, depth = 1 - 2 / 2**count, 1
    following = inside
    while depth <= (count - 1) // 2:
        following = inside - 2 * compute_binomial(count, depth)
        if following < confidence:
            break
        inside, depth = following, depth + 1
    if inside <= confidence or depth > (count - 1) // 2:
        return ordered[:, depth - 1], ordered[:, count - depth]
    share = (inside - confidence) / (inside - following)
    weight = (count - depth) * share / (depth + (count - 2 * depth) * share)
    low = (1 - weight) * ordered[:, depth - 1] + weight * ordered[:, depth]
    high = (1 - weight) * ordered[:, count - depth] + weight * ordered[:, count - depth - 1]
    return low, high


def count_needed_samples(confidence: float = CONFIDENCE) -> int:
    """Return how many samples `compute_median_interval` needs: 6 for 95 %."""
    count = 1
    while 1 - 2 / 2**count < confidence:
        count += 1
    return count
