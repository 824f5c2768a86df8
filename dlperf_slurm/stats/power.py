"""Spread of repeats -> what so many of them can tell, and how many it takes to tell more."""

import math
import statistics
from collections.abc import Sequence
from functools import lru_cache

from dlperf_slurm.stats.median import CONFIDENCE
from dlperf_slurm.stats.placements import count_needed_values, is_refused

# the chance with which it is to be found what is so
POWER = 0.8
SEED = 2020
TRIALS = 1000
# Of more repeats the spread of these stands for theirs: what is found depends on the spread over
# the root of their number alone, to 0.02.
MAX_SIMULATED = 200

# How much less the test sees in normal values than one that knew their spread: it takes a third
# more of them (benchmarks/simulations/verdicts.py).
EFFICIENCY = 0.75

# nobody makes more repeats than this
MAX_REPEATS = 1000


def measure_spread(samples: Sequence[float]) -> float:
    """The standard deviation of the logarithms: how much repeats vary, as a ratio less 1.

    Raises statistics.StatisticsError for less than two samples.
    """
    return statistics.stdev([math.log(value) for value in samples])


def pool_spreads(groups: Sequence[Sequence[float]]) -> float:
    """The spread within groups of samples that differ in their medians; each has two at least."""
    freedom = [len(group) - 1 for group in groups]
    squares = [count * measure_spread(group) ** 2 for count, group in zip(freedom, groups)]
    return math.sqrt(sum(squares) / sum(freedom))


@lru_cache(maxsize=256)
def compute_power(repeats: int, spread: float, slowdown: float, tests: int = 1) -> float:
    """The chance that two runs with so many repeats show a slowdown such as 0.05, one of `tests`.

    Repeats vary by this spread, normally, in simulated runs: it is right to 0.02.
    """
    import numpy

    if repeats < count_needed_values(tests=tests):
        return 0.0
    if repeats > MAX_SIMULATED:
        spread *= math.sqrt(MAX_SIMULATED / repeats)
        return compute_power(MAX_SIMULATED, spread, slowdown, tests)
    random = numpy.random.default_rng(SEED)
    first, second = numpy.exp(spread * random.standard_normal((2, TRIALS, repeats)))
    found = is_refused(first, (1 - slowdown) * second, CONFIDENCE, tests)
    return float(found.mean())


def find_detectable(repeats: int, spread: float, tests: int = 1) -> float:
    """The least slowdown that is found with a chance of POWER; it is right to 0.001."""
    low, high = 0.0, 1.0
    while high - low > 0.0005:
        middle = (low + high) / 2
        if compute_power(repeats, spread, middle, tests) < POWER:
            low = middle
        else:
            high = middle
    return high


def count_deciding_repeats(spreads: Sequence[float], distance: float, significance: float) -> int:
    """About how many repeats in each run show, with a chance of POWER, what is so far away.

    `distance` is from the ratio to what is to be excluded, in logarithms; `significance` that of
    the one side of the test. The answer is MAX_REPEATS where it would be more.
    """
    normal = statistics.NormalDist()
    deviations = normal.inv_cdf(1 - significance) + normal.inv_cdf(POWER)
    variance = sum(spread**2 for spread in spreads)
    if variance * deviations**2 >= MAX_REPEATS * EFFICIENCY * distance**2:
        return MAX_REPEATS
    return max(
        count_needed_values(), math.ceil(variance * (deviations / distance) ** 2 / EFFICIENCY)
    )
