"""Step times, or values of repeats -> anomalies: stalls, slow stretches, two groups."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Optional

# a step this many times as long as the median is a stall: it waited for data, network, other jobs
STALL_FACTOR = 3.0

# The smallest cost of a slow stretch that is reported, as a ratio less 1 of all steps together.
MIN_COST = 0.02

# A stretch starts and ends at one of so many evenly spaced steps, and has at least a tenth of them.
_MARKS = 20
_LEAST_SHARE = 0.1

# with fewer steps their autocorrelation cannot be estimated
_MIN_STEPS = 20

# The largest distance of all stretches, in standard deviations of a mean of as many steps with the
# same autocorrelation, exceeds _LIMIT + _LIMIT_OF_FEW / sqrt(independent steps) in at most 5 % of
# series (benchmarks/simulations/slow_stretches.py).
_LIMIT = 3.3
_LIMIT_OF_FEW = 8.0
_LARGEST_MEMORY = 0.97

# A gap between two groups of repeats is at least so many times wider than either group. Of seven
# normal, uniform or exponential values, 1 in 700, 1 in 185 and 1 in 140 have such a gap by chance;
# with fewer values it is common.
GROUP_GAP = 4.0
MIN_GROUP_GAP = 0.02
MIN_GROUPED_SAMPLES = 7


@dataclass(frozen=True)
class Stalls:
    """The stalls of one rank: its steps that took more than STALL_FACTOR times the median step.

    `worst_factor` is the longest of them, in median steps. `share` (0 to 1) is the part of the time
    of all measured steps by which they exceeded the median.
    """

    count: int
    worst_factor: float
    share: float


def list_stalls(step_seconds: Sequence[float]) -> list[int]:
    """List the indices of the stalls among the times of one rank's measured steps, in any unit.

    They took over STALL_FACTOR times the median. Warm-up is not a stall: see `find_slow_stretch`.
    """
    limit = STALL_FACTOR * statistics.median(step_seconds)
    first = _count_first_long(step_seconds, limit)
    return [i for i in range(first, len(step_seconds)) if step_seconds[i] > limit]


def find_stalls(step_seconds: Sequence[float]) -> Stalls:
    """Count a rank's stalls; return the longest in median steps, and the share of time lost."""
    median = statistics.median(step_seconds)
    stalled = [step_seconds[i] for i in list_stalls(step_seconds)]
    if not stalled or median == 0:
        return Stalls(0, 0.0, 0.0)
    lost = sum(stalled) - len(stalled) * median
    return Stalls(len(stalled), max(stalled) / median, lost / sum(step_seconds))


@dataclass(frozen=True)
class SlowStretch:
    """Steps `start` up to, not including, `end` that were significantly slower than the others.

    `excess` is how much longer each of them took, and `cost` how much longer they made all measured
    steps together, both as ratios less 1: 0.1 is 10 %. `is_first`: it begins with the first
    measured step; `is_last`: it ends with the last one.
    """

    start: int
    end: int
    excess: float
    cost: float
    is_first: bool
    is_last: bool


def find_slow_stretch(step_seconds: Sequence[float]) -> Optional[SlowStretch]:
    """Find the consecutive steps that were slowest compared to all others, or None.

    They have the largest difference in means, in standard deviations that allow for autocorrelation
    of first order (as prewhitening in tests for a change of level). None if that is not
    significant, not a slowdown, or costs less than MIN_COST. Stalls are ignored, except at the very
    beginning.
    """
    limit = STALL_FACTOR * statistics.median(step_seconds)
    first_long = _count_first_long(step_seconds, limit)
    kept = [i for i, s in enumerate(step_seconds) if i < first_long or s <= limit]
    steps = [step_seconds[i] for i in kept]
    if limit == 0 or not steps:
        return None
    if first_long:
        # so long that no test is needed
        return _measure_stretch(steps, kept, 0, first_long)
    found = _find_change(steps)
    return None if found is None else _measure_stretch(steps, kept, *found)


