"""Two samples -> whether they differ, and the interval of their ratio; exact for usual sizes."""

import math
import statistics
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Optional

from dlperf_slurm.stats.median import CONFIDENCE, Interval

# Values of both samples together up to which distributions are exact; from there on the normal one
# is within 0.002 of them, where they would take seconds and gigabytes.
MAX_EXACT_VALUES = 100


@dataclass(frozen=True)
class Tails:
    """The probabilities of so small (large) values in the second sample, if nothing differs."""

    lower: float
    upper: float

    @property
    def two_sided(self) -> float:
        """The p-value of the two-sided test."""
        return min(1.0, 2 * min(self.lower, self.upper))


def compute_tails(first: Sequence[float], second: Sequence[float]) -> Tails:
    """The tails of the rank-sum test of Wilcoxon, Mann and Whitney.

    Their distribution is the exact one of all permutations, up to MAX_EXACT_VALUES values. Equal
    values share their mean place, and the distribution is that of the shared places.
    """
    ordered = sorted([*first, *second])
    places = [_double_place(value, ordered) for value in ordered]
    observed = sum(_double_place(value, ordered) for value in second)
    if len(ordered) > MAX_EXACT_VALUES:
        return _approximate_tails(places, len(second), observed)
    chances = _compute_sum_chances(tuple(places), len(second))
    return Tails(float(chances[: observed + 1].sum()), float(chances[observed:].sum()))


def _approximate_tails(places: Sequence[int], count: int, observed: int) -> Tails:
    """The tails by the normal distribution of a sum of `count` places, corrected for continuity."""
    share = count * (len(places) - count) / (len(places) - 1)
    deviation = math.sqrt(share * statistics.pvariance(places))
    if deviation == 0:
        return Tails(1.0, 1.0)
    distance = observed - count * statistics.fmean(places)
    normal = statistics.NormalDist(0, deviation)
    # neighbouring sums of doubled places are 2 apart
    return Tails(normal.cdf(distance + 1), normal.cdf(1 - distance))


def _double_place(value: float, ordered: Sequence[float]) -> int:
    """Twice the mean place of a value, from 1, so that it is whole for equal values too."""
    return bisect_left(ordered, value) + bisect_right(ordered, value) + 1


@lru_cache(maxsize=64)
def _compute_sum_chances(places: tuple[int, ...], count: int) -> Any:
    """The chances of each sum s of `count` places that are drawn blindly: float64 [s]."""
    import numpy

    ways = numpy.zeros((count + 1, sum(places) + 1))
    ways[0, 0] = 1
    for place in places:
        ways[1:, place:] += ways[:-1, :-place].copy()
    return ways[count] / math.comb(len(places), count)


def compute_ratio_interval(
    first: Sequence[float], second: Sequence[float], confidence: float = CONFIDENCE
) -> Optional[Interval]:
    """The interval of the factor from the first sample to the second: second over first.

    These are the factors that the rank-sum test does not refuse: they lie between two order
    statistics of the ratios of all pairs (Hollander & Wolfe, Nonparametric Statistical Methods,
    4.3). It is None when the samples are too few for the confidence. All values are positive.
    """
    place = _count_refused_ratios(len(first), len(second), 1 - confidence)
    if place == 0:
        return None
    ratios = sorted(b / a for a in first for b in second)
    return Interval(ratios[place - 1], ratios[-place])


def _count_refused_ratios(first_count: int, second_count: int, significance: float) -> int:
    """The number of values of Mann and Whitney's U, from 0, that the two-sided test refuses."""
    import numpy

    values, pairs = first_count + second_count, first_count * second_count
    if values > MAX_EXACT_VALUES:
        deviation = math.sqrt(pairs * (values + 1) / 12)
        quantile = statistics.NormalDist(pairs / 2, deviation).inv_cdf(significance / 2)
        return int(quantile + 0.5)
    chances = _compute_sum_chances(tuple(range(2, 2 * values + 1, 2)), second_count)
    tail = numpy.cumsum(chances[second_count * (second_count + 1) :: 2])
    return int((2 * tail <= significance).sum())


@dataclass(frozen=True)
class Shift:
    """Whether the second of two samples is lower or higher, and the p-value for that it is."""

    p_value: float
    is_lower: bool

    def is_lower_at(self, significance: float) -> bool:
        return self.is_lower and self.p_value <= significance


def compute_shifts(pairs: Sequence[tuple[Sequence[float], Sequence[float]]]) -> list[Shift]:
    """The outcome of a rank-sum test for each pair of samples, p-values adjusted by Holm."""
    tails = [compute_tails(first, second) for first, second in pairs]
    p_values = adjust_by_holm([tail.two_sided for tail in tails])
    return [Shift(p, tail.lower < tail.upper) for p, tail in zip(p_values, tails)]


def adjust_by_holm(p_values: Sequence[float]) -> list[float]:
    """The p-values of several tests, raised so that all verdicts hold together (Holm 1979)."""
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for done, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - done) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def compute_smallest_p(first_count: int, second_count: int) -> float:
    """The two-sided p-value of samples that do not even overlap."""
    return min(1.0, 2 / math.comb(first_count + second_count, first_count))


def count_needed_repeats(tests: int = 1, confidence: float = CONFIDENCE) -> int:
    """The least number of repeats on each side that can tell a difference among so many tests."""
    count = 1
    while tests * compute_smallest_p(count, count) > 1 - confidence:
        count += 1
    return count


def compute_excess_chance(hits: int, chances: Sequence[float]) -> float:
    """The probability that at least `hits` of independent events happen, each with its chance.

    It is the upper tail of the Poisson binomial distribution, exact.
    """
    import numpy

    counts = numpy.ones(1)
    for chance, events in Counter(chances).items():
        counts = numpy.convolve(counts, _compute_hit_chances(events, chance))
    return min(1.0, float(counts[hits:].sum()))


@lru_cache(maxsize=64)
def _compute_hit_chances(events: int, chance: float) -> Any:
    """The chances that k of the events happen, each with the same chance: float64 [k].

    They are made of the chances of both halves of the events.
    """
    import numpy

    if events == 1:
        return numpy.array([1 - chance, chance])
    half = _compute_hit_chances(events // 2, chance)
    rest = _compute_hit_chances(events - events // 2, chance)
    return numpy.convolve(half, rest)
