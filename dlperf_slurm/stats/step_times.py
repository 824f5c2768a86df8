"""Step times, or values of repeats -> doubts: slow stretches, stalls, two groups."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Optional

# a step that takes so many medians is a stall: data, network or another job held it up
STALL_FACTOR = 3.0

# The least cost of a slow stretch that is named, as a ratio less 1 of the whole window: less than
# that is not worth naming elsewhere either.
MIN_COST = 0.02

# A stretch begins and ends at one of so many marks, and is a tenth of the window at least.
_MARKS = 20
_LEAST_SHARE = 0.1

# fewer steps do not tell how they hang together
_MIN_STEPS = 20

# The largest of all stretches' distances, in standard deviations of a mean of as many steps that
# hang together as these do, is above _LIMIT + _LIMIT_OF_FEW / sqrt(independent steps) in 5 % of
# series at most (benchmarks/simulations/slow_stretches.py).
_LIMIT = 3.3
_LIMIT_OF_FEW = 8.0
_LARGEST_MEMORY = 0.97

# A gap that separates two groups of repeats is so many times wider than either group. Of seven
# normal, uniform or exponential values 1 in 700, 1 in 185 and 1 in 140 have such a gap by chance;
# with fewer values it is common.
GROUP_GAP = 4.0
MIN_GROUP_GAP = 0.02
MIN_GROUPED_SAMPLES = 7


@dataclass(frozen=True)
class Stalls:
    """The steps that took over STALL_FACTOR medians.

    `worst_factor` is the longest one in medians. `share` is the part of the window, 0 to 1, that
    they took beyond a median each.
    """

    count: int
    worst_factor: float
    share: float


def find_stalls(step_seconds: Sequence[float]) -> Stalls:
    """The stalls among the steps of one rank: [step], in seconds.

    Steps as long at the very beginning are no stalls but warm-up, which `find_slow_stretch` names.
    """
    median = statistics.median(step_seconds)
    steps = step_seconds[_count_first_long(step_seconds) :]
    stalled = [seconds for seconds in steps if seconds > STALL_FACTOR * median]
    if not stalled or median == 0:
        return Stalls(0, 0.0, 0.0)
    lost = sum(stalled) - len(stalled) * median
    return Stalls(len(stalled), max(stalled) / median, lost / sum(step_seconds))


@dataclass(frozen=True)
class SlowStretch:
    """Steps from `start` up to `end` that took longer than the others, beyond chance.

    `excess` is how much longer each of them took and `cost` how much longer that made the window,
    both as ratios less 1. `is_first` and `is_last` say which end of the window it touches.
    """

    start: int
    end: int
    excess: float
    cost: float
    is_first: bool
    is_last: bool


def find_slow_stretch(step_seconds: Sequence[float]) -> Optional[SlowStretch]:
    """The stretch that differs most from the rest of the window, where it is slow and matters.

    Among all stretches it is the one whose mean is farthest from the others', in deviations that
    allow for how much a step takes after the one before it (an autoregression of first order, as
    prewhitening in tests for a change of level). Stalls do not count, except at the very beginning.
    """
    limit = STALL_FACTOR * statistics.median(step_seconds)
    first_long = _count_first_long(step_seconds)
    kept = [i for i, s in enumerate(step_seconds) if i < first_long or s <= limit]
    steps = [step_seconds[i] for i in kept]
    if limit == 0 or not steps:
        return None
    if first_long:
        # they are longer than any chance makes them
        return _measure_stretch(steps, kept, 0, first_long)
    found = _find_change(steps)
    return None if found is None else _measure_stretch(steps, kept, *found)


def _measure_stretch(
    steps: Sequence[float], kept: Sequence[int], start: int, end: int
) -> Optional[SlowStretch]:
    """The stretch of kept steps as one of the window; None for what is too short a loss."""
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
    """The bounds of the stretch that is beyond chance; of a fast one at an end those of the rest.

    None when nothing is, or what is fast lies in between.
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
    """Starts and ends of all stretches of so many steps that count, and how their sums vary."""
    import numpy

    marks = numpy.linspace(0, count, _MARKS + 1).astype(int)
    starts, ends = (marks[side] for side in numpy.triu_indices(_MARKS + 1, 1))
    lengths = ends - starts
    is_wide = (lengths >= _LEAST_SHARE * count) & (lengths <= (1 - _LEAST_SHARE) * count)
    starts, ends, lengths = starts[is_wide], ends[is_wide], lengths[is_wide]
    return starts, ends, numpy.sqrt(lengths * (count - lengths) / count)


def _find_limit(times: Any, start: int, end: int) -> float:
    """What a stretch's distance must exceed: by the rest's spread, and how steps hang together."""
    import numpy

    count = len(times)
    inside = numpy.zeros(count, dtype=bool)
    inside[start:end] = True
    rest = times - numpy.where(inside, times[inside].mean(), times[~inside].mean())
    if not rest.any():
        return 0.0
    memory = (rest[1:] * rest[:-1]).sum() / (rest**2).sum()
    # both means are of the same steps, which makes them hang together less than they do
    memory = min(max(0.0, memory + (3 + 4 * memory) / count), _LARGEST_MEMORY)
    deviation = (rest[1:] - memory * rest[:-1]).std() / (1 - memory)
    return float(deviation * (_LIMIT + _LIMIT_OF_FEW / math.sqrt(count * (1 - memory))))


def _count_first_long(step_seconds: Sequence[float]) -> int:
    """The number of steps at the very beginning that are as long as stalls."""
    limit = STALL_FACTOR * statistics.median(step_seconds)
    return next((i for i, s in enumerate(step_seconds) if s <= limit), 0)


def find_groups(samples: Sequence[float]) -> Optional[tuple[list[float], list[float]]]:
    """The lower and the higher group of repeats that fell into two; None when they did not.

    Each group has two values at least: a single one apart is no group.
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