def _measure_stretch(
    steps: Sequence[float], kept: Sequence[int], start: int, end: int
) -> Optional[SlowStretch]:
    """Compute excess and cost of `steps[start:end]`; None if the cost is below MIN_COST.

    Both are ratios less 1 to the mean of the other steps: the excess is that of the stretch's mean,
    the cost that of the mean of all steps. `steps` are the step times in seconds, without stalls;
    `kept[i]` is the index of `steps[i]` among all measured steps.
    """
    rest = [*steps[:start], *steps[end:]]
    if not rest or statistics.fmean(rest) == 0:
        return None
    usual = statistics.fmean(rest)
    excess = statistics.fmean(steps[start:end]) / usual - 1
    cost = statistics.fmean(steps) / usual - 1
    if cost < MIN_COST:
        return None
    is_last = end == len(steps)
    return SlowStretch(kept[start], kept[end - 1] + 1, excess, cost, start == 0, is_last)


def _find_change(steps: Sequence[float]) -> Optional[tuple[int, int]]:
    """Return start and end of a significantly slow stretch of `steps` (step times), or None.

    A significantly fast stretch at one end makes the rest slow; one in the middle is ignored.
    """
    import numpy

    count = len(steps)
    if count < _MIN_STEPS:
        return None
    times = numpy.asarray(steps) / statistics.fmean(steps)
    starts, ends, scales = _list_stretches(count)
    sums = numpy.concatenate([[0.0], (times - times.mean()).cumsum()])
    distances = (sums[ends] - sums[starts]) / scales
    best = int(abs(distances).argmax())
    start, end = int(starts[best]), int(ends[best])
    if abs(distances[best]) <= _find_limit(times, start, end):
        return None
    if distances[best] > 0:
        return start, end
    if start == 0:
        return end, count
    return (0, start) if end == count else None


@lru_cache(maxsize=64)
def _list_stretches(count: int) -> tuple[Any, Any, Any]:
    """Return starts and ends of the stretches to test, and standard deviations of their sums.

    Of `count` steps; the standard deviations are for independent steps with a variance of 1.
    """
    import numpy

    marks = numpy.linspace(0, count, _MARKS + 1).astype(int)
    starts, ends = (marks[side] for side in numpy.triu_indices(_MARKS + 1, 1))
    lengths = ends - starts
    is_wide = (lengths >= _LEAST_SHARE * count) & (lengths <= (1 - _LEAST_SHARE) * count)
    starts, ends, lengths = starts[is_wide], ends[is_wide], lengths[is_wide]
    return starts, ends, numpy.sqrt(lengths * (count - lengths) / count)


def _find_limit(times: Any, start: int, end: int) -> float:
    """Return the limit above which the distance of a stretch from the rest is significant.

    For `_find_change`. It depends on the spread and the autocorrelation of the step times, each
    less the mean of its part: `times[start:end]`, or the rest.
    """
    import numpy

    count = len(times)
    inside = numpy.zeros(count, dtype=bool)
    inside[start:end] = True
    rest = times - numpy.where(inside, times[inside].mean(), times[~inside].mean())
    if not rest.any():
        return 0.0
    memory = (rest[1:] * rest[:-1]).sum() / (rest**2).sum()
    # subtracting means of the same steps biases the autocorrelation down
    memory = min(max(0.0, memory + (3 + 4 * memory) / count), _LARGEST_MEMORY)
    deviation = (rest[1:] - memory * rest[:-1]).std() / (1 - memory)
    return float(deviation * (_LIMIT + _LIMIT_OF_FEW / math.sqrt(count * (1 - memory))))


def _count_first_long(step_seconds: Sequence[float], limit: float) -> int:
    """Count the steps at the very beginning that all take more than `limit`."""
    return next((i for i, s in enumerate(step_seconds) if s <= limit), 0)


def find_groups(samples: Sequence[float]) -> Optional[tuple[list[float], list[float]]]:
    """Split repeats into a low and a high group if a wide gap separates them; None if not.

    Each group has at least two values: a single outlier is not a group.
    """
    ordered = sorted(samples)
    if len(ordered) < MIN_GROUPED_SAMPLES:
        return None
    split = max(range(2, len(ordered) - 1), key=lambda i: ordered[i] - ordered[i - 1])
    low, high = ordered[:split], ordered[split:]
    gap = high[0] - low[-1]
    width = max(low[-1] - low[0], high[-1] - high[0])
    is_split = gap >= GROUP_GAP * width and gap >= MIN_GROUP_GAP * statistics.median(ordered)
    return (low, high) if is_split else None
