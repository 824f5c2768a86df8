"""Two samples measured in turns -> exact paired tests and an interval of their ratio.

Pair i has value i of both samples. The statistic is Wilcoxon's signed rank (Hollander & Wolfe,
Nonparametric Statistical Methods, 3.1) of the logarithms of the pairs' ratios. Its null
distribution is that over all signs: if the runs do not differ, both are equally likely. The
functions have the arguments of those of `fligner_policello`.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Optional

from dlperf_slurm.stats.fligner_policello import Tails
from dlperf_slurm.stats.median import CONFIDENCE, Interval

# differences of logarithms below this are equal but for rounding
_TOLERANCE = 1e-12
# With more pairs the exact distribution of MAX_PAIRS would take seconds: the first ones are used.
MAX_PAIRS = 200


def remove_drift(
    first: Sequence[float], second: Sequence[float]
) -> tuple[list[float], list[float]]:
    """Return two samples that were measured in turns without their common trend over time.

    They were measured in the order first[0], second[0], first[1], second[1], ... The trend of the
    logarithms is the median of the slopes between all pairs of values of the same sample (Theil
    1950, Sen 1968), so that it does not depend on the samples' ratio.
    """
    import numpy

    logs = numpy.log(numpy.asarray([first, second], dtype=float))
    count = logs.shape[1]
    one, other = numpy.triu_indices(min(count, MAX_PAIRS), 1)
    # from one value of a sample to its next one there are two turns
    slopes = (logs[:, other] - logs[:, one]) / (2 * (other - one))
    slope = numpy.median(slopes) if count > 1 else 0.0
    turns = numpy.arange(2 * count).reshape(count, 2).T - (count - 0.5)
    adjusted = numpy.exp(logs - slope * turns)
    return adjusted[0].tolist(), adjusted[1].tolist()


def compute_tails(first: Sequence[float], second: Sequence[float], ratio: float = 1.0) -> Tails:
    """Test the hypothesis that the second value of each pair is `ratio` times the first one."""
    averages = list_averages(first, second) - math.log(ratio)
    # a Walsh average of 0 counts half; the statistic is the number of positive ones
    positive = float((averages > _TOLERANCE).sum() + (abs(averages) <= _TOLERANCE).sum() / 2)
    total = len(averages)
    cumulative = _find_null(_count_pairs(first))
    return Tails(
        float(cumulative[math.ceil(positive)]), float(cumulative[math.ceil(total - positive)])
    )


def compute_ratio_interval(
    first: Sequence[float], second: Sequence[float], confidence: float = CONFIDENCE
) -> Optional[Interval]:
    """Return the confidence interval of the ratio second / first; None for too few pairs.

    It contains the ratios that the two-sided test does not reject.
    """
    count = _count_pairs(first)
    if count < count_needed_values(confidence):
        return None
    ascending = list_averages(first, second)
    rejected = count_rejected(count, confidence)
    return Interval(math.exp(ascending[rejected - 1]), math.exp(ascending[-rejected]))


def estimate_ratio(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the ratio second / first: the median of the Walsh averages (Hodges & Lehmann 1963)."""
    import numpy

    return math.exp(float(numpy.median(list_averages(first, second))))


def count_needed_values(confidence: float = CONFIDENCE, tests: int = 1) -> int:
    """Return how many pairs are needed for a significant difference: 6 for 95 % and one test."""
    return math.ceil(math.log2(2 * tests / (1 - confidence)) - _TOLERANCE)


def count_rejected(count: int, confidence: float = CONFIDENCE, tests: int = 1) -> int:
    """Return k: a ratio with fewer than k Walsh averages on one side of it is rejected.

    For `count` pairs; the test is two-sided, with Bonferroni's correction for this many `tests`.
    """
    return int((2 * tests * _find_null(count) <= 1 - confidence + _TOLERANCE).sum())


def _count_pairs(first: Sequence[float]) -> int:
    return min(len(first), MAX_PAIRS)


def list_averages(first: Sequence[float], second: Sequence[float]) -> Any:
    """Return the sorted Walsh averages of the logarithms of the pairs' ratios.

    A Walsh average is the mean of two of these n logarithms, or one by itself: [n (n + 1) / 2].
    """
    import numpy

    logs = numpy.log(numpy.asarray(second, dtype=float) / numpy.asarray(first, dtype=float))
    logs = logs[:MAX_PAIRS]
    one, other = numpy.triu_indices(len(logs))
    return numpy.sort((logs[one] + logs[other]) / 2)


@lru_cache(maxsize=64)
def _find_null(count: int) -> Any:
    """Return the null distribution of the signed-rank statistic for `count` pairs.

    Value k is the probability of a statistic of at most k: [count (count + 1) / 2 + 1]. The
    statistic is a sum of ranks from 1 to `count`, each of which counts with probability 1/2.
    """
    import numpy

    chances = numpy.ones(1)
    for rank in range(1, count + 1):
        without = numpy.concatenate([chances, numpy.zeros(rank)])
        chances = (without + numpy.concatenate([numpy.zeros(rank), chances])) / 2
    return chances.cumsum()
