"""Spread of repeats -> which slowdown so many repeats can detect, and how many repeats it takes."""

import math
import statistics
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from dlperf_slurm.stats import signed_rank
from dlperf_slurm.stats.fligner_policello import count_needed_values, is_refused
from dlperf_slurm.stats.median import CONFIDENCE

# the probability with which a true difference is to be found (statistical power)
POWER = 0.8
SEED = 2020
TRIALS = 1000
# More repeats are simulated as MAX_SIMULATED with a smaller spread: the power depends only on
# spread / sqrt(repeats), to 0.02.
MAX_SIMULATED = 200
MAX_SIMULATED_PAIRS = 50

# Efficiency for normal values, relative to a test that knows their spread: it takes a third more
# repeats (benchmarks/simulations/verdicts.py).
EFFICIENCY = 0.75

# upper limit of a suggested number of repeats
MAX_REPEATS = 1000


def measure_spread(samples: Sequence[float]) -> float:
    """Return the relative spread of repeats: the standard deviation of their logarithms.

    Raises statistics.StatisticsError for fewer than two samples.
    """
    return statistics.stdev([math.log(value) for value in samples])


def pool_spreads(groups: Sequence[Sequence[float]]) -> float:
    """Return the spread (`measure_spread`) within groups, pooled over groups of different medians.

    A group has the repeats of one run, at least two.
    """
    freedom = [len(group) - 1 for group in groups]
    squares = [count * measure_spread(group) ** 2 for count, group in zip(freedom, groups)]
    return math.sqrt(sum(squares) / sum(freedom))


@lru_cache(maxsize=256)
def compute_power(
    repeats: int, spread: float, slowdown: float, tests: int = 1, is_paired: bool = False
) -> float:
    """Return the probability that a comparison of two runs finds a slowdown, such as 0.05 for 5 %.

    Each run has so many `repeats` with this `spread` (`measure_spread`); `tests` is the number of
    tests to correct for. With `is_paired`, the runs are interleaved and the test is paired.
    Simulated with log-normal repeats; a result of 0.80 means 0.78 to 0.82.
    """
    import numpy

    if is_paired:
        repeats = min(repeats, signed_rank.MAX_PAIRS)
    most = MAX_SIMULATED_PAIRS if is_paired else MAX_SIMULATED
    if repeats > most:
        spread *= math.sqrt(most / repeats)
        return compute_power(most, spread, slowdown, tests, is_paired)
    if is_paired:
        averages = spread * _simulate_pairs(repeats) + math.log1p(-slowdown)
        found = (averages > 0).sum(axis=1)
        rejected = signed_rank.count_rejected(repeats, tests=tests)
        return float((numpy.minimum(found, averages.shape[1] - found) < rejected).mean())
    if repeats < count_needed_values(tests=tests):
        return 0.0
    random = numpy.random.default_rng(SEED)
    first, second = numpy.exp(spread * random.standard_normal((2, TRIALS, repeats)))
    found = is_refused(first, (1 - slowdown) * second, CONFIDENCE, tests)
    return float(found.mean())


@lru_cache(maxsize=4)
def _simulate_pairs(repeats: int) -> Any:
    """Simulate interleaved runs whose repeats have a spread of 1.

    Returns the Walsh averages of the pairs' ratios without their trend, sorted: [trials, n].
    """
    import numpy

    noise = numpy.random.default_rng(SEED).standard_normal((TRIALS, 2, repeats))
    pairs = (signed_rank.remove_drift(*pair) for pair in numpy.exp(noise))
    return numpy.array([signed_rank.list_averages(*pair) for pair in pairs])


def compute_detectable_slowdown(
    repeats: int, spread: float, tests: int = 1, is_paired: bool = False
) -> float:
    """Return the smallest slowdown that `compute_power` finds with probability POWER, to 0.001.

    A slowdown is a fraction (0.05: 5 %); the parameters are those of `compute_power`.
    """
    low, high = 0.0, 1.0
    while high - low > 0.0005:
        middle = (low + high) / 2
        if compute_power(repeats, spread, middle, tests, is_paired) < POWER:
            low = middle
        else:
            high = middle
    return high


def count_deciding_repeats(spreads: Sequence[float], distance: float, significance: float) -> int:
    """Estimate how many repeats in each of two runs decide a comparison with probability POWER.

    `spreads` are those of both runs (`measure_spread`). `distance` is how far, in logarithms, the
    ratio of the runs is from the ratio to exclude. `significance` is that of a one-sided test.
    Returns at most MAX_REPEATS.
    """
    normal = statistics.NormalDist()
    deviations = normal.inv_cdf(1 - significance) + normal.inv_cdf(POWER)
    variance = sum(spread**2 for spread in spreads)
    if variance * deviations**2 >= MAX_REPEATS * EFFICIENCY * distance**2:
        return MAX_REPEATS
    return max(
        count_needed_values(), math.ceil(variance * (deviations / distance) ** 2 / EFFICIENCY)
    )
